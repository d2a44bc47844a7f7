"""Writing, reading and deleting reports, inside the caller's transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session, aliased

from server.access import Principal
from server.audit.service import record
from server.db.tables import Note, Project, Report, ReportVersion, User
from server.errors import Conflict, Fault, Forbidden, Invalid, NotFound
from server.projects.members import check_may_submit, role_in
from server.projects.service import DEFAULT_PROJECT, project_named
from server.queue.clock import store_now

MAX_BODY = 200_000
MAX_LISTED = 200


def find(session: Session, report_id: int) -> Report:
    """The report's row. Raises `NotFound`."""
    report = session.get(Report, report_id)
    if report is None:
        raise NotFound(f"report {report_id} is not here: GET /api/v1/reports lists those that are")
    return report


def listed(session: Session, project: str | None = None) -> list[dict[str, Any]]:
    """Reports by their last change, the newest first, without their text."""
    editor = aliased(User)
    query = (
        select(Report, Project.name, editor.name)
        .join(Project, Project.id == Report.project_id)
        .join(ReportVersion, (ReportVersion.report_id == Report.id) & (ReportVersion.version == Report.version))
        .join(editor, editor.id == ReportVersion.editor_id)
        .order_by(Report.updated_at.desc(), Report.id.desc())
        .limit(MAX_LISTED)
    )
    if project:
        query = query.where(Project.name == project)
    fields = ("id", "title", "version", "owner_id", "created_at", "updated_at")
    return [
        {**{name: getattr(report, name) for name in fields}, "project": named, "editor": by}
        for report, named, by in session.execute(query)
    ]


def report_json(session: Session, report_id: int, version: int | None = None) -> dict[str, Any]:
    """A report with the text of a version, its newest one by default, and who wrote each. Raises `NotFound`."""
    report = find(session, report_id)
    rows = session.execute(
        select(ReportVersion.version, ReportVersion.at, User.name)
        .join(User, User.id == ReportVersion.editor_id)
        .where(ReportVersion.report_id == report_id)
        .order_by(ReportVersion.version.desc())
    ).all()
    shown = session.get(ReportVersion, (report_id, version if version is not None else report.version))
    if shown is None:
        raise NotFound(f"report {report_id} has no version {version}: it has 1 to {report.version}")
    return {
        "id": report.id,
        "project": session.get_one(Project, report.project_id).name,
        "title": shown.title,
        "body": shown.body,
        "version": shown.version,
        "newest": report.version,
        "owner_id": report.owner_id,
        "created_at": report.created_at,
        "updated_at": report.updated_at,
        "versions": [{"version": number, "at": at, "editor": name} for number, at, name in rows],
    }


def create(session: Session, principal: Principal, project: str, title: str, body: str) -> Report:
    """Write a report. Raises `Invalid`."""
    title, body = _checked(title, body)
    now = store_now(session)
    named = project_named(session, project.strip() or DEFAULT_PROJECT)
    check_may_submit(session, principal, named)
    report = Report(project_id=named.id, title=title, version=1, owner_id=principal.user_id, created_at=now,
                    updated_at=now)  # fmt: skip
    session.add(report)
    session.flush()
    _keep(session, report, body, principal)
    record(session, principal.user_id, "report.create", f"report/{report.id}", title=title)
    return report


def change(session: Session, principal: Principal, report_id: int, version: int, title: str, body: str) -> Report:
    """Write the next version over ``version``. Raises `Invalid`, `NotFound`, `Conflict` when somebody was faster."""
    title, body = _checked(title, body)
    report = session.scalars(select(Report).where(Report.id == report_id).with_for_update()).one_or_none()
    if report is None:
        raise NotFound(f"report {report_id} is not here: GET /api/v1/reports lists those that are")
    check_may_submit(session, principal, session.get_one(Project, report.project_id))
    if report.version != version:
        raise Conflict(
            f"report {report_id} is at version {report.version} and you changed version {version}: "
            "read what was written meanwhile, and save yours over it or take it in"
        )
    report.title, report.version, report.updated_at = title, version + 1, store_now(session)
    session.flush()
    _keep(session, report, body, principal)
    record(session, principal.user_id, "report.change", f"report/{report_id}", version=report.version)
    return report


def remove(session: Session, principal: Principal, report_id: int) -> None:
    """Delete a report of one's own, or as an admin any, with its versions. Raises `NotFound`, `Forbidden`."""
    report = find(session, report_id)
    if report.owner_id != principal.user_id and role_in(session, principal, report.project_id) != "admin":
        raise Forbidden(f"report {report_id} belongs to somebody else: its author or an admin may delete it")
    record(session, principal.user_id, "report.delete", f"report/{report_id}", title=report.title)
    session.delete(report)
    session.execute(delete(Note).where(Note.kind == "report", Note.key == str(report_id)))
    session.flush()


def _checked(title: str, body: str) -> tuple[str, str]:
    title = " ".join(title.split())
    if not title or len(title) > 200:
        remedy = "write a title of up to 200 characters"
        raise Invalid([Fault(field="title", value=title[:80], rule=f"it has {len(title)} characters", remedy=remedy)])
    return title, checked_body(body)


def checked_body(body: str) -> str:
    """The text as it is kept: forms send two characters for the end of a line. Raises `Invalid` if it is too long."""
    body = body.replace("\r\n", "\n").replace("\0", "\ufffd")
    if len(body) > MAX_BODY:
        rule, remedy = f"it has {len(body)} characters", f"use at most {MAX_BODY}"
        raise Invalid([Fault(field="body", value=body[:80], rule=rule, remedy=remedy)])
    return body


def _keep(session: Session, report: Report, body: str, principal: Principal) -> None:
    session.add(
        ReportVersion(report_id=report.id, version=report.version, title=report.title, body=body,
                      editor_id=principal.user_id, at=report.updated_at)
    )  # fmt: skip
    session.flush()
