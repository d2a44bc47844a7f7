"""Every table. Two processes share them, server and worker; rules live in the services, not here.

Times are aware UTC datetimes. JSON columns hold only what `json` can spell: non-finite figures live in binary columns
or as the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, LargeBinary, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.db.base import Base as Base
from server.db.base import Id
from server.db.base import UtcDateTime as UtcDateTime
from server.db.checkpoint_tables import Checkpoint as Checkpoint
from server.db.metric_tables import Axis as Axis
from server.db.metric_tables import Chunk as Chunk
from server.db.metric_tables import Fold as Fold
from server.db.metric_tables import RunParameter as RunParameter
from server.db.metric_tables import Segment as Segment
from server.db.metric_tables import Series as Series
from server.db.note_tables import Note as Note
from server.db.note_tables import Notification as Notification
from server.db.note_tables import NotificationChoice as NotificationChoice
from server.db.team_tables import Alert as Alert
from server.db.team_tables import AlertRule as AlertRule
from server.db.team_tables import ProjectMember as ProjectMember
from server.db.team_tables import Report as Report
from server.db.team_tables import ReportVersion as ReportVersion
from server.db.webhook_tables import Delivery as Delivery
from server.db.webhook_tables import Webhook as Webhook
from server.db.worker_tables import DeviceReading as DeviceReading
from server.db.worker_tables import Seat as Seat
from server.db.worker_tables import Usage as Usage
from server.db.worker_tables import Worker as Worker


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(String(80), unique=True)
    role: Mapped[str] = mapped_column(String(16))  # viewer, submitter, admin
    password_hash: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime]
    disabled_at: Mapped[datetime | None]


class Session(Base):
    """A signed-in browser; the cookie's value is stored as its SHA-256 only."""

    __tablename__ = "sessions"
    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class SignInLink(Base):
    """A one-time sign-in link, stored as its SHA-256 only."""

    __tablename__ = "sign_in_links"
    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class Token(Base):
    """An API token, stored as its SHA-256 only; ``role`` caps what its owner may do with it."""

    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(80))
    role: Mapped[str] = mapped_column(String(16))
    prefix: Mapped[str] = mapped_column(String(16))
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    user: Mapped[User] = relationship()


class Audit(Base):
    """Who did what; ``subject`` is ``experiment/12`` and the like."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    at: Mapped[datetime] = mapped_column(index=True)
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    action: Mapped[str] = mapped_column(String(40))
    subject: Mapped[str] = mapped_column(String(120))
    detail: Mapped[dict[str, Any]] = mapped_column(default=dict)


class Project(Base):
    __tablename__ = "projects"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(String(80), unique=True)
    created_at: Mapped[datetime]
    retention_days: Mapped[int | None] = mapped_column(Integer)  # None: as AMPBOARD_RETENTION_DAYS says
    max_running: Mapped[int | None] = mapped_column(Integer)  # None: as AMPBOARD_MAX_RUNNING_PER_PROJECT says


class Workload(Base):
    """One version of a workload as a worker found it; the newest ``seen_at`` of a name is the current one.

    ``description`` is what `amp_core.loader.describe` gave (title, summary, parameters, primary metric); a broken file
    has ``error`` instead.
    """

    __tablename__ = "workloads"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(String(80), index=True)
    source_hash: Mapped[str] = mapped_column(String(64))
    path: Mapped[str] = mapped_column(Text)
    description: Mapped[dict[str, Any]] = mapped_column(default=dict)
    error: Mapped[str | None] = mapped_column(Text)
    first_seen_at: Mapped[datetime]
    seen_at: Mapped[datetime]
    source: Mapped[str | None] = mapped_column(
        Text, deferred=True
    )  # the file and the scripts it names; None if unknown
    __table_args__ = (UniqueConstraint("name", "source_hash", name="uq_workloads_version"),)

    @property
    def is_script(self) -> bool:
        """It owns its loop: only training runs can be made of it."""
        return bool(self.description.get("is_script"))


class Experiment(Base):
    """One question. ``plan`` is fixed at submission (see `server.experiments.plan`); ``comparison`` is judged once."""

    __tablename__ = "experiments"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id"), index=True)
    workload_id: Mapped[int] = mapped_column(ForeignKey("workloads.id"), index=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    state: Mapped[str] = mapped_column(String(16), index=True)  # queued, running, ended, cancelled
    plan: Mapped[dict[str, Any]]
    tags: Mapped[list[Any]] = mapped_column(default=list)
    note: Mapped[str] = mapped_column(Text, default="")
    created_at: Mapped[datetime] = mapped_column(index=True)
    ended_at: Mapped[datetime | None]
    comparison: Mapped[dict[str, Any] | None]
    judged_at: Mapped[datetime | None]
    archived_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None] = mapped_column(index=True)  # invisible since then, see server.db.deleted
    workload: Mapped[Workload] = relationship()
    owner: Mapped[User] = relationship()
    project: Mapped[Project] = relationship()
    runs: Mapped[list[Run]] = relationship(order_by="Run.id", back_populates="experiment")


def _from_config(name: str, default: Any) -> Any:
    """A column that the queue reads much, taken from ``config`` when the row is made."""

    def value(context: Any) -> Any:
        given = context.get_current_parameters().get("config")
        return (given or {}).get(name) or default

    return value


class Run(Base):
    """One execution of one recipe and seed; the queue is the rows in state ``queued``.

    ``attempt`` counts the attempts begun. While ``running``, ``worker_id`` holds the lease until ``lease_expires_at``;
    whoever writes for the run must still hold it (`server.db.errors.LeaseLost`). A run takes ``num_devices`` devices of
    each of ``num_hosts`` hosts (a `Seat` each if several) that have what ``needs`` says (`server.queue.needs`).
    ``expected_s`` is what such runs took so far.
    """

    __tablename__ = "runs"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str] = mapped_column(String(16))  # train, benchmark, or one of amp_core.analyses
    role: Mapped[str] = mapped_column(String(16))  # baseline, candidate, control (A/A), benchmark, analysis
    recipe_name: Mapped[str] = mapped_column(String(80))
    recipe: Mapped[dict[str, Any]]
    seed: Mapped[int] = mapped_column(BigInteger)
    steps: Mapped[int] = mapped_column(BigInteger)
    config: Mapped[
        dict[str, Any]
    ]  # the remaining fields of amp_core.config.RunConfig, and max_time_s, max_memory_bytes
    state: Mapped[str] = mapped_column(String(16))  # queued, running, paused, completed, failed, cancelled
    device: Mapped[str] = mapped_column(String(16), default=_from_config("device", "cpu"), server_default="cpu")
    num_devices: Mapped[int] = mapped_column(Integer, default=1, server_default="1")
    num_hosts: Mapped[int] = mapped_column(Integer, default=1, server_default="1")
    needs: Mapped[str] = mapped_column(String(400), default="", server_default="")
    max_time_s: Mapped[float | None] = mapped_column(default=_from_config("max_time_s", None))
    expected_s: Mapped[float | None]
    reserved_at: Mapped[datetime | None]  # since when devices are kept for it: it stays first until it starts
    priority: Mapped[int] = mapped_column(Integer, default=0)
    attempt: Mapped[int] = mapped_column(Integer, default=0)
    max_attempts: Mapped[int] = mapped_column(Integer, default=2)
    step: Mapped[int] = mapped_column(BigInteger, default=0)  # the last step stored
    reason: Mapped[dict[str, Any] | None]  # why it failed or was cancelled: {kind, message, remedy?, traceback?}
    numerics: Mapped[str | None] = mapped_column(String(16))
    environment: Mapped[dict[str, Any] | None]
    result: Mapped[dict[str, Any] | None]  # the Finished event
    created_at: Mapped[datetime]
    published_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    cancel_requested_at: Mapped[datetime | None]
    pause_requested_at: Mapped[datetime | None]
    worker_id: Mapped[int | None] = mapped_column(ForeignKey("workers.id", ondelete="SET NULL"))
    lease_expires_at: Mapped[datetime | None]
    tags: Mapped[list[Any]] = mapped_column(default=list, server_default="[]")
    archived_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None] = mapped_column(index=True)
    experiment: Mapped[Experiment] = relationship(back_populates="runs")
    worker: Mapped[Worker | None] = relationship()
    __table_args__ = (Index("ix_runs_queue", "state", "priority", "created_at"),)


class View(Base):
    """A saved view of a list: the query part of its address under a name. ``page``: experiments or runs."""

    __tablename__ = "views"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    page: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(80))
    query: Mapped[str] = mapped_column(Text)
    shared: Mapped[bool]
    created_at: Mapped[datetime]
    owner: Mapped[User] = relationship()
    __table_args__ = (UniqueConstraint("owner_id", "page", "name", name="uq_views_name"),)


class Attempt(Base):
    """One try of a run. ``outcome``: completed, failed, cancelled, paused, lost (its lease ran out).

    ``devices`` are those it holds, such as ``cuda:1``. ``charged_at`` is set once its time counts in `Usage`.
    """

    __tablename__ = "attempts"
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    worker_name: Mapped[str] = mapped_column(String(200))
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    outcome: Mapped[str | None] = mapped_column(String(16))
    reason: Mapped[dict[str, Any] | None]
    exit_code: Mapped[int | None] = mapped_column(Integer)
    devices: Mapped[list[Any]] = mapped_column(default=list, server_default="[]")
    charged_at: Mapped[datetime | None]
    __table_args__ = (
        Index(
            "ix_attempts_uncharged",
            "run_id",
            sqlite_where=text("charged_at IS NULL"),
            postgresql_where=text("charged_at IS NULL"),
        ),
    )


class Event(Base):
    """A typed fact of a run, never sampled: every event of `amp_core.events` but segments and artifacts."""

    __tablename__ = "events"
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, primary_key=True)
    kind: Mapped[str] = mapped_column(String(40))
    step: Mapped[int | None] = mapped_column(BigInteger)
    payload: Mapped[dict[str, Any]]
    at: Mapped[datetime]
    __table_args__ = (Index("ix_events_kind", "run_id", "kind"),)


class Log(Base):
    """A piece of the child's stdout and stderr; ``position`` counts characters before it in the attempt."""

    __tablename__ = "logs"
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    position: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    text: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime]


class Artifact(Base):
    """A small file of a run, kept in the store so that every worker and server sees it."""

    __tablename__ = "artifacts"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    attempt: Mapped[int] = mapped_column(Integer)
    name: Mapped[str] = mapped_column(String(200))
    media_type: Mapped[str] = mapped_column(String(80))
    step: Mapped[int] = mapped_column(BigInteger)
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(String(64))
    content: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    created_at: Mapped[datetime]
    __table_args__ = (UniqueConstraint("run_id", "attempt", "name", name="uq_artifacts_name"),)
