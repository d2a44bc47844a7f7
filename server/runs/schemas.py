"""What the run routes answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt


class SeriesSummary(BaseModel):
    """One series in a few figures: ``last`` may be "NaN" or "Infinity"; min and max are over finite values."""

    last: float | str
    min: float | None
    max: float | None
    mean: float | None
    num_points: int
    num_nan: int
    num_pos_inf: int
    num_neg_inf: int
    first_non_finite_step: int | None


class RunOut(BaseModel):
    """One run in a list. ``queue_position`` counts from 1 while it is queued.

    ``expected_start_at`` comes from the durations of earlier runs, and is null while they are not known;
    ``queue_note`` says what holds a queued run back besides the runs before it.
    """

    id: int
    experiment_id: int
    experiment_name: str
    kind: str
    role: str
    recipe_name: str
    recipe: dict[str, Any]
    seed: int
    state: str
    step: int
    steps: int
    priority: int
    reason: dict[str, Any] | None
    numerics: str | None
    attempt: int
    max_attempts: int
    worker: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    cancel_requested_at: datetime | None
    tags: list[str]
    archived_at: datetime | None
    pause_requested_at: datetime | None
    num_devices: int = Field(description="On each of its hosts.")
    num_hosts: int
    queue_position: int | None
    expected_start_at: datetime | None
    queue_note: str | None
    metrics: dict[str, SeriesSummary]


class AttemptOut(BaseModel):
    number: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    reason: dict[str, Any] | None
    exit_code: int | None
    devices: list[str]


class SeatOut(BaseModel):
    """The part of an attempt on one of several hosts. Node 0 keeps the record; all meet at ``endpoint``.

    ``state``: reserved, taken, ended. ``outcome``: completed, failed, lost, stopped, or released: the attempt was over.
    """

    attempt: int
    node: int
    worker: str
    host: str
    state: str
    devices: list[str]
    endpoint: str
    taken_at: datetime | None
    ended_at: datetime | None
    outcome: str | None
    reason: dict[str, Any] | None
    exit_code: int | None
    log: str = Field(description="The end of what its processes wrote, for nodes above 0.")


class RunDetail(RunOut):
    """One run with everything recorded about it."""

    workload: str
    config: dict[str, Any]
    environment: dict[str, Any] | None
    result: dict[str, Any] | None = Field(description="What the child reported at its last step.")
    attempts: list[AttemptOut]
    seats: list[SeatOut] = Field(description="Of a run on several hosts, attempt by attempt; else empty.")


class PriorityIn(BaseModel):
    """A higher priority starts first; 0 is usual."""

    model_config = ConfigDict(extra="forbid")

    priority: Annotated[StrictInt, Field(ge=-100, le=100)]


class RunList(BaseModel):
    items: list[RunOut]
    next_cursor: str | None


class SpreadOut(BaseModel):
    """Last finite values of one metric over a group; ``delta`` is the mean difference from the baseline over pairs."""

    metric: str
    num: int
    mean: float
    sd: float | None
    min: float
    max: float
    delta: float | None
    num_pairs: int


class GroupOut(BaseModel):
    """One group of runs. ``num_nan`` and ``num_inf`` count its runs with such a value in a series."""

    key: str
    title: str
    num_runs: int
    states: dict[str, int]
    spreads: dict[str, list[SpreadOut]]
    has_baseline: bool = Field(description="Whether baseline runs are among them.")
    num_nan: int
    num_inf: int
    first_non_finite_step: int | None
    non_finite_seeds: list[int] = Field(description="The seeds of those runs.")


class GroupList(BaseModel):
    items: list[GroupOut]


class QueueOut(BaseModel):
    """The queue in the order in which runs will be taken, and what runs now."""

    items: list[RunOut]
    running: list[RunOut]
    num_queued: int
    slots: int
    next_cursor: str | None = None
