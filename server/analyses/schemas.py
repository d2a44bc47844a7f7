"""What the analysis routes read and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictInt

from server.experiments.schemas import Body


class CheckpointIn(Body):
    """A checkpoint that an FP32 run of the same training keeps."""

    run: Annotated[StrictInt, Field(ge=1)] = Field(description="A baseline run, running or completed.")
    step: Annotated[StrictInt, Field(ge=1)] | Literal["last"] = Field(
        default="last", description="The step after which it kept a checkpoint."
    )


class AnalysisOfRunIn(Body):
    """An analysis of a run: of its workload, seed and device, under its recipe or another one."""

    kind: Annotated[str, Field(min_length=1, max_length=16)]
    recipe: str | dict[str, Any] | None = Field(default=None, description="By default the run's own recipe.")
    options: dict[str, Any] = Field(default_factory=dict, description="The analysis's own options.")
    from_checkpoint: CheckpointIn | None = Field(
        default=None, description="Begin at a kept checkpoint instead of training one's own start from step 1."
    )
    priority: Annotated[int, Field(ge=-100, le=100)] = 0


class ReportOut(BaseModel):
    """The newest answer of an analysis; ``final`` is false while it goes on."""

    run_id: int
    kind: str
    attempt: int
    final: bool
    at: datetime
    content: dict[str, Any]
