"""From a trace and its FP32 twin to the operation where a fault starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from amp_core.forensics.diagnosis import Kind, Phase
from amp_core.forensics.trace import OpRecord, Trace, is_filler

FLUSHED = 0.3  # share of an operation's nonzero results that becomes zero
DEPTH = 24  # operations back along the data flow


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The operation to blame. ``feeders`` are modules whose outputs it works on, nearest first."""

    kind: Kind
    module: str | None
    op: str
    phase: Phase
    batch: int = 0
    max_abs: float | None = None
    feeders: list[str] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)
    record: OpRecord | None = field(default=None, repr=False, compare=False)


def split_phase(phase: str) -> tuple[Phase, int]:
    """``forward 3`` to the phase and the number of the batch within its step."""
    name, _, number = phase.partition(" ")
    return ("backward" if name == "backward" else "forward"), int(number or 0)


def non_finite_faults(low: Trace, reference: Trace) -> list[Fault]:
    """Origins of values that are not finite although the twin's are, in execution order, without their consequences."""
    twins = reference.by_key()
    tainted: set[int] = set()
    faults = []
    for record in low.records:
        bad = _bad(record, twins.get(record.key))
        inherited = any(parent in tainted for parent in record.parents)
        if bad is None:
            if inherited and (record.output is None or not bool(torch.isfinite(record.output).all())):
                tainted.add(record.index)
            continue
        tainted.add(record.index)
        if not inherited:
            faults.append(_non_finite_fault(low, twins, record, bad))
    return faults


def _bad(record: OpRecord, twin: OpRecord | None) -> Tensor | None:
    """Where the output is not finite and should be; None if nowhere."""
    output, exact = record.output, record.exact
    if output is None or bool(torch.isfinite(output).all()):
        return None
    bad = ~torch.isfinite(output)
    if twin is not None and twin.output is not None and twin.output.shape == output.shape and not record.is_cast:
        bad = bad & torch.isfinite(twin.output)
    elif exact is not None and (record.is_cast or is_filler(record)):
        bad = bad & torch.isfinite(exact)
    elif is_filler(record):
        return None
    return bad if bool(bad.any()) else None


def _non_finite_fault(trace: Trace, twins: dict[Any, OpRecord], record: OpRecord, bad: Tensor) -> Fault:
    phase, batch = split_phase(record.phase)
    exact = record.exact
    finite_inputs = all(bool(torch.isfinite(t).all()) for t in record.inputs if t.is_floating_point())
    source = record
    kind: Kind
    if exact is not None and bool(torch.isfinite(exact[bad]).any()):
        kind = "overflow"
    elif finite_inputs:
        kind = "domain_error"
        source = _source(trace, twins, record) or record
    else:
        kind = "nan_of_infinities"
    reached = exact[bad & torch.isfinite(exact)].abs() if exact is not None else None
    largest = float(reached.max()) if reached is not None and reached.numel() else None
    name = trace.operation_name(source)
    return Fault(
        kind=kind,
        module=source.module,
        op=name if source is record else f"{name}, then {trace.operation_name(record)}",
        phase=phase,
        batch=batch,
        max_abs=largest if largest is not None else _largest(record),
        feeders=feeders(trace, source),
        record=record,
        evidence={
            "node": record.node,
            "dtype": str(record.output.dtype) if record.output is not None else None,
            "fails_in": record.module,
            "num_bad": int(bad.sum()),
            "num_elements": bad.numel(),
        },
    )


def _largest(record: OpRecord) -> float | None:
    finite = [t[torch.isfinite(t)].abs() for t in record.inputs if t.is_floating_point()]
    found = [float(t.max()) for t in finite if t.numel()]
    return max(found) if found else None


def ancestors(trace: Trace, record: OpRecord) -> list[OpRecord]:
    """Records whose results flow into this one, nearest first."""
    found: dict[int, OpRecord] = {}
    front = [parent for parent in record.parents if parent is not None]
    for _ in range(DEPTH):
        front = [index for index in front if index not in found and index != record.index]
        if not front:
            break
        found.update((index, trace.records[index]) for index in front)
        front = [parent for index in front for parent in trace.records[index].parents if parent is not None]
    return list(found.values())


def feeders(trace: Trace, record: OpRecord) -> list[str]:
    """Modules other than its own and the root whose results the operation works on, nearest first."""
    names = dict.fromkeys(r.module for r in ancestors(trace, record) if r.module)
    return [name for name in names if name != record.module]


def _source(trace: Trace, twins: dict[Any, OpRecord], record: OpRecord) -> OpRecord | None:
    """Where the unbroken chain of operands begins that became zero or changed sign, unlike the twin's."""
    negative = any(bool((t < 0).any()) for t in record.inputs) and not any(bool((t == 0).any()) for t in record.inputs)
    source: OpRecord | None = None
    front = [record]
    for _ in range(DEPTH):
        parents = {p: trace.records[p] for r in front for p in r.parents if p is not None}
        front = [r for r in parents.values() if _left_domain(r, twins.get(r.key), negative)]
        if not front:
            break
        source = min(front, key=lambda r: r.index)
    return source


def _left_domain(record: OpRecord, twin: OpRecord | None, negative: bool) -> bool:
    output = record.output
    if output is None:
        return False
    right = record.exact
    if not record.is_cast and twin is not None and twin.output is not None and twin.output.shape == output.shape:
        right = twin.output
    if right is None or right.shape != output.shape:
        return False
    return bool(((output < 0) & (right > 0) if negative else (output == 0) & (right != 0)).any())


def flush_faults(low: Trace, phase: Phase) -> list[Fault]:
    """Operations of a phase that turn much of what they compute into zero, in execution order, worst kind only."""
    faults = []
    for record in low.records:
        if split_phase(record.phase)[0] != phase or record.exact is None or record.output is None or is_filler(record):
            continue
        alive = (record.exact != 0) & torch.isfinite(record.exact)
        gone = alive & (record.output == 0)
        total = int(alive.sum())
        if not total or int(gone.sum()) <= FLUSHED * total:
            continue
        largest = float(record.exact[gone].abs().max())
        if largest > 1e-3:  # rounding of a difference, not the edge of the format
            continue
        faults.append(
            Fault(
                kind="underflow",
                module=record.module,
                op=low.operation_name(record),
                phase=phase,
                batch=split_phase(record.phase)[1],
                max_abs=largest,
                feeders=feeders(low, record),
                record=record,
                evidence={"flushed_share": int(gone.sum()) / total, "node": record.node},
            )
        )
    return faults
