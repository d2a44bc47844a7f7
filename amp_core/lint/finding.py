"""What the linter reports: a finding and its severity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """How much a finding matters; the order decides what gates a build."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One mistake in one place; line and column count from 1."""

    path: str
    line: int
    column: int
    code: str
    name: str
    severity: Severity
    message: str
    fix: str
    end_line: int


class LintError(Exception):
    """A file cannot be linted: it does not exist, is not text or is not Python; or an unknown code was asked for."""
