"""Tables of the workers: who they are, what they have used, what their devices show."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, Integer, String, Text, false, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

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


class Seat(Base):
    """The part of a run's attempt on one of several hosts; a run on one host has none. Node 0 keeps the record.

    ``state``: reserved (its worker has not begun), taken, ended. ``machine`` is the worker's host, ``devices`` are
    those it gave. All nodes meet at ``endpoint``. ``outcome``: completed, failed, lost, stopped (as asked), or released
    (the attempt was over before it); ``log`` is the end of what its processes wrote, for nodes above 0.
    """

    __tablename__ = "seats"
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    node: Mapped[int] = mapped_column(Integer, primary_key=True)
    worker_id: Mapped[int] = mapped_column(ForeignKey("workers.id", ondelete="CASCADE"))
    machine: Mapped[str] = mapped_column(String(200))
    state: Mapped[str] = mapped_column(String(16))
    devices: Mapped[list[Any]] = mapped_column(default=list, server_default="[]")
    endpoint: Mapped[str] = mapped_column(String(300))
    reserved_at: Mapped[datetime]
    taken_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    lease_expires_at: Mapped[datetime]
    outcome: Mapped[str | None] = mapped_column(String(16))
    reason: Mapped[dict[str, Any] | None]
    exit_code: Mapped[int | None] = mapped_column(Integer)
    log: Mapped[str] = mapped_column(Text, default="", server_default="")
    worker: Mapped[Worker] = relationship()
    __table_args__ = (
        Index(
            "ix_seats_open",
            "worker_id",
            sqlite_where=text("state <> 'ended'"),
            postgresql_where=text("state <> 'ended'"),
        ),
    )


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
