"""The rules of webhooks, inside the caller's transaction."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import ip_address

from sqlalchemy import func, select
from sqlalchemy.orm import Session, joinedload

from server.access import Principal
from server.audit.service import record
from server.db.tables import Delivery, Webhook
from server.errors import Conflict, Fault, Forbidden, Invalid, NotFound
from server.settings import Settings
from server.webhooks.address import AddressRefused, check_address, networks, parse_target
from server.webhooks.outbox import EVENTS, PING, add_delivery

MAX_PER_PERSON = 20


def create(
    session: Session, settings: Settings, principal: Principal, url: str, events: Sequence[str], *, team: bool
) -> Webhook:
    """Add a webhook of the caller; its secret is to be shown now and never again.

    One for the whole team is an admin's to make. Raises `Invalid`, `Forbidden`, `Conflict`.
    """
    if team and not principal.may("admin"):
        raise Forbidden("a webhook that is told of everybody's runs is an admin's to make: leave team out for your own")
    wanted = sorted(set(events))
    if not wanted or not set(wanted) <= set(EVENTS):
        rule = f"the events are {', '.join(EVENTS)}"
        raise Invalid([Fault(field="events", value=list(events), rule=rule, remedy="name one or more of these")])
    _check_url(url, settings)
    held = session.scalar(select(func.count()).where(Webhook.owner_id == principal.user_id)) or 0
    if held >= MAX_PER_PERSON:
        raise Conflict(f"{principal.name} has {held} webhooks, and {MAX_PER_PERSON} are allowed: delete one first")
    webhook = Webhook(owner_id=principal.user_id, url=url, events=wanted, team=team, secret=secrets.token_hex(32),
                      created_at=datetime.now(UTC))  # fmt: skip
    session.add(webhook)
    session.flush()
    record(session, principal.user_id, "webhook.create", f"webhook/{webhook.id}", events=wanted, team=team)
    return webhook


def _check_url(url: str, settings: Settings) -> None:
    """What can be said without asking a name server; the rest is checked at each delivery."""
    try:
        target = parse_target(url)
        try:
            address = ip_address(target.host)
        except ValueError:
            if target.host == "localhost" or target.host.endswith(".localhost"):
                check_address(ip_address("127.0.0.1"), networks(settings.webhook_networks))
            return
        check_address(address, networks(settings.webhook_networks))
    except AddressRefused as error:
        rule, _, remedy = str(error).rpartition(": ")
        raise Invalid([Fault(field="url", value=url[:200], rule=rule, remedy=remedy)]) from error


def list_webhooks(session: Session, principal: Principal) -> Sequence[Webhook]:
    """The caller's own; for an admin everybody's."""
    query = select(Webhook).order_by(Webhook.id).options(joinedload(Webhook.owner, innerjoin=True))
    if not principal.may("admin"):
        query = query.where(Webhook.owner_id == principal.user_id)
    return session.scalars(query).all()


def find(session: Session, webhook_id: int, principal: Principal) -> Webhook:
    """One of those `list_webhooks` gives. Raises `NotFound`: of others' webhooks nobody learns."""
    webhook = session.get(Webhook, webhook_id)
    if webhook is None or (webhook.owner_id != principal.user_id and not principal.may("admin")):
        raise NotFound(f"webhook {webhook_id} is not among yours: GET /api/v1/webhooks lists them")
    return webhook


def remove(session: Session, webhook_id: int, principal: Principal) -> None:
    """Delete a webhook with its deliveries. Raises `NotFound`."""
    session.delete(find(session, webhook_id, principal))
    session.flush()
    record(session, principal.user_id, "webhook.delete", f"webhook/{webhook_id}")


def ping(session: Session, webhook_id: int, principal: Principal) -> Delivery:
    """Queue a delivery that only says hello. Raises `NotFound`, and `Conflict` while the last one is on its way."""
    webhook = find(session, webhook_id, principal)
    waiting = select(func.count()).where(
        Delivery.webhook_id == webhook.id, Delivery.event == PING, Delivery.due_at.is_not(None)
    )
    if session.scalar(waiting):
        raise Conflict(f"a ping of webhook {webhook_id} is on its way: its deliveries say how it went")
    return add_delivery(session, webhook, PING, {"message": f"hello from {principal.name}"}, datetime.now(UTC))


def deliveries(session: Session, webhook_id: int, principal: Principal, limit: int) -> Sequence[Delivery]:
    """The newest deliveries of a webhook. Raises `NotFound`."""
    webhook = find(session, webhook_id, principal)
    query = select(Delivery).where(Delivery.webhook_id == webhook.id).order_by(Delivery.id.desc())
    return session.scalars(query.limit(limit)).all()
