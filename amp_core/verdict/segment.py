"""What part of a training was judged when runs were forked from a checkpoint: words that belong to every verdict."""

from __future__ import annotations

from amp_core.verdict import sentences
from amp_core.verdict.comparison import Segment
from amp_core.verdict.evidence import ExperimentEvidence


def over(evidence: ExperimentEvidence) -> str:
    """`` over 200 steps from step 1,000 of run 12``, with its space; nothing where whole trainings are compared."""
    fork = evidence.fork
    if fork is None:
        return ""
    return f" over {sentences.count(evidence.steps, 'step')} from step {fork.step:,} of run {fork.run_id}"


def segment_of(evidence: ExperimentEvidence) -> Segment | None:
    """The segment for the comparison; None where whole trainings are compared."""
    fork = evidence.fork
    if fork is None:
        return None
    return Segment(
        run_id=fork.run_id,
        step=fork.step,
        horizon=evidence.steps,
        steps=fork.steps,
        sentence=f"All runs begin at one checkpoint and are judged{over(evidence)}, which was to have "
        f"{fork.steps:,}: this says nothing about a whole training.",
    )


def validity(evidence: ExperimentEvidence) -> str:
    """For which steps of what a verdict is true; the first caveat of every comparison."""
    here = sentences.device_text(evidence.device)
    if evidence.fork is None:
        return f"True for {evidence.steps:,} steps of {evidence.workload} on {here}."
    fork = evidence.fork
    return (
        f"True for {sentences.count(evidence.steps, 'step')} of {evidence.workload} on {here} from step {fork.step:,} "
        f"of run {fork.run_id}: it says nothing about a whole training."
    )


def pairing(evidence: ExperimentEvidence) -> str:
    """What the two runs of a pair share."""
    fork = evidence.fork
    if fork is None:
        return "same initial weights, data order and dropout stream"
    return (
        f"all begin at the checkpoint after step {fork.step:,} of run {fork.run_id}, and both of a pair have the same "
        "data order and dropout stream from there"
    )


def perturbed(evidence: ExperimentEvidence) -> str:
    """Which weights the A/A control changes."""
    return "initial weights" if evidence.fork is None else "weights at the checkpoint"
