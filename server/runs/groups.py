"""Runs in groups: how many, mean ± sd and range of metrics, the difference from the baseline, and what is not finite.

A group's difference is over pairs: a run and the baseline's run of the same experiment and seed, both completed with a
finite last value. It is the mean of value − baseline's value, whatever direction is good.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from server.db.tables import Experiment, Run, Series
from server.runs.group_keys import KEYS, NO_TAG, GroupBy
from server.runs.queries import STATES, RunFilter
from server.runs.sorting import is_primary
from server.runs.spread import deviation, mean
from server.runs.table import filtered
from server.search.conditions import told_column

MAX_GROUPS = 200
PRIMARY = "primary"


class _Fact(NamedTuple):
    """What of a run groups need."""

    id: int
    experiment_id: int
    seed: int
    is_baseline: bool
    counts: bool  # a training, so that its metrics are compared
    state: str
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Last values (of speeds: means) of one metric over the runs of a group that have a finite one."""

    metric: str
    num: int
    mean: float
    sd: float | None
    min: float
    max: float
    delta: float | None  # mean difference from the baseline, None without pairs
    num_pairs: int


@dataclass(kw_only=True)
class Group:
    """One group. ``spreads`` by the name asked for; the primary metric has one spread per metric."""

    key: str
    title: str
    num_runs: int = 0
    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    spreads: dict[str, list[Spread]] = field(default_factory=dict)
    has_baseline: bool = False  # then its difference is that of the baseline's control
    num_nan: int = 0  # runs with a NaN in a series
    num_inf: int = 0
    first_non_finite_step: int | None = None
    non_finite_seeds: list[int] = field(default_factory=list)


def groups_of(session: Session, chosen: RunFilter, by: GroupBy, metrics: Sequence[str]) -> list[Group]:
    """The groups of the runs that a filter lets through, the largest first, at most `MAX_GROUPS`.

    ``metrics`` are names of series, or ``primary``: that of each run's experiment. Raises `Invalid`.
    """
    facts = _facts(session, chosen, by)
    groups: dict[str, Group] = {}
    members: dict[str, list[_Fact]] = defaultdict(list)
    for fact in facts:
        for key in fact.keys:
            group = groups.setdefault(key, Group(key=key, title=key))
            group.num_runs += 1
            group.has_baseline |= fact.is_baseline
            group.states[fact.state] = group.states.get(fact.state, 0) + 1
            members[key].append(fact)
    kept = sorted(groups.values(), key=lambda group: (-group.num_runs, group.key))[:MAX_GROUPS]
    _measure(session, chosen, kept, members, metrics)
    _note_non_finite(session, chosen, kept, members)
    if by == "experiment":
        _name_experiments(session, kept)
    return kept


def _facts(session: Session, chosen: RunFilter, by: GroupBy) -> list[_Fact]:
    tags = (Experiment.tags.expression, Run.tags.expression)
    keys = tags if by == "tag" else (KEYS[by],)  # tags are JSON: read only where they are the key
    columns = (Run.id, Run.experiment_id, Run.seed, Run.role == "baseline", Run.kind == "train", Run.state, *keys)
    query = filtered(chosen).with_only_columns(*columns, maintain_column_froms=True)
    return [_Fact._make((*row[:6], _keys(row[6:], by))) for row in session.execute(query)]


def _keys(found: Sequence[Any], by: GroupBy) -> tuple[str, ...]:
    if by != "tag":
        return (str(found[0]),)
    return tuple(dict.fromkeys(tag for tags in found for tag in tags)) or (NO_TAG,)


Values = dict[int, tuple[str, float]]  # name and last value by run


def _measure(
    session: Session, chosen: RunFilter, groups: list[Group], members: dict[str, list[_Fact]], metrics: Sequence[str]
) -> None:
    for metric in metrics:
        values = _values(session, chosen, metric)
        baseline = _baseline(session, chosen, metric)
        for group in groups:
            group.spreads[metric] = list(_spreads(members[group.key], values, baseline))


def _values(session: Session, chosen: RunFilter, metric: str) -> Values:
    """The finite last values, of speeds the means, of the filtered runs."""
    query = (
        filtered(chosen)
        .join(Series, Series.run_id == Run.id)
        .where(_is(metric), Series.is_newest, told_column().is_not(None))
        .with_only_columns(Run.id, Series.name, told_column(), maintain_column_froms=True)
    )
    return {run_id: (name, float(value or 0.0)) for run_id, name, value in session.execute(query)}


def _is(metric: str) -> ColumnElement[bool]:
    return is_primary() if metric == PRIMARY else Series.name == metric


def _baseline(session: Session, chosen: RunFilter, metric: str) -> dict[tuple[int, int, str], float]:
    """The baseline's last value by experiment, seed and metric, also of baseline runs that the filter leaves out."""
    of_experiments = filtered(chosen).with_only_columns(Run.experiment_id, maintain_column_froms=True)
    query = (
        select(Run.experiment_id, Run.seed, Series.name, told_column())
        .join(Run.experiment)
        .join(Series, Series.run_id == Run.id)
        .where(
            Run.experiment_id.in_(of_experiments), Run.role == "baseline", Run.state == "completed",
            _is(metric), Series.is_newest, told_column().is_not(None),
        )
    )  # fmt: skip
    return {(experiment, seed, name): float(value or 0.0) for experiment, seed, name, value in session.execute(query)}


def _spreads(facts: Iterable[_Fact], values: Values, baseline: dict[tuple[int, int, str], float]) -> Iterable[Spread]:
    """One spread per series name, the one with most runs first."""
    by_name: dict[str, list[tuple[_Fact, float]]] = defaultdict(list)
    for fact in facts:
        if fact.counts and fact.id in values:
            name, value = values[fact.id]
            by_name[name].append((fact, value))
    for name, found in sorted(by_name.items(), key=lambda item: (-len(item[1]), item[0])):
        numbers = [value for _, value in found]
        pairs = [
            value - baseline[place]
            for fact, value in found
            if not fact.is_baseline
            and fact.state == "completed"
            and (place := (fact.experiment_id, fact.seed, name)) in baseline
        ]
        differences = [difference for difference in pairs if math.isfinite(difference)]
        yield Spread(
            metric=name,
            num=len(numbers),
            mean=mean(numbers),
            sd=deviation(numbers),
            min=min(numbers),
            max=max(numbers),
            delta=mean(differences) if differences else None,
            num_pairs=len(differences),
        )


def _note_non_finite(session: Session, chosen: RunFilter, groups: list[Group], members: dict[str, list[_Fact]]) -> None:
    query = (
        filtered(chosen)
        .join(Series, Series.run_id == Run.id)
        .where(Series.is_newest, Series.first_non_finite_step.is_not(None), Series.name != "amp/loss_scale")
        .with_only_columns(
            Run.id, func.max(Series.num_nan), func.max(Series.num_pos_inf + Series.num_neg_inf),
            func.min(Series.first_non_finite_step), maintain_column_froms=True,
        )
        .group_by(Run.id)
    )  # fmt: skip
    found = {run_id: (nan, inf, step) for run_id, nan, inf, step in session.execute(query)}
    for group in groups:
        broken = [fact for fact in members[group.key] if fact.id in found]
        told = [found[fact.id] for fact in broken]
        group.non_finite_seeds = sorted({fact.seed for fact in broken})
        group.num_nan = sum(nan > 0 for nan, _, _ in told)
        group.num_inf = sum(inf > 0 for _, inf, _ in told)
        group.first_non_finite_step = min((step for _, _, step in told if step is not None), default=None)


def _name_experiments(session: Session, groups: list[Group]) -> None:
    ids = [int(group.key) for group in groups]
    rows = session.execute(select(Experiment.id, Experiment.name).where(Experiment.id.in_(ids)))
    names = {str(experiment_id): name for experiment_id, name in rows}
    for group in groups:
        group.title = names.get(group.key, group.title)
