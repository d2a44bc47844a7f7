"""One walk over a syntax tree, faster than ast.walk, for what several parts want to know of it."""

from __future__ import annotations

import ast


def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """All nodes below and including `tree`, without expression contexts, in no particular order."""
    found: list[ast.AST] = []
    pending = [tree]
    while pending:
        node = pending.pop()
        found.append(node)
        for value in node.__dict__.values():
            if isinstance(value, list):
                pending.extend(item for item in value if isinstance(item, ast.AST))
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                pending.append(value)
    return found
