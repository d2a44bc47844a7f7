"""What the notification routes read and answer."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from server.experiments.schemas import Body
from server.notifications.events import Event, Scope


class NotificationOut(BaseModel):
    """One thing that the caller was told. ``count``: how often it came before it was read."""

    id: int
    event: Event
    text: str
    page: str
    count: int
    at: datetime
    read_at: datetime | None


class NotificationList(BaseModel):
    items: list[NotificationOut]
    num_unread: int
    next_cursor: str | None = None


class ChoicesOut(BaseModel):
    """Whose events reach the caller in the browser."""

    choices: dict[Event, Scope]


class ChoicesIn(Body):
    """Events that are not named stay as they are."""

    choices: dict[Event, Scope] = Field(description="off, mine, or team: by event.")


class JudgedOut(BaseModel):
    id: int
    name: str
    headline: str


class DigestOut(BaseModel):
    """What happened since a moment; ``judged`` holds the newest ten."""

    since: datetime
    verdicts: dict[str, int]
    num_judged: int
    num_completed: int
    num_failed: int
    num_alerts: int
    judged: list[JudgedOut]
