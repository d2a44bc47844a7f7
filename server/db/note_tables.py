"""Tables of what people write beside the work, and of what they are told: notes, notifications, and who wants which."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.base import Base, Id


class Note(Base):
    """What the team noted about one subject: ``kind`` experiment, run, report or workload, ``key`` its number or name.

    ``tags`` are those of reports and workloads; experiments and runs keep theirs in their own rows.
    """

    __tablename__ = "notes"
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    key: Mapped[str] = mapped_column(String(80), primary_key=True)
    text: Mapped[str] = mapped_column(Text)
    tags: Mapped[list[Any]] = mapped_column(default=list, server_default="[]")
    version: Mapped[int] = mapped_column(Integer)
    editor_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]


class NotificationChoice(Base):
    """Whose events of one kind reach a person in the browser: ``off``, ``mine`` or ``team``. No row: the default."""

    __tablename__ = "notification_choices"
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    event: Mapped[str] = mapped_column(String(40), primary_key=True)
    scope: Mapped[str] = mapped_column(String(8))


class Notification(Base):
    """Something a person is told once. Equal subjects that come while it is unread are counted, not repeated."""

    __tablename__ = "notifications"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    event: Mapped[str] = mapped_column(String(40))
    subject: Mapped[str] = mapped_column(String(80))
    text: Mapped[str] = mapped_column(Text)
    page: Mapped[str] = mapped_column(String(200))
    count: Mapped[int] = mapped_column(Integer)
    at: Mapped[datetime]
    read_at: Mapped[datetime | None]
    __table_args__ = (Index("ix_notifications_unread", "user_id", "read_at"),)
