"""The shape of a comparison for the API's description; `amp_core.verdict.comparison` says what each field means."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

Number = float | Literal["NaN", "Infinity", "-Infinity"]
Word = Literal["SAFE", "SAFE WITH CAUTION", "UNSAFE", "INCONCLUSIVE"]
Interval = tuple[Number, Number]


class PrimaryOut(BaseModel):
    metric: str
    label: str
    higher_is_better: bool
    margin: float
    margin_text: str
    relative: bool
    unit: str


class SeedValueOut(BaseModel):
    seed: int
    run_id: int
    value: Number | None


class BaselineOut(BaseModel):
    recipe: str
    num_seeds: int
    mean: Number | None
    sd: Number | None
    values: list[SeedValueOut]


class ControlOut(BaseModel):
    interval: Interval | None
    passes: bool | None = Field(description="Null while it cannot be said.")
    num_pairs: int
    mean_difference: Number | None
    sd_of_pairs: Number | None
    sentence: str


class ReasonOut(BaseModel):
    code: str
    severity: Literal["fatal", "caution", "info"]
    sentence: str


class PairOut(BaseModel):
    seed: int
    run_id: int
    baseline_run_id: int
    baseline: Number
    candidate: Number
    harm: Number = Field(description="Candidate minus baseline in the bad direction; a fraction if relative.")


class HolmOut(BaseModel):
    num_recipes: int
    p_value: Number
    threshold: float
    passes: bool


class QualityOut(BaseModel):
    mean_harm: Number | None
    interval: Interval | None = Field(description="Two-sided 90 % paired-t interval of the mean harm.")
    margin: float
    unit: str
    relative: bool
    num_pairs: int
    num_planned: int
    baseline_mean: Number | None
    candidate_mean: Number | None
    sd_of_pairs: Number | None
    difference_text: str
    interval_text: str | None
    floored: bool
    holm: HolmOut | None
    pairs: list[PairOut]


class CureOut(BaseModel):
    sentence: str
    recipe: dict[str, Any]


class FindingOut(BaseModel):
    kind: str
    severity: Literal["fatal", "caution", "info"]
    module: str | None
    step: int | None
    seeds: list[int]
    sentence: str
    evidence: dict[str, Any]
    cure: CureOut | None


class NextStepOut(BaseModel):
    sentence: str
    action: Literal["more_seeds", "run_cure"] | None
    num_seeds: int | None
    minutes: float | None
    submission: dict[str, Any] | None = Field(description="A body ready for POST /api/v1/experiments.")


class SpeedOut(BaseModel):
    ratio: float
    interval: Interval
    unskipped_ratio: float
    num_blocks: int
    mode: str
    baseline_samples_per_s: float
    candidate_samples_per_s: float


class SpeedAgainstOut(BaseModel):
    """Speed against another recipe of the experiment, through the baseline that both were timed against."""

    recipe: str
    ratio: float
    interval: Interval


class MemoryOut(BaseModel):
    saved_for_backward_ratio: float | None
    process_growth_ratio: float | None
    device_peak_ratio: float | None
    baseline_saved_for_backward_bytes: int
    candidate_saved_for_backward_bytes: int
    baseline_process_growth_bytes: int
    candidate_process_growth_bytes: int
    baseline_device_peak_bytes: int
    candidate_device_peak_bytes: int


class GainOut(BaseModel):
    measured: bool
    sentence: str
    faster: bool | None
    speed: SpeedOut | None
    speed_with_loader: SpeedOut | None
    memory: MemoryOut | None
    why: str
    against_tf32: SpeedAgainstOut | None = Field(
        default=None, description="Null unless the experiment has a tf32 recipe and both were measured."
    )


class DivergenceOut(BaseModel):
    """Where the loss leaves the range of the baseline's seeds for good; it has no say in the verdict."""

    step: int | None = Field(description="The earliest onset; null where every run stays within.")
    onsets: dict[str, int | None] = Field(description="By seed.")
    num_baseline_seeds: int
    sentence: str


class RecipeComparisonOut(BaseModel):
    recipe: str
    precision: str
    numerics: str | None
    verdict: Word | None
    sentence: str
    reasons: list[ReasonOut]
    quality: QualityOut | None
    findings: list[FindingOut]
    next_step: NextStepOut | None
    gain: GainOut
    skipped_steps: int
    lost_samples_fraction: float
    why: str
    divergence: DivergenceOut | None = Field(default=None, description="Null where this cannot be told.")


class SegmentOut(BaseModel):
    """The part of a training that was judged, when the runs were forked from a checkpoint."""

    run_id: int
    step: int
    horizon: int = Field(description="Steps after it.")
    steps: int = Field(description="How many steps that run was to have.")
    sentence: str


class ComparisonOut(BaseModel):
    """One experiment's answer."""

    experiment_id: int
    state: Literal["so_far", "judged"]
    headline: str
    statements: list[str] = Field(description="At most three plain sentences, findings first.")
    primary: PrimaryOut
    baseline: BaselineOut
    control: ControlOut | None
    recipes: list[RecipeComparisonOut]
    conditions: dict[str, Any]
    caveats: list[str]
    why: str
    num_runs: int
    num_ended: int
    segment: SegmentOut | None = Field(default=None, description="Null where whole trainings were compared.")
