"""Is it as good? Pairs by seed, harm in the bad direction, its interval, and the A/A control."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from amp_core.verdict import sentences
from amp_core.verdict.comparison import Baseline, Control, Holm, Pair, Quality, SeedValue
from amp_core.verdict.evidence import ExperimentEvidence, Primary, RunEvidence
from amp_core.verdict.segment import perturbed
from amp_core.verdict.statistics import (
    MIN_PAIRS,
    Floats,
    PairedInterval,
    holm_thresholds,
    is_equivalent,
    noninferiority_p,
    paired_interval,
)

FLOAT32_EPSILON = 2.0**-23  # metrics come from float32 models: smaller relative differences are rounding


def is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def harm_of(primary: Primary, baseline: float, candidate: float) -> float:
    """Candidate − baseline in the bad direction; a fraction of the baseline when the margin is relative."""
    difference = candidate - baseline if math.isfinite(candidate) else math.nan
    harm = -difference if primary.higher_is_better else difference
    if not primary.relative:
        return harm
    return harm / abs(baseline) if baseline != 0.0 else math.nan


def make_pairs(
    primary: Primary, seeds: Sequence[int], baseline: Mapping[int, RunEvidence], other: Mapping[int, RunEvidence]
) -> list[Pair]:
    """A pair for each seed whose two runs completed, the baseline with a finite value; the other may be NaN."""
    pairs = []
    for seed in seeds:
        ours, theirs = baseline.get(seed), other.get(seed)
        if ours is None or theirs is None or ours.state != "completed" or theirs.state != "completed":
            continue
        if ours.metric is None or theirs.metric is None or not math.isfinite(ours.metric):
            continue
        pairs.append(
            Pair(
                seed=seed,
                run_id=theirs.run_id,
                baseline_run_id=ours.run_id,
                baseline=ours.metric,
                candidate=theirs.metric,
                harm=harm_of(primary, ours.metric, theirs.metric),
            )
        )
    return pairs


def resolution_of(primary: Primary, runs: Sequence[RunEvidence]) -> float:
    """The metric's smallest step, as a harm: declared, 1/size of an accuracy's evaluation, or float32's."""
    values = [abs(run.metric) for run in runs if run.metric is not None and math.isfinite(run.metric)]
    if not values:
        return 0.0
    sizes = [run.num_evaluated for run in runs if run.num_evaluated]
    if primary.resolution is not None:
        step = primary.resolution
    elif sentences.is_proportion(primary) and sizes:
        step = (100.0 if primary.unit == "%" else 1.0) / min(sizes)
    else:
        step = FLOAT32_EPSILON * max(values)
    if primary.relative:
        mean = sum(values) / len(values)
        return step / mean if mean > 0.0 else 0.0
    return step


def ends(interval: PairedInterval) -> tuple[float, float]:
    """The interval's ends as plain numbers."""
    return float(interval.lower), float(interval.upper)


def finite_harms(pairs: Sequence[Pair]) -> Floats:
    return np.array([pair.harm for pair in pairs if math.isfinite(pair.harm)], dtype=np.float64)


def interval_of(quality: Quality, floor: float) -> PairedInterval | None:
    harms = finite_harms(quality.pairs)
    return paired_interval(harms, floor) if harms.size >= 2 else None


def floor_of(evidence: ExperimentEvidence) -> float:
    return resolution_of(evidence.primary, list(evidence.runs_of(evidence.baseline.name).values()))


def quality_of(evidence: ExperimentEvidence, recipe: str) -> Quality:
    """The paired comparison of one recipe with the baseline, before Holm's test."""
    primary = evidence.primary
    pairs = make_pairs(primary, evidence.seeds, evidence.runs_of(evidence.baseline.name), evidence.runs_of(recipe))
    usable = [pair for pair in pairs if math.isfinite(pair.harm)]
    harms = finite_harms(usable)
    interval = paired_interval(harms, floor_of(evidence)) if harms.size >= 2 else None
    return Quality(
        mean_harm=float(harms.mean()) if harms.size else None,
        interval=ends(interval) if interval else None,
        margin=primary.margin,
        unit=primary.unit,
        relative=primary.relative,
        num_pairs=len(usable),
        num_planned=len(evidence.seeds),
        baseline_mean=_mean([pair.baseline for pair in usable]),
        candidate_mean=_mean([pair.candidate for pair in usable]),
        sd_of_pairs=float(harms.std(ddof=1)) if harms.size >= 2 else None,
        difference_text=sentences.signed(primary, float(harms.mean())) if harms.size else "no pair yet",
        interval_text=sentences.signed_interval(primary, *ends(interval)) if interval else None,
        floored=bool(interval.floored) if interval else False,
        holm=None,
        pairs=pairs,
    )


def with_holm(qualities: Mapping[str, Quality], choosable: Sequence[str], floor: float) -> dict[str, Quality]:
    """Add Holm's test to every recipe that could be chosen.

    The family is what the reader chooses from: recipes with all their pairs and no fatal finding. A recipe that is
    ruled out already can never be called SAFE, so it takes no share of the 5 %.
    """
    tested = {}
    for name in choosable:
        interval = interval_of(qualities[name], floor)
        if interval is not None and qualities[name].num_pairs >= MIN_PAIRS:
            tested[name] = float(noninferiority_p(interval, qualities[name].margin, qualities[name].num_pairs))
    outcomes = holm_thresholds(list(tested.values()))
    answer = dict(qualities)
    for (name, p_value), (threshold, passes) in zip(tested.items(), outcomes, strict=True):
        test = Holm(num_recipes=len(tested), p_value=p_value, threshold=threshold, passes=passes)
        answer[name] = msgspec.structs.replace(qualities[name], holm=test)
    return answer


def baseline_of(evidence: ExperimentEvidence) -> Baseline:
    """The baseline's own values by seed, with mean and standard deviation over finite ones."""
    runs = evidence.runs_of(evidence.baseline.name)
    values = [
        SeedValue(seed=seed, run_id=runs[seed].run_id, value=runs[seed].metric)
        for seed in evidence.seeds
        if seed in runs
    ]
    finite = [one.value for one in values if one.value is not None and math.isfinite(one.value)]
    return Baseline(
        recipe=evidence.baseline.name,
        num_seeds=len(finite),
        mean=_mean(finite),
        sd=float(np.std(finite, ddof=1)) if len(finite) >= 2 else None,
        values=values,
    )


def control_of(evidence: ExperimentEvidence) -> Control | None:
    """The A/A control: passes when FP32 against itself stays within the margin on both sides."""
    if not evidence.control_planned:
        return None
    primary = evidence.primary
    others = evidence.control_by_seed()
    pairs = make_pairs(primary, evidence.seeds, evidence.runs_of(evidence.baseline.name), others)
    harms = finite_harms(pairs)
    interval = paired_interval(harms, floor_of(evidence)) if harms.size >= 2 else None
    broken = any(not math.isfinite(pair.candidate) for pair in pairs)
    enough = harms.size >= MIN_PAIRS and harms.size == len(evidence.seeds)
    passes: bool | None = None
    if broken:
        passes = False
    elif interval is not None and enough and evidence.has_ended:
        passes = bool(is_equivalent(interval, primary.margin))
    return Control(
        interval=ends(interval) if interval else None,
        passes=passes,
        num_pairs=int(harms.size),
        mean_difference=float(harms.mean()) if harms.size else None,
        sd_of_pairs=float(harms.std(ddof=1)) if harms.size >= 2 else None,
        sentence=_control_sentence(evidence, interval, passes, int(harms.size)),
    )


def _control_sentence(
    evidence: ExperimentEvidence, interval: PairedInterval | None, passes: bool | None, num_pairs: int
) -> str:
    primary, name = evidence.primary, evidence.baseline.name
    label = sentences.metric_label(primary.metric)
    if passes is None or (interval is None and passes):
        planned = sentences.count(len(evidence.seeds), "pair")
        if not evidence.has_ended:
            return f"{name} against itself: {num_pairs} of {planned} so far."
        return f"{name} against itself gave {num_pairs} of {planned}: too few to say what no difference looks like."
    if interval is None:
        return f"{name} against itself is not finite: this experiment cannot tell recipes apart."
    reach = sentences.amount(primary, max(abs(float(interval.lower)), abs(float(interval.upper))))
    if passes:
        return (
            f"{name} against itself, its {perturbed(evidence)} changed by one part in a million, moves {label} by at "
            f"most {reach}: that is what no difference looks like here."
        )
    return (
        f"This experiment cannot tell: {name} against itself may already differ by {reach}, and the margin is "
        f"{sentences.margin_text(primary)}."
    )


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
