"""What is new of an experiment since a place: the points of the series asked for, and the state of its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db.engine import Database
from server.db.tables import Experiment, Run
from server.metrics.arrivals import arrivals_after, last_arrivals
from server.metrics.cursors import ExperimentCursor, Place, spell_experiment_cursor
from server.metrics.read import columns_json
from server.metrics.run_stream import FINAL_STATES, message

_MAX_SEGMENTS = 200
_STATES = ("queued", "running", "paused", "completed", "failed", "cancelled")


class ExperimentNews(msgspec.Struct, frozen=True, kw_only=True):
    """Messages ready to send, the place after them, and the experiment's state as it was when they were read.

    ``settled`` are the runs of which nothing more can come. ``more``: another poll will find something at once.
    ``ended``: the experiment is over, judged if it is to be, and everything asked for was sent.
    """

    messages: list[bytes]
    cursor: ExperimentCursor
    settled: frozenset[int]
    state: bytes
    active: bool
    more: bool
    ended: bool


def experiment_news(
    database: Database,
    experiment_id: int,
    names: Sequence[str],
    cursor: ExperimentCursor,
    settled: frozenset[int],
) -> ExperimentNews | None:
    """What to send after the cursor, from one snapshot; None when the experiment is gone.

    Runs in ``settled`` are not asked again, so that a poll costs as much as runs are going, not as runs are there.
    """
    with database.read() as session:
        experiment = session.get(Experiment, experiment_id)
        if experiment is None:
            return None
        runs = session.scalars(select(Run).where(Run.experiment_id == experiment_id).order_by(Run.id)).all()
        found = points_after(session, runs, names, cursor, settled)
        return ExperimentNews(
            messages=found.messages,
            cursor=found.cursor,
            settled=found.settled,
            state=msgspec.json.encode(experiment_state(experiment, runs)),
            active=any(run.state == "running" for run in runs),
            more=found.more,
            ended=not found.more and _over(experiment),
        )


class NewPoints(msgspec.Struct, frozen=True, kw_only=True):
    """``points`` messages of several runs, the place after them, the runs sent in full, and whether more waits."""

    messages: list[bytes]
    cursor: ExperimentCursor
    settled: frozenset[int]
    more: bool


def points_after(
    session: Session, runs: Sequence[Run], names: Sequence[str], cursor: ExperimentCursor, settled: frozenset[int]
) -> NewPoints:
    """What the runs wrote of the series after the cursor, as far as it fits one batch."""
    messages: list[bytes] = []
    cursor = dict(cursor)
    done = {run.id for run in runs if run.id in settled and run.state in FINAL_STATES}
    more = False
    begun = [run for run in runs if run.id not in done and run.attempt > 0]
    newest = last_arrivals(session, [run.id for run in begun])
    for run in begun:
        if cursor.get(run.id) == Place(run.attempt, newest.get((run.id, run.attempt), 0)):
            if run.state in FINAL_STATES:
                done.add(run.id)
            continue
        room = _MAX_SEGMENTS - len(messages)
        more = room <= 0 or _add_points(session, run, names, cursor, messages, room)
        if more:
            break
        if run.state in FINAL_STATES:
            done.add(run.id)
    return NewPoints(messages=messages, cursor=cursor, settled=frozenset(done), more=more)


def experiment_state(experiment: Experiment, runs: Sequence[Run]) -> dict[str, Any]:
    """What a page shows of an experiment's progress."""
    counts = Counter(run.state for run in runs)
    return {
        "id": experiment.id,
        "state": experiment.state,
        "judged": experiment.judged_at is not None,
        "progress": {"total": len(runs), **{state: counts[state] for state in _STATES}},
        "runs": [
            {
                "id": run.id,
                "state": run.state,
                "step": run.step,
                "steps": run.steps,
                "attempt": run.attempt,
                "reason": run.reason,
            }
            for run in runs
        ],
    }


def _over(experiment: Experiment) -> bool:
    return experiment.state == "cancelled" or (experiment.state == "ended" and experiment.judged_at is not None)


def _add_points(
    session: Session, run: Run, names: Sequence[str], cursor: ExperimentCursor, messages: list[bytes], room: int
) -> bool:
    """Append the run's new points and move its place in the cursor; whether there is more than fits."""
    place = cursor.get(run.id, Place(1, 0))
    if place.attempt > run.attempt:
        place = Place(1, 0)  # from a history that is not this one: begin again
    while True:
        found = arrivals_after(session, run.id, place.attempt, place.sequence, room, names)
        for item in found.items:
            cursor[run.id] = Place(place.attempt, item.sequence)
            content = {
                "run_id": run.id,
                "attempt": place.attempt,
                "sequence": item.sequence,
                "series": {name: columns_json(points) for name, points in item.series.items()},
            }
            messages.append(message("points", content, spell_experiment_cursor(cursor)))
        place = Place(place.attempt, max(place.sequence, found.through))
        cursor[run.id] = place
        if found.more:
            return True
        if place.attempt >= run.attempt:
            return False
        place = Place(place.attempt + 1, 0)
        cursor[run.id] = place
