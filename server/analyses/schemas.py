"""What the analysis routes read and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from server.experiments.schemas import Body


class AnalysisOfRunIn(Body):
    """An analysis of a run: of its workload, seed and device, under its recipe or another one."""

    kind: Annotated[str, Field(min_length=1, max_length=16)]
    recipe: str | dict[str, Any] | None = Field(default=None, description="By default the run's own recipe.")
    options: dict[str, Any] = Field(default_factory=dict, description="The analysis's own options.")
    priority: Annotated[int, Field(ge=-100, le=100)] = 0


class ReportOut(BaseModel):
    """The newest answer of an analysis; ``final`` is false while it goes on."""

    run_id: int
    kind: str
    attempt: int
    final: bool
    at: datetime
    content: dict[str, Any]
