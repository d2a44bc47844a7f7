"""Did it train soundly? Findings of one recipe from its runs, each beside its FP32 twin of the same seed.

A fact that the twin shows too is the workload's, not the recipe's, and no finding. A finding is fatal where VERDICT's
rule makes one run enough: non-finite weights or evaluation, skips without end, or a module that FP32 trains and that
receives all-zero gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from amp_core.config import Recipe
from amp_core.verdict import sentences
from amp_core.verdict.comparison import Cure, Finding, Severity
from amp_core.verdict.cures import range_cure, scaling_cure
from amp_core.verdict.effect import effect_findings
from amp_core.verdict.evidence import RunEvidence
from amp_core.verdict.skips import (
    LOST_SAMPLES_LIMIT,
    goes_on_falling,
    is_endless,
    lost_fraction,
    lost_fraction_after_settling,
    num_trailing,
)
from amp_core.verdict.vanishing import vanishing_findings

Twins = Sequence[tuple[RunEvidence, RunEvidence]]  # (candidate, its FP32 twin)

# What a worker, the store or a person ended says nothing about the recipe.
NOT_THE_RECIPE = frozenset({"lost", "interrupted", "cancelled", "store", "spool_full", "launch", "protocol"})


def has_non_finite(run: RunEvidence, *places: str) -> bool:
    return any(event.where in places for event in run.non_finite)


def is_healthy(run: RunEvidence) -> bool:
    """Whether a twin can testify: completed, with finite metric, evaluations and weights, its steps taken."""
    return (
        run.state == "completed"
        and run.metric is not None
        and math.isfinite(run.metric)
        and not has_non_finite(run, "weight", "evaluation")
        and not is_endless(run)
    )


def findings_of(recipe: Recipe, twins: Twins) -> list[Finding]:
    """All findings of a recipe, fatal ones first; ``twins`` are the pairs whose FP32 twin is healthy."""
    found = [
        *_weights(recipe, twins),
        *_evaluation(recipe, twins),
        *vanishing_findings(twins, scaling_cure(recipe)),
        *_endless_skips(recipe, twins),
        *_failures(recipe, twins),
        *_falling_scale(recipe, twins),
        *_lost_samples(recipe, twins),
        *_transient(recipe, twins, "loss"),
        *_transient(recipe, twins, "gradient"),
        *effect_findings(twins),
    ]
    order: dict[Severity, int] = {"fatal": 0, "caution": 1, "info": 2}
    return sorted(found, key=lambda finding: order[finding.severity])


def _gather(twins: Twins, applies: Callable[[RunEvidence], bool]) -> list[RunEvidence]:
    """Candidates to which something applies and to whose twin it does not."""
    return [run for run, twin in twins if applies(run) and not applies(twin)]


def _first(runs: Sequence[RunEvidence], *places: str) -> tuple[RunEvidence, Any] | None:
    events = [(event.step, run, event) for run in runs for event in run.non_finite if event.where in places]
    if not events:
        return None
    _, run, event = min(events, key=lambda item: item[0])
    return run, event


def _finding(
    kind: str,
    severity: Severity,
    runs: Sequence[RunEvidence],
    sentence: str,
    *,
    cure: Cure | None = None,
    module: str | None = None,
    step: int | None = None,
    evidence: dict[str, Any] | None = None,
) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        module=module,
        step=step,
        seeds=sorted(run.seed for run in runs),
        sentence=sentence,
        evidence={"runs": sorted(run.run_id for run in runs), **(evidence or {})},
        cure=cure,
    )


def _word(value: str) -> str:
    return {"nan": "NaN", "inf": "infinite", "-inf": "infinite"}.get(value.lower(), "not finite")


def _weights(recipe: Recipe, twins: Twins) -> list[Finding]:
    runs = _gather(twins, lambda run: has_non_finite(run, "weight"))
    first = _first(runs, "weight")
    if first is None:
        return []
    _, event = first
    return [
        _finding(
            "non_finite_weights",
            "fatal",
            runs,
            f"Weights of {event.name} became {_word(event.value)} at step {event.step:,} "
            f"({sentences.seeds_text(sorted(run.seed for run in runs))}), while the baseline's stayed finite.",
            cure=range_cure(recipe),
            module=event.name,
            step=event.step,
            evidence={"value": event.value},
        )
    ]


def _evaluation_is_bad(run: RunEvidence) -> bool:
    measured = run.metric is not None and not math.isfinite(run.metric)
    return measured or has_non_finite(run, "evaluation")


def _evaluation(recipe: Recipe, twins: Twins) -> list[Finding]:
    runs = _gather(twins, _evaluation_is_bad)
    if not runs:
        return []
    first = _first(runs, "evaluation")
    name, word, step = "The primary metric", "not finite", None
    if first is not None:
        name, word, step = f"Evaluation metric {first[1].name}", _word(first[1].value), first[1].step
    where = "" if step is None else f" at step {step:,}"
    return [
        _finding(
            "non_finite_evaluation",
            "fatal",
            runs,
            f"{name} is {word}{where} ({sentences.seeds_text(sorted(run.seed for run in runs))}), "
            "while the baseline's is finite.",
            cure=range_cure(recipe),
            step=step,
        )
    ]


def _endless_skips(recipe: Recipe, twins: Twins) -> list[Finding]:
    runs = _gather(twins, is_endless)
    if not runs:
        return []
    worst = max(runs, key=lambda run: run.skipped_steps / max(1, run.steps_run))
    trailing = num_trailing(worst)
    first = min((skip.step for run in runs for skip in run.skips), default=None)
    text = (
        f"The last {trailing:,} steps were all skipped: training had stopped"
        if trailing >= worst.steps_run / 2
        else f"{worst.skipped_steps:,} of {worst.steps_run:,} steps were skipped, and the skips did not end"
    )
    return [
        _finding(
            "endless_skips",
            "fatal",
            runs,
            f"{text} ({sentences.seeds_text(sorted(run.seed for run in runs))}).",
            cure=range_cure(recipe),
            step=first,
            evidence={"skipped_steps": worst.skipped_steps, "steps": worst.steps_run, "last_streak": trailing},
        )
    ]


def _failures(recipe: Recipe, twins: Twins) -> list[Finding]:
    """A candidate that ended early although its twin finished; what the recipe did not cause is left to the verdict."""
    runs = [run for run, _ in twins if run.state == "failed" and _kind(run) not in NOT_THE_RECIPE]
    if not runs:
        return []
    message = str((runs[0].reason or {}).get("message", "")).strip().splitlines()
    detail = f": {message[0][:200]}" if message else ""
    total = len(twins)
    return [
        _finding(
            "run_failed",
            "caution",
            runs,
            f"{len(runs)} of {sentences.count(total, 'run')} failed, while the baseline's of the same seed finished"
            f"{detail.rstrip('.')}.",
            evidence={"kinds": sorted({_kind(run) for run in runs}), "steps": [run.steps_run for run in runs]},
            cure=range_cure(recipe) if _kind(runs[0]) != "out_of_memory" else None,
        )
    ]


def _kind(run: RunEvidence) -> str:
    return str((run.reason or {}).get("kind", "unknown"))


def _falling_scale(recipe: Recipe, twins: Twins) -> list[Finding]:
    runs = [run for run, _ in twins if goes_on_falling(run) and not is_endless(run)]
    if not runs:
        return []
    lowest = min(run.skips[-1].scale_after for run in runs)
    return [
        _finding(
            "falling_scale",
            "caution",
            runs,
            f"The loss scale kept falling, to {lowest:.3g}: infinities that do not depend on it drive it to zero.",
            cure=range_cure(recipe),
            step=runs[0].skips[-1].step,
            evidence={"loss_scale": lowest},
        )
    ]


def _lost_samples(recipe: Recipe, twins: Twins) -> list[Finding]:
    """More than 1 % of all samples lost to skipped steps, without the few while a dynamic scale settles."""
    runs = [run for run, _ in twins]
    if lost_fraction_after_settling(recipe, runs) <= LOST_SAMPLES_LIMIT:
        return []
    skipping = [run for run in runs if run.lost_samples]
    fraction = lost_fraction(runs)
    return [
        _finding(
            "lost_samples",
            "caution",
            skipping,
            f"{sentences.percent(fraction)} of the samples were lost to skipped steps (limit 1 %).",
            cure=range_cure(recipe),
            step=min((skip.step for run in skipping for skip in run.skips), default=None),
            evidence={"lost_samples_fraction": fraction},
        )
    ]


def _transient(recipe: Recipe, twins: Twins, place: str) -> list[Finding]:
    """A NaN or infinity that the run outlived; where it did not, the fatal finding already says so."""
    runs = _gather(twins, lambda run: has_non_finite(run, place))
    runs = [run for run in runs if not _evaluation_is_bad(run) and not has_non_finite(run, "weight")]
    first = _first(runs, place)
    if first is None:
        return []
    _, event = first
    what = "The training loss" if place == "loss" else f"A gradient of {event.name}"
    return [
        _finding(
            f"non_finite_{place}",
            "caution",
            runs,
            f"{what} was {_word(event.value)} at step {event.step:,} "
            f"({sentences.seeds_text(sorted(run.seed for run in runs))}); training went on.",
            cure=range_cure(recipe),
            module=event.name if place == "gradient" else None,
            step=event.step,
            evidence={"value": event.value},
        )
    ]
