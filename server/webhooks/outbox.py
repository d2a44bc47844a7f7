"""What is to be told goes into a table, within the transaction in which it came true; a thread sends it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

from sqlalchemy import ColumnElement, and_, not_, or_, select
from sqlalchemy.orm import Session

from server.db.tables import Delivery, Experiment, Run, User, Webhook, Worker
from server.notifications.events import Event
from server.notifications.service import notify

EVENTS: tuple[str, ...] = get_args(Event)
PING = "ping"  # what a test sends, to every webhook


def announce(session: Session, event: Event, payload: dict[str, Any], now: datetime, owner_id: int | None) -> int:
    """Notify the people and queue a delivery to each webhook that want the event; return how many deliveries.

    Without an owner only those want it that ask for the team's.
    """
    notify(session, event, payload, now, owner_id)
    wanted = 0
    for webhook in session.scalars(select(Webhook).join(Webhook.owner).where(may_be_told()).order_by(Webhook.id)):
        if event in webhook.events and (webhook.team or webhook.owner_id == owner_id):
            add_delivery(session, webhook, event, payload, now)
            wanted += 1
    return wanted


def may_be_told() -> ColumnElement[bool]:
    """That a webhook's `User` still has the rights it was made with: disabled people are told nothing."""
    return and_(User.disabled_at.is_(None), or_(not_(Webhook.team), User.role == "admin"))


def add_delivery(session: Session, webhook: Webhook, event: str, payload: dict[str, Any], now: datetime) -> Delivery:
    """Queue one delivery, due at once."""
    body = {"event": event, "at": now.isoformat(), **payload}
    delivery = Delivery(webhook_id=webhook.id, event=event, payload=body, created_at=now, due_at=now, tries=0)
    session.add(delivery)
    session.flush()
    return delivery


def announce_verdict(session: Session, experiment_id: int, comparison: dict[str, Any], now: datetime) -> None:
    """An experiment has its verdicts."""
    experiment = session.get_one(Experiment, experiment_id)
    verdicts = [
        {"recipe": item.get("recipe"), "verdict": item.get("verdict")} for item in comparison.get("recipes", [])
    ]
    payload = {
        "experiment": _experiment(experiment), "headline": comparison.get("headline"), "verdicts": verdicts,
    }  # fmt: skip
    announce(session, "experiment.judged", payload, now, experiment.owner_id)


def announce_failure(session: Session, run: Run, now: datetime) -> None:
    """A run has failed for good."""
    experiment = session.get_one(Experiment, run.experiment_id)
    reason = run.reason or {}
    told = {
        "id": run.id, "recipe": run.recipe_name, "seed": run.seed, "kind": run.kind, "attempt": run.attempt,
        "page": f"/runs/{run.id}", "reason": {name: reason.get(name) for name in ("kind", "message", "remedy")},
    }  # fmt: skip
    announce(session, "run.failed", {"experiment": _experiment(experiment), "run": told}, now, experiment.owner_id)


def announce_loss(session: Session, worker: Worker, now: datetime) -> None:
    """A worker fell silent; its runs are queued again by others."""
    told = {"name": worker.name, "host": worker.host, "heartbeat_at": worker.heartbeat_at.isoformat()}
    announce(session, "worker.lost", {"worker": told}, now, owner_id=None)


def _experiment(experiment: Experiment) -> dict[str, Any]:
    return {"id": experiment.id, "name": experiment.name, "page": f"/experiments/{experiment.id}"}
