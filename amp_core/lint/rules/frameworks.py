"""Mistakes that need a framework's own options to make."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_core.lint.finding import Severity
from amp_core.lint.program import Program
from amp_core.lint.rule import rule


@rule(
    "AMP306",
    "fp16-and-bf16-both",
    Severity.ERROR,
    what="TrainingArguments ask for fp16 and bf16 at once.",
    why="Transformers refuses the combination with a ValueError.",
    before="""
from transformers import TrainingArguments

args = TrainingArguments("out", fp16=True, bf16=True)
""",
    after="""
from transformers import TrainingArguments

args = TrainingArguments("out", bf16=True)
""",
    fix="choose one of the two",
)
def both(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("both_precisions"):
        yield event.node, "fp16 and bf16 exclude each other: choose one"
