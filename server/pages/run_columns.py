"""The columns of the table of runs: what can be chosen, and what a run has in each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session, load_only

from server.db.tables import Experiment, Project, Run, RunParameter, Series, User, Workload
from server.pages.formats import between, number
from server.pages.metric_text import heading_of, metric_text
from server.runs.groups import PRIMARY
from server.search.conditions import summary_column
from server.search.distinct import metric_names, parameter_names
from server.search.terms import told_part

DEFAULT = ("state", PRIMARY, "train/loss", "perf/samples_per_s", "workload", "owner", "started")
MAX_COLUMNS = 24
_DOUBLE = struct.Struct("<d")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. ``kind``: row, metric or parameter; ``sort`` is its sort key, empty when it has none."""

    key: str
    label: str
    kind: str = "row"
    sort: str = ""
    is_number: bool = False


ROW_COLUMNS = (
    Column(key="state", label="State", sort="state"),
    Column(key="step", label="Step", sort="step", is_number=True),
    Column(key="experiment", label="Experiment", sort="experiment"),
    Column(key="workload", label="Workload", sort="workload"),
    Column(key="project", label="Project"),
    Column(key="owner", label="Owner", sort="owner"),
    Column(key="tags", label="Tags"),
    Column(key="kind", label="Kind", sort="kind"),
    Column(key="role", label="Role", sort="role"),
    Column(key="seed", label="Seed", sort="seed", is_number=True),
    Column(key="started", label="Started", sort="started", is_number=True),
    Column(key="duration", label="Took", is_number=True),
    Column(key="device", label="Device"),
    Column(key="worker", label="Worker"),
    Column(key="commit", label="Commit"),
    Column(key="numerics", label="Numerics"),
    Column(key="attempt", label="Attempt", sort="attempt", is_number=True),
    Column(key="skipped", label="Skipped steps", is_number=True),
    Column(key=PRIMARY, label="Primary metric", kind="metric", sort=PRIMARY, is_number=True),
)


def choosable(session: Session) -> list[Column]:
    """Every column there can be, from the store."""
    metrics = [_metric(name) for name in metric_names(session)]
    parameters = [_parameter(name) for name in parameter_names(session)]
    return [*ROW_COLUMNS, *metrics, *parameters]


def chosen(names: str) -> list[Column]:
    """The columns that an address names, or the usual ones; a name that is no column of a row is a metric."""
    keys = [name for name in names.split(",") if name][:MAX_COLUMNS] or list(DEFAULT)
    rows = {column.key: column for column in ROW_COLUMNS}
    return [
        rows.get(key) or (_parameter(key.removeprefix("params.")) if key.startswith("params.") else _metric(key))
        for key in keys
    ]


def _metric(name: str) -> Column:
    return Column(key=name, label=heading_of(name), kind="metric", sort=name, is_number=True)


def _parameter(name: str) -> Column:
    return Column(key=f"params.{name}", label=name, kind="parameter", sort=f"params.{name}", is_number=True)


def rows_of(session: Session, runs: Sequence[Run], columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The runs as the table shows them: ``cells`` by column, and what is not finite."""
    ids = [run.id for run in runs]
    experiments = _experiments(session, {run.experiment_id for run in runs})
    wanted = {column.key for column in columns if column.kind == "metric" and column.key != PRIMARY}
    wanted |= {place["primary"] for place in experiments.values()}
    series = _series(session, ids, wanted)
    names = [column.key.removeprefix("params.") for column in columns if column.kind == "parameter"]
    parameters = _parameters(session, ids, names)
    if not _FROM_DOCUMENTS.isdisjoint(column.key for column in columns):
        _load_documents(session, ids)
    return [
        _row(run, experiments[run.experiment_id], series.get(run.id, {}), parameters.get(run.id, {}), columns)
        for run in runs
    ]


def _experiments(session: Session, ids: set[int]) -> dict[int, dict[str, Any]]:
    query = (
        select(
            Experiment.id, Experiment.name, Experiment.tags, Experiment.archived_at, Workload.name, User.name,
            Project.name, Experiment.plan["primary"]["metric"].as_string(),
        )
        .join(Experiment.workload).join(Experiment.owner).join(Experiment.project)
        .where(Experiment.id.in_(ids))
    )  # fmt: skip
    return {
        row[0]: {
            "name": row[1], "tags": row[2], "archived": row[3] is not None, "workload": row[4], "owner": row[5],
            "project": row[6], "primary": f"eval/{row[7]}",
        }
        for row in session.execute(query)
    }  # fmt: skip


def _series(session: Session, ids: Sequence[int], names: set[str]) -> dict[int, dict[str, Any]]:
    """Of each run the summaries that the columns show, and those that are not finite."""
    query = select(
        Series.run_id, Series.name, Series.last_value, Series.num_nan, Series.num_pos_inf + Series.num_neg_inf,
        Series.first_non_finite_step, summary_column("mean"),
    ).where(
        Series.run_id.in_(ids), Series.is_newest, or_(Series.name.in_(names), Series.first_non_finite_step.is_not(None))
    )  # fmt: skip
    found: dict[int, dict[str, Any]] = {}
    for run_id, name, last, num_nan, num_inf, first, mean in session.execute(query):
        value = mean if told_part(name) == "mean" else _DOUBLE.unpack(last)[0] if last else None
        found.setdefault(run_id, {})[name] = (value, num_nan, num_inf, first)
    return found


def _parameters(session: Session, ids: Sequence[int], names: Sequence[str]) -> dict[int, dict[str, str]]:
    if not names:
        return {}
    query = select(RunParameter.run_id, RunParameter.name, RunParameter.text, RunParameter.number)
    found: dict[int, dict[str, str]] = {}
    for run_id, name, text, value in session.execute(
        query.where(RunParameter.run_id.in_(ids), RunParameter.name.in_(names))
    ):
        found.setdefault(run_id, {})[name] = text if value is None else number(value)
    return found


def _load_documents(session: Session, ids: Sequence[int]) -> None:
    """Environments and results of runs that were listed without, all in one query."""
    wanted = select(Run).where(Run.id.in_(ids)).options(load_only(Run.environment, Run.result))
    session.scalars(wanted.execution_options(populate_existing=True)).all()


def _row(
    run: Run, experiment: dict[str, Any], series: dict[str, Any], parameters: dict[str, str], columns: Sequence[Column]
) -> dict[str, Any]:
    cells: dict[str, dict[str, Any]] = {}
    for column in columns:
        if column.kind == "metric":
            name = experiment["primary"] if column.key == PRIMARY else column.key
            value = series[name][0] if name in series else None
            note = name.removeprefix("eval/") if column.key == PRIMARY and value is not None else ""
            cells[column.key] = {"text": metric_text(name, value), "note": note, "bad": _is_bad(value)}
        elif column.kind == "parameter":
            text = parameters.get(column.key.removeprefix("params."), "–")
            cells[column.key] = {"text": text, "note": "", "bad": False}
        else:
            cells[column.key] = _cell(run, experiment, column.key)
    return {
        "id": run.id,
        "title": f"{run.kind}" if run.role in ("benchmark", "analysis") else f"seed {run.seed}",
        "recipe": run.recipe_name,
        "recipe_json": run.recipe,
        "control": run.role == "control",
        "experiment_id": run.experiment_id,
        "experiment": experiment["name"],
        "state": run.state,
        "tags": run.tags,
        "archived": run.archived_at is not None or experiment["archived"],
        "emulated": run.numerics == "emulated",
        "reason": (run.reason or {}).get("message"),
        "non_finite": _non_finite(series),
        "cells": cells,
    }


def _is_bad(value: float | None) -> bool:
    return value is not None and (value != value or value in (float("inf"), float("-inf")))


def _cell(run: Run, experiment: dict[str, Any], key: str) -> dict[str, Any]:
    """A cell of the run's own row; ``at`` is a moment, ``text`` anything else."""
    if key == "started":
        return {"at": run.started_at}
    return {"text": _TEXTS[key](run, experiment) or "–"}


def _step(run: Run) -> str:
    if run.kind == "benchmark":  # it times blocks, not steps
        return ""
    return f"{number(run.step)} of {number(run.steps)}" if run.state == "running" else number(run.step)


def _device(run: Run) -> str:
    device = (run.environment or {}).get("device")
    return str(device.get("name", "")) if isinstance(device, dict) else str(device or "")


def _commit(run: Run) -> str:
    commit = str((run.environment or {}).get("git_commit") or "")
    return commit[:9] + ("+" if commit.endswith("+changes") else "")


_FROM_DOCUMENTS = frozenset({"device", "commit", "skipped"})  # kilobytes of JSON: read only for these columns
_TEXTS: dict[str, Callable[[Run, dict[str, Any]], str]] = {
    "state": lambda run, _: run.state,
    "step": lambda run, _: _step(run),
    "experiment": lambda _, experiment: experiment["name"],
    "workload": lambda _, experiment: experiment["workload"],
    "project": lambda _, experiment: experiment["project"],
    "owner": lambda _, experiment: experiment["owner"],
    "tags": lambda run, experiment: ", ".join(dict.fromkeys([*run.tags, *experiment["tags"]])),
    "kind": lambda run, _: run.kind,
    "role": lambda run, _: run.role,
    "seed": lambda run, _: str(run.seed),
    "duration": lambda run, _: between(run.started_at, run.ended_at) if run.started_at else "",
    "device": lambda run, _: _device(run),
    "worker": lambda run, _: run.worker.name if run.worker is not None else "",
    "commit": lambda run, _: _commit(run),
    "numerics": lambda run, _: run.numerics or "",
    "attempt": lambda run, _: str(run.attempt),
    "skipped": lambda run, _: number((run.result or {}).get("skipped_steps")),
}


def _non_finite(series: dict[str, Any]) -> dict[str, str] | None:
    """The earliest series that lost its finite values: a short badge and the whole sentence."""
    found = [
        (first, name, ", ".join(kind for kind, count in (("NaN", num_nan), ("∞", num_inf)) if count))
        for name, (_, num_nan, num_inf, first) in series.items()
        if first is not None and name != "amp/loss_scale"
    ]
    if not found:
        return None
    first, name, kind = min(found)
    return {"short": f"{kind} since {first}", "long": f"{kind} in {name} since step {first}"}
