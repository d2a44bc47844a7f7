"""Tables of what a team keeps beside its runs: alert rules, alerts, reports, members of projects."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from server.db.base import Base, Id


class AlertRule(Base):
    """Watches a workload: an alert when a newest figure is worse by ``worse_by`` (a fraction) than those before it.

    ``recipe`` None means any. ``checked_at`` is the end of the newest experiment that was looked at.
    """

    __tablename__ = "alert_rules"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    workload: Mapped[str] = mapped_column(String(80), index=True)
    measure: Mapped[str] = mapped_column(String(16))  # speed, memory, quality
    recipe: Mapped[str | None] = mapped_column(String(80))
    worse_by: Mapped[float]
    created_at: Mapped[datetime]
    checked_at: Mapped[datetime]


class Alert(Base):
    """One experiment that a rule told of, once for each recipe."""

    __tablename__ = "alerts"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    rule_id: Mapped[int] = mapped_column(ForeignKey("alert_rules.id", ondelete="CASCADE"))
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"), index=True)
    recipe: Mapped[str] = mapped_column(String(80))
    message: Mapped[str] = mapped_column(Text)
    value: Mapped[float]
    reference: Mapped[float]
    at: Mapped[datetime] = mapped_column(index=True)
    seen_at: Mapped[datetime | None]  # somebody put it away
    __table_args__ = (UniqueConstraint("rule_id", "experiment_id", "recipe", name="uq_alerts_once"),)


class Report(Base):
    """A text of a team with charts in it; ``version`` counts its versions, all of which are kept."""

    __tablename__ = "reports"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id"), index=True)
    title: Mapped[str] = mapped_column(String(200))
    version: Mapped[int] = mapped_column(Integer)
    owner_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime] = mapped_column(index=True)


class ReportVersion(Base):
    """What a report said at one time, and who wrote it; ``body`` is Markdown."""

    __tablename__ = "report_versions"
    report_id: Mapped[int] = mapped_column(ForeignKey("reports.id", ondelete="CASCADE"), primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True)
    title: Mapped[str] = mapped_column(String(200))
    body: Mapped[str] = mapped_column(Text)
    editor_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]


class ProjectMember(Base):
    """What a person may do in a project: submitter or admin. A project without members is everybody's."""

    __tablename__ = "project_members"
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    role: Mapped[str] = mapped_column(String(16))
