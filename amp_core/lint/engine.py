"""Linting one source: parse, interpret, check, leave out what a comment or a selection silences."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from pathlib import Path

from amp_core.lint.catalogue import RULES
from amp_core.lint.finding import Finding, LintError
from amp_core.lint.interpreter import interpret
from amp_core.lint.rule import Rule
from amp_core.lint.suppressions import Suppressions

RELEVANT = re.compile(
    r"autocast|GradScaler|\bamp\b|\bhalf\b|float16|mixed_precision|fp16|16-mixed|set_detect_anomaly|allow_tf32|float32_matmul"
)
RECURSION_ERROR = "is nested too deeply to be read"


def lint_source(source: str, path: str = "<source>", rules: Collection[str] | None = None) -> list[Finding]:
    """Findings in a source text, sorted by place. Raises LintError if it is not Python."""
    try:
        tree = ast.parse(source, filename=path)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise LintError(f"{path}:{line}: is not Python: {getattr(error, 'msg', error)}") from error
    except (RecursionError, MemoryError) as error:
        raise LintError(f"{path}: {RECURSION_ERROR}") from error
    if (
        "torch" not in source
        and "accelerate" not in source
        and "transformers" not in source
        and "lightning" not in source
    ):
        return []
    if RELEVANT.search(source) is None:
        return []
    return _check(source, tree, path, RULES if rules is None else {code: RULES[code] for code in rules})


def _check(source: str, tree: ast.Module, path: str, rules: dict[str, Rule]) -> list[Finding]:
    try:
        program = interpret(tree)
    except RecursionError as error:
        raise LintError(f"{path}: {RECURSION_ERROR}") from error
    suppressions: Suppressions | None = None
    found: dict[tuple[str, int], Finding] = {}
    for rule in rules.values():
        for node, message in rule.check(program):
            finding = _finding(rule, node, message, path)
            found.setdefault((rule.code, finding.line), finding)
    if found:
        suppressions = Suppressions.of(source)
    return sorted(f for f in found.values() if suppressions is None or not suppressions.silence(f))


def _finding(rule: Rule, node: ast.AST, message: str, path: str) -> Finding:
    line = getattr(node, "lineno", 1)
    return Finding(
        path=path,
        line=line,
        column=getattr(node, "col_offset", 0) + 1,
        code=rule.code,
        name=rule.name,
        severity=rule.severity,
        message=message,
        fix=rule.fix,
        end_line=getattr(node, "end_lineno", None) or line,
    )


def lint_file(path: Path, rules: Collection[str] | None = None) -> list[Finding]:
    """Findings in a file. Raises LintError if it cannot be read or is not Python."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LintError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        source = _decoded(data)
    except (UnicodeDecodeError, SyntaxError, LookupError) as error:
        raise LintError(f"{path}: is not text in the encoding it names: {error}") from error
    return lint_source(source, str(path), rules)


def _decoded(data: bytes) -> str:
    import io
    import tokenize

    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return data.decode(encoding).removeprefix("\ufeff")
