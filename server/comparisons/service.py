"""Judging: so far while runs are running, once for good when every planned run has ended."""

from __future__ import annotations

import logging
import time
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from amp_core.verdict import as_json, judge
from amp_core.verdict.evidence import FINAL_STATES
from amp_core.verdict.statistics import load_scipy
from server.comparisons.evidence import evidence_of
from server.db.engine import Database
from server.db.tables import Experiment, Run
from server.queue.clock import store_now
from server.webhooks.outbox import announce_verdict

logger = logging.getLogger(__name__)


def comparison_of(session: Session, experiment: Experiment) -> dict[str, Any]:
    """The comparison as REST, page, command line and report give it.

    A judged experiment answers with what was stored then. Before that it is computed from what the runs have reported;
    the same ended runs always give the same comparison, so the moment between the last run's end and the judge changes
    nothing a reader sees.
    """
    if experiment.judged_at is not None and experiment.comparison:
        return experiment.comparison
    return as_json(judge(evidence_of(session, experiment)))


Mark = tuple[int, int, datetime | None]  # of an experiment's runs: how many, their attempts together, the last end
Tried = dict[int, tuple[Mark, float]]  # what was found to have no verdict, and when by `time.monotonic`
TRY_AGAIN_S = 60.0


def judge_ended(database: Database, tried: Tried | None = None) -> list[int]:
    """Judge every experiment whose runs have all ended and which has no verdict yet; return their ids.

    Safe to call from several processes at once, and at any time. An experiment that cannot be judged is logged and
    keeps no other from its verdict. Experiments that end without a verdict, such as those without a baseline's runs,
    would be judged in vain each time: ``tried`` is the caller's to keep, and lets them wait for `TRY_AGAIN_S` unless
    one of their runs ended anew.
    """
    load_scipy()  # in the background, so that the first page with a comparison does not wait for it
    tried = {} if tried is None else tried
    with database.read() as session:
        waiting = _waiting(session)
    for experiment_id in tried.keys() - waiting.keys():
        del tried[experiment_id]
    judged = []
    for experiment_id, mark in waiting.items():
        before, at = tried.get(experiment_id, (None, 0.0))
        if before == mark and time.monotonic() - at < TRY_AGAIN_S:
            continue
        try:
            if judge_once(database, experiment_id):
                judged.append(experiment_id)
            else:
                tried[experiment_id] = (mark, time.monotonic())
        except Exception:
            logger.exception("experiment %d could not be judged; it will be tried again", experiment_id)
    return judged


def _waiting(session: Session) -> dict[int, Mark]:
    """The experiments that ended and have no verdict, by id, each with its mark."""
    query = (
        select(Experiment.id, func.count(Run.id), func.coalesce(func.sum(Run.attempt), 0), func.max(Run.ended_at))
        .outerjoin(Run, Run.experiment_id == Experiment.id)
        .where(Experiment.judged_at.is_(None), Experiment.state.in_(["ended", "cancelled"]))
        .group_by(Experiment.id)
        .order_by(Experiment.id)
    )
    return {row[0]: (row[1], int(row[2]), row[3]) for row in session.execute(query)}


def judge_once(database: Database, experiment_id: int) -> bool:
    """Judge one experiment and store its comparison; False when it has not ended or someone else judged it.

    The work is done on a snapshot, outside of any lock. Storing checks that nothing of the experiment changed since
    (a retried run opens it again), with its row locked, so that of two judges one stores and none stores stale words.
    """
    with database.read() as session:
        experiment = session.get(Experiment, experiment_id)
        if experiment is None or experiment.judged_at is not None:
            return False
        before = _fingerprint(session, experiment_id)
        if not before or any(state not in FINAL_STATES for _, state, _ in before):
            return False
        comparison = as_json(judge(evidence_of(session, experiment)))
    if comparison["state"] != "judged":
        return False
    with database.write() as session:
        locked = session.scalar(
            select(Experiment.id)
            .where(Experiment.id == experiment_id, Experiment.judged_at.is_(None))
            .with_for_update()
        )
        if locked is None or _fingerprint(session, experiment_id) != before:
            return False
        session.execute(
            update(Experiment)
            .where(Experiment.id == experiment_id, Experiment.judged_at.is_(None))
            .values(comparison=comparison, judged_at=(now := store_now(session)))
        )
        announce_verdict(session, experiment_id, comparison, now)
    logger.info("experiment %d judged: %s", experiment_id, comparison["headline"])
    return True


def _fingerprint(session: Session, experiment_id: int) -> list[tuple[int, str, int]]:
    """Run, state and attempt of every run but analyses: what a retry or a cancellation changes."""
    rows = session.execute(
        select(Run.id, Run.state, Run.attempt)
        .where(Run.experiment_id == experiment_id, Run.role != "analysis")
        .order_by(Run.id)
    )
    return [(run_id, state, attempt) for run_id, state, attempt in rows]
