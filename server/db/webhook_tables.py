"""Tables of the webhooks: whom to tell, and what is still to be told."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import ForeignKey, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.db.base import Base, Id

if TYPE_CHECKING:
    from server.db.tables import User


class Webhook(Base):
    """An address that is told of ``events``; of its owner's experiments only, unless it is for the ``team``.

    The secret signs what is sent, so it is kept as it is; it is shown once.
    """

    __tablename__ = "webhooks"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    url: Mapped[str] = mapped_column(Text)
    events: Mapped[list[Any]]
    team: Mapped[bool]
    secret: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]
    owner: Mapped[User] = relationship()


class Delivery(Base):
    """One thing to tell one webhook. ``due_at`` is None once it was delivered or given up."""

    __tablename__ = "deliveries"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    webhook_id: Mapped[int] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"), index=True)
    event: Mapped[str] = mapped_column(String(40))
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    due_at: Mapped[datetime | None] = mapped_column(index=True)
    tries: Mapped[int] = mapped_column(Integer, default=0)
    delivered_at: Mapped[datetime | None]
    status: Mapped[int | None] = mapped_column(Integer)  # of the last answer
    error: Mapped[str | None] = mapped_column(Text)
    webhook: Mapped[Webhook] = relationship()
