"""Metric columns of the table of experiments: of each recipe the mean of its seeds' last values, or mean speeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db.tables import Run, Series
from server.experiments.groups import COMPARED
from server.pages.metric_text import metric_text, together
from server.runs.spread import deviation, mean
from server.search.conditions import told_column

Cells = dict[int, dict[str, list[dict[str, Any]]]]  # by experiment and metric


def metric_cells(session: Session, ids: Sequence[int], metrics: Collection[str]) -> Cells:
    """By experiment and metric a line for each recipe: mean ± sd in words, and how many runs have no finite value."""
    if not ids or not metrics:
        return {}
    query = (
        select(Run.experiment_id, Run.recipe_name, Series.name, told_column())
        .join(Series, Series.run_id == Run.id)
        .where(
            Run.experiment_id.in_(ids), Run.role.in_(COMPARED), Run.kind == "train", Series.is_newest,
            Series.name.in_(metrics),
        )
        .order_by(Run.experiment_id, Run.id)
    )  # fmt: skip
    values: dict[tuple[int, str, str], list[float | None]] = defaultdict(list)
    for experiment_id, recipe, name, value in session.execute(query):
        values[experiment_id, name, recipe].append(value)
    cells: Cells = {}
    for (experiment_id, name, recipe), found in values.items():
        finite = [value for value in found if value is not None]
        line = {"recipe": recipe, "text": _text(name, finite), "num_lost": len(found) - len(finite)}
        cells.setdefault(experiment_id, {}).setdefault(name, []).append(line)
    return cells


def _text(name: str, finite: list[float]) -> str:
    if not finite:
        return ""
    middle, spread = mean(finite), deviation(finite)
    return metric_text(name, middle) if spread is None else together(name, (middle, spread), " ± ", (4, 2))
