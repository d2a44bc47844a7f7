"""From the scene of a fault in a run to its `Diagnosis` event, and the bundle that reproduces it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

from amp_core.config import RunConfig
from amp_core.events import Artifact, Replay
from amp_core.events import Diagnosis as DiagnosisEvent
from amp_core.forensics.blame import Blame
from amp_core.forensics.bundle import bundle_of, state_before
from amp_core.forensics.diagnose import diagnose_subject
from amp_core.forensics.diagnosis import Diagnosis, Symptom, SymptomKind, family_of
from amp_core.forensics.locate import Fault, non_finite_faults
from amp_core.forensics.replay import replay, scale_that_fits
from amp_core.forensics.sentences import what_happened
from amp_core.forensics.subject import FP32_ARM, FP64_ARM, Arm, Subject, low_dtype
from amp_core.forensics.trace import Trace, trace_step
from amp_core.workload import Workload

HALVINGS = (0, 1, 2, 4, 8, 12, 16)
SCALER_DID_ITS_WORK = (
    "Nothing has to be mended: the loss scale was too high for this batch, the scaler left the step out and lowered it."
)
WORKLOADS_OWN = (
    "FP32 shows the same fault, so no recipe mends it. Look at the operation named here, at the data of this batch, "
    "and at the learning rate."
)


def diagnose_scene(
    config: RunConfig, workload: Workload, subject: Subject, cause: str
) -> Iterator[DiagnosisEvent | Artifact]:
    """The diagnosis of a suspicion, and its bundle; nothing if the replay shows nothing wrong."""
    began = time.monotonic()
    found, severity = _found(subject, cause)
    if found is None:
        return
    replays = _replays(subject, found) if found.phase != "evaluation" else []
    bundle = bundle_of(config, workload, subject, found, replays) if severity == "fault" else None
    yield DiagnosisEvent(
        severity=severity,
        symptom=found.symptom.kind,
        symptom_sentence=found.symptom.sentence,
        kind=found.kind,
        family=found.family,
        module=found.module,
        op=found.op,
        phase=found.phase,
        step=found.step or subject.first_step,
        batch=found.batch,
        max_abs=found.max_abs,
        scale=found.scale,
        caused_by=found.caused_by,
        sentence=found.sentence,
        fix=found.fix,
        recipe=found.recipe,
        fp32_weights=found.fp32_weights,
        verified=found.verified,
        replays=replays,
        bundle=bundle.name if bundle is not None else "",
        seconds=time.monotonic() - began,
    )
    if bundle is not None:
        yield bundle


def _found(subject: Subject, cause: str) -> tuple[Diagnosis | None, str]:
    """The diagnosis and its severity. A single skip is first asked whether the scale alone did it."""
    if cause == "skip":
        note = _skip_for_the_scale(subject)
        if note is not None:
            return note, "note"
    found = diagnose_subject(subject)
    if found is None and cause in ("non_finite", "skips", "skip", "evaluation"):
        found = _workloads_own(subject, cause)
    return found, "fault"


def _skip_for_the_scale(subject: Subject) -> Diagnosis | None:
    """Where the first scaled gradient overflowed, if a lower scale would have saved the step."""
    arm, state = Arm(recipe=subject.recipe), subject.start
    scaler = subject.recipe.scaler
    if state is None or scaler is None or not state.scaler:
        return None
    scale = float(state.scaler["scale"])
    batches = subject.micro_batches(0)
    fits = scale_that_fits(subject, arm, state, batches, scale)
    if fits is None:
        return None
    low = trace_step(subject, arm, state, batches, exactly=True)
    faults = non_finite_faults(low, trace_step(subject, FP32_ARM, state, batches, exactly=False))
    if not faults:
        return None
    text = (
        f"Step {subject.first_step} was skipped: at loss scale {scale:g} a gradient overflows, at {fits:g} none does."
    )
    symptom = Symptom(kind="skipped_step", step=subject.first_step, sentence=text, figures={"fitting_scale": fits})
    found = Blame(faults=faults, cause="scale", scale=scale)
    return _plain(subject, symptom, found, SCALER_DID_ITS_WORK)


def _workloads_own(subject: Subject, cause: str) -> Diagnosis | None:
    """A fault that FP32 shares: the first operation that is not finite, beside what float64 gives there."""
    arm, evaluate = Arm(recipe=subject.recipe), cause == "evaluation"
    batches = subject.eval_batches[:1] if evaluate else subject.micro_batches(0)
    low = trace_step(subject, arm, subject.start, batches, exactly=True, evaluate=evaluate)
    wide = trace_step(subject, FP64_ARM, subject.start, batches, exactly=False, evaluate=evaluate)
    faults = non_finite_faults(low, wide) or non_finite_faults(low, Trace())
    if not faults:
        return None
    words = "the evaluation" if evaluate else f"step {subject.first_step}"
    text = f"A value of {words} is not finite, in FP32 as well."
    kind: SymptomKind = "non_finite_evaluation" if evaluate else "non_finite_loss"
    symptom = Symptom(kind=kind, step=subject.first_step, sentence=text)
    return _plain(subject, symptom, Blame(faults=faults), WORKLOADS_OWN)


def _plain(subject: Subject, symptom: Symptom, found: Blame, fix: str) -> Diagnosis:
    """A diagnosis without a recipe."""
    fault: Fault = found.faults[0]
    dtype = str(low_dtype(subject)).removeprefix("torch.")
    return Diagnosis(
        symptom=symptom,
        kind=fault.kind,
        family=family_of(fault.kind, symptom.kind),
        module=fault.module,
        op=fault.op,
        phase="evaluation" if symptom.kind == "non_finite_evaluation" else fault.phase,
        step=symptom.step,
        batch=(subject.first_step - 1) * subject.accumulate + fault.batch,
        max_abs=fault.max_abs,
        scale=found.scale,
        caused_by=found.cause,
        sentence=what_happened(fault, symptom.step, dtype, found.cause, found.scale),
        fix=fix,
        recipe=None,
        fp32_weights=False,
        verified=False,
    )


def _replays(subject: Subject, found: Diagnosis) -> list[Replay]:
    """The faulty step's batch at scale/2^k, in FP32 and in FP64, from the state before it."""
    index = max(0, found.step - subject.first_step)
    batches, state = subject.micro_batches(index), state_before(subject, index)
    arm = Arm(recipe=subject.recipe)
    plans = [("fp32", FP32_ARM, 1.0), ("fp64", FP64_ARM, 1.0)]
    scale = found.scale or 1.0
    plans += [("recipe", arm, scale / 2.0**k) for k in (HALVINGS if found.scale is not None else (0,))]
    replays = []
    for numbers, used, at in plans:
        if subject.late:
            break
        seen = replay(replace(subject, deadline=None), used, state, batches, at)
        if seen is not None:
            loss = sum(seen.losses) / len(seen.losses) if seen.losses else math.nan
            replays.append(Replay(numbers=numbers, scale=at, loss=loss, finite=seen.finite))
    return replays
