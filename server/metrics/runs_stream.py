"""What is new of any runs since a place: their points and states, for pages that show runs of several experiments."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import select

from server.db.engine import Database
from server.db.tables import Run
from server.metrics.cursors import ExperimentCursor
from server.metrics.experiment_stream import ExperimentNews, points_after
from server.metrics.run_stream import FINAL_STATES


def runs_news(
    database: Database,
    run_ids: Sequence[int],
    names: Sequence[str],
    cursor: ExperimentCursor,
    settled: frozenset[int],
) -> ExperimentNews | None:
    """What to send after the cursor, from one snapshot, as an experiment's news; None when every run is gone.

    The stream is over once every run has ended and everything asked for was sent.
    """
    with database.read() as session:
        runs = session.scalars(select(Run).where(Run.id.in_(run_ids)).order_by(Run.id)).all()
        if not runs:
            return None
        found = points_after(session, runs, names, cursor, settled)
        states = [{"id": run.id, "state": run.state, "attempt": run.attempt, "reason": run.reason} for run in runs]
        return ExperimentNews(
            messages=found.messages,
            cursor=found.cursor,
            settled=found.settled,
            state=msgspec.json.encode({"runs": states}),
            active=any(run.state == "running" for run in runs),
            more=found.more,
            ended=not found.more and all(run.state in FINAL_STATES for run in runs),
        )
