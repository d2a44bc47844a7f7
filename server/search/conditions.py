"""Terms to SQL, for the lists of runs and of experiments. Values are always bound parameters."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, func, not_, or_, select, union_all

from server.db.tables import Experiment, Run, RunParameter, Series
from server.search.names import OF_EXPERIMENT, contains, named_experiment, named_run, states_of_experiments
from server.search.terms import HasNonFinite, Measure, Moment, Named, Number, Operator, Parameter, Term, Text

Condition = ColumnElement[bool]
_COMPARE: dict[Operator, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip


def run_conditions(terms: list[Term]) -> list[Condition]:
    """Conditions on `Run` joined with its `Experiment`. Raises `Invalid` for a value that no run can have."""
    return [_turned(term, _of_run(term)) for term in terms]


def experiment_conditions(terms: list[Term]) -> list[Condition]:
    """Conditions on `Experiment`. Words about runs hold when one run fits them all, negated ones when no run does.

    Raises `Invalid` for a value that none can have.
    """
    conditions, about_one_run = list[Condition](), list[Condition]()
    for term in terms:
        if not _is_about_runs(term):
            conditions.append(_turned(term, _of_experiment(term)))
        elif term.word.negated:
            conditions.append(not_(_has_run([_of_run(term)])))
        else:
            about_one_run.append(_of_run(term))
    return [*conditions, _has_run(about_one_run)] if about_one_run else conditions


def newest_series(name: str) -> ColumnElement[bool]:
    """That a `Series` row is of this name and of the newest attempt that has the series."""
    return and_(Series.name == name, Series.is_newest)


def summary_column(part: str) -> ColumnElement[Any]:
    """The SQL number of a summary: last, min, max or mean of the finite values; NULL without any."""
    if part == "mean":
        num_finite = Series.num_points - Series.num_nan - Series.num_pos_inf - Series.num_neg_inf
        return Series.finite_sum / func.nullif(num_finite, 0) * 1.0
    column: ColumnElement[Any] = getattr(Series, f"finite_{part}")
    return column


def told_column() -> ColumnElement[Any]:
    """The SQL number that stands for a whole run, see `told_part`; NULL without a finite value."""
    return case((Series.name.startswith("perf/"), summary_column("mean")), else_=summary_column("last"))


def _has_run(conditions: list[Condition]) -> Condition:
    return Experiment.id.in_(select(Run.experiment_id).where(*conditions).correlate(None))


def _turned(term: Term, condition: Condition) -> Condition:
    return not_(condition) if term.word.negated else condition


def _is_about_runs(term: Term) -> bool:
    match term:
        case Named(field="status"):
            return not states_of_experiments(term)
        case Named():
            return term.field not in OF_EXPERIMENT
        case Moment():
            return term.field == "started"
        case Number():
            return term.field != "id"
    return not isinstance(term, Text)


def _of_experiment(term: Term) -> Condition:
    match term:
        case Text():
            return contains(term.text, note_and_tags=True)
        case Named():
            return named_experiment(term)
        case Moment():
            return _between(getattr(Experiment, f"{term.field}_at"), term)
        case Number():
            return _compared(Experiment.id, term.operator, term.value)
    raise AssertionError(f"{type(term).__name__} is about runs")


def _of_run(term: Term) -> Condition:
    match term:
        case Text():
            return or_(contains(term.text), Run.recipe_name.icontains(term.text, autoescape=True))
        case Named():
            return named_run(term)
        case Moment():
            return _between(getattr(Run, f"{term.field}_at"), term)
        case Number():
            return _compared(getattr(Run, term.field), term.operator, term.value)
        case Measure():
            return Run.id.in_(_measuring(term.name, term.part, term.operator, term.value))
        case HasNonFinite():
            counted = getattr(Series, f"num_{term.kind}") > 0
            return Run.id.in_(select(Series.run_id).where(newest_series(term.name), counted))
        case Parameter():
            return _has_parameter(term)
    raise AssertionError(f"{type(term).__name__} has no condition")


def _measuring(name: str, part: str, operator: Operator, value: float) -> Select[int]:
    """Ids of the runs whose metric compares so."""
    holds = _compared(summary_column(part), operator, value)
    return select(Series.run_id).where(newest_series(name), holds)


def _has_parameter(term: Parameter) -> Condition:
    if term.number is not None:
        holds = _compared(RunParameter.number, term.operator, term.number)
    else:
        holds = _compared(RunParameter.text, term.operator, term.text)
    found = select(RunParameter.run_id).where(RunParameter.name == term.name, holds)
    if term.may_be_metric and term.number is not None:
        # One list, not two joined by OR: databases plan that badly.
        return Run.id.in_(union_all(found, _measuring(term.name, "last", term.operator, term.number)))
    return Run.id.in_(found)


def _compared(column: Any, operator: Operator, value: Any) -> Condition:
    condition: Condition = _COMPARE[operator](column, value)
    return condition


def _between(column: Any, term: Moment) -> Condition:
    bounds = []
    if term.low is not None:
        bounds.append(column >= term.low)
    if term.high is not None:
        bounds.append(column < term.high)
    return and_(*bounds)
