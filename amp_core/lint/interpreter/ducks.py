"""Kinds by use: a parameter on which `unscale_` is called is a scaler, whoever made it.

Scripts get their scaler, optimizer and model from other modules or as arguments. One walk over the source notes which
methods are called on each name or attribute path; the kind follows from these, and a name alone never decides.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from amp_core.lint.interpreter.oplists import SCALER_METHODS
from amp_core.lint.values import UNKNOWN, Object, Optimizer, Scaler, Scheduler, Value

MODEL_METHODS = {"parameters", "named_parameters", "zero_grad", "state_dict"}


@dataclass(eq=False)
class Ducks:
    """Methods called by path, and paths handed to a scaler as optimizers."""

    methods: dict[str, set[str]] = field(default_factory=dict)
    stepped: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, nodes: Iterable[ast.AST]) -> Ducks:
        """Read the nodes of a module."""
        found = cls()
        for node in nodes:
            if isinstance(node, ast.Call):
                found._note(node)
        found.stepped = {path for path in found.stepped if path}
        return found

    def _note(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Name):
            self.methods.setdefault(function.id, set()).add("()")
        if not isinstance(function, ast.Attribute):
            return
        if receiver := path_of(function.value):
            self.methods.setdefault(receiver, set()).add(function.attr)
        if whole := path_of(function):
            self.methods.setdefault(whole, set()).add("()")
        if (function.attr == "unscale_" and node.args) or (
            function.attr == "step" and node.args and "scaler" in path_of(function.value).lower()
        ):
            self.stepped.add(path_of(node.args[0]))

    def value_for(self, path: str, loops: tuple[int, ...]) -> Value | None:
        """A new object of the kind that the use of `path` shows, if it shows one."""
        methods = self.methods.get(path, set())
        name = path.rsplit(".", 1)[-1].lower()
        pairs = len(methods & {"scale", "step", "update"})
        likely = (pairs > 1 and "scale" in methods) or (pairs and "scaler" in name)
        if "unscale_" in methods or (likely and methods <= SCALER_METHODS):
            return Scaler(None, None, loops)
        if path in self.stepped or {"zero_grad", "step"} <= methods:
            return Optimizer(None, "", frozenset(), None, loops)
        if "step" in methods and "sched" in name:
            return Scheduler(UNKNOWN)
        if "step" in methods and "opt" in name:
            return Optimizer(None, "", frozenset(), None, loops)
        if "parameters" in methods or (methods & {"train", "eval"} and methods & (MODEL_METHODS | {"()"})):
            return Object("", is_module=True, loops=loops)
        return None


def path_of(node: ast.AST) -> str:
    """`a.b.c` for names and attributes, an empty string for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(node.id)
    return ".".join(reversed(parts))
