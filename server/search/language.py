"""Words to terms: ``recipe:16-mixed eval/accuracy>0.95 status:failed tag:baseline created:<7d "big model" -tag:old``.

A query is words, all of which must hold; ``-`` before one turns it round, double quotes keep spaces together. A word is
``field:value`` (several values with commas, ``*`` for anything), a comparison ``name>number`` of a metric, a parameter
or a number of the run, or plain text to be found in a name. Nothing is evaluated: a word fits a form or is refused.
"""

from __future__ import annotations

import difflib
import math
import re
from datetime import UTC, datetime, timedelta
from typing import cast, get_args

from server.errors import Fault, Invalid
from server.search.terms import (
    HasNonFinite,
    Measure,
    Moment,
    Named,
    Number,
    Operator,
    Parameter,
    Part,
    Term,
    Text,
    Word,
    WordFault,
    told_part,
)

NAMES = (
    "recipe", "status", "kind", "role", "workload", "experiment", "project", "owner", "tag", "worker", "numerics",
    "verdict", "name", "note",
)  # fmt: skip
TIMES = ("created", "started", "ended")
NUMBERS = ("id", "seed", "step", "steps", "attempt", "priority")
FIELDS = (*NAMES, *TIMES, *NUMBERS)
_SYNONYMS = {"state": "status", "user": "owner", "precision": "recipe", "tags": "tag"}
_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_COMPARISON = re.compile(r"([A-Za-z_][\w./-]*)(<=|>=|!=|=|<|>)(.*)", re.DOTALL)
_NON_FINITE = re.compile(r"([\w./-]+):(nan|[+-]?inf)", re.IGNORECASE)
_FIELD = re.compile(r"([A-Za-z_][\w./-]*):(.*)", re.DOTALL)
_TIME = re.compile(r"(<=|>=|<|>|)(.+)", re.DOTALL)
_AGE = re.compile(r"(\d{1,6})(s|min|h|d|w|m|y)")
_UNITS_S = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "m": 30 * 86400, "y": 365 * 86400}


def parse(query: str, now: datetime | None = None) -> list[Term]:
    """The terms of a query, all of which must hold. Raises `Invalid` naming the word, its place, and what fits."""
    now = now or datetime.now(UTC)
    return [_term(found.group(), found.start() + 1, now) for found in _WORD.finditer(query)]


def faults_of(query: str, now: datetime | None = None) -> list[WordFault]:
    """Every word that fits no form, with its place: what a search box marks while somebody types."""
    now = now or datetime.now(UTC)
    faults = []
    for found in _WORD.finditer(query):
        try:
            _term(found.group(), found.start() + 1, now)
        except Invalid as error:
            told = error.faults[0]
            rule = told.rule.partition(": ")[2] if told.rule.startswith("at character") else told.rule
            faults.append(WordFault(start=found.start(), end=found.end(), rule=rule, remedy=told.remedy))
    return faults


def refuse(word: Word, rule: str, remedy: str) -> Invalid:
    """The error for a word, which says where it stands."""
    rule = f"at character {word.position}, {word.text[:60]!r}: {rule}"
    return Invalid([Fault(field="q", value=word.text[:200], rule=rule, remedy=remedy)])


def _term(text: str, position: int, now: datetime) -> Term:
    negated = len(text) > 1 and text[0] == "-" and text[1] not in "-0123456789"
    word = Word(text=text, position=position, body=text[negated:], negated=negated)
    if word.body.count('"') % 2:
        raise refuse(word, "a quotation mark is not closed", 'write "two words" with both marks')
    if word.body.startswith('"'):
        return Text(word=word, text=_plain(word.body))
    non_finite = _NON_FINITE.fullmatch(word.body)
    if non_finite is not None and non_finite.group(1) not in FIELDS:
        kind = {"n": "nan", "-": "neg_inf"}.get(non_finite.group(2)[0].lower(), "pos_inf")
        return HasNonFinite(word=word, name=non_finite.group(1), kind=kind)
    field, comparison = _FIELD.fullmatch(word.body), _COMPARISON.fullmatch(word.body)
    if comparison is not None:
        return _comparison(word, comparison.group(1), cast(Operator, comparison.group(2)), _plain(comparison.group(3)))
    if field is not None:
        return _field(word, field.group(1), field.group(2), now)
    return Text(word=word, text=_plain(word.body))


def _field(word: Word, name: str, given: str, now: datetime) -> Term:
    field = _SYNONYMS.get(name.lower(), name.lower())
    if field not in FIELDS:
        near = difflib.get_close_matches(field, [*FIELDS, *_SYNONYMS], n=1)
        guess = f"did you mean {near[0]}? " if near else ""
        remedy = f"{guess}fields are {', '.join(FIELDS)}; a parameter is {name}=value, and quotes make it plain text"
        raise refuse(word, f"{name} is no field", remedy)
    if not _plain(given):
        raise refuse(word, f"nothing follows {name}:", f"write {name}:value")
    if field in TIMES:
        return _moment(word, field, _plain(given), now)
    values = tuple(part for part in map(_plain, _split(given)) if part)
    if field in NAMES:
        return Named(word=word, field=field, values=values)
    found = _TIME.fullmatch(given)
    assert found is not None, "something follows the colon"
    return Number(
        word=word, field=field, operator=cast(Operator, found.group(1) or "="), value=_number(word, found.group(2))
    )


def _comparison(word: Word, name: str, operator: Operator, value: str) -> Term:
    if not value:
        raise refuse(word, f"nothing follows {operator}", f"write {name}{operator}0.5")
    if name in NUMBERS:
        return Number(word=word, field=name, operator=operator, value=_number(word, value))
    if name in TIMES or name in NAMES:
        raise refuse(word, f"{name} is no number", f"write {name}:value")
    kind, _, rest = name.partition(".")
    if kind in ("params", "param") and rest:
        return _parameter(word, rest, operator, value, may_be_metric=False)
    if kind in ("metrics", "metric") and rest:
        return _measure(word, rest, operator, value)
    if "/" in name or name.rpartition(".")[2] in get_args(Part):
        return _measure(word, name, operator, value)
    return _parameter(word, name, operator, value, may_be_metric=True)


def _measure(word: Word, name: str, operator: Operator, value: str) -> Measure:
    base, _, part = name.rpartition(".")
    if base and part in get_args(Part):
        return Measure(word=word, name=base, part=cast(Part, part), operator=operator, value=_number(word, value))
    return Measure(word=word, name=name, part=told_part(name), operator=operator, value=_number(word, value))


def _parameter(word: Word, name: str, operator: Operator, value: str, *, may_be_metric: bool) -> Parameter:
    try:
        number: float | None = float(value)
    except ValueError:
        number = None
    if number is None and operator not in ("=", "!="):
        _number(word, value)
    if number is not None and not math.isfinite(number):
        number = None
    return Parameter(
        word=word,
        name=name,
        operator=operator,
        text=value,
        number=number,
        may_be_metric=may_be_metric and number is not None,
    )


def _number(word: Word, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise refuse(word, f"{value!r} is no number", "compare with a number, such as 0.95 or 1e-3")
    return number


def _moment(word: Word, field: str, given: str, now: datetime) -> Moment:
    """``<7d``: less than seven days ago. A date or ISO time: that day or second, ``>`` after it, ``<`` before it."""
    found = _TIME.fullmatch(given)
    assert found is not None, "something follows the colon"
    operator, value = found.groups()
    age = _AGE.fullmatch(value)
    if age is not None:
        then = now - timedelta(seconds=int(age.group(1)) * _UNITS_S[age.group(2)])
        is_younger = operator in ("<", "<=", "")
        return Moment(word=word, field=field, low=then if is_younger else None, high=None if is_younger else then)
    try:
        start = datetime.fromisoformat(value)
        start = start if start.tzinfo is not None else start.replace(tzinfo=UTC)
        end = start + (timedelta(days=1) if len(value) <= 10 else timedelta(seconds=1))
    except (ValueError, OverflowError):
        remedy = f"write {field}:<7d (also s, min, h, w, m, y), {field}:2026-01-31 or {field}:>2026-01-31"
        raise refuse(word, f"{value!r} is no age and no date", remedy) from None
    low = {"<": None, "<=": None, ">": end}.get(operator, start)
    high = {">": None, ">=": None, "<": start}.get(operator, end)
    return Moment(word=word, field=field, low=low, high=high)


def _split(given: str) -> list[str]:
    """Parts between commas that are not in quotes."""
    return re.findall(r'(?:[^,"]|"[^"]*")+', given)


def _plain(text: str) -> str:
    return text.replace('"', "")
