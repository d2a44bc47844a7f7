"""The what-if explorer of the run page: a histogram, a format's window that a slider moves, and what modules lose.

Drawn here as plain SVG; `web/js/lib/whatif.js` moves the window, and asks REST for the shares of another scale.
"""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from amp_core.telemetry.exponents import FORMATS, merged
from amp_core.whatif.shares import window
from server.db.tables import Run
from server.pages.formats import number
from server.records.exponents import ExponentSample, exponent_samples
from server.runs.queries import find_run
from server.whatif import service

CELL = 12
HEIGHT = 120
MAX_MODULES = 100
MAX_OTHERS = 50
FP16 = ("16-mixed", "16-true")
MIN_POWER, MAX_POWER = -24, 40
MARGIN = 4  # exponents shown around those that occur


def explorer(session: Session, run: dict[str, Any]) -> dict[str, Any] | None:
    """What the page shows at first: fp16 at the loss scale of the last sampled step; None without gradients."""
    samples = exponent_samples(session, run["id"], "gradients")
    filled = [sample for sample in samples if merged(sample.modules.values()).by_exponent()[0]]
    if not filled:
        return None
    row, sample = find_run(session, run["id"]), filled[-1]
    power = _power(sample.scale)
    bars, low, high = _bars(sample, power)
    best = service.best_of(filled, "fp16")
    rows = service.shares_of(sample, "fp16", power)
    return {
        "step": sample.step,
        "power": power,
        "scale": f"{2.0**power:g}",
        "min_power": MIN_POWER,
        "max_power": MAX_POWER,
        "formats": list(FORMATS),
        "bars": bars,
        "width": CELL * (high - low + 1),
        "height": HEIGHT,
        "cell": CELL,
        "low": low,
        "high": high,
        "windows": {name: list(window(name)) for name in FORMATS},
        "rows": [
            {"module": module or "all modules", "underflow": fine(shares.underflow), "overflow": fine(shares.overflow)}
            for module, _, _, shares in rows[: MAX_MODULES + 1]
        ],
        "best": f"2^{best.power}" if best is not None else "",
        "others": _others(session, row),
        "scalers": [_scaler(replay) for replay in service.scaler_replays(session, row, filled)],
    }


def _others(session: Session, run: Run) -> list[dict[str, Any]]:
    """Runs of the experiment that measured what fp16 lost, by which predictions from this run can be checked."""
    query = select(Run).where(
        Run.experiment_id == run.experiment_id, Run.kind == "train", Run.id != run.id, Run.attempt > 0
    )
    measured = [one for one in session.scalars(query.order_by(Run.id)) if one.recipe.get("precision") in FP16]
    return [{"id": one.id, "label": f"{one.recipe_name}, seed {one.seed}"} for one in measured[:MAX_OTHERS]]


def fine(share: float) -> str:
    """A share as a percentage; one that is not zero never reads as zero. `web/js/lib/whatif.js` does the same."""
    if share == 0:
        return "0"
    return "< 0.01 %" if share < 1e-4 else f"{100 * share:.2f} %"


def _bars(sample: ExponentSample, power: int) -> tuple[list[dict[str, float]], int, int]:
    """A bar for each exponent, as high as the fourth root of its share, so that rare values are seen."""
    exponents, counts = merged(sample.modules.values()).by_exponent()
    edges = window("fp16")
    low = min(exponents[0], edges[0] - power) - MARGIN
    high = max(exponents[-1], edges[2] - power) + MARGIN
    total = sum(counts)
    bars = []
    for exponent, count in zip(exponents, counts, strict=True):
        if count:
            size = round(HEIGHT * (count / total) ** 0.25, 1)
            bars.append({"x": CELL * (exponent - low), "y": round(HEIGHT - size, 1), "height": size})
    return bars, low, high


def _scaler(replay: service.ScalerReplay) -> dict[str, str]:
    decisions = replay.decisions
    return {
        "name": replay.name,
        "skipped": str(sum(one.skipped for one in decisions)),
        "lowest": number(min(one.scale_after for one in decisions)),
        "final": number(decisions[-1].scale_after),
        "note": {True: "as the run decided", False: "differs from the run", None: "predicted"}[replay.same_as_run],
    }


def _power(scale: float) -> int:
    power = round(math.log2(scale)) if math.isfinite(scale) and scale > 0 else 0
    return max(MIN_POWER, min(MAX_POWER, power))
