"""Every operation of one step, forward and backward, beside what it would give in float64 from the same inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from amp_core.forensics.attribution import CaughtError, ModuleClock, caught
from amp_core.forensics.execution import Execution, State
from amp_core.forensics.subject import Arm, Subject
from amp_core.torch_private import autograd
from amp_core.torch_private.dispatcher import TorchDispatchMode, overload_name, schema
from amp_core.torch_private.tensors import tree_leaves, tree_map

MAX_ELEMENTS = 1 << 22  # larger tensors are judged when they pass, and not kept
CASTS = frozenset({"_to_copy", "copy_", "clone"})
PRODUCTS = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "convolution", "linear", "matmul"}
    | {"_scaled_dot_product_flash_attention_for_cpu"}
)
_MEMORY_ONLY = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "lift_fresh", "_unsafe_view"}
)
_FILLERS = frozenset(
    {"masked_fill", "masked_fill_", "full", "full_like", "fill", "fill_", "scalar_tensor", "where", "new_full"}
    | {"lift_fresh_copy", "constant_pad_nd"}
)

Key = tuple[str, str | None, str, int]


class TensorPlace:
    """Stands for a tensor among the arguments of a recorded call; the tensors are its ``inputs``, in this order."""


@dataclass(slots=True)
class OpRecord:
    """One operation. ``exact`` is its float64 result from the very inputs it got; both are None where not kept.

    ``parents`` are the records that wrote its inputs, in the order of ``inputs``.
    """

    index: int
    phase: str
    module: str | None
    op: str
    nth: int
    node: str | None
    inputs: list[Tensor]
    parents: list[int | None]
    scalars: list[float]
    output: Tensor | None
    exact: Tensor | None
    function: str = ""  # operation and overload
    args: tuple[Any, Any] | None = None  # positional and named, with a `TensorPlace` for each tensor

    @property
    def key(self) -> Key:
        return (self.phase, self.module, self.op, self.nth)

    @property
    def is_cast(self) -> bool:
        return self.op in CASTS


@dataclass(slots=True)
class Trace:
    """The records of one step in execution order, and what modules got as inputs."""

    records: list[OpRecord] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    error: CaughtError | None = None
    error_op: str | None = None
    error_phase: str = "forward"
    gradients: dict[str, Tensor] = field(default_factory=dict)
    input_dtypes: dict[str, tuple[torch.dtype | None, ...]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    def by_key(self) -> dict[Key, OpRecord]:
        return {record.key: record for record in self.records if not record.is_cast}

    def operation_name(self, record: OpRecord) -> str:
        """The operation for people: a cast of a product is the product's own rounding."""
        if record.is_cast and record.parents and record.parents[0] is not None:
            parent = self.records[record.parents[0]]
            if parent.op in PRODUCTS and parent.module == record.module:
                return parent.op
        if record.is_cast and record.output is not None:
            return f"cast to {str(record.output.dtype).removeprefix('torch.')}"
        return record.op.strip("_") if record.op != "_to_copy" else "cast"


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operations as they run. Below autograd and autocast, so types are the ones really used."""

    def __init__(self, clock: ModuleClock, trace: Trace, exactly: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.clock = clock
        self.trace = trace
        self.exactly = exactly
        self.phase = "forward"
        self._counts: dict[tuple[str, str | None, str], int] = {}
        self._writers: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.clock.paused:
            return func(*args, **kwargs)
        name = schema(func).name.removeprefix("aten::")
        view = bool(getattr(func, "is_view", False)) or name in _MEMORY_ONLY
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        given = [] if view else [_kept(leaf, schema(func).is_mutable) for leaf in leaves]
        try:
            result = func(*args, **kwargs)
        except Exception:
            self.trace.error_op = name
            self.trace.error_phase = self.phase
            if self.phase.startswith("backward"):
                self.trace.error = CaughtError("", "", self._where()[0], name)
            raise
        if not view:
            self._note(func, name, args, kwargs, leaves, given, result)
        return result

    def _where(self) -> tuple[str | None, str | None]:
        node = autograd.current_node() if self.phase.startswith("backward") else None
        if node is None:
            return self.clock.module, None
        return self.clock.module_of(node), str(node.name())

    def _note(
        self, func: Any, name: str, args: Any, kwargs: Any, leaves: list[Tensor], given: list[Tensor], result: Any
    ) -> None:
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        module, node = self._where()
        count = (self.phase, module, name)
        nth = self._counts[count] = self._counts.get(count, -1) + 1
        parents = [self._writers.get(_storage(leaf)) for leaf in leaves]
        index = len(self.trace.records)
        first = outputs[0] if outputs and outputs[0].is_floating_point() else None
        exact = self._exact(func, name, args, kwargs, leaves, given) if first is not None else None
        if exact is not None and first is not None and exact.shape != first.shape:
            exact = None
        scalars = [float(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, int | float)]
        self.trace.records.append(
            OpRecord(
                index=index,
                phase=self.phase,
                module=module,
                op=name,
                nth=nth,
                node=node,
                inputs=given,
                parents=parents,
                scalars=scalars,
                output=None if first is None else _kept(first, True),
                exact=exact,
                function=f"{name}.{overload_name(func)}",
                args=tree_map(lambda leaf: TensorPlace() if isinstance(leaf, Tensor) else leaf, (args, kwargs)),
            )
        )
        for output in outputs:
            self._writers[_storage(output)] = index

    def _exact(
        self, func: Any, name: str, args: Any, kwargs: Any, leaves: Iterable[Tensor], given: Sequence[Tensor]
    ) -> Tensor | None:
        if not self.exactly or torch.Tag.nondeterministic_seeded in func.tags:
            return None
        if name == "_to_copy":
            return given[0].double()
        if name == "copy_":
            return given[1].double().expand(given[0].shape)
        if sum(tensor.numel() for tensor in given) > MAX_ELEMENTS:
            return None
        values = iter(given)
        args, kwargs = tree_map(lambda leaf: _wide(leaf, values), (args, kwargs))
        if kwargs.get("dtype") is not None:
            kwargs = {**kwargs, "dtype": torch.float64}
        elif not list(leaves):
            return None
        try:
            result = _functional(func, name)(*args, **kwargs)
        except (RuntimeError, TypeError, NotImplementedError, AttributeError):
            return None
        found = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        return found[0] if found and found[0].dtype is torch.float64 else None


def _functional(func: Any, name: str) -> Any:
    """The variant of an in-place operation that returns a new tensor."""
    if not name.endswith("_") or name.startswith("__"):
        return func
    return getattr(getattr(torch.ops.aten, name[:-1]), overload_name(func))


def _wide(leaf: Any, values: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    value = next(values)
    return value.double() if value.is_floating_point() else value


def _kept(tensor: Tensor, copy: bool) -> Tensor:
    kept = tensor.detach()
    return kept.clone() if copy and tensor.numel() <= MAX_ELEMENTS else kept


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def is_filler(record: OpRecord) -> bool:
    """Whether the operation writes constants that the code chose, infinities included."""
    return record.op in _FILLERS


def trace_step(
    subject: Subject,
    arm: Arm,
    state: State | None,
    batches: Sequence[Any],
    *,
    exactly: bool,
    evaluate: bool = False,
    scale: float | None = None,
) -> Trace:
    """One step from a state (the arm's own start if None), operation by operation, without an update."""
    execution = Execution(subject, arm)
    trace = Trace()
    with execution.applied():
        if state is not None:
            execution.load(state)
        execution.model.train(not evaluate)
        clock = ModuleClock(execution.model)
        recorder = _Recorder(clock, trace, exactly)
        try:
            with clock.watching(), recorder:
                _run(execution, recorder, trace, batches, evaluate, scale)
        except Exception as error:  # noqa: BLE001 - the error is what is being located
            where = caught(error, execution.model)
            known = trace.error.module if trace.error is not None else where.module
            trace.error = CaughtError(where.type, where.message, known, where.function)
        trace.input_dtypes, trace.order = clock.input_dtypes, clock.order
        trace.gradients = {name: p.grad.detach().clone() for name, p in execution.named.items() if p.grad is not None}
    return trace


def _run(
    execution: Execution, recorder: _Recorder, trace: Trace, batches: Sequence[Any], evaluate: bool, scale: float | None
) -> None:
    for number, batch in enumerate(batches):
        recorder.phase = f"forward {number}"
        with torch.set_grad_enabled(not evaluate):
            loss = execution.forward(batch)
        trace.losses.append(float(loss.detach()))
        if evaluate:
            continue
        recorder.phase = f"backward {number}"
        trace.error_phase = recorder.phase
        execution.backward(loss, scale)
