"""The team: people, projects with their members, what happened lately; the audit trail for admins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Query, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from server.access import Principal, admin, viewer
from server.db.tables import Audit, Experiment, Project, User
from server.pages.render import page
from server.projects.members import PROJECT_ROLES, members_json, set_role
from server.state import DatabaseOf

router = APIRouter(include_in_schema=False)
Viewer = Annotated[Principal, Depends(viewer)]
NUM_ACTIVITY, NUM_AUDIT = 30, 200
# What concerns the work; tokens, passwords and people are for the audit trail.
ACTIVITY = ("experiment.", "run.", "report.", "alert.", "project.", "workers.")
_DONE = {
    "submit": "submitted", "cancel": "cancelled", "create": "created", "change": "changed", "delete": "deleted",
    "track": "tracked", "retry": "retried", "pause": "paused", "resume": "resumed", "archive": "archived",
    "tag": "tagged", "untag": "untagged", "unarchive": "unarchived", "undelete": "brought back",
    "member": "changed the members of", "priority": "changed the priority of", "analyse": "analysed",
    "note": "noted something on",
}  # fmt: skip
_PAGES = {"experiment": "/experiments/", "run": "/runs/", "report": "/reports/"}


@router.get("/team")
def show_team(request: Request, principal: Viewer, database: DatabaseOf) -> Response:
    """People and their roles, projects and their members, and the activity of everybody."""
    with database.read() as session:
        context: dict[str, Any] = {
            "people": session.execute(
                select(User.name, User.role, User.created_at, User.disabled_at).order_by(User.disabled_at, User.name)
            ).all(),
            "projects": _projects(session),
            "activity": _entries(session, principal, NUM_ACTIVITY, work_only=True),
            "project_roles": PROJECT_ROLES,
        }
    return page(request, "team.html", **context)


def _projects(session: Session) -> list[dict[str, Any]]:
    query = (
        select(Project, func.count(Experiment.id))
        .join(Experiment, Experiment.project_id == Project.id, isouter=True)
        .group_by(Project.id)
        .order_by(Project.name)
    )
    members = members_json(session)
    return [
        {
            "id": project.id,
            "name": project.name,
            "num_experiments": count,
            "members": [member for member in members if member["project_id"] == project.id],
        }
        for project, count in session.execute(query)
    ]


def _entries(
    session: Session, principal: Principal, limit: int, *, work_only: bool, action: str = "", user: str = ""
) -> list[dict[str, Any]]:
    """Entries of the audit trail, newest first, with the page of their subject."""
    query = select(Audit, User.name).join(User, User.id == Audit.user_id, isouter=True).order_by(Audit.id.desc())
    if work_only:
        query = query.where(or_(*(Audit.action.startswith(prefix, autoescape=True) for prefix in ACTIVITY)))
    if action:
        query = query.where(Audit.action == action)
    if user:
        query = query.where(User.name == user)
    found = []
    for row, name in session.execute(query.limit(limit)):
        noun, _, number = row.subject.partition("/")
        href = f"{_PAGES[noun]}{number}" if noun in _PAGES and number.isdigit() else ""
        detail = ", ".join(f"{key} {value}" for key, value in row.detail.items()) if principal.may("admin") else ""
        found.append({"at": row.at, "user": name, "action": row.action, "said": _said(row.action),
                      "subject": row.subject,
                      "href": href, "detail": detail})  # fmt: skip
    return found


def _said(action: str) -> str:
    """What was done, as a verb before its subject."""
    _, _, verb = action.partition(".")
    return _DONE.get(verb, action.replace(".", " "))


@router.get("/audit")
def show_audit(
    request: Request,
    principal: Annotated[Principal, Depends(admin)],
    database: DatabaseOf,
    action: Annotated[str, Query(max_length=40)] = "",
    user: Annotated[str, Query(max_length=80)] = "",
) -> Response:
    """The audit trail: who did what to what, the newest entries first."""
    with database.read() as session:
        context: dict[str, Any] = {
            "entries": _entries(session, principal, NUM_AUDIT, work_only=False, action=action, user=user),
            "actions": session.scalars(select(Audit.action).distinct().order_by(Audit.action)).all(),
            "people": session.scalars(select(User.name).order_by(User.name)).all(),
            "chosen": {"action": action, "user": user},
        }
    return page(request, "audit.html", **context)


@router.post("/team/projects/{project_id}/members")
def change_member(
    project_id: int,
    principal: Annotated[Principal, Depends(admin)],
    database: DatabaseOf,
    user: Annotated[str, Form(max_length=200)] = "",
    role: Annotated[str, Form(max_length=20)] = "",
) -> Response:
    """Give a person a role in a project, or with an empty role take it, and show the team again."""
    with database.write() as session:
        set_role(session, principal, project_id, user, role or None)
    return RedirectResponse("/team#projects", status_code=303)
