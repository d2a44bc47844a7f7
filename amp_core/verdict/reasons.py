"""From quality, findings and control to one word, with every reason that led there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_core.config import Recipe
from amp_core.verdict import sentences
from amp_core.verdict.comparison import Control, Finding, Quality, Reason, Severity, Verdict
from amp_core.verdict.evidence import ExperimentEvidence
from amp_core.verdict.quality import is_finite
from amp_core.verdict.skips import LOST_SAMPLES_LIMIT, lost_fraction, lost_fraction_after_settling
from amp_core.verdict.stability import is_healthy
from amp_core.verdict.statistics import MIN_PAIRS


def conclude(
    evidence: ExperimentEvidence, recipe: Recipe, quality: Quality, findings: Sequence[Finding], control: Control | None
) -> tuple[Verdict | None, list[Reason]]:
    """The verdict of one recipe with its reasons, the deciding ones first; no verdict before all runs have ended."""
    harmful = [_reason(finding.kind, finding.severity, finding.sentence) for finding in findings]
    harmful += _quality_harm(evidence, quality)
    missing = [*_missing_pairs(evidence, recipe, quality), *_too_few(evidence, quality)]
    unsettled = [*_unsettled(evidence, quality), *_control_reasons(control)]
    benign = _benign(evidence, recipe)
    if not evidence.has_ended:
        waiting = _reason("so_far", "info", "No verdict before every planned run has ended.")
        return None, [waiting, *[one for one in harmful if one.code != "margin_exceeded"], *benign]
    reasons = [*harmful, *missing, *unsettled, *benign]
    if any(reason.severity == "fatal" for reason in harmful):
        return "UNSAFE", reasons
    if missing or unsettled:
        return "INCONCLUSIVE", reasons
    within = _reason(
        "within_margin",
        "info",
        f"The whole interval lies within the margin of {sentences.margin_text(evidence.primary)}.",
    )
    if any(finding.severity == "caution" for finding in findings):
        return "SAFE WITH CAUTION", [*reasons, within]
    return "SAFE", [within, *reasons]


def _reason(code: str, severity: Severity, sentence: str) -> Reason:
    return Reason(code=code, severity=severity, sentence=sentence)


def _quality_harm(evidence: ExperimentEvidence, quality: Quality) -> list[Reason]:
    if quality.interval is None or quality.interval[0] <= quality.margin:
        return []
    text = (
        f"{sentences.metric_label(evidence.primary.metric)} is at least "
        f"{sentences.shift(evidence.primary, quality.interval[0])} than with {evidence.baseline.name}: more than the "
        f"margin of {sentences.margin_text(evidence.primary)}."
    )
    return [_reason("margin_exceeded", "fatal", text)]


def _missing_pairs(evidence: ExperimentEvidence, recipe: Recipe, quality: Quality) -> list[Reason]:
    """Why planned pairs are missing: on the baseline's side, on the recipe's, or by the margin's own rule."""
    if quality.num_pairs == quality.num_planned:
        return []
    baseline, ours = evidence.runs_of(evidence.baseline.name), evidence.runs_of(recipe.name)
    without = [seed for seed in evidence.seeds if seed not in baseline or baseline[seed].state != "completed"]
    unhealthy = [seed for seed in evidence.seeds if seed not in without and not is_healthy(baseline[seed])]
    failed = [seed for seed in evidence.seeds if seed not in ours or ours[seed].state != "completed"]
    valueless = [seed for seed in evidence.seeds if seed not in failed and not is_finite(ours[seed].metric)]
    name, metric = evidence.baseline.name, evidence.primary.metric
    reasons = []
    if without:
        text = f"{name} did not finish for {sentences.seeds_text(without)}, so there is nothing to compare with."
        reasons.append(_reason("baseline_missing", "caution", text))
    if unhealthy:
        text = f"{name} itself was not finite or did not train for {sentences.seeds_text(unhealthy)}."
        reasons.append(_reason("baseline_unstable", "caution", text))
    if failed:
        text = f"{recipe.name} did not finish for {sentences.seeds_text(failed)}."
        reasons.append(_reason("runs_missing", "caution", text))
    if valueless:
        text = f"{recipe.name} gave no finite {metric} for {sentences.seeds_text(valueless)}."
        reasons.append(_reason("metric_missing", "caution", text))
    if any(math.isnan(pair.harm) and math.isfinite(pair.candidate) for pair in quality.pairs):
        text = f"A relative margin needs a baseline other than 0, and {metric} was 0: submit an absolute margin."
        reasons.append(_reason("baseline_zero", "caution", text))
    return reasons


def _too_few(evidence: ExperimentEvidence, quality: Quality) -> list[Reason]:
    if quality.num_planned >= MIN_PAIRS:
        return []
    text = f"{sentences.count(len(evidence.seeds), 'seed')} planned; a verdict of safety needs at least {MIN_PAIRS}."
    return [_reason("too_few_seeds", "caution", text)]


def _unsettled(evidence: ExperimentEvidence, quality: Quality) -> list[Reason]:
    if quality.interval is None or quality.num_pairs < quality.num_planned:
        return []
    lower, upper = quality.interval
    if lower > quality.margin:
        return []  # settled: harm
    if upper >= quality.margin:
        primary = evidence.primary
        text = (
            f"Between {sentences.shift(primary, lower)} and {sentences.shift(primary, upper)} is possible; "
            f"the margin is {sentences.margin_text(primary)}."
        )
        return [_reason("interval_reaches_margin", "caution", text)]
    if quality.holm is not None and not quality.holm.passes:
        text = (
            f"Alone it would pass, but with {quality.holm.num_recipes} recipes to choose from one may look safe by "
            "luck: the stricter test is not passed."
        )
        return [_reason("several_recipes", "caution", text)]
    return []


def _control_reasons(control: Control | None) -> list[Reason]:
    if control is None or control.passes is not False:
        return []
    return [_reason("control_fails", "caution", control.sentence)]


def _benign(evidence: ExperimentEvidence, recipe: Recipe) -> list[Reason]:
    """Facts that look alarming and are not, said so that nobody has to ask."""
    runs = list(evidence.runs_of(recipe.name).values())
    skipped = sum(run.skipped_steps for run in runs)
    if skipped == 0 or lost_fraction_after_settling(recipe, runs) > LOST_SAMPLES_LIMIT:
        return []
    text = (
        f"{sentences.count(skipped, 'step')} skipped in {sentences.count(len(runs), 'run')}, "
        f"{sentences.percent(lost_fraction(runs))} of the samples: that is how loss scaling finds its scale."
    )
    return [_reason("settling_skips", "info", text)]
