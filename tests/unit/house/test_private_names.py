"""Names that torch keeps private stay in `amp_core/torch_private`: read from the syntax of every other module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OURS = ("amp_core", "server", "worker")
STANDARD = {("os", "_exit"), ("sys", "_getframe")}  # documented names of the standard library


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def sources() -> dict[Path, ast.Module]:
    found = [path for folder in OURS for path in (ROOT / folder).rglob("*.py")]
    return {path.relative_to(ROOT): ast.parse(path.read_text()) for path in found}


def own_names(trees: dict[Path, ast.Module]) -> set[str]:
    """Private names that our modules define: functions, classes, variables, attributes and slots."""
    names = set()
    for node in (node for tree in trees.values() for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def foreign(tree: ast.Module, own: set[str]) -> Iterator[tuple[int, str]]:
    """Lines that use a private name which is nobody's here."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            holder = node.value.id if isinstance(node.value, ast.Name) else ""
            if (holder, node.attr) not in STANDARD and holder != "aten":  # operators are data, not Python's names
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] not in OURS:
            names = [*node.module.split("."), *(alias.name for alias in node.names)]
            if any(map(is_private, names)) and node.module.split(".")[0] == "torch":
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("torch.") and any(map(is_private, alias.name.split("."))):
                    yield node.lineno, ast.unparse(node)


def test_no_module_but_the_adapter_uses_private_names_of_torch() -> None:
    trees = sources()
    own = own_names(trees)
    found = [
        f"{path}:{line}: {text}"
        for path, tree in trees.items()
        if "torch_private" not in path.parts and path.parts[0] == "amp_core"
        for line, text in foreign(tree, own)
    ]
    assert not found, "give it a function in amp_core/torch_private, and a contract test:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "torch._foreach_norm(gradients)",
        "depth = torch._C._some_depth()",
        "from torch.utils._pytree import tree_map",
        "from torch import _C",
        "import torch.utils._pytree",
        "kept = tensor._backward_hooks",
    ],
)
def test_each_way_to_a_private_name_is_seen(line: str) -> None:
    assert list(foreign(ast.parse(line), own=set()))


@pytest.mark.parametrize(
    "line", ["aten._to_copy.default", "os._exit(1)", "self._mine", "from torch import nn", "x.__dict__"]
)
def test_what_is_no_private_name_of_torch_passes(line: str) -> None:
    assert not list(foreign(ast.parse(line), own={"_mine"}))
