"""Tensor operations: the dtype that autocast gives their results, and what they do to a half that is near its limits.

The lists are those of `oplists`.
"""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import Any

from amp_core.lint.events import Region
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.interpreter.oplists import FLOAT32, GRADIENT_USES, LOW, SENSITIVE, SHAPES
from amp_core.lint.values import HALVES, Const, DType, Items, Object, Tensor, Value

HALF_MAX = 65504.0
HALF_LOST = 2.0**-25
ORDER = ("bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64")


def is_lost(value: Any) -> bool:
    """Whether a constant rounds to zero in float16 although it is not zero."""
    return isinstance(value, float) and 0 < abs(value) <= HALF_LOST


def is_huge(value: Any) -> bool:
    """Whether a finite constant does not fit float16."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) > HALF_MAX
        and math.isfinite(value)
    )


def promote(*tensors: Tensor) -> str | None:
    """The dtype of an operation that takes the widest of its inputs; None if one of them is not known."""
    names = {tensor.dtype for tensor in tensors if not tensor.is_number}
    if None in names or not names:
        return None
    if names >= HALVES:
        return "float32"
    return max((name for name in names if name is not None), key=lambda name: ORDER.index(name) if name in ORDER else 0)


def result_dtype(machine: Machine, name: str, tensors: list[Tensor], weights: str | None) -> str | None:
    """The dtype that `name` returns here."""
    if any(tensor.dtype == "float64" for tensor in tensors):
        return "float64"
    region = machine.autocast
    if region is not None and (name in LOW or name in FLOAT32):
        return "float32" if name in FLOAT32 else region.dtype
    if weights is not None and name in LOW:
        return weights
    return promote(*tensors) if tensors else None


def operation(
    machine: Machine,
    node: ast.AST,
    name: str,
    inputs: list[Value],
    weights: str | None = None,
    model: Object | None = None,
) -> Tensor:
    """The result of a tensor operation, with events for dangerous inputs."""
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    for tensor in tensors:
        _inspect(machine, node, name, tensor)
    models = frozenset().union(*(t.models for t in tensors)) | ({model} if model is not None else frozenset())
    regions: frozenset[Region] = frozenset().union(*(t.regions for t in tensors))
    if machine.autocast is not None:
        regions |= {machine.autocast}
    unknown = any(not isinstance(v, Tensor) and _may_be_tensor(v) for v in inputs)
    dtype = result_dtype(machine, name, tensors, weights)
    if unknown and name not in LOW and name not in FLOAT32:
        dtype = None
    used = name in GRADIENT_USES and any(t.from_grad and t.scaled is not None for t in tensors)
    return Tensor(
        dtype=dtype,
        models=models,
        regions=regions,
        scaled=None if used else next((t.scaled for t in tensors if t.scaled is not None), None),
        divided=any(t.divided for t in tensors),
        multiplied=any(t.multiplied for t in tensors),
        from_grad=any(t.from_grad for t in tensors),
        gradient_of=next((t.gradient_of for t in tensors if t.gradient_of is not None), None),
        **_shape_of_danger(name, node, tensors),
    )


def _may_be_tensor(value: Value) -> bool:
    return not isinstance(value, Const | DType | Items)


def _shape_of_danger(name: str, node: ast.AST, tensors: list[Tensor]) -> dict[str, Any]:
    """Marks that the result of `name` carries."""
    first = tensors[0] if tensors else None
    if first is None:
        return {}
    if name in SHAPES:
        return {"positions": first.positions, "extent": first.extent, "huge": first.huge, "near_one": first.near_one,
                "complement": first.complement, "lost_eps": first.lost_eps, "square": first.square,
                "mean_square": first.mean_square}  # fmt: skip
    if name in {"sigmoid", "cumprod"}:
        return {"near_one": True}
    if name == "square" and first.dtype == "float16":
        return {"square": node}
    if name in {"mean", "sum"} and first.square is not None:
        return {"mean_square": first.square}
    if name in {"clamp", "clamp_min", "clamp_", "maximum", "neg"}:
        return {"mean_square": first.mean_square, "near_one": first.near_one and name == "neg"}
    return {}


def _inspect(machine: Machine, node: ast.AST, name: str, tensor: Tensor) -> None:
    """Events for one input of an operation."""
    if name in SENSITIVE:
        if tensor.lost_eps is not None:
            machine.emit("lost_eps", tensor.lost_eps, tensor=tensor, detail=node)
        elif tensor.complement is not None:
            machine.emit("complement", tensor.complement, tensor=tensor, detail=node)
        elif tensor.mean_square is not None and name in {"sqrt", "rsqrt"}:
            machine.emit("norm", tensor.mean_square, tensor=tensor, detail=node)
        elif name == "log1p" and tensor.near_one and tensor.dtype in HALVES:
            machine.emit("complement", node, tensor=tensor, detail=node)
    if name in LOW and tensor.positions and machine.autocast is not None:
        machine.emit("positions_low", node, tensor=tensor, detail=machine.autocast.dtype)
    disabled = machine.context.disabled
    if (
        disabled is not None
        and tensor.dtype in HALVES
        and (name in LOW or name in FLOAT32 or name in {"fft", "module"})
    ):
        machine.emit("half_in_disabled", node, tensor=tensor, detail=disabled)
    elif name == "fft" and tensor.dtype in HALVES:
        machine.emit("fft", node, tensor=tensor)
    if tensor.from_grad and tensor.scaled is not None and name in GRADIENT_USES:
        machine.emit("scaled_penalty", node, tensor=tensor, scaler=tensor.scaled.scaler)
    if tensor.gradient_of is not None and name in {"norm", "square", "pow", "abs"}:
        machine.emit("grad_read", node, tensor=tensor, model=tensor.gradient_of)


def cast(machine: Machine, node: ast.AST, tensor: Tensor, dtype: str | None) -> Tensor:
    """The tensor in another dtype; positions and constants that do not survive it are recorded."""
    if dtype in HALVES and tensor.dtype not in HALVES:
        if tensor.positions:
            machine.emit("positions_half", node, tensor=tensor, detail=dtype)
        if tensor.huge is not None and dtype == "float16":
            machine.emit("out_of_range", node, tensor=tensor, detail=None)
    keeps_marks = dtype in HALVES
    found = replace(tensor, dtype=dtype, reading=None, parameter_of=None)
    if not keeps_marks:
        found = replace(found, complement=None)
    return found
