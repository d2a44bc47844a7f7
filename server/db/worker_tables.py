"""Tables of the workers: who they are, what they have used, what their devices show."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Integer, String, Text, false
from sqlalchemy.orm import Mapped, mapped_column

from server.db.base import Base, Id


class Worker(Base):
    """One Celery worker process on one host. ``devices`` are dicts with kind, name, and abilities."""

    __tablename__ = "workers"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    host: Mapped[str] = mapped_column(String(200))
    pid: Mapped[int] = mapped_column(Integer)
    version: Mapped[str] = mapped_column(String(40))
    slots: Mapped[int] = mapped_column(Integer)
    devices: Mapped[list[Any]]
    state: Mapped[str] = mapped_column(String(16))  # online, draining, offline
    started_at: Mapped[datetime]
    heartbeat_at: Mapped[datetime]
    labels: Mapped[list[Any]] = mapped_column(default=list, server_default="[]")
    draining: Mapped[bool] = mapped_column(default=False, server_default=false())
    clock_skew_s: Mapped[float | None]  # this host's clock less the store's, measured at a heartbeat
    problem: Mapped[str | None] = mapped_column(Text)  # why it takes no runs although it lives
    lost_at: Mapped[datetime | None]  # when it was found silent, until it answers again


class Usage(Base):
    """Device-seconds of a person on one kind of device, decayed as of ``at`` (`server.queue.usage`)."""

    __tablename__ = "usage"
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    device_s: Mapped[float]
    at: Mapped[datetime]


class DeviceReading(Base):
    """What a device showed at a heartbeat; ``values`` as `worker.readings` gives them. Kept for an hour."""

    __tablename__ = "device_readings"
    worker_id: Mapped[int] = mapped_column(ForeignKey("workers.id", ondelete="CASCADE"), primary_key=True)
    device: Mapped[str] = mapped_column(String(40), primary_key=True)
    at: Mapped[datetime] = mapped_column(primary_key=True)
    values: Mapped[dict[str, Any]]
