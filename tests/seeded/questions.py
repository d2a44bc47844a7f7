"""The twelve experiments of the made-up team: what was asked, by whom, when, and how each recipe went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from seeded.courses import Course

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>alert(1)</script> & 'quotes' \"here\""
LONG = "resnet50-imagenet-finetune-with-warmup-and-cosine-schedule-" * 3 + "final-v2-really-the-last"
NON_LATIN = "数字の精度比較 — هل bf16 جيد؟ — Ψηφία 🚀"
OUT_OF_MEMORY = {
    "kind": "out_of_memory",
    "message": "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.25 GiB",
    "remedy": "halve the batch, or accumulate gradients over two batches",
}
CLOSED_FILE = {
    "kind": "exception",
    "message": "RuntimeError: the data loader met a closed file",
    "traceback": 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\nRuntimeError: closed',
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """One experiment. ``courses`` by recipe name; ``until`` is how many of its runs have been taken (None: all).

    ``course_of`` (recipe, seed) overrides the recipe's course. ``speed`` is the candidates' benchmark ratio.
    """

    body: dict[str, Any]
    days_ago: float
    owner: str = "admin"
    device: str = "cpu"
    courses: dict[str, Course] = field(default_factory=dict)
    course_of: dict[tuple[str, int], Course] = field(default_factory=dict)
    until: int | None = None
    cancelled: bool = False
    archived: bool = False
    speed: float = 1.6


def _digits(**given: Any) -> dict[str, Course]:
    """Three recipes that agree, bf16 faster."""
    fields = {"loss": (2.3, 0.06), "metric": 0.981, "spread": 0.0004}
    return {
        "32-true": Course(**fields | given),
        "bf16-mixed": Course(**fields | {"samples_per_s": 1430.0, "memory": 4.1e9} | given),
        "16-mixed": Course(**fields | {"samples_per_s": 1390.0, "memory": 4.1e9, "skips": (1, 2, 40)} | given),
    }


def _gpt(**given: Any) -> dict[str, Course]:
    fields = {"loss": (5.5, 1.25), "metric": 1.31, "spread": 0.0015}
    return {
        "32-true": Course(**fields | given),
        "bf16-mixed": Course(**fields | {"samples_per_s": 1500.0, "memory": 4.4e9} | given),
        "16-mixed": Course(**fields | {"samples_per_s": 1480.0, "memory": 4.4e9, "skips": (1, 2, 3)} | given),
    }


_NAN = Course(
    loss=(5.5, 1.25), metric=1.36, spread=0.0015, nan_at=700, inf_at=690, skips=tuple(range(600, 640)),
    samples_per_s=1480.0, memory=4.4e9,
)  # fmt: skip
_LOST = Course(loss=(2.3, 0.06), metric=0.9805, spread=0.0004, skips=tuple(range(1, 90, 3)))
_DENOISED = Course(loss=(0.004, 0.0004), metric=24.2, spread=0.02)
_DEAD = Course(loss=(0.004, 0.004), metric=17.8, spread=0.02, dead=True)
_FIFTY = Course(loss=(6.0, 1.9), metric=1.9, spread=0.004, spikes={41_234: 40.0})

QUESTIONS = (
    Question(
        body={"workload": "digits-cnn", "name": "Digits: is bf16 as good?", "tags": ["baseline", "keep"], "seeds": 5,
              "control": True, "project": "vision", "note": "The first comparison, kept as the reference."},
        days_ago=110, courses=_digits(), archived=True,
    ),
    Question(
        body={"workload": "stdlib-gpt", "name": HOSTILE, "seeds": 5, "project": "language", "tags": ["<b>tag</b>"],
              "note": "<script>alert('note')</script>"},
        days_ago=84, owner="ann", device="a100", courses=_gpt() | {"16-mixed": _NAN}, speed=1.85,
    ),
    Question(
        body={"workload": "photo-denoiser", "name": "Photo denoiser at a tenth of the light", "seeds": 5,
              "control": True, "project": "vision", "tags": ["night", "baseline"]},
        days_ago=61, courses={
            "32-true": _DENOISED, "bf16-mixed": _DENOISED, "16-mixed": _DENOISED, "16-mixed, no scaler": _DEAD,
        },
    ),
    Question(
        body={"workload": "digits-cnn", "name": LONG[:200], "seeds": 5, "project": "vision", "params": {"lr": 0.003},
              "control": True, "tags": ["a-tag-that-is-exactly-forty-characters-x"] + [f"tag-{n}" for n in range(19)]},
        days_ago=44, owner="ann", device="a100", courses=_digits(spikes={120: 55.0, 640: 9.0}), speed=1.95,
    ),
    Question(
        body={"workload": "digits-cnn", "name": NON_LATIN, "seeds": 5, "project": "数字", "tags": ["実験", "مهم"]},
        days_ago=30, owner="Björk Þórsdóttir", courses=_digits() | {"16-mixed": _LOST},
    ),
    Question(
        body={"workload": "stdlib-gpt", "name": "Fifty seeds of a long training", "recipes": ["fp32", "bf16"],
              "seeds": 25, "steps": 100_000, "control": False, "project": "language", "tags": ["long"]},
        days_ago=21, owner="ann", device="h200", courses={"32-true": _FIFTY, "bf16-mixed": _FIFTY},
    ),
    Question(
        body={"workload": "photo-denoiser", "name": "Denoiser with relu: two seeds are not enough", "seeds": 2,
              "control": True,
              "params": {"activation": "relu"}, "recipes": ["fp32", "bf16", "fp16"], "project": "vision"},
        days_ago=13, device="h200", courses={
            "32-true": _DENOISED, "bf16-mixed": Course(loss=(0.004, 0.0004), metric=24.1, spread=0.2),
            "16-mixed": _DENOISED,
        }, speed=2.1,
    ),
    Question(
        body={"workload": "stdlib-gpt", "name": "GPT, 24 layers: out of memory", "seeds": 4, "control": True,
              "params": {"layers": 24, "width": 16384}, "project": "language", "note": "x" * 10_000},
        days_ago=8, owner="ann", device="a100", courses=_gpt() | {
            "32-true": Course(ends="failed", reason=OUT_OF_MEMORY, until=0.004),
            "16-mixed": Course(loss=(5.5, 1.25), metric=1.31, scale=1e300, skips=(1, 2)),
        }, course_of={("bf16-mixed", 3): Course(ends="failed", reason=CLOSED_FILE, until=0.41)},
    ),
    Question(
        body={"workload": "digits-cnn", "name": "0", "seeds": 3, "params": {"lr": 1e-6}, "steps": 1},
        days_ago=5, courses=_digits(),
    ),
    Question(
        body={"workload": "stdlib-gpt", "name": "GPT, six layers, stopped by hand", "seeds": 5, "control": False,
              "params": {"layers": 6}, "project": "language", "tags": ["baseline"]},
        days_ago=2, owner="Björk Þórsdóttir", device="h200", courses=_gpt(), until=7, cancelled=True,
    ),
    Question(
        body={"workload": "digits-cnn", "name": "Digits with a larger step", "params": {"lr": 0.01}, "seeds": 12,
              "project": "vision", "tags": ["sweep"]},
        days_ago=0.05, courses=_digits(), until=9,
    ),
    Question(
        body={"workload": "stdlib-gpt", "name": "GPT, eight layers", "params": {"layers": 8}, "seeds": 17,
              "control": False, "priority": -1, "project": "language"},
        days_ago=0.02, owner="ann", courses=_gpt(), until=0,
    ),
)  # fmt: skip
