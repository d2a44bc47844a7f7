"""Classes of the module: definition, instances, which of their methods a root must call."""

from __future__ import annotations

import ast

from amp_core.lint.interpreter.machine import Frame, Machine
from amp_core.lint.values import Class, External, Object, Scope

MODULE_BASES = {
    "torch.nn.Module",
    "torch.nn.modules.module.Module",
    "pytorch_lightning.LightningModule",
    "lightning.LightningModule",
    "lightning.pytorch.LightningModule",
    "transformers.PreTrainedModel",
    "torch.nn.Sequential",
}


def define(machine: Machine, node: ast.ClassDef) -> Class:
    """Run a class body; bases of this module bring their methods."""
    from amp_core.lint.interpreter.expressions import evaluate
    from amp_core.lint.interpreter.statements import run_block

    bases: set[str] = set()
    parents: list[Class] = []
    for base in node.bases:
        value = evaluate(machine, base)
        if isinstance(value, External):
            bases.add(value.name)
        elif isinstance(value, Class):
            bases |= value.bases
            parents.append(value)
    scope = Scope({}, machine.scope, is_class=True)
    found = Class(node, scope, frozenset(bases), tuple(parents))
    machine.frames.append(Frame(scope))
    run_block(machine, node.body)
    machine.frames.pop()
    machine.program.classes.append(found)
    return found


def is_module(cls: Class) -> bool:
    """Whether instances are models."""
    return any(base in MODULE_BASES or base.endswith("LightningModule") for base in cls.bases)


def blank(machine: Machine, cls: Class) -> Object:
    """An instance before its `__init__` has run."""
    module = is_module(cls)
    return Object(cls.node.name, cls, is_module=module, loops=machine.loops, weights="float32" if module else None)
