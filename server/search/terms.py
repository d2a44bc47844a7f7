"""What a query is made of: one term per word, all of which must hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Operator = Literal["<", "<=", ">", ">=", "=", "!="]
Part = Literal["last", "min", "max", "mean"]


def told_part(name: str) -> Part:
    """What of a series is told as one figure of a run: of speeds the mean, since a single step says little."""
    return "mean" if name.startswith("perf/") else "last"


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word as it was written; ``position`` counts characters from 1, ``body`` is without the sign that negates it."""

    text: str
    position: int
    body: str
    negated: bool


@dataclass(frozen=True, kw_only=True)
class WordFault:
    """A word that fits no form: characters [``start``, ``end``) of the query, counted from 0."""

    start: int
    end: int
    rule: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Term:
    """Base of all terms."""

    word: Word


@dataclass(frozen=True, kw_only=True)
class Text(Term):
    """Plain text, part of a name."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Named(Term):
    """``field:value,…``: any of the values; ``*`` stands for anything."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Moment(Term):
    """A time of the run or experiment lies in [``low``, ``high``); None is open."""

    field: str
    low: datetime | None
    high: datetime | None


@dataclass(frozen=True, kw_only=True)
class Number(Term):
    """A number of the run's own row."""

    field: str
    operator: Operator
    value: float


@dataclass(frozen=True, kw_only=True)
class Measure(Term):
    """A metric, by its summary: of the newest attempt that has it, over finite values."""

    name: str
    part: Part
    operator: Operator
    value: float


@dataclass(frozen=True, kw_only=True)
class HasNonFinite(Term):
    """The metric holds a value of this kind: ``nan``, ``pos_inf`` or ``neg_inf``."""

    name: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Parameter(Term):
    """A parameter of the run's workload; ``number`` is None when the value is text.

    ``may_be_metric`` when nothing tells which of the two the name is: either may hold.
    """

    name: str
    operator: Operator
    text: str
    number: float | None
    may_be_metric: bool
