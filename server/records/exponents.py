"""Exponent histograms of a run out of its events: of each step what the newest attempt that made it counted."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from amp_core.telemetry.exponents import Histogram, read
from server.db.tables import Event

KIND = "exponent_histograms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentSample:
    """The histograms of one kind at one step, by module in forward order."""

    step: int
    attempt: int
    scale: float
    modules: dict[str, Histogram]


def exponent_samples(session: Session, run_id: int, kind: str, step: int | None = None) -> list[ExponentSample]:
    """The samples of a run by step, or the one at a step. ``kind``: see `amp_core.telemetry.exponents.KINDS`."""
    query = select(Event.step, Event.attempt, Event.payload).where(Event.run_id == run_id, Event.kind == KIND)
    if step is not None:
        query = query.where(Event.step == step)
    newest: dict[int, ExponentSample] = {}
    for at, attempt, payload in session.execute(query.order_by(Event.attempt, Event.sequence)):
        if payload["kind"] == kind:
            newest[at] = ExponentSample(step=at, attempt=attempt, scale=float(payload["scale"]), modules=read(payload))
    return [newest[at] for at in sorted(newest)]
