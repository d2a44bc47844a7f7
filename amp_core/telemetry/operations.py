"""Every operation of one step with its module, its phase and the type it computed in.

Below autograd and autocast a dispatch mode sees operations as they really run, casts included. Forward operations
belong to the innermost module that runs; a backward operation belongs to the module whose forward made its autograd
node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from amp_core.telemetry.timing import Duration, seconds, timer_for
from amp_core.torch_private import autograd
from amp_core.torch_private.dispatcher import TorchDispatchMode, operation_of, schema
from amp_core.torch_private.tensors import tree_leaves

aten = torch.ops.aten
_SDPA_CPU = (
    aten._scaled_dot_product_flash_attention_for_cpu,
    aten._scaled_dot_product_flash_attention_for_cpu_backward,
)
_CONVOLUTIONS = (
    aten.convolution,
    aten._convolution,
    aten.cudnn_convolution,
    aten._slow_conv2d_forward,
    aten.convolution_backward,
    aten.convolution_overrideable,
)
NUM_OPERANDS = 3  # the first tensors of a product are its matrices and bias, what follows are statistics of attention
Key = tuple[str, str, str, str]  # module, phase, operation, type computed in


@dataclass(slots=True)
class Tally:
    """Calls of one kind: FLOPs of products (a multiplication and an addition are two), bytes written by casts."""

    calls: int = 0
    flops: int = 0
    num_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """The matrices of one product, seen once for each set of shapes."""

    module: str
    op: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Seen:
    """What a step did. Casts have ``source->target`` for a type and are not among the operations."""

    operations: dict[Key, Tally] = field(default_factory=dict)
    casts: dict[Key, Tally] = field(default_factory=dict)
    products: dict[Product, None] = field(default_factory=dict)
    fused_attention: bool = False


class OperationLog(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its __init_subclass__ untyped
    """Records what runs while it is entered. ``fp32_products`` says in which type FP32 products are computed.

    It is asked for each product whose inputs are FP32, with the operation and them.
    """

    def __init__(
        self, model: nn.Module, device: torch.device, fp32_products: Callable[[Any, Sequence[Tensor]], str]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = Seen()
        self.error = ""  # why recording ended early, if it did
        self.is_paused = False  # while it is, what runs is not recorded
        self._model = model
        self._timer = timer_for(device)
        self._fp32_products = fp32_products
        self._modules: list[str] = []
        self._module_of_node: dict[int, str] = {}
        self._timed: list[tuple[Tally, Duration]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what runs inside, with its times; nothing is waited for before the end."""
        handles = []
        for name, module in self._model.named_modules():
            handles.append(module.register_forward_pre_hook(self._enterer(name)))
            handles.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()
            for tally, duration in self._timed:
                tally.seconds += seconds(duration)
            self._timed.clear()

    def _enterer(self, name: str) -> Callable[..., None]:
        def enter(*_: object) -> None:
            self._modules.append(name)

        return enter

    def _leave(self, *_: object) -> None:
        self._modules.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.is_paused or _is_bookkeeping(func):
            return func(*args, **kwargs)
        module, phase = self._place()
        self._timer.start()
        result = func(*args, **kwargs)
        self._timer.stop()
        duration = self._timer.take()
        if not self.error:
            try:
                self._record(func, (module, phase), (args, kwargs, result), duration)
            except Exception as error:  # noqa: BLE001 - what only watches must not end the run
                self.error = f"{type(error).__name__}: {error}"[:300]
        return result

    def _record(self, func: Any, place: tuple[str, str], call: tuple[Any, Any, Any], duration: Duration) -> None:
        args, kwargs, result = call
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        if inputs or outputs:
            tally = self._note(func, *place, call, inputs, outputs)
            tally.calls += 1
            self._timed.append((tally, duration))

    def _place(self) -> tuple[str, str]:
        """Module and phase of the operation that is about to run."""
        in_backward = autograd.is_in_backward()
        if self._modules or not in_backward:  # a module that runs inside backward is computed again for it
            module = self._modules[-1] if self._modules else ""
            self._module_of_node[autograd.next_number() - 1] = module
            return module, "backward" if in_backward else "forward"
        node = autograd.current_node()
        number = autograd.number_of(node) if node is not None else -1
        return self._module_of_node.get(number, ""), "backward"

    def _note(
        self, func: Any, module: str, phase: str, call: Any, inputs: list[Tensor], outputs: list[Tensor]
    ) -> Tally:
        name = schema(func).name.removeprefix("aten::")
        source, target = _cast_of(func, inputs, outputs)
        if source is not None and target is not None:
            key = (module, phase, name, f"{_name(source.dtype)}->{_name(target.dtype)}")
            tally = self.seen.casts.setdefault(key, Tally())
            tally.num_bytes += target.numel() * target.element_size()
            return tally
        widest = max((t.dtype for t in inputs or outputs), key=lambda dtype: dtype.itemsize)
        dtype, flops = _name(widest), _flops(func, *call)
        if flops:
            operands = inputs[:NUM_OPERANDS]
            dtype = (
                self._fp32_products(func, operands) if operands[0].dtype is torch.float32 else _name(operands[0].dtype)
            )
            shapes = tuple(tuple(t.shape) for t in operands if t.dim() >= 2)
            self.seen.products[Product(module=module, op=name, dtype=dtype, shapes=shapes)] = None
        if name.startswith("_scaled_dot_product_") and not name.endswith("_math"):
            self.seen.fused_attention = True
        tally = self.seen.operations.setdefault((module, phase, name, dtype), Tally())
        tally.flops += flops
        return tally


def is_convolution(func: Any) -> bool:
    """Whether a product is computed by the convolution library, with switches of its own."""
    return operation_of(func) in _CONVOLUTIONS


def _is_bookkeeping(func: Any) -> bool:
    """Views, detaching, the scaler's own work: nothing that computes what the recipe is about."""
    if func.is_view or func in (aten.detach.default, aten._unsafe_view.default, aten.alias.default):
        return True
    return bool(schema(func).name.startswith("aten::_amp_"))


def _cast_of(func: Any, inputs: list[Tensor], outputs: list[Tensor]) -> tuple[Tensor | None, Tensor | None]:
    """What a conversion between floating types reads and writes, or two times None."""
    if func is aten._to_copy.default and inputs and outputs and inputs[0].dtype is not outputs[0].dtype:
        return inputs[0], outputs[0]
    if func is aten.copy_.default and len(inputs) == 2 and inputs[0].dtype is not inputs[1].dtype:
        return inputs[1], inputs[0]
    return None, None


def _flops(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """FLOPs of a product by torch's own formulas, 0 for anything else; fused attention of a CPU as that of CUDA."""
    packet = operation_of(func)
    if packet is _SDPA_CPU[0]:
        return int(sdpa_flop_count(args[0].shape, args[1].shape, args[2].shape))  # type: ignore[no-untyped-call]
    if packet is _SDPA_CPU[1]:
        shapes = [tensor.shape for tensor in args[:4]]
        return int(sdpa_backward_flop_count(*shapes))  # type: ignore[no-untyped-call]
    formula = flop_registry.get(packet)
    return int(formula(*args, **kwargs, out_val=result)) if formula is not None else 0


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
