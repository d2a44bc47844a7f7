"""What a verdict says: the structs behind ``GET /experiments/{id}/comparison``, the page, the CLI and the report."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

Verdict = Literal["SAFE", "SAFE WITH CAUTION", "UNSAFE", "INCONCLUSIVE"]
Severity = Literal["fatal", "caution", "info"]
Interval = tuple[float, float]


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One fact that led to the verdict; ``code`` is stable, ``sentence`` is for people."""

    code: str
    severity: Severity
    sentence: str


class Cure(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe that should mend a finding, as an object to submit."""

    sentence: str
    recipe: dict[str, Any]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A stability finding of one recipe, over all seeds that show it. ``fatal`` alone makes a recipe UNSAFE."""

    kind: str
    severity: Severity
    module: str | None
    step: int | None
    seeds: list[int]
    sentence: str
    evidence: dict[str, Any]
    cure: Cure | None = None


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One seed under both recipes. ``harm`` is the difference in the bad direction, in the margin's unit."""

    seed: int
    run_id: int
    baseline_run_id: int
    baseline: float
    candidate: float
    harm: float


class Holm(msgspec.Struct, frozen=True, kw_only=True):
    """The test against the margin when several recipes are compared for choice."""

    num_recipes: int
    p_value: float
    threshold: float
    passes: bool


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """The paired comparison with the baseline.

    ``mean_harm``, ``interval`` and ``margin`` share one unit: ``unit``, or fractions of the baseline with ``relative``.
    ``interval`` is the two-sided 90 % paired-t interval, None below two pairs. ``num_pairs`` counts pairs with two
    finite values; ``pairs`` also lists those whose candidate is NaN or infinite.
    """

    mean_harm: float | None
    interval: Interval | None
    margin: float
    unit: str
    relative: bool
    num_pairs: int
    num_planned: int
    baseline_mean: float | None
    candidate_mean: float | None
    sd_of_pairs: float | None
    difference_text: str  # signed in the metric's own direction: "-0.02 dB"
    interval_text: str | None
    floored: bool
    holm: Holm | None
    pairs: list[Pair]


class NextStep(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now; ``submission`` is a body ready for ``POST /experiments``."""

    sentence: str
    action: Literal["more_seeds", "run_cure"] | None = None
    num_seeds: int | None = None
    minutes: float | None = None
    submission: dict[str, Any] | None = None


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Throughput of the candidate over the baseline's; above 1 is faster. ``interval`` is a 95 % bootstrap interval.

    ``unskipped_ratio`` counts only the samples of steps that were not skipped in the training runs.
    """

    ratio: float
    interval: Interval
    unskipped_ratio: float
    num_blocks: int
    mode: str
    baseline_samples_per_s: float
    candidate_samples_per_s: float


class SpeedAgainst(msgspec.Struct, frozen=True, kw_only=True):
    """Throughput of the candidate over that of another ``recipe`` of the experiment; above 1 is faster.

    Both were timed against the baseline: the ratio of the two ratios. ``interval`` is a 95 % bootstrap interval.
    """

    recipe: str
    ratio: float
    interval: Interval


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the candidate over the baseline's, each in a process of its own; below 1 is smaller."""

    saved_for_backward_ratio: float | None
    process_growth_ratio: float | None
    device_peak_ratio: float | None
    baseline_saved_for_backward_bytes: int
    candidate_saved_for_backward_bytes: int
    baseline_process_growth_bytes: int
    candidate_process_growth_bytes: int
    baseline_device_peak_bytes: int
    candidate_device_peak_bytes: int


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the recipe is worth it here. ``measured`` is False for emulated recipes, always."""

    measured: bool
    sentence: str
    faster: bool | None = None
    speed: Speed | None = None
    speed_with_loader: Speed | None = None
    memory: Memory | None = None
    why: str = ""
    against_tf32: SpeedAgainst | None = None


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Onsets by seed, None where a run stays within; ``step`` is the earliest. ``sentence`` says it in words."""

    step: int | None
    onsets: dict[str, int | None]
    num_baseline_seeds: int
    sentence: str


class RecipeComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate against the baseline. ``verdict`` is None until the experiment is judged."""

    recipe: str
    precision: str
    numerics: str | None
    verdict: Verdict | None
    sentence: str
    reasons: list[Reason]
    quality: Quality | None
    findings: list[Finding]
    next_step: NextStep | None
    gain: Gain
    skipped_steps: int
    lost_samples_fraction: float
    why: str
    divergence: Divergence | None = None


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """The A/A control: what no difference looks like. ``passes`` is None while it cannot be said."""

    interval: Interval | None
    passes: bool | None
    num_pairs: int
    mean_difference: float | None
    sd_of_pairs: float | None
    sentence: str


class SeedValue(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    run_id: int
    value: float | None


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    recipe: str
    num_seeds: int
    mean: float | None
    sd: float | None
    values: list[SeedValue]


class PrimaryText(msgspec.Struct, frozen=True, kw_only=True):
    """The primary metric with its margin as people say it."""

    metric: str
    label: str
    higher_is_better: bool
    margin: float
    margin_text: str
    relative: bool
    unit: str


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a training that was judged: ``horizon`` steps after ``step`` of run ``run_id``, which was to have
    ``steps``.
    """

    run_id: int
    step: int
    horizon: int
    steps: int
    sentence: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one experiment. ``state`` is ``so_far`` until every planned run has ended."""

    experiment_id: int
    state: Literal["so_far", "judged"]
    headline: str
    statements: list[str]
    primary: PrimaryText
    baseline: Baseline
    control: Control | None
    recipes: list[RecipeComparison]
    conditions: dict[str, Any]
    caveats: list[str]
    why: str
    num_runs: int
    num_ended: int
    segment: Segment | None = None


def spell(value: Any) -> Any:
    """Replace NaN and infinities anywhere in JSON-like data by "NaN", "Infinity" and "-Infinity"."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: spell(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [spell(item) for item in value]
    return value


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain data that `json` spells strictly."""
    spelled = spell(msgspec.to_builtins(comparison))
    assert isinstance(spelled, dict)
    return spelled


def from_json(data: dict[str, Any]) -> Comparison:
    """The inverse of `as_json`. Raises `msgspec.ValidationError` for data that is no comparison."""
    return msgspec.convert(data, Comparison, strict=False)  # lax mode reads "NaN" and "Infinity" where a float belongs
