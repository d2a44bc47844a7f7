"""What the report routes read and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from server.experiments.schemas import Body
from server.reports.service import MAX_BODY

Title = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=MAX_BODY, description="Markdown; docs/reports.md says how charts get in.")]


class ReportIn(Body):
    title: Title
    body: Text = ""
    project: Annotated[str, Field(max_length=80)] = ""


class ReportChange(Body):
    """The next version of a report. ``version`` is the one that was changed: 409 if it is not the newest."""

    title: Title
    body: Text
    version: Annotated[int, Field(ge=1)]


class ReportItem(BaseModel):
    id: int
    project: str
    title: str
    version: int
    editor: str
    created_at: datetime
    updated_at: datetime


class ReportList(BaseModel):
    items: list[ReportItem]
    next_cursor: str | None = None


class VersionOut(BaseModel):
    version: int
    at: datetime
    editor: str


class ReportOut(BaseModel):
    """A report with the text of one version."""

    id: int
    project: str
    title: str
    body: str
    version: int
    newest: int
    created_at: datetime
    updated_at: datetime
    versions: list[VersionOut]
