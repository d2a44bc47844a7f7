"""The rule table: every rule is a documented function over the events of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amp_core.lint.finding import Severity

if TYPE_CHECKING:
    import ast

    from amp_core.lint.program import Program

Reports = Iterable[tuple["ast.AST", str]]
Check = Callable[["Program"], Reports]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One mistake: its code and name, why it matters, an example of it and of its cure, and the check that finds it."""

    code: str
    name: str
    severity: Severity
    what: str
    why: str
    before: str
    after: str
    fix: str
    check: Check


RULES: dict[str, Rule] = {}


def rule(
    code: str, name: str, severity: Severity, *, what: str, why: str, before: str, after: str, fix: str
) -> Callable[[Check], Check]:
    """Register the decorated check; it yields the node to blame and the message."""

    def register(check: Check) -> Check:
        assert code not in RULES, code
        RULES[code] = Rule(
            code=code,
            name=name,
            severity=severity,
            what=what,
            why=why,
            before=before.strip("\n"),
            after=after.strip("\n"),
            fix=fix,
            check=check,
        )
        return check

    return register
