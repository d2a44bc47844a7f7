"""What to do now: more seeds, their number from the measured spread, or the recipe that should mend a finding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from amp_core.config import Recipe
from amp_core.verdict import sentences
from amp_core.verdict.comparison import Baseline, Control, Finding, NextStep, Quality, Verdict
from amp_core.verdict.evidence import BenchmarkEvidence, ExperimentEvidence, RunEvidence
from amp_core.verdict.statistics import MAX_SEEDS, POWER, pairs_needed

MAX_SEED = 2**31 - 1
DEFAULT_SEEDS = 5  # when nothing was measured from which to plan
_SERVER_LIMIT_OF_NAME = 200


def next_step_of(
    evidence: ExperimentEvidence,
    recipe: Recipe,
    verdict: Verdict,
    quality: Quality,
    findings: Sequence[Finding],
    control: Control | None,
    baseline: Baseline,
    floor: float,
) -> NextStep | None:
    """The next step of a judged recipe; None where nothing is left to do."""
    cured = next((one for one in findings if one.cure is not None and one.severity != "info"), None)
    if verdict in ("UNSAFE", "SAFE WITH CAUTION") and cured is not None:
        return _run_cure(evidence, cured)
    if verdict == "UNSAFE":
        return NextStep(sentence=f"Keep {evidence.baseline.name} for this workload.")
    if verdict != "INCONCLUSIVE":
        return None
    broken = _unpaired_runs(evidence, recipe)
    if broken:
        named = [f"run {run.run_id}" for run in broken[:3]] + (["others"] if len(broken) > 3 else [])
        number = sentences.count(len(broken), "run")
        return NextStep(sentence=f"Mend and retry {number} that did not finish: {sentences.listing(named)}.")
    if quality.num_pairs < quality.num_planned:
        return NextStep(
            sentence=f"Mend the workload first: {quality.num_planned - quality.num_pairs} of "
            f"{sentences.count(quality.num_planned, 'seed')} gave no value to compare."
        )
    return _more_seeds(evidence, recipe, quality, control, baseline, floor)


def _unpaired_runs(evidence: ExperimentEvidence, recipe: Recipe) -> list[RunEvidence]:
    return [
        run for run in evidence.runs if run.recipe in (evidence.baseline.name, recipe.name) and run.state != "completed"
    ]


def _run_cure(evidence: ExperimentEvidence, finding: Finding) -> NextStep:
    assert finding.cure is not None
    submission = submission_of(evidence, [finding.cure.recipe], evidence.seeds, "cure")
    return NextStep(sentence=f"Run the cure: {finding.cure.sentence}", action="run_cure", submission=submission)


def _more_seeds(
    evidence: ExperimentEvidence,
    recipe: Recipe,
    quality: Quality,
    control: Control | None,
    baseline: Baseline,
    floor: float,
) -> NextStep:
    primary = evidence.primary
    if floor >= primary.margin:
        return NextStep(
            sentence=f"More seeds cannot help: the metric moves in steps of {sentences.amount(primary, floor)}, "
            f"the margin is {sentences.margin_text(primary)}. Evaluate on more samples."
        )
    sd = spread_of(quality, control, baseline, primary.relative)
    if sd is None:
        return _ask_for_seeds(evidence, recipe, max(DEFAULT_SEEDS, len(evidence.seeds)))
    number = seeds_to_settle(_distance(quality, primary.margin), sd, floor)
    if number is not None and control is not None and control.passes is False and control.sd_of_pairs is not None:
        calm = pairs_needed(primary.margin, control.sd_of_pairs, power=0.5 + POWER / 2)  # two tests share the risk
        number = None if calm is None else max(number, calm)
    if number is None:
        return NextStep(
            sentence=f"More seeds would hardly settle it: at this spread even {MAX_SEEDS} are too few to tell the "
            f"difference from the margin of {sentences.margin_text(primary)}."
        )
    return _ask_for_seeds(evidence, recipe, number)


def _ask_for_seeds(evidence: ExperimentEvidence, recipe: Recipe, number: int) -> NextStep:
    minutes = minutes_for(evidence, recipe, number)
    duration = "" if minutes is None else f", {sentences.minutes_text(minutes)}"
    return NextStep(
        sentence=f"Run {sentences.count(number, 'more seed')}{duration}, as a new experiment: it is judged on fresh "
        "seeds alone, because looking twice at the same ones would call bad recipes safe too often.",
        action="more_seeds",
        num_seeds=number,
        minutes=minutes,
        submission=submission_of(evidence, [_recipe_object(recipe)], fresh_seeds(evidence.seeds, number), "more seeds"),
    )


def spread_of(quality: Quality, control: Control | None, baseline: Baseline, relative: bool) -> float | None:
    """The paired spread to plan with: the pairs' own, else the A/A control's, else two independent baselines'."""
    if quality.sd_of_pairs is not None:
        return quality.sd_of_pairs
    if control is not None and control.sd_of_pairs is not None:
        return control.sd_of_pairs
    if baseline.sd is None or baseline.mean is None:
        return None
    independent = float(2.0**0.5 * baseline.sd)
    if not relative:
        return independent
    return independent / abs(baseline.mean) if baseline.mean != 0.0 else None


def _distance(quality: Quality, margin: float) -> float:
    """How far the truth seems to lie from the margin; a difference in the good direction is not counted on."""
    mean = quality.mean_harm or 0.0
    return margin - max(mean, 0.0) if mean < margin else mean - margin


def seeds_to_settle(distance: float, sd: float, floor: float) -> int | None:
    """Fewest seeds whose interval clears the margin with 80 % power; None where the floor or the spread forbids it."""
    return pairs_needed(distance, sd) if distance > floor else None


def minutes_for(evidence: ExperimentEvidence, recipe: Recipe, num_seeds: int) -> float | None:
    """Minutes the new experiment takes: measured durations per run, at the concurrency this experiment had."""
    train = {
        name: _mean_duration(list(evidence.runs_of(name).values())) for name in (evidence.baseline.name, recipe.name)
    }
    known = [duration for duration in train.values() if duration is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    per_seed = sum(duration if duration is not None else mean for duration in train.values())
    if evidence.control_planned:
        per_seed += _mean_duration(evidence.control_runs) or train[evidence.baseline.name] or mean
    total = per_seed * num_seeds
    benchmark = evidence.benchmark_of(recipe.name)
    if benchmark is not None and benchmark.duration_s is not None:
        total += benchmark.duration_s
    spent = sum(run.duration_s or 0.0 for run in evidence.all_runs)
    concurrency = max(1.0, spent / evidence.wall_s) if evidence.wall_s else 1.0
    return total / concurrency / 60.0


def _mean_duration(runs: Sequence[RunEvidence | BenchmarkEvidence]) -> float | None:
    durations = [run.duration_s for run in runs if run.state == "completed" and run.duration_s is not None]
    return sum(durations) / len(durations) if durations else None


def fresh_seeds(used: Sequence[int], number: int) -> list[int]:
    """Seeds after the largest used one, or from 0 on where those would leave the range of a seed."""
    first = max(used, default=-1) + 1
    if first + number - 1 > MAX_SEED:
        first = 0
    taken = set(used)
    return list(itertools.islice((seed for seed in itertools.count(first) if seed not in taken), number))


def _recipe_object(recipe: Recipe) -> dict[str, Any]:
    given = {key: value for key, value in msgspec.to_builtins(recipe).items() if value is not None}
    if recipe.precision != "16-mixed":
        given.pop("fp16_compute", None)
    if not recipe.fp32_modules:
        given.pop("fp32_modules", None)
    return given


def submission_of(
    evidence: ExperimentEvidence, candidates: Sequence[dict[str, Any]], seeds: Sequence[int], purpose: str
) -> dict[str, Any]:
    """A body for ``POST /experiments``: the plan as it was given, with other recipes and seeds."""
    name = str(evidence.submission.get("name") or evidence.workload)
    primary = evidence.primary
    room = _SERVER_LIMIT_OF_NAME - len(purpose) - 3
    length: dict[str, Any] = {"steps": evidence.steps}
    if (fork := evidence.fork) is not None:  # whose horizon is the length
        length = {"fork": {"run": fork.run_id, "step": fork.step, "horizon": evidence.steps}}
    given = {field: value for field, value in evidence.submission.items() if field not in ("steps", "keep_checkpoints")}
    return {
        **given,
        **length,
        "name": f"{name[:room]} ({purpose})",
        "workload": evidence.workload,
        "recipes": [_recipe_object(evidence.baseline), *candidates],
        "baseline": evidence.baseline.name,
        "seeds": list(seeds),
        "device": evidence.device,
        "primary": {
            "metric": primary.metric,
            "higher_is_better": primary.higher_is_better,
            "margin": primary.margin,
            "relative": primary.relative,
            "unit": primary.unit,
        },
    }
