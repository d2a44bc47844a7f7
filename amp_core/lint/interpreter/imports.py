"""Imports, and the canonical names of what they bring: one name for each thing that torch offers under several."""

from __future__ import annotations

import ast

from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.values import DType, External, Value

DTYPES = {
    "half": "float16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "float32": "float32",
    "double": "float64",
    "float64": "float64",
    "long": "int64",
    "int64": "int64",
    "int": "int32",
    "int32": "int32",
    "bool": "bool",
    "uint8": "uint8",
    "int8": "int8",
    "complex64": "complex64",
}
DEPRECATED = {
    f"torch.{device}.amp.{name}": f"torch.amp.{name}"
    for device in ("cuda", "cpu")
    for name in ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
}
FRAMEWORKS = (
    "accelerate",
    "pytorch_lightning",
    "lightning",
    "lightning_fabric",
    "deepspeed",
    "apex",
    "ignite",
    "fairscale",
)


def bind_import(machine: Machine, node: ast.Import) -> None:
    for alias in node.names:
        _note_framework(machine, alias.name)
        if alias.asname:
            machine.bind(alias.asname, External(alias.name))
        else:
            root = alias.name.split(".", 1)[0]
            machine.bind(root, External(root))


def bind_import_from(machine: Machine, node: ast.ImportFrom) -> None:
    package = ("." * node.level) + (node.module or "")
    _note_framework(machine, package)
    for alias in node.names:
        if alias.name == "*":
            continue
        name = f"{package}.{alias.name}"
        bound = alias.asname or alias.name
        if name in DEPRECATED:
            machine.program.deprecated.append((node, name))
        machine.bind(bound, machine.ducks.value_for(bound, machine.loops) or external(name))


def _note_framework(machine: Machine, module: str) -> None:
    root = module.split(".", 1)[0]
    if root in FRAMEWORKS:
        machine.program.frameworks.add(root)


def external(name: str) -> Value:
    """The value of a dotted name from outside: a dtype, or the thing."""
    if name.startswith("torch.") and (dtype := DTYPES.get(name[len("torch.") :])) is not None:
        return DType(dtype)
    return External(name)


def note_deprecated(machine: Machine, node: ast.AST, value: Value) -> None:
    """A deprecated name is called, or decorates."""
    if isinstance(value, External) and value.name in DEPRECATED:
        machine.program.deprecated.append((node, value.name))
