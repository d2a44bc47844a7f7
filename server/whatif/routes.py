"""What-if over REST."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Query

from amp_core.telemetry.exponents import Histogram, Shares
from amp_core.whatif.shares import scale_power
from server.access import viewer
from server.errors import Fault, Invalid, NotFound
from server.records.exponents import exponent_samples
from server.records.subjects import Id, find_run
from server.state import DatabaseOf
from server.whatif import service
from server.whatif.schemas import BestScaleOut, PredictionOut, ScalerOut, SharesOut, WhatIfOut

router = APIRouter(prefix="/api/v1", tags=["what-if"], dependencies=[Depends(viewer)])
MAX_LISTED = 100


@router.get("/runs/{run_id}/whatif")
def what_if(
    run_id: Id,
    database: DatabaseOf,
    format: Annotated[
        Literal["fp16", "bf16", "e4m3", "e5m2"], Query(description="The format that elements are cast to.")
    ] = "fp16",
    scale: Annotated[
        float | None,
        Query(description="A power of two. Left out: 1, or each tensor's own best scale for e4m3 and e5m2."),
    ] = None,
    kind: Literal["activations", "gradients", "weights"] = "gradients",
    step: Annotated[int | None, Query(ge=1, lt=2**62, description="A sampled step; by default the last one.")] = None,
    against: Annotated[int | None, Query(ge=1, lt=2**63, description="Another run, to measure predictions by.")] = None,
) -> WhatIfOut:
    """What a format at a scale would lose of what was recorded, and what every loss scaler would have decided."""
    power = _power(scale, kind, format)
    with database.read() as session:
        run = find_run(session, run_id)
        samples = exponent_samples(session, run_id, kind)
        shown = [sample for sample in samples if step is None or sample.step == step][-1:]
        if not shown:
            at = "" if step is None else f" at step {step}"
            raise NotFound(f"run {run_id} recorded no exponents of {kind}{at}: GET /api/v1/runs/{run_id}/exponents")
        gradients = samples if kind == "gradients" else exponent_samples(session, run_id, "gradients")
        replays = service.scaler_replays(session, run, gradients)
        error = None
        if against is not None:
            error = service.prediction(session, gradients, find_run(session, against))
    whole, *modules = [_shares(*row) for row in service.shares_of(shown[0], format, power)]
    best = service.best_of(samples, format)
    return WhatIfOut(
        run_id=run_id,
        kind=kind,
        format=format,
        step=shown[0].step,
        steps=[sample.step for sample in samples],
        whole=whole,
        modules=modules,
        best=None
        if best is None
        else BestScaleOut(
            scale=2.0**best.power,
            underflow=best.shares.underflow,
            lossless_scale=None if best.lossless is None else 2.0**best.lossless,
        ),
        scalers=[_scaler(replay) for replay in replays],
        prediction=None
        if error is None or against is None
        else PredictionOut(against=against, pairs=error.pairs, mean_error=error.mean, largest_error=error.largest),
    )


def _power(scale: float | None, kind: str, name: str) -> int | None:
    """The power of the scale asked for; None means each tensor's own. Raises `Invalid`."""
    if scale is None:
        return None if name in service.PER_TENSOR else 0
    try:
        power = scale_power(scale)
    except ValueError as error:
        rule, _, remedy = str(error).partition(": ")
        raise Invalid([Fault(field="scale", value=str(scale), rule=rule, remedy=remedy)]) from error
    if power and kind != "gradients" and name not in service.PER_TENSOR:
        raise Invalid(
            [
                Fault(
                    field="scale",
                    value=str(scale),
                    rule=f"a loss scale moves gradients, not {kind}",
                    remedy="leave scale out, or choose e4m3 or e5m2, which have a scale per tensor",
                )
            ]
        )
    return power


def _shares(module: str | None, histogram: Histogram, power: int, shares: Shares) -> SharesOut:
    return SharesOut(
        module=module,
        num_elements=histogram.num_elements,
        num_finite=shares.num_finite,
        zeros=histogram.zeros,
        scale=2.0**power,
        underflow=shares.underflow,
        subnormal=shares.subnormal,
        overflow=shares.overflow,
    )


def _scaler(replay: service.ScalerReplay) -> ScalerOut:
    skipped = [decision.step for decision in replay.decisions if decision.skipped]
    given: dict[str, Any] = msgspec.to_builtins(replay.scaler)
    return ScalerOut(
        name=replay.name,
        scaler=given,
        skipped=len(skipped),
        skipped_steps=skipped[:MAX_LISTED],
        final_scale=replay.decisions[-1].scale_after,
        lowest_scale=min(decision.scale_after for decision in replay.decisions),
        same_as_run=replay.same_as_run,
    )
