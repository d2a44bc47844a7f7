"""What kind of rounding makes a module's result useless although nothing leaves the format's range."""

from __future__ import annotations

import torch
from torch import Tensor

from amp_core.forensics.diagnosis import Kind
from amp_core.forensics.trace import OpRecord, Trace

ADDITIONS = frozenset(["add", "add_", "sub", "sub_", "rsub"])
SUMS = frozenset(["sum", "cumsum", "cumsum_", "mean", "prod"])
CANCELLED = 2.0**-4  # size of a difference beside its operands
LOST_SHARE = 0.3


def within(module: str | None, parent: str) -> bool:
    return module is not None and (module == parent or module.startswith(f"{parent}."))


def rounding_kind(trace: Trace, module: str) -> tuple[Kind, str, float | None]:
    """Kind, operation and largest magnitude of the worst rounding inside a module."""
    worst = worst_rounding(trace, module)
    if worst is None:
        return "precision_loss", "rounding", None
    _, kind, record = worst
    return kind, trace.operation_name(record), _max_abs(record)


def worst_rounding(trace: Trace, module: str) -> tuple[float, Kind, OpRecord] | None:
    """The forward operation inside a module with the largest absolute rounding error: error, kind, record."""
    worst: tuple[float, Kind, OpRecord] | None = None
    for record in trace.records:
        if not within(record.module, module) or not record.phase.startswith("forward"):
            continue
        found = _judge(record)
        if found is not None and (worst is None or found[0] > worst[0]):
            worst = (*found, record)
    return worst


def _judge(record: OpRecord) -> tuple[float, Kind] | None:
    """Absolute rounding error of an operation's result, and its kind."""
    output, exact = record.output, record.exact
    if output is None or exact is None or output.numel() == 0:
        return None
    error = (output.double() - exact).abs()
    error = error[torch.isfinite(error)]
    if not error.numel() or not float(error.max()) > 0:
        return None
    size = float(error.max())
    if record.op in ADDITIONS and len(record.inputs) == 2:
        largest = _max_abs(record) or 0.0
        if float(exact.abs().max()) < CANCELLED * largest:
            return size, "cancellation"
        if _swallowed(record, output):
            return size, "swamping"
    if record.op in SUMS and float(exact.abs().max()) > 0 and size > 0.02 * float(exact.abs().max()):
        return size, "swamping"
    return size, "precision_loss"


def _swallowed(record: OpRecord, output: Tensor) -> bool:
    """Whether many results equal one operand although the other is not zero."""
    first, second = (t.double() for t in record.inputs)
    same = (output.double() == first) & (second != 0) | (output.double() == second) & (first != 0)
    return float(same.double().mean()) > LOST_SHARE


def _max_abs(record: OpRecord) -> float | None:
    sizes = [float(t.abs().max()) for t in record.inputs if t.is_floating_point() and t.numel()]
    return max(sizes) if sizes else None
