"""The judge: evidence in, comparison out. Pure, and the same for REST, page, command line and report."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from amp_core.config import Recipe, parse_recipe
from amp_core.verdict import answers, conditions, sentences
from amp_core.verdict.comparison import (
    Baseline,
    Comparison,
    Control,
    Finding,
    PrimaryText,
    Quality,
    RecipeComparison,
)
from amp_core.verdict.divergence import divergence_of
from amp_core.verdict.evidence import ExperimentEvidence, RunEvidence
from amp_core.verdict.gain import gain_of
from amp_core.verdict.next_step import next_step_of
from amp_core.verdict.quality import baseline_of, control_of, floor_of, quality_of, with_holm
from amp_core.verdict.reasons import conclude
from amp_core.verdict.segment import segment_of
from amp_core.verdict.skips import lost_fraction
from amp_core.verdict.stability import findings_of, is_healthy
from amp_core.verdict.tf32 import with_tf32


def judge(evidence: ExperimentEvidence) -> Comparison:
    """Compare every candidate with the baseline.

    The state is ``judged`` once every planned run is final, and only then are there verdicts; the same evidence
    always gives the same comparison.
    """
    floor = floor_of(evidence)
    control, baseline = control_of(evidence), baseline_of(evidence)
    findings = {recipe.name: findings_of(recipe, _twins(evidence, recipe.name)) for recipe in evidence.candidates}
    qualities = {recipe.name: quality_of(evidence, recipe.name) for recipe in evidence.candidates}
    choosable = [name for name in qualities if _is_choosable(qualities[name], findings[name])]
    qualities = with_holm(qualities, choosable, floor)
    recipes = [
        _compare(evidence, recipe, qualities[recipe.name], findings[recipe.name], control, baseline, floor)
        for recipe in evidence.candidates
    ]
    recipes = [_with_proven_cure(one, recipes, evidence) for one in recipes]
    return Comparison(
        experiment_id=evidence.experiment_id,
        state="judged" if evidence.has_ended else "so_far",
        headline=answers.headline(evidence, recipes, control),
        statements=answers.statements(evidence, recipes, control),
        primary=_primary_text(evidence),
        baseline=baseline,
        control=control,
        recipes=recipes,
        conditions=conditions.conditions_of(evidence),
        caveats=conditions.caveats_of(evidence, control),
        why=answers.why_of(evidence, control),
        num_runs=len(evidence.all_runs),
        num_ended=sum(run.is_final for run in evidence.all_runs),
        segment=segment_of(evidence),
    )


def _twins(evidence: ExperimentEvidence, recipe: str) -> list[tuple[RunEvidence, RunEvidence]]:
    """Each run of a recipe with its baseline run of the same seed, where that one is healthy."""
    baseline = evidence.runs_of(evidence.baseline.name)
    return [
        (run, baseline[seed])
        for seed, run in sorted(evidence.runs_of(recipe).items())
        if seed in baseline and is_healthy(baseline[seed])
    ]


def _is_choosable(quality: Quality, findings: Sequence[Finding]) -> bool:
    complete = quality.num_pairs == quality.num_planned
    return complete and not any(finding.severity == "fatal" for finding in findings)


def _compare(
    evidence: ExperimentEvidence,
    recipe: Recipe,
    quality: Quality,
    findings: list[Finding],
    control: Control | None,
    baseline: Baseline,
    floor: float,
) -> RecipeComparison:
    runs = list(evidence.runs_of(recipe.name).values())
    numerics = next((run.numerics for run in runs if run.numerics), None)
    lost = lost_fraction(runs)
    verdict, reasons = conclude(evidence, recipe, quality, findings, control)
    step = None
    if verdict is not None:
        step = next_step_of(evidence, recipe, verdict, quality, findings, control, baseline, floor)
    return RecipeComparison(
        recipe=recipe.name,
        precision=recipe.precision,
        numerics=numerics,
        verdict=verdict,
        sentence=answers.recipe_sentence(evidence, recipe.name, quality, verdict, reasons, findings),
        reasons=reasons,
        quality=quality if quality.pairs else None,
        findings=findings,
        next_step=step,
        gain=with_tf32(gain_of(evidence, recipe.name, numerics, lost), evidence, recipe.name),
        skipped_steps=sum(run.skipped_steps for run in runs),
        lost_samples_fraction=lost,
        why=answers.recipe_why(evidence, quality),
        divergence=divergence_of(evidence, recipe.name),
    )


def _with_proven_cure(
    one: RecipeComparison, recipes: Sequence[RecipeComparison], evidence: ExperimentEvidence
) -> RecipeComparison:
    """Say so where this experiment itself shows that the proposed cure works."""
    if one.next_step is None or one.next_step.action != "run_cure" or one.next_step.submission is None:
        return one
    cure = parse_recipe(one.next_step.submission["recipes"][-1])
    proven = {recipe.recipe for recipe in recipes if recipe.verdict == "SAFE"}
    for recipe in evidence.candidates:
        if recipe.name in proven and msgspec.structs.replace(recipe, name=cure.name) == cure:
            sentence = f"{one.next_step.sentence} {recipe.name} shows it in this experiment."
            return msgspec.structs.replace(one, next_step=msgspec.structs.replace(one.next_step, sentence=sentence))
    return one


def _primary_text(evidence: ExperimentEvidence) -> PrimaryText:
    primary = evidence.primary
    return PrimaryText(
        metric=primary.metric,
        label=sentences.metric_label(primary.metric),
        higher_is_better=primary.higher_is_better,
        margin=primary.margin,
        margin_text=sentences.margin_text(primary),
        relative=primary.relative,
        unit=primary.unit,
    )
