"""Notifying people, what they chose, and reading, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from server.access import Principal
from server.db.tables import Notification, NotificationChoice, User
from server.errors import Fault, Invalid, NotFound
from server.notifications.events import ABOUT, SCOPES, Event, Scope, default_scope, told_of
from server.queue.clock import store_now

KEPT = timedelta(days=60)
MAX_LISTED = 200


def notify(session: Session, event: Event, payload: dict[str, Any], now: datetime, owner_id: int | None) -> int:
    """Tell everybody who wants the event; return how many. What is still unread of the same subject counts on."""
    told = told_of(event, payload)
    wanting = _wanting(session, event, owner_id)
    for user_id in wanting:
        unread = session.scalars(
            select(Notification)
            .where(
                Notification.user_id == user_id, Notification.read_at.is_(None), Notification.event == event,
                Notification.subject == told.subject,
            )
            .order_by(Notification.id.desc())
            .limit(1)
        ).first()  # fmt: skip
        if unread is not None:
            unread.text, unread.page, unread.at, unread.count = told.text, told.page, now, unread.count + 1
            continue
        session.execute(delete(Notification).where(Notification.user_id == user_id, Notification.at < now - KEPT))
        session.add(
            Notification(user_id=user_id, event=event, subject=told.subject, text=told.text, page=told.page, count=1,
                         at=now)
        )  # fmt: skip
    session.flush()
    return len(wanting)


def _wanting(session: Session, event: Event, owner_id: int | None) -> list[int]:
    chosen = select(NotificationChoice).where(NotificationChoice.event == event).subquery()
    query = (
        select(User.id, User.role, chosen.c.scope)
        .join(chosen, chosen.c.user_id == User.id, isouter=True)
        .where(User.disabled_at.is_(None))
        .order_by(User.id)
    )
    found = []
    for user_id, role, scope in session.execute(query):
        wanted = scope or default_scope(event, role)
        if wanted == "team" or (wanted == "mine" and user_id == owner_id):
            found.append(user_id)
    return found


def choices(session: Session, principal: Principal) -> dict[Event, Scope]:
    """What reaches the caller, by event. What an API token may do has no say in it: the account's role counts."""
    query = select(NotificationChoice.event, NotificationChoice.scope)
    rows = session.execute(query.where(NotificationChoice.user_id == principal.user_id))
    chosen = {event: scope for event, scope in rows}  # noqa: C416 - a mypy-checked shape
    role = session.scalar(select(User.role).where(User.id == principal.user_id)) or principal.role
    return {
        event: next((scope for scope in SCOPES if scope == chosen.get(event)), default_scope(event, role))
        for event in ABOUT
    }


def choose(session: Session, principal: Principal, wanted: Mapping[str, str]) -> None:
    """Keep what shall reach the caller; events that are not named stay as they are. Raises `Invalid`."""
    faults = [
        Fault(field=event[:40], value=scope[:40], rule=f"events are {', '.join(ABOUT)} and scopes {', '.join(SCOPES)}",
              remedy="name one of these")
        for event, scope in wanted.items() if event not in ABOUT or scope not in SCOPES
    ]  # fmt: skip
    if faults:
        raise Invalid(faults)
    for event, scope in wanted.items():
        session.merge(NotificationChoice(user_id=principal.user_id, event=event, scope=scope))
    session.flush()


def listed(session: Session, principal: Principal, *, unread: bool = False) -> list[dict[str, Any]]:
    """What the caller was told, unread first, then the newest first."""
    query = select(Notification).where(Notification.user_id == principal.user_id)
    if unread:
        query = query.where(Notification.read_at.is_(None))
    rows = session.scalars(
        query.order_by(Notification.read_at.is_not(None), Notification.at.desc(), Notification.id.desc()).limit(
            MAX_LISTED
        )
    )
    fields = ("id", "event", "text", "page", "count", "at", "read_at")
    return [{name: getattr(row, name) for name in fields} for row in rows]


def num_unread(session: Session, user_id: int) -> int:
    """How many notifications the person has not read."""
    query = select(func.count()).where(Notification.user_id == user_id, Notification.read_at.is_(None))
    return session.scalar(query) or 0


def read(session: Session, principal: Principal, notification_id: int | None = None) -> str:
    """Mark one of the caller's notifications as read, or all; return the page that the one is about.

    Raises:
        NotFound: it is not the caller's.
    """
    now = store_now(session)
    if notification_id is None:
        unread = (Notification.user_id == principal.user_id, Notification.read_at.is_(None))
        session.execute(update(Notification).where(*unread).values(read_at=now))
        return "/notifications"
    row = session.get(Notification, notification_id)
    if row is None or row.user_id != principal.user_id:
        raise NotFound(f"notification {notification_id} is not among yours: GET /api/v1/notifications lists them")
    row.read_at = row.read_at or now
    session.flush()
    return row.page
