"""Did a recipe take effect? Findings from the step in which each run recorded what it really computed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amp_core.events import EffectivePrecision
from amp_core.verdict import sentences
from amp_core.verdict.comparison import Finding
from amp_core.verdict.evidence import RunEvidence


def effect_findings(twins: Sequence[tuple[RunEvidence, RunEvidence]]) -> list[Finding]:
    """A recipe that computed in other types than it asked for, and a baseline that did: cautions, both.

    The comparison is then not the one that was asked for, whatever its figures say.
    """
    ours = [(run, proof) for run, _ in twins if (proof := _without_effect(run)) is not None]
    theirs = [(twin, proof) for _, twin in twins if (proof := _without_effect(twin)) is not None]
    found = []
    if ours:
        found.append(_finding("no_effect", "The recipe did not take effect", ours))
    if theirs:
        found.append(_finding("baseline_no_effect", "The baseline is not what it is called", theirs))
    return found


def _without_effect(run: RunEvidence) -> EffectivePrecision | None:
    """The run's newest proof, if it says that the recipe did not take effect."""
    newest = run.effective[-1] if run.effective else None
    return newest if newest is not None and newest.took_effect is False else None


def _finding(kind: str, head: str, runs: Sequence[tuple[RunEvidence, EffectivePrecision]]) -> Finding:
    first = runs[0][1]
    seeds = sorted(run.seed for run, _ in runs)
    evidence: dict[str, Any] = {
        "runs": sorted(run.run_id for run, _ in runs),
        "asked": first.asked,
        "flops": first.flops,
    }
    return Finding(
        kind=kind,
        severity="caution",
        module=None,
        step=first.step,
        seeds=seeds,
        sentence=f"{head} ({sentences.seeds_text(seeds)}): {first.sentence}",
        evidence=evidence,
    )
