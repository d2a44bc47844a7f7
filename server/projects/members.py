"""Roles in a project, inside the caller's transaction.

A project without members is everybody's: the role of the account counts. With members it is closed: only they and
admins of the team submit to it. A project's admin also acts on the work of others in it. Nothing here lifts a viewer's
account, and everybody reads everything.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.access import Principal, Role
from server.audit.service import record
from server.db.tables import Project, ProjectMember, User
from server.errors import Fault, Forbidden, Invalid, NotFound

PROJECT_ROLES: tuple[Role, ...] = ("submitter", "admin")


def role_in(session: Session, principal: Principal, project_id: int) -> Role:
    """What the caller may do in the project: viewer (nothing), submitter (their own work) or admin (everybody's)."""
    if principal.may("admin"):
        return "admin"
    if not principal.may("submitter"):
        return "viewer"
    query = select(ProjectMember.user_id, ProjectMember.role).where(ProjectMember.project_id == project_id)
    members = {user_id: role for user_id, role in session.execute(query)}  # noqa: C416 - a mypy-checked shape
    if not members:
        return "submitter"
    return next((role for role in PROJECT_ROLES if members.get(principal.user_id) == role), "viewer")


def check_may_submit(session: Session, principal: Principal, project: Project) -> None:
    """Raises `Forbidden` when the project is closed to the caller."""
    if role_in(session, principal, project.id) == "viewer":
        raise Forbidden(
            f"project {project.name!r} is closed to {principal.name}: ask an admin to add you as a member, or name "
            "another project"
        )


def set_role(session: Session, principal: Principal, project_id: int, user: str, role: str | None) -> None:
    """Give a person a role in the project, or with None take it. Raises `NotFound`, `Invalid`."""
    project = session.get(Project, project_id)
    if project is None:
        raise NotFound(f"project {project_id} is not here: GET /api/v1/projects lists those that are")
    person = session.scalars(select(User).where(User.name == user)).one_or_none()
    if person is None:
        rule, remedy = "there is no such person", "GET /api/v1/users lists them"
        raise Invalid([Fault(field="user", value=user[:80], rule=rule, remedy=remedy)])
    if role is not None and role not in PROJECT_ROLES:
        rule, remedy = "it is no role in a project", "choose submitter or admin"
        raise Invalid([Fault(field="role", value=role[:40], rule=rule, remedy=remedy)])
    member = session.get(ProjectMember, (project_id, person.id))
    if role is None:
        if member is not None:
            session.delete(member)
    elif member is None:
        session.add(ProjectMember(project_id=project_id, user_id=person.id, role=role))
    else:
        member.role = role
    session.flush()
    record(session, principal.user_id, "project.member", f"project/{project_id}", user=user, role=role)


def members_json(session: Session, project_id: int | None = None) -> list[dict[str, Any]]:
    """Members by project and name."""
    query = (
        select(ProjectMember.project_id, User.name, ProjectMember.role)
        .join(User, User.id == ProjectMember.user_id)
        .order_by(ProjectMember.project_id, User.name)
    )
    if project_id is not None:
        query = query.where(ProjectMember.project_id == project_id)
    return [{"project_id": project, "user": name, "role": role} for project, name, role in session.execute(query)]
