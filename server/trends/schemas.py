"""What the trend routes read and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from server.experiments.schemas import Body
from server.trends.queries import Measure


class TrendPoint(BaseModel):
    """One recipe of one ended experiment. Points of equal recipe, device and settings are one series."""

    experiment_id: int
    name: str
    at: datetime
    recipe: str
    device: str
    commit: str
    settings: str
    num_runs: int
    is_emulated: bool
    speed: float | None = Field(description="Mean samples/s while training.")
    memory: float | None = Field(description="Highest peak in bytes.")
    quality: float | None = Field(description="Mean over seeds of the last primary metric.")
    higher_is_better: bool
    metric: str
    verdict: str | None
    speed_ratio: float | None
    speed_interval: tuple[float, float] | None
    memory_ratio: float | None


class ChangeOut(BaseModel):
    """Where the level of a series changed: the first experiment of the new level."""

    measure: Measure
    recipe: str
    device: str
    settings: str
    experiment_id: int
    at: datetime
    before: float
    after: float
    is_worse: bool


class TrendOut(BaseModel):
    workload: str
    points: list[TrendPoint]
    changes: list[ChangeOut]


class RuleIn(Body):
    """A rule that tells of experiments to come."""

    workload: Annotated[str, Field(min_length=1, max_length=80)]
    measure: Measure
    recipe: Annotated[str, Field(max_length=80)] | None = Field(default=None, description="Null: any recipe.")
    worse_by: Annotated[float, Field(ge=0.001, le=1)] = Field(default=0.05, description="A fraction: 0.05 is 5 %.")


class RuleOut(BaseModel):
    id: int
    owner: str
    workload: str
    measure: str
    recipe: str | None
    worse_by: float
    created_at: datetime


class RuleList(BaseModel):
    items: list[RuleOut]
    next_cursor: str | None = None


class AlertOut(BaseModel):
    id: int
    rule_id: int
    workload: str
    measure: str
    experiment_id: int
    experiment_name: str
    recipe: str
    message: str
    value: float
    reference: float
    at: datetime
    seen_at: datetime | None


class AlertList(BaseModel):
    items: list[AlertOut]
    next_cursor: str | None = None
