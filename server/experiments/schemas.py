"""What the experiment routes read and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from server.experiments.text import check_body
from server.runs.schemas import RunOut
from server.settings import LABEL

MAX_SEED = 2**31 - 1
Label = Annotated[str, Field(pattern=f"^{LABEL.pattern}$")]
Step = Annotated[StrictInt, Field(ge=1, le=10_000_000)]
Seed = Annotated[StrictInt, Field(ge=0, le=MAX_SEED)]


class Body(BaseModel):
    """Base of request bodies: unknown fields, NaN, control characters and deep nesting are errors."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, given: Any) -> Any:
        check_body(given)
        return given


class PrimaryIn(Body):
    """What the verdict is about; each field left out is the workload's own."""

    metric: Annotated[str, Field(min_length=1, max_length=120)] | None = None
    margin: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Largest harm that still counts as good, in the metric's unit or relative to it."
    )
    higher_is_better: StrictBool | None = Field(default=None, description="Needed for a metric of another name.")
    relative: StrictBool | None = Field(default=None, description="Whether the margin is a fraction of the baseline.")
    unit: Annotated[str, Field(max_length=20)] | None = None


class AnalysisIn(Body):
    """An analysis that goes with a submission, of the first seed."""

    kind: Annotated[str, Field(min_length=1, max_length=16)]
    recipe: Annotated[str, Field(min_length=1, max_length=80)] = Field(description="Name of one of the recipes.")
    options: dict[str, Any] = Field(default_factory=dict, description="The analysis's own options.")


class ForkIn(Body):
    """Begin every run at a kept checkpoint of a baseline run, and train only so many steps."""

    run: Annotated[StrictInt, Field(ge=1)] = Field(description="A baseline run, running or completed.")
    step: Annotated[StrictInt, Field(ge=1)] | Literal["last"] = Field(
        default="last", description="The step after which it kept a checkpoint."
    )
    horizon: Annotated[StrictInt, Field(ge=1, le=10_000_000)] = Field(description="Steps of each run after the fork.")


class ExperimentIn(Body):
    """A submission. Only ``workload`` is needed; defaults come from the workload."""

    workload: Annotated[str, Field(min_length=1, max_length=80)]
    name: Annotated[str, Field(max_length=200)] | None = None
    params: dict[str, Any] = Field(default_factory=dict, description="Values of the workload's typed parameters.")
    recipes: Annotated[list[str | dict[str, Any]], Field(max_length=50)] | None = Field(
        default=None, description="Precision names (fp32, bf16, fp16 …) or recipe objects."
    )
    seeds: Annotated[StrictInt, Field(ge=1)] | Annotated[list[Seed], Field(min_length=1, max_length=10_000)] = Field(
        default=5, description="How many (0, 1, …) or which."
    )
    baseline: Annotated[str, Field(max_length=80)] | None = Field(
        default=None, description="Name of the recipe to compare with; by default the first in 32-true."
    )
    steps: Annotated[StrictInt, Field(ge=1, le=10_000_000)] | None = None
    eval_every: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Steps between evaluations; by default a tenth of the steps."
    )
    fork: ForkIn | None = Field(
        default=None, description="Short paired segments from one checkpoint, instead of whole trainings."
    )
    keep_checkpoints: Literal["last"] | Annotated[list[Step], Field(min_length=1, max_length=20)] | None = Field(
        default=None, description="After which steps the baseline's runs keep a checkpoint that stays, for forks."
    )
    primary: PrimaryIn | None = None
    control: StrictBool | None = Field(
        default=None,
        description="Run the baseline once more with weights perturbed by 1e-6 (A/A); by default when it is small: "
        "at most 2,500 steps over all seeds.",
    )
    measure_gain: StrictBool = Field(default=True, description="Measure speed and memory in runs of their own.")
    analyses: Annotated[list[AnalysisIn], Field(max_length=50)] = Field(
        default_factory=list, description="Questions about single recipes; they neither delay nor change the verdict."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto: cuda when a live worker has it, else cpu; the same for every run."
    )
    ranks: Annotated[StrictInt, Field(ge=1, le=64)] = Field(
        default=1, description="Processes of each host that train a run together, each on its rows of every batch."
    )
    hosts: Annotated[StrictInt, Field(ge=1, le=64)] = Field(
        default=1, description="Hosts over which each training run goes, with as many devices on each; begun together."
    )
    strategy: Literal["ddp", "fsdp"] = Field(
        default="ddp", description="How ranks hold the model: whole (ddp) or in shards (fsdp)."
    )
    max_time_s: Annotated[float, Field(gt=0, le=30 * 86400)] | None = None
    max_memory_bytes: Annotated[StrictInt, Field(ge=64 * 1024 * 1024, le=2**50)] | None = None
    max_attempts: Annotated[StrictInt, Field(ge=1, le=10)] = 2
    priority: Annotated[StrictInt, Field(ge=-100, le=100)] = Field(default=0, description="A higher one starts first.")
    labels: Annotated[list[Label], Field(max_length=8)] = Field(
        default_factory=list, description="Only workers that carry all of these labels take the runs."
    )
    device_memory_bytes: Annotated[StrictInt, Field(ge=1, le=2**50)] | None = Field(
        default=None, description="Only devices with so much memory, and so much of it free at the start, are taken."
    )
    project: Annotated[str, Field(min_length=1, max_length=80)] = "default"
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=40)]], Field(max_length=20)] = Field(
        default_factory=list
    )
    note: Annotated[str, Field(max_length=10_000)] = ""


class RunCounts(BaseModel):
    train: int
    control: int
    benchmark: int
    analysis: int = 0
    total: int


class EstimateOut(BaseModel):
    """What a submission would cost. ``expected_minutes`` is null while no run of the workload has completed."""

    runs: RunCounts
    expected_minutes: float | None
    based_on_runs: int = Field(description="Completed runs of this workload the figure rests on.")
    slots: int = Field(description="Slots of live workers.")
    queued_ahead: int
    control: bool
    device: str


class Progress(BaseModel):
    total: int
    queued: int
    running: int
    paused: int
    completed: int
    failed: int
    cancelled: int


class VerdictOut(BaseModel):
    recipe: str
    verdict: str | None


class Primary(BaseModel):
    metric: str
    higher_is_better: bool
    margin: float
    relative: bool
    unit: str
    resolution: float | None = None


class ForkOut(BaseModel):
    """Where the runs began; ``steps`` is the length of the run they were forked from."""

    run: int
    step: int
    horizon: int
    steps: int
    seed: int
    experiment_id: int
    name: str
    worker: str = Field(description="The only worker that has the checkpoint; empty if it is shared.")
    elsewhere: bool = Field(default=False, description="It was imported: `run` is a number of another database.")


class Links(BaseModel):
    self: str
    page: str
    comparison: str
    stream: str


class ExperimentOut(BaseModel):
    """One experiment. ``verdicts`` is empty until every planned run has ended and it was judged."""

    id: int
    name: str
    project: str
    workload: str
    source_hash: str
    params: dict[str, Any]
    recipes: list[dict[str, Any]]
    seeds: list[int]
    baseline: str
    steps: int
    eval_every: int
    fork: ForkOut | None = None
    keep_steps: list[int] = Field(description="Steps after which the baseline's runs keep a checkpoint.")
    primary: Primary
    control: bool
    measure_gain: bool
    device: str
    state: str
    progress: Progress
    created_at: datetime
    ended_at: datetime | None
    owner: str
    tags: list[str]
    note: str
    archived_at: datetime | None
    verdicts: list[VerdictOut]
    links: Links


class ExperimentDetail(ExperimentOut):
    submission: dict[str, Any] = Field(description="The body as it was submitted; submit it again for a copy.")
    runs: list[RunOut]


class ExperimentList(BaseModel):
    items: list[ExperimentOut]
    next_cursor: str | None
