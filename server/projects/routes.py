"""Projects over REST."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Depends
from pydantic import BaseModel
from sqlalchemy import func, select

from server.access import viewer
from server.db.tables import Experiment, Project
from server.state import DatabaseOf

router = APIRouter(prefix="/api/v1", tags=["projects"], dependencies=[Depends(viewer)])


class ProjectOut(BaseModel):
    id: int
    name: str
    created_at: datetime
    num_experiments: int


class ProjectList(BaseModel):
    items: list[ProjectOut]
    next_cursor: str | None = None


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
    return ProjectList(
        items=[
            ProjectOut(id=project.id, name=project.name, created_at=project.created_at, num_experiments=count)
            for project, count in rows
        ]
    )
