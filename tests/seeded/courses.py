"""Made-up courses of training: the frames of one run, whole series at a time, with the faults that a course names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amp_core import events
from server.db.tables import Run

MODULES = ("embed", "blocks.0.attention", "blocks.0.norm", "blocks.1.attention", "blocks.1.norm", "head")
NUM_EVALUATIONS, NUM_NUMERICS = 10, 8
SEGMENT_POINTS = 100_000
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Course:
    """How the runs of one recipe go.

    ``spikes`` multiply the loss at a step, ``nan_at`` and ``inf_at`` are the first step of each (NaN stays), ``skips``
    are steps without an update, ``scale`` multiplies every loss. ``ends``: completed, failed or cancelled; a run that
    does not complete stops at the fraction ``until`` of its steps.
    """

    loss: tuple[float, float] = (2.3, 0.2)
    metric: float = 0.98
    spread: float = 0.0005
    spikes: dict[int, float] = field(default_factory=dict)
    nan_at: int | None = None
    inf_at: int | None = None
    skips: tuple[int, ...] = ()
    scale: float = 1.0
    samples_per_s: float = 900.0
    memory: float = 6.5e9
    dead: bool = False
    ends: str = "completed"
    reason: dict[str, Any] | None = None
    until: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a run computed."""

    environment: dict[str, Any]
    emulated: bool
    started_at: float  # unix seconds
    step_s: float
    metric: str
    lower_is_better: bool


def training(run: Run, course: Course, place: Place, last_step: int) -> list[events.Frame]:
    """The frames of a training up to ``last_step``."""
    told = list(_training(run, course, place, last_step))
    return [
        events.Frame(sequence=number, at=place.started_at + number * 0.01, event=event)
        for number, event in enumerate(told, 1)
    ]


def _training(run: Run, course: Course, place: Place, last_step: int) -> Iterator[events.AnyEvent]:
    rng = np.random.default_rng([run.seed, sum(map(ord, run.recipe_name + run.role)), run.steps])
    yield events.Started(
        numerics="emulated" if place.emulated else "native",
        environment=place.environment,
        num_parameters=722_624,
        setup_s=0.41,
    )
    steps = np.arange(1, last_step + 1)
    loss, values = losses(course, run.steps, rng)[:last_step], {}
    values["train/loss"] = loss
    if run.steps <= 20_000:
        values |= _further(steps, loss, course, rng)
    skipped = np.isin(steps, course.skips)
    if run.recipe["precision"].startswith("16") and run.recipe["scaler"]["kind"] != "none":
        values["amp/loss_scale"] = 65536.0 * 0.5 ** np.minimum(np.cumsum(skipped), 80)
        values["amp/skipped"] = skipped.astype(float)
    for low in range(0, last_step, SEGMENT_POINTS):
        part = slice(low, low + SEGMENT_POINTS)
        yield events.Segment(columns=[column(name, steps[part], v[part], place) for name, v in values.items()])
    yield from _skips(steps[skipped], last_step)
    final = yield from _evaluations(run, course, place, last_step, rng)
    yield from _faults(course, last_step)
    yield from _numerics(course, last_step, rng)
    if course.dead:
        zeros = dict.fromkeys(MODULES[1:3], 0.998)
        yield events.ZeroGradients(
            step=1, zero_fraction=zeros, probe_scale=65536.0, probe=dict.fromkeys(MODULES[1:3], 0.003)
        )
    if last_step == run.steps:
        num_skipped = int(skipped.sum())
        yield events.Finished(
            metrics={place.metric: final}, steps=run.steps, skipped_steps=num_skipped, samples=run.steps * 1024,
            lost_samples=num_skipped * 1024, train_s=run.steps * place.step_s, warmup_s=0.4,
        )  # fmt: skip


def losses(course: Course, num_steps: int, rng: np.random.Generator) -> Floats:
    """A noisy decay over all steps with the course's faults."""
    steps = np.arange(1, num_steps + 1)
    start, end = course.loss
    fall = np.ones(num_steps) if course.dead else np.exp(-4.5 * steps / num_steps)
    loss: Floats = (end + (start - end) * fall) * np.exp(rng.normal(0, 0.035, num_steps)) * course.scale
    for step, factor in course.spikes.items():
        loss[step - 1] *= factor
    if course.inf_at is not None:
        loss[course.inf_at - 1] = np.inf
    if course.nan_at is not None:
        loss[course.nan_at - 1 :] = np.nan
    return loss


def _further(steps: NDArray[np.int64], loss: Floats, course: Course, rng: np.random.Generator) -> dict[str, Floats]:
    num = len(steps)
    return {
        "grad/norm": loss * (0.0 if course.dead else 3.1),
        "grad/underflow_fraction": np.clip(rng.normal(0.99 if course.dead else 0.004, 0.001, num), 0, 1),
        "perf/samples_per_s": rng.normal(course.samples_per_s, course.samples_per_s * 0.02, num),
        "memory/allocated_bytes": course.memory * (1 - 0.3 * np.exp(-steps / 10)),
    }


def column(name: str, steps: NDArray[np.int64], values: Floats, place: Place) -> events.Column:
    """Points of one series at the run's pace."""
    times = place.started_at + steps * place.step_s
    return events.Column(
        name=name,
        steps=steps.astype("<i8").tobytes(),
        values=values.astype("<f8").tobytes(),
        times=times.astype("<f8").tobytes(),
    )


def _skips(steps: NDArray[np.int64], last_step: int) -> Iterator[events.AnyEvent]:
    scale = 65536.0
    for step in steps.tolist():
        if step <= last_step:
            yield events.StepSkipped(step=step, scale_before=scale, scale_after=scale / 2)
            scale /= 2


def _evaluations(
    run: Run, course: Course, place: Place, last_step: int, rng: np.random.Generator
) -> Iterator[events.AnyEvent]:
    """Evaluations as events and as a series; returns the last value."""
    every = max(1, run.steps // NUM_EVALUATIONS)
    steps, values = [], []
    for step in range(every, last_step + 1, every):
        gap = 0.25 * np.exp(-5 * step / run.steps) * (-1 if place.lower_is_better else 1)
        value = course.metric * (1 - (0 if course.dead else gap)) + _of_seed(run, course, rng)
        if course.nan_at is not None and step >= course.nan_at:
            value = float("nan")
        steps.append(step)
        values.append(value)
        final = step == run.steps
        yield events.Evaluated(step=step, metrics={place.metric: value}, num_samples=450, final=final)
    if steps:
        yield events.Segment(columns=[column(f"eval/{place.metric}", np.array(steps), np.array(values), place)])
    return values[-1] if values else float("nan")


def _of_seed(run: Run, course: Course, rng: np.random.Generator) -> float:
    """A seed moves every recipe the same way, so that pairs are closer than runs."""
    shared = float(np.random.default_rng(run.seed + 77).normal(0, 4 * course.spread))
    return shared + float(rng.normal(0, course.spread))


def _faults(course: Course, last_step: int) -> Iterator[events.AnyEvent]:
    if course.inf_at is not None and course.inf_at <= last_step:
        yield events.NonFinite(step=course.inf_at, where="loss", name="train/loss", value="inf")
    if course.nan_at is not None and course.nan_at <= last_step:
        yield events.NonFinite(step=course.nan_at, where="loss", name="train/loss", value="nan")
        yield events.NonFinite(step=course.nan_at + 1, where="weight", name="blocks.1.norm.weight", value="nan")


def _numerics(course: Course, last_step: int, rng: np.random.Generator) -> Iterator[events.AnyEvent]:
    for step in sorted({max(1, last_step * place // NUM_NUMERICS) for place in range(1, NUM_NUMERICS + 1)}):
        modules = []
        for name in MODULES:
            lost = course.dead and name in MODULES[1:3]
            modules.append(
                events.ModuleStatistics(
                    module=name,
                    num_elements=262_656,
                    zero_fraction=0.998 if lost else float(rng.uniform(0, 0.01)),
                    underflow_fraction=0.994 if lost else float(rng.uniform(0, 0.004)),
                    max_abs=float(rng.uniform(1e-4, 2e-2)),
                )
            )
        yield events.Numerics(step=step, loss_scale=65536.0, modules=modules)


def benchmark(run: Run, ratio: float, place: Place) -> list[events.Frame]:
    """Alternating blocks and the memory of both arms; the candidate is ``ratio`` times as fast."""
    rng = np.random.default_rng([run.seed, run.id])
    told: list[events.AnyEvent] = [
        events.Started(numerics="native", environment=place.environment, num_parameters=722_624, setup_s=0.5)
    ]
    for block in range(12):
        for mode in ("compute", "loader"):
            for arm in ("baseline", "candidate") if block % 2 == 0 else ("candidate", "baseline"):
                seconds = 0.25 * float(rng.normal(1, 0.02)) / (ratio if arm == "candidate" else 1)
                told.append(
                    events.BenchmarkBlock(block=block, mode=mode, arm=arm, steps=14, samples=14336, seconds=seconds)
                )
    peak = 0 if place.environment["device"]["type"] == "cpu" else 9_800_000_000
    for arm, part in (("baseline", 1.0), ("candidate", 0.62)):
        told.append(
            events.BenchmarkMemory(
                arm=arm, process_growth_bytes=int(84_000_000 * part), device_peak_bytes=int(peak * part),
                saved_for_backward_bytes=int(21_000_000 * part),
            )
        )  # fmt: skip
    told.append(
        events.Finished(
            metrics={}, steps=280, skipped_steps=0, samples=280 * 1024, lost_samples=0, train_s=11.0, warmup_s=1.0
        )
    )
    return [
        events.Frame(sequence=number, at=place.started_at + number * 0.2, event=event)
        for number, event in enumerate(told, 1)
    ]
