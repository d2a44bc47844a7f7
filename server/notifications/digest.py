"""What happened in a day or a week, in a few figures."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.db.tables import Alert, Experiment, Run

MAX_JUDGED = 50


def digest(session: Session, since: datetime, owner_id: int | None = None) -> dict[str, Any]:
    """Verdicts, ended and failed runs and alerts since a moment: of everybody's experiments, or of one person's."""
    mine = [] if owner_id is None else [Experiment.owner_id == owner_id]
    judged = session.scalars(
        select(Experiment)
        .where(Experiment.judged_at >= since, *mine)
        .order_by(Experiment.judged_at.desc())
        .limit(MAX_JUDGED)
    ).all()
    verdicts = Counter(
        str(item.get("verdict"))
        for one in judged
        for item in (one.comparison or {}).get("recipes", [])
        if item.get("verdict")
    )
    ended = session.execute(
        select(Run.state, func.count())
        .join(Run.experiment)
        .where(Run.ended_at >= since, Run.state.in_(("completed", "failed")), *mine)
        .group_by(Run.state)
    )
    states = {state: number for state, number in ended}  # noqa: C416 - a mypy-checked shape
    alerts = select(func.count()).select_from(Alert).join(Experiment, Experiment.id == Alert.experiment_id)
    return {
        "since": since,
        "verdicts": dict(sorted(verdicts.items())),
        "num_judged": len(judged),
        "num_completed": states.get("completed", 0),
        "num_failed": states.get("failed", 0),
        "num_alerts": session.scalar(alerts.where(Alert.at >= since, *mine)) or 0,
        "judged": [
            {"id": one.id, "name": one.name, "headline": str((one.comparison or {}).get("headline") or "")}
            for one in judged[:10]
        ],
    }
