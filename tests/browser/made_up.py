"""Made-up trainings: the events of runs shaped like real ones, with a spike, overflows and a NaN among them."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from made_up_numerics import gradient_exponents, proof
from numpy.typing import NDArray
from PIL import Image

from amp_core import events
from server.queue.claim import ClaimedRun

LAYERS = ("in_features", "hidden.0", "hidden.1", "out_features")
WORKLOADS: dict[str, dict[str, Any]] = {
    "photo-denoiser": {
        "title": "Photo denoiser",
        "summary": "Removes noise from photographs taken at a tenth of the light. A constructed small-loss training.",
        "steps": 150,
        "recipes": ["32-true", "bf16-mixed", "16-mixed", {"precision": "16-mixed", "scaler": "none"}],
        "primary": {"name": "psnr", "higher_is_better": True, "margin": 0.25, "relative": False, "unit": "dB"},
        "parameters": [
            {"name": "width", "type": "int", "default": 512, "min": 16, "max": 4096, "help": "hidden units"},
            {"name": "noise", "type": "float", "default": 0.15, "min": 0.0, "max": 1.0, "help": "sd of the noise"},
            {"name": "activation", "type": "str", "default": "gelu", "choices": ["gelu", "relu"], "help": ""},
        ],
    },
    "digits-cnn": {
        "title": "Handwritten digits",
        "summary": "A small convolutional network on scikit-learn's handwritten digits.",
        "steps": 200,
        "recipes": ["32-true", "bf16-mixed", "16-mixed"],
        "primary": {"name": "accuracy", "higher_is_better": True, "margin": 0.005, "relative": False, "unit": ""},
        "parameters": [{"name": "lr", "type": "float", "default": 0.001, "min": 1e-6, "max": 1.0, "help": "step size"}],
    },
    "stdlib-gpt": {
        "title": "Python source GPT",
        "summary": "A small byte-level GPT on the source text of Python's standard library.",
        "steps": 1200,
        "recipes": ["32-true", "bf16-mixed", "16-mixed"],
        "primary": {"name": "loss", "higher_is_better": False, "margin": 0.01, "relative": True, "unit": ""},
        "parameters": [{"name": "layers", "type": "int", "default": 4, "min": 1, "max": 24, "help": "blocks"}],
    },
}
BROKEN = "SyntaxError: expected ':' (my_transformer.py, line 12)\n    def model(self) -> nn.Module"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How the made-up training of one recipe goes."""

    start: float
    end: float
    metric_end: float
    spike_at: int | None = None
    nan_at: int | None = None
    skips: tuple[int, ...] = ()
    dead: bool = False
    emulated: bool = False
    speed: float = 900.0


def column(name: str, steps: np.ndarray, values: np.ndarray, start: float) -> events.Column:
    times = start + steps * 0.02
    return events.Column(
        name=name,
        steps=steps.astype("<i8").tobytes(),
        values=values.astype("<f8").tobytes(),
        times=times.astype("<f8").tobytes(),
    )


def training(run: ClaimedRun, shape: Shape, metric: str, until: int, start: float) -> Iterator[events.AnyEvent]:
    """The events of one run up to step ``until``."""
    rng = np.random.default_rng(run.seed * 1009 + len(run.recipe["name"]))
    loss = losses(run, shape, rng)
    yield started(shape)
    yield proof(run.recipe["precision"], LAYERS)
    scale, final = 65536.0, 0.0
    every = max(run.steps // 10, 1)
    for first in range(0, until, 25):
        part = np.arange(first + 1, min(first + 25, until) + 1)
        scales = []
        for step in part.tolist():
            if step in shape.skips:
                yield events.StepSkipped(step=step, scale_before=scale, scale_after=scale / 2)
                scale /= 2
            scales.append(scale)
        columns = common_columns(part, loss, shape, rng, start)
        if run.recipe["precision"] == "16-mixed" and run.recipe["scaler"]["kind"] != "none":
            columns.append(column("amp/loss_scale", part, np.array(scales), start))
            columns.append(column("amp/skipped", part, np.isin(part, shape.skips).astype(float), start))
        for step in part[part % every == 0].tolist():
            final = evaluated_at(step, run.steps, shape, rng)
            columns.append(column(f"eval/{metric}", np.array([step]), np.array([final]), start))
            yield events.Evaluated(step=step, metrics={metric: final}, num_samples=450, final=step == run.steps)
        yield events.Segment(columns=columns)
        if shape.nan_at and first <= shape.nan_at < first + 25:
            yield events.NonFinite(step=shape.nan_at + 1, where="loss", name="train/loss", value="inf")
        yield numerics(int(part[-1]), scale, shape, rng)
        yield gradient_exponents(int(part[-1]), scale, LAYERS, dead=shape.dead)
    if shape.dead:
        zeros, probe = dict.fromkeys(LAYERS[1:3], 0.998), dict.fromkeys(LAYERS[1:3], 0.003)
        yield events.ZeroGradients(step=1, zero_fraction=zeros, probe_scale=65536.0, probe=probe)
    if until == run.steps:
        yield finished(run, shape, {metric: final})


def losses(run: ClaimedRun, shape: Shape, rng: np.random.Generator) -> NDArray[np.float64]:
    """A noisy decay, with the shape's spike, infinity and NaN."""
    steps = np.arange(1, run.steps + 1)
    fall = np.ones(run.steps) if shape.dead else np.exp(-4.5 * steps / run.steps)
    loss: NDArray[np.float64] = shape.end + (shape.start - shape.end) * fall
    loss = loss * np.exp(rng.normal(0, 0.035, run.steps)) * (1 + 0.01 * math.sin(run.seed))
    if shape.spike_at:
        loss[shape.spike_at] *= 60
    if shape.nan_at:
        loss[shape.nan_at :] = np.nan
        loss[shape.nan_at] = np.inf
    return loss


def started(shape: Shape) -> events.Started:
    environment = {
        "torch": "2.13.0+cpu",
        "python": "3.11.9",
        "platform": "Linux x86_64",
        "device": "cpu",
        "device_name": "AMD EPYC 9R14",
        "num_threads": 2,
        "cpu_abilities": ["avx512f", "avx512_bf16"],
        "flags": {"tf32": False, "deterministic": True},
    }
    numerics = "emulated" if shape.emulated else "native"
    return events.Started(numerics=numerics, environment=environment, num_parameters=722624, setup_s=0.41)


def finished(run: ClaimedRun, shape: Shape, metrics: dict[str, float]) -> events.Finished:
    return events.Finished(
        metrics=metrics,
        steps=run.steps,
        skipped_steps=len(shape.skips),
        samples=run.steps * 1024,
        lost_samples=len(shape.skips) * 1024,
        train_s=run.steps * 0.02,
        warmup_s=0.4,
    )


def common_columns(
    part: NDArray[np.int64], loss: NDArray[np.float64], shape: Shape, rng: np.random.Generator, start: float
) -> list[events.Column]:
    """The series that every recipe writes."""
    here = loss[part - 1]
    return [
        column("train/loss", part, here, start),
        column("grad/norm", part, here * (0.0 if shape.dead else 3.1), start),
        column("perf/samples_per_s", part, rng.normal(shape.speed, shape.speed * 0.02, len(part)), start),
        column("memory/process_bytes", part, 4.1e8 + 2e5 * part, start),
        *memory_columns(part[:1], shape, start),
        column("grad/underflow_fraction", part[:1], np.array([0.99 if shape.dead else 0.004]), start),
    ]


def memory_columns(step: NDArray[np.int64], shape: Shape, start: float) -> list[events.Column]:
    """The parts of a training's memory, told once; a faster recipe saves half of what it keeps for backward."""
    if step[0] > 1:
        return []
    saved = 10.4e6 if shape.speed > 1000 else 20.8e6
    parts = {"weights": 2.9e6, "gradients": 2.9e6, "optimizer": 5.8e6, "saved_for_backward": saved}
    return [column(f"memory/{name}_bytes", step, np.array([value]), start) for name, value in parts.items()]


def evaluated_at(step: int, steps: int, shape: Shape, rng: np.random.Generator) -> float:
    approach = 1 - (0.0 if shape.dead else 0.25) * math.exp(-5 * step / steps)
    return shape.metric_end * approach + float(rng.normal(0, abs(shape.metric_end) * 0.0012))


def numerics(step: int, scale: float, shape: Shape, rng: np.random.Generator) -> events.Numerics:
    modules = [
        events.ModuleStatistics(
            module=layer,
            num_elements=262656,
            zero_fraction=0.998 if shape.dead and layer in LAYERS[1:3] else float(rng.uniform(0, 0.01)),
            underflow_fraction=0.994 if shape.dead and layer in LAYERS[1:3] else float(rng.uniform(0, 0.004)),
            max_abs=float(rng.uniform(1e-4, 2e-2)),
        )
        for layer in LAYERS
    ]
    return events.Numerics(step=step, loss_scale=scale, modules=modules)


def benchmark(run: ClaimedRun, ratio: float) -> Iterator[events.AnyEvent]:
    """Alternating blocks and the memory of both arms."""
    rng = np.random.default_rng(run.run_id)
    yield events.Started(numerics="native", environment={"device": "cpu"}, num_parameters=722624, setup_s=0.5)
    for block in range(20):
        for mode in ("compute", "loader"):
            for arm in ("baseline", "candidate") if block % 2 == 0 else ("candidate", "baseline"):
                seconds = 0.25 * float(rng.normal(1, 0.02)) / (ratio if arm == "candidate" else 1)
                yield events.BenchmarkBlock(block=block, mode=mode, arm=arm, steps=14, samples=14336, seconds=seconds)
    for arm, saved in (("baseline", 21_000_000), ("candidate", 14_200_000)):
        yield events.BenchmarkMemory(
            arm=arm, process_growth_bytes=saved * 4, device_peak_bytes=0, saved_for_backward_bytes=saved
        )
    yield events.Finished(metrics={}, steps=280, skipped_steps=0, samples=1, lost_samples=0, train_s=11.0, warmup_s=1.0)


def picture(sharpness: float, seed: int) -> bytes:
    """A scene that gets clearer with ``sharpness`` between 0 and 1."""
    y, x = np.mgrid[0:240, 0:320]
    scene = np.stack([np.sin(x / 23) + np.cos(y / 31), np.sin((x + y) / 40), np.cos(x / 17)], axis=-1) * 60 + 128
    noise = np.random.default_rng(seed).normal(0, 70 * (1 - sharpness), scene.shape)
    buffer = io.BytesIO()
    Image.fromarray(np.clip(scene + noise, 0, 255).astype("uint8")).save(buffer, "PNG")
    return buffer.getvalue()
