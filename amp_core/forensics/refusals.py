"""Faults that stop the code: which operation refused what."""

from __future__ import annotations

from amp_core.forensics.diagnosis import Kind
from amp_core.forensics.locate import Fault, split_phase
from amp_core.forensics.subject import Arm, Subject
from amp_core.forensics.symptoms import Evidence
from amp_core.forensics.trace import trace_step

_DTYPE_WORDS = (
    "dtype",
    "half",
    "bfloat16",
    "float16",
    "without overflow",
    "autocast",
    "not implemented for",
    "primitive",
    "scalar type",
    "refused under",
    "expected scalar",
    "same type",
    "data type",
    "unsupported type",
)


def refusal(subject: Subject, arm: Arm, evidence: Evidence) -> Fault:
    """Where the code stops, from a repetition of the step that did not come to its end."""
    index = len(evidence.low.steps)
    known = evidence.low.error
    assert known is not None
    evaluating = index >= subject.num_steps
    batches = subject.eval_batches[:1] if evaluating else subject.micro_batches(index)
    state = evidence.low.before_last if index else None
    trace = trace_step(subject, arm, state, batches, exactly=False, evaluate=evaluating)
    error = trace.error or known
    module = error.module if error.module is not None else known.module
    phase, batch = split_phase(trace.error_phase)
    text = f"{known.type} {known.message} {error.message}".lower()
    kind: Kind = "dtype_error" if any(word in text for word in _DTYPE_WORDS) else "misuse"
    return Fault(
        kind=kind,
        module=module,
        op=trace.error_op or error.function,
        phase=phase,
        batch=batch,
        evidence={"message": known.message, "type": known.type},
    )
