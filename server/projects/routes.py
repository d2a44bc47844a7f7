"""Projects over REST."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import func, select

from server.access import Principal, admin, viewer
from server.audit.service import record
from server.db.tables import Experiment, Project
from server.errors import NotFound
from server.projects import members
from server.records.subjects import Id
from server.state import DatabaseOf

router = APIRouter(prefix="/api/v1", tags=["projects"], dependencies=[Depends(viewer)])


class ProjectOut(BaseModel):
    id: int
    name: str
    created_at: datetime
    retention_days: int | None = Field(description="Days after which ended experiments go; null: the server's setting.")
    max_running: int | None = Field(description="Runs at work at once; null: the server's setting.")
    num_experiments: int


class ProjectList(BaseModel):
    items: list[ProjectOut]
    next_cursor: str | None = None


class ProjectChange(BaseModel):
    """What an admin may change of a project."""

    model_config = ConfigDict(extra="forbid")

    retention_days: Annotated[int, Field(ge=1, le=36_500)] | None = Field(
        default=None,
        description="Delete experiments so many days after they ended, unless tagged keep; null: the server's setting.",
    )
    max_running: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, description="How many of its runs are at work at once; null: the server's setting."
    )


def _out(project: Project, num_experiments: int) -> ProjectOut:
    return ProjectOut(
        id=project.id,
        name=project.name,
        created_at=project.created_at,
        retention_days=project.retention_days,
        max_running=project.max_running,
        num_experiments=num_experiments,
    )


@router.patch("/projects/{project_id}")
def change_project(
    project_id: Id, body: ProjectChange, principal: Annotated[Principal, Depends(admin)], database: DatabaseOf
) -> ProjectOut:
    """Set how long a project keeps its experiments, and how many of its runs are at work at once."""
    with database.write() as session:
        project = session.get(Project, project_id)
        if project is None:
            raise NotFound(f"project {project_id} is not here: GET /api/v1/projects lists those that are")
        for name in body.model_fields_set:
            setattr(project, name, getattr(body, name))
        changed = body.model_dump(exclude_unset=True)
        record(session, principal.user_id, "project.change", f"project/{project_id}", **changed)
        count = session.scalar(select(func.count()).where(Experiment.project_id == project_id)) or 0
        return _out(project, count)


class MemberOut(BaseModel):
    user: str
    role: str


class MemberList(BaseModel):
    items: list[MemberOut]
    next_cursor: str | None = None


class MemberIn(BaseModel):
    """A person's role in a project."""

    model_config = ConfigDict(extra="forbid")

    user: Annotated[str, Field(min_length=1, max_length=80)]
    role: Literal["submitter", "admin"] | None = Field(description="Null takes the person out.")


@router.get("/projects/{project_id}/members")
def list_members(project_id: Id, database: DatabaseOf) -> MemberList:
    """The members of a project; none means that it is everybody's."""
    with database.read() as session:
        return MemberList.model_validate({"items": members.members_json(session, project_id)})


@router.put("/projects/{project_id}/members")
def set_member(
    project_id: Id, body: MemberIn, principal: Annotated[Principal, Depends(admin)], database: DatabaseOf
) -> MemberList:
    """Give a person a role in a project, or take it. With the first member the project is closed to others."""
    with database.write() as session:
        members.set_role(session, principal, project_id, body.user, body.role)
        return MemberList.model_validate({"items": members.members_json(session, project_id)})


@router.get("/projects")
def list_projects(database: DatabaseOf) -> ProjectList:
    """Every project by name, with its number of experiments."""
    query = (
        select(Project, func.count(Experiment.id))
        .join(Experiment, Experiment.project_id == Project.id, isouter=True)
        .group_by(Project.id)
        .order_by(Project.name)
    )
    with database.read() as session:
        rows = session.execute(query).all()
    return ProjectList(items=[_out(project, count) for project, count in rows])
