"""Calls that make or use what training is made of: autocast, scalers, optimizers, gradients, checkpoints."""

from __future__ import annotations

import ast
from dataclasses import replace

from amp_core.lint.alternatives import alternatives, only, strings, truth
from amp_core.lint.interpreter.calls import Arguments, unknown_result
from amp_core.lint.interpreter.iteration import element_of
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.interpreter.module_methods import convert, device_names
from amp_core.lint.interpreter.scaler_methods import models_in
from amp_core.lint.interpreter.tensor_methods import in_thread
from amp_core.lint.values import (
    UNKNOWN,
    Autocast,
    Const,
    Device,
    DType,
    Function,
    Items,
    Iterable,
    Mapping,
    Object,
    Optimizer,
    Partial,
    Scaler,
    ScaleValue,
    Scheduler,
    Tensor,
    Value,
)

EPS = {
    "Adam": 1e-8,
    "AdamW": 1e-8,
    "NAdam": 1e-8,
    "RAdam": 1e-8,
    "Adamax": 1e-8,
    "SparseAdam": 1e-8,
    "RMSprop": 1e-8,
    "Adagrad": 1e-10,
}
DEFAULT_DTYPES = {"cuda": "float16", "cpu": "bfloat16", "xpu": "float16", "mps": "float16"}


def autocast(machine: Machine, node: ast.Call, arguments: Arguments, device: str | None, *, legacy: bool) -> Value:
    """An autocast context; its default dtype depends on the device."""
    named = arguments.get(-1 if legacy else 0, "device_type")
    dtype_value = arguments.get(1, "dtype")
    enabled_value = arguments.get(0 if legacy else 2, "enabled")
    if isinstance(named, Device):
        machine.emit("device_object", node)
    devices = frozenset({device}) if device else device_names(named or UNKNOWN) or frozenset()
    dtype = _autocast_dtype(dtype_value, devices)
    enabled: bool | None = True
    if enabled_value is not None:
        enabled = truth(enabled_value)
    elif arguments.open:
        enabled = None
    if dtype == "float32":
        enabled = False
    cached = truth(arguments.get(-1, "cache_enabled") or Const(value=True)) is not False
    return Autocast(node, dtype, enabled, devices, cached)


def _autocast_dtype(value: Value | None, devices: frozenset[str]) -> str | None:
    if value is None or (isinstance(value, Const) and value.value is None):
        if "cuda" in devices:
            return "float16"
        return DEFAULT_DTYPES.get(next(iter(devices))) if len(devices) == 1 else None
    names = {v.name if isinstance(v, DType) else None for v in alternatives(value)}
    return names.pop() if len(names) == 1 else None


def scaler(machine: Machine, node: ast.Call, arguments: Arguments, default: str, *, legacy: bool) -> Value:
    """A GradScaler; without a device it is for CUDA."""
    device = None if legacy else arguments.get(0, "device")
    devices = frozenset({default}) if device is None else device_names(device) or frozenset()
    enabled_value = arguments.get(4 if legacy else 5, "enabled")
    enabled = True if enabled_value is None else truth(enabled_value)
    if arguments.open and enabled_value is None:
        enabled = None
    made = Scaler(node, enabled, machine.loops, devices=devices)
    machine.program.scalers.append(made)
    machine.emit("scaler", node, scaler=made)
    return made


def accelerator(machine: Machine, node: ast.Call, arguments: Arguments) -> Value:
    """Accelerate's or Fabric's object; only with fp16 asked for in the source is it known to scale."""
    precision = strings(arguments.get(-1, "mixed_precision", "precision") or UNKNOWN)
    note_precision(machine, precision)
    if not precision or not precision <= {"fp16", "16-mixed", "16"}:
        return UNKNOWN
    made = Scaler(node, enabled=True, loops=machine.loops, kind="framework")
    machine.program.scalers.append(made)
    return made


def note_precision(machine: Machine, names: frozenset[str] | None) -> None:
    """A framework is told a precision: models of this module run under it."""
    if names and names <= {"fp16", "16-mixed", "16"}:
        machine.program.ambient.add("float16")
    elif names and names <= {"bf16", "bf16-mixed"}:
        machine.program.ambient.add("bfloat16")


def optimizer(machine: Machine, node: ast.Call, kind: str, arguments: Arguments) -> Value:
    """An optimizer over the parameters it is given."""
    models = models_in([arguments.get(0, "params") or UNKNOWN])
    eps_value = arguments.get(3, "eps")
    eps = EPS.get(kind)
    if eps_value is not None:
        eps = (
            float(eps_value.value)
            if isinstance(eps_value, Const) and isinstance(eps_value.value, int | float)
            else None
        )
    elif arguments.open:
        eps = None
    made = Optimizer(node, kind, models, eps, machine.loops)
    machine.emit("optimizer", node, optimizer=made)
    return made


def scheduler(arguments: Arguments) -> Value:
    """A learning-rate schedule over an optimizer."""
    return Scheduler(arguments.get(0, "optimizer") or UNKNOWN)


def clip(machine: Machine, node: ast.Call, arguments: Arguments) -> Value:
    """Gradients are clipped; a threshold multiplied by the loss scale suits scaled gradients."""
    models = models_in([arguments.get(0, "parameters") or UNKNOWN])
    threshold = arguments.get(1, "max_norm", "clip_value")
    detail = "scaled" if isinstance(threshold, ScaleValue) else _norm_only(threshold)
    machine.emit("clip", node, models=models, detail=detail)
    return UNKNOWN


def _norm_only(threshold: Value | None) -> str:
    infinite = isinstance(threshold, Const) and threshold.value == float("inf")
    return "norm" if infinite else ""


def autograd_grad(_: Machine, __: ast.Call, arguments: Arguments) -> Value:
    """torch.autograd.grad: gradients that carry the loss scale of what was differentiated."""
    outputs = arguments.get(0, "outputs") or UNKNOWN
    first = outputs if isinstance(outputs, Tensor) else element_of(outputs)
    if not isinstance(first, Tensor):
        return Iterable(UNKNOWN)
    return Iterable(Tensor(models=first.models, scaled=first.scaled, from_grad=True))


def autograd_backward(machine: Machine, node: ast.Call, arguments: Arguments) -> Value:
    """torch.autograd.backward."""
    outputs = arguments.get(0, "tensors") or UNKNOWN
    first = outputs if isinstance(outputs, Tensor) else element_of(outputs)
    machine.emit("backward", node, tensor=first if isinstance(first, Tensor) else None)
    return UNKNOWN


def save(machine: Machine, node: ast.Call, arguments: Arguments) -> Value:
    """torch.save."""
    machine.emit("save", node, detail=arguments.get(0, "obj"))
    return UNKNOWN


def load(machine: Machine, node: ast.Call, _: Arguments) -> Value:
    """torch.load: a dict of anything."""
    machine.emit("load", node)
    return Mapping({}, open=True)


def device(_: Machine, __: ast.Call, arguments: Arguments) -> Value:
    """torch.device."""
    return Device(device_names(arguments.get(0, "device", "type") or UNKNOWN) or frozenset())


def same(machine: Machine, node: ast.Call, arguments: Arguments) -> Value:
    """A wrapper that is used as what it wraps."""
    found = arguments.get(0)
    return unknown_result(machine, arguments, node) if found is None else found


def data_parallel(_: Machine, __: ast.Call, arguments: Arguments) -> Value:
    """nn.DataParallel runs replicas in threads of its own."""
    found = arguments.get(0, "module") or UNKNOWN
    if isinstance(found, Object):
        found.data_parallel = True
    return found


def copied(_: Machine, __: ast.Call, arguments: Arguments) -> Value:
    """A copy: what happens to it does not happen to the original."""
    found = arguments.get(0, "model") or UNKNOWN
    return _copy(found, {}) if isinstance(found, Object) else found


def _copy(model: Object, seen: dict[int, Object]) -> Object:
    if id(model) in seen:
        return seen[id(model)]
    made = replace(model, copied=True)
    seen[id(model)] = made
    made.children = tuple(_copy(c, seen) if isinstance(c, Object) else c for c in model.children)
    made.attributes = {
        name: _copy(value, seen) if isinstance(value, Object) and value.is_module else value
        for name, value in model.attributes.items()
    }
    return made


def thread(machine: Machine, node: ast.Call, arguments: Arguments) -> Value:
    """threading.Thread(target=…)."""
    target = arguments.get(1, "target")
    if not isinstance(target, Function):
        return UNKNOWN
    given = arguments.get(3, "args")
    return in_thread(machine, node, target, given.items if isinstance(given, Items) else [])


def partial(_: Machine, __: ast.Call, arguments: Arguments) -> Value:
    """functools.partial."""
    callee = arguments.get(0)
    return UNKNOWN if callee is None else Partial(callee, arguments.positional[1:], arguments.keywords)


def pretrained(machine: Machine, node: ast.Call, name: str, arguments: Arguments) -> Value:
    """A model from a library, perhaps loaded in half precision."""
    owner = name.split(".")[-2] if name.endswith(".from_pretrained") else "model"
    if name.endswith(".from_pretrained") and not any(part in owner for part in ("Model", "For", "UNet", "Transformer")):
        return UNKNOWN
    made = Object(owner, is_module=True, loops=machine.loops)
    dtype = only(arguments.get(-1, "torch_dtype", "dtype") or UNKNOWN, DType)
    if dtype is not None and dtype.name in {"float16", "bfloat16"}:
        convert(machine, node, made, dtype.name)
    return made
