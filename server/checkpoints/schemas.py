"""What the routes of kept checkpoints answer."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class CheckpointOut(BaseModel):
    """One kept checkpoint. A fork's runs are taken by ``worker`` alone, unless the file is shared."""

    step: int
    name: str
    num_bytes: int
    worker: str
    is_shared: bool = Field(description="Whether it lies in the store that workers share (AMPBOARD_ARTIFACTS).")
    created_at: datetime


class CheckpointList(BaseModel):
    """The kept checkpoints of a run by step."""

    items: list[CheckpointOut]
    num_bytes: int
    needed_by: list[int] = Field(description="Experiments that begin at one of them and have not ended.")
