"""The thinned loss of each run that a comparison reads, kept in memory while nothing new of the run is stored.

While an experiment runs its comparison is computed for every page and every answer: of fifty runs with a hundred
thousand points each, reading the losses is nearly all of that.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from server.db.tables import Run
from server.metrics.arrivals import last_arrivals
from server.metrics.read import windows

Curve = tuple[tuple[int, ...], tuple[float, ...]]
LOSS = "train/loss"
MAX_LOSS_POINTS = 400
MAX_KEPT = 400  # curves of a database, about 25 kB each


class _Kept:
    """The curves read last, by run and what was stored of it then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._curves: OrderedDict[Hashable, Curve] = OrderedDict()

    def get(self, mark: Hashable) -> Curve | None:
        with self._lock:
            curve = self._curves.get(mark)
            if curve is not None:
                self._curves.move_to_end(mark)
            return curve

    def put(self, mark: Hashable, curve: Curve) -> None:
        with self._lock:
            self._curves[mark] = curve
            while len(self._curves) > MAX_KEPT:
                self._curves.popitem(last=False)


_kept: WeakKeyDictionary[Engine | Connection, _Kept] = WeakKeyDictionary()


def losses_of(session: Session, runs: Sequence[Run]) -> dict[int, Curve]:
    """Steps and values of each run's loss, thinned: enough points for its smoothed course. Runs without are left out.

    Points are never changed once they are stored, so the newest sequence of every attempt says whether there are more.
    """
    bind = session.get_bind()
    if bind.get_execution_options().get("ampboard_write", True):
        return _read(session, [run.id for run in runs])  # what is not committed may be rolled back
    kept = _kept.setdefault(bind, _Kept())
    marks = _marks(session, runs)
    found = {run_id: curve for run_id, mark in marks.items() if (curve := kept.get(mark)) is not None}
    fresh = _read(session, [run_id for run_id in marks if run_id not in found])
    for run_id, curve in fresh.items():
        kept.put(marks[run_id], curve)
    return found | fresh


def _marks(session: Session, runs: Sequence[Run]) -> dict[int, Hashable]:
    """What a curve depends on, of the runs that have any point: the run, and the newest arrival of each attempt."""
    newest: dict[int, list[tuple[int, int]]] = {}
    for (run_id, attempt), sequence in last_arrivals(session, [run.id for run in runs]).items():
        newest.setdefault(run_id, []).append((attempt, sequence))
    return {run.id: (run.id, run.created_at, tuple(sorted(newest[run.id]))) for run in runs if run.id in newest}


def _read(session: Session, run_ids: Sequence[int]) -> dict[int, Curve]:
    if not run_ids:
        return {}
    found = windows(session, run_ids, [LOSS], max_points=MAX_LOSS_POINTS)
    curves = {run_id: by_name[LOSS].points for run_id, by_name in found.items()}
    return {run_id: (tuple(points.steps.tolist()), tuple(points.values.tolist())) for run_id, points in curves.items()}
