"""Places in a stream: what a client has seen, as text that fits an SSE id.

A run's cursor is ``attempt.sequence.logposition``; an experiment's lists ``run:attempt.sequence`` for every run that
has begun. Both say what was *sent*, so that a client that comes back gets the rest: no gap and no duplicate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.db.tables import Event, Run
from server.errors import Fault, Invalid
from server.metrics.arrivals import last_arrival, last_arrivals
from server.records.logs import log_end

_RUN = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,15})")
_PLACE = re.compile(r"(\d{1,18}):(\d{1,9})\.(\d{1,9})")


class RunCursor(NamedTuple):
    """Sent so far of a run: all frames up to ``sequence`` and ``log_position`` characters of ``attempt``."""

    attempt: int = 0
    sequence: int = 0
    log_position: int = 0

    def __str__(self) -> str:
        return f"{self.attempt}.{self.sequence}.{self.log_position}"


class Place(NamedTuple):
    """Sent so far of one run in an experiment's stream."""

    attempt: int = 0
    sequence: int = 0


ExperimentCursor = dict[int, Place]


def parse_run_cursor(text: str | None) -> RunCursor:
    """The cursor, or the beginning for none. Raises `Invalid`."""
    if not text:
        return RunCursor()
    found = _RUN.fullmatch(text)
    if found is None:
        raise _bad(text, "a run's stream is resumed from attempt.sequence.logposition, such as 1.42.1300")
    return RunCursor(*(int(part) for part in found.groups()))


def parse_experiment_cursor(text: str | None) -> ExperimentCursor:
    """The cursor, or the beginning for none. Raises `Invalid`."""
    cursor: ExperimentCursor = {}
    for part in (text or "").split(","):
        found = _PLACE.fullmatch(part)
        if found is not None:
            run_id, attempt, sequence = (int(number) for number in found.groups())
            cursor[run_id] = Place(attempt, sequence)
        elif part:
            raise _bad(part, "an experiment's stream is resumed from run:attempt.sequence,…, such as 12:1.42,13:1.7")
    return cursor


def spell_experiment_cursor(cursor: ExperimentCursor) -> str:
    """The cursor as text; `parse_experiment_cursor` reads it back."""
    return ",".join(f"{run_id}:{place.attempt}.{place.sequence}" for run_id, place in sorted(cursor.items()))


def run_cursor(session: Session, run: Run) -> RunCursor:
    """The end of what is stored of the run: a stream from here sends only what comes later."""
    newest_event = select(func.max(Event.sequence)).where(Event.run_id == run.id, Event.attempt == run.attempt)
    sequence = max(session.scalar(newest_event) or 0, last_arrival(session, run.id, run.attempt))
    return RunCursor(run.attempt, sequence, log_end(session, run.id, run.attempt))


def experiment_cursor(session: Session, experiment_id: int) -> ExperimentCursor:
    """The end of what is stored of every run of the experiment that has begun."""
    return runs_cursor(session, session.scalars(select(Run).where(Run.experiment_id == experiment_id)).all())


def runs_cursor(session: Session, runs: Sequence[Run]) -> ExperimentCursor:
    """The end of what is stored of those of the runs that have begun."""
    begun = [run for run in runs if run.attempt > 0]
    newest = last_arrivals(session, [run.id for run in begun])
    return {run.id: Place(run.attempt, newest.get((run.id, run.attempt), 0)) for run in begun}


def _bad(value: str, rule: str) -> Invalid:
    remedy = "leave it out to stream from the beginning"
    return Invalid([Fault(field="last_event_id", value=value, rule=rule, remedy=remedy)])
