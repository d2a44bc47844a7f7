"""By what runs are grouped: the key of each run, and the condition that a run is in a group."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, String, and_, cast, func, or_, select

from server.db.tables import Experiment, Project, Run, User, Workload

GroupBy = Literal["recipe", "precision", "workload", "experiment", "owner", "project", "tag", "state", "device"]
GROUPS: tuple[GroupBy, ...] = get_args(GroupBy)
NO_TAG, NO_DEVICE = "no tag", "not started"

KEYS: dict[str, ColumnElement[Any]] = {
    "recipe": Run.recipe_name.expression,
    "precision": Run.recipe["precision"].as_string(),
    "workload": select(Workload.name).where(Workload.id == Experiment.workload_id).scalar_subquery(),
    "experiment": Run.experiment_id.expression,
    "owner": select(User.name).where(User.id == Experiment.owner_id).scalar_subquery(),
    "project": select(Project.name).where(Project.id == Experiment.project_id).scalar_subquery(),
    "state": Run.state.expression,
    "device": func.coalesce(Run.environment["device"]["name"].as_string(), NO_DEVICE),
}


def in_group(by: GroupBy, key: str) -> ColumnElement[bool]:
    """That a run, joined with its experiment, is in the group of this key."""
    if by == "tag":
        return _has_tag(key)
    if by == "experiment":
        return Run.experiment_id == (int(key) if key.isascii() and key.isdecimal() and len(key) < 19 else 0)
    condition: ColumnElement[bool] = KEYS[by] == key
    return condition


def _has_tag(key: str) -> ColumnElement[bool]:
    columns = (cast(Experiment.tags, String), cast(Run.tags, String))
    if key == NO_TAG:
        return and_(*(column == "[]" for column in columns))
    return or_(*(column.contains(json.dumps(key), autoescape=True) for column in columns))
