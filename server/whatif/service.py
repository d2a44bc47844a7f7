"""Answers what-if questions from a run's histograms, series and events. Reads only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from amp_core.config import Scaler
from amp_core.telemetry.exponents import Histogram, Shares, merged
from amp_core.whatif.scaler_rules import Decision, RecordedStep, replay_scaler
from amp_core.whatif.shares import BestScale, PredictionError, best_scale, prediction_error
from server.db.tables import Event, Run
from server.metrics.read import window
from server.records.exponents import ExponentSample

PER_TENSOR = ("e4m3", "e5m2")
MAX_STEPS = 200_000  # of a replay of scalers
SINGLE_SCALE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerReplay:
    """What one scaler would have done on the run's steps; ``same_as_run`` only for the run's own."""

    name: str
    scaler: Scaler
    decisions: list[Decision]
    same_as_run: bool | None


def default_power(modules: Mapping[str, Histogram], name: str) -> dict[str, int]:
    """The scale of each tensor where none is given: its own best for the 8-bit formats, else one."""
    powers = {}
    for module, histogram in modules.items():
        best = best_scale([histogram], name) if name in PER_TENSOR else None
        powers[module] = best.power if best is not None else 0
    return powers


def shares_of(sample: ExponentSample, name: str, power: int | None) -> list[tuple[str | None, Histogram, int, Shares]]:
    """The whole first, then each module: its histogram, its power, and what is lost."""
    powers = dict.fromkeys(sample.modules, power) if power is not None else default_power(sample.modules, name)
    rows: list[tuple[str | None, Histogram, int, Shares]] = []
    for module, histogram in sample.modules.items():
        own = powers[module]
        assert own is not None
        rows.append((module, histogram, own, histogram.shares(name, own)))
    whole = merged(sample.modules.values())
    total = Shares(
        num_finite=sum(row[3].num_finite for row in rows),
        num_underflow=sum(row[3].num_underflow for row in rows),
        num_subnormal=sum(row[3].num_subnormal for row in rows),
        num_overflow=sum(row[3].num_overflow for row in rows),
    )
    return [(None, whole, power or 0, total), *rows]


def best_of(samples: Sequence[ExponentSample], name: str) -> BestScale | None:
    """The best static scale for every recorded step together."""
    return best_scale((merged(sample.modules.values()) for sample in samples), name)


def scaler_replays(session: Session, run: Run, samples: Sequence[ExponentSample]) -> list[ScalerReplay]:
    """The usual scalers, and the run's own if it has one, on what the run recorded; none for a run too long."""
    steps = recorded_steps(session, run, samples)
    if not steps:
        return []
    own = run.recipe.get("scaler") if run.recipe.get("precision") == "16-mixed" else None
    candidates = dict(_candidates(best_of(samples, "fp16")))
    if own:
        candidates = {"this run's own": msgspec.convert(own, Scaler), **candidates}
    found = []
    for name, scaler in candidates.items():
        decisions = replay_scaler(scaler, steps)
        same = None
        if name == "this run's own":
            same = all(
                (a.scale, a.skipped) == (b.scale_before, b.skipped) for a, b in zip(steps, decisions, strict=True)
            )
        found.append(ScalerReplay(name=name, scaler=scaler, decisions=decisions, same_as_run=same))
    return found


def _candidates(best: BestScale | None) -> list[tuple[str, Scaler]]:
    usual = [
        ("dynamic (PyTorch)", Scaler()),
        ("dynamic, hysteresis 2, refilled by growth", Scaler(hysteresis=2)),
        ("dynamic, hysteresis 2, refilled by clean steps", Scaler(hysteresis=2, hysteresis_refill="clean_step")),
        ("dynamic, floor 1, cap 2**24", Scaler(min_scale=1.0, max_scale=2.0**24)),
    ]
    if best is not None and abs(best.power) < 127:
        usual.append(("static, best for the recorded steps", Scaler(kind="static", init_scale=2.0**best.power)))
    return usual


def recorded_steps(session: Session, run: Run, samples: Sequence[ExponentSample]) -> list[RecordedStep]:
    """Each step's scale and outcome, and the gradients of sampled ones.

    A run without a loss scale has the steps that were sampled.
    """
    sampled = {sample.step: merged(sample.modules.values()) for sample in samples}
    scales = window(session, run.id, "amp/loss_scale", max_points=MAX_STEPS)
    skips = window(session, run.id, "amp/skipped", max_points=MAX_STEPS)
    if "binned" in (scales.kind, skips.kind):
        return []
    if not scales.num_points:
        return [RecordedStep(step=at, scale=SINGLE_SCALE, skipped=False, gradients=one) for at, one in sampled.items()]
    skipped = dict(zip(skips.points.steps.tolist(), skips.points.values.tolist(), strict=True))
    return [
        RecordedStep(step=step, scale=scale, skipped=skipped.get(step, 0.0) > 0, gradients=sampled.get(step))
        for step, scale in zip(scales.points.steps.tolist(), scales.points.values.tolist(), strict=True)
    ]


def prediction(session: Session, samples: Sequence[ExponentSample], against: Run) -> PredictionError:
    """Shares that fp16 would lose by these samples beside those another run measured at the same steps."""
    by_step = {sample.step: sample for sample in samples}
    query = select(Event.step, Event.payload).where(Event.run_id == against.id, Event.kind == "numerics")
    pairs: list[tuple[float, float]] = []
    for step, payload in session.execute(query.order_by(Event.attempt, Event.sequence)):
        sample = by_step.get(step)
        power = _power(payload["loss_scale"])
        if sample is not None and power is not None:
            pairs += _pairs(sample, power, payload["modules"])
    return prediction_error(pairs)


def _pairs(sample: ExponentSample, power: int, measured: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    return [
        (sample.modules[row["module"]].shares("fp16", power).underflow, float(row["underflow_fraction"]))
        for row in measured
        if row["module"] in sample.modules
    ]


def _power(scale: Any) -> int | None:
    """k of a loss scale 2**k, or None for another number."""
    value = float(scale)
    mantissa, exponent = math.frexp(value) if math.isfinite(value) else (0.0, 0)
    return exponent - 1 if mantissa == 0.5 else None
