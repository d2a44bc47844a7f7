"""The comparison page: curves, figures, configuration, environment, source and numbers of any runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.access import viewer
from server.db.tables import Event, Experiment, Run
from server.diff.queries import difference_of, find_runs, ids_of
from server.diff.rows import Row, alike
from server.metrics.cursors import runs_cursor, spell_experiment_cursor
from server.metrics.read import MIN_POINTS, series_names
from server.pages import chart_tools, colours, figures, parallel
from server.pages.assets import assets
from server.pages.conditions import written
from server.pages.formats import number, percent
from server.pages.metric_text import heading_of, metric_text
from server.pages.render import page
from server.pages.runs_table import non_finite_text
from server.runs.forked import step_title_of
from server.state import DatabaseOf

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])
MAX_POINTS = max(500, MIN_POINTS)
NUM_RECENT = 12
MEMORY = ("memory/allocated_bytes", "memory/process_bytes")  # the first one recorded is shown
ENDED = ("completed", "failed", "cancelled")
Ids = Annotated[str, Query(max_length=2000)]


@router.get("/compare")
def show_comparison(
    request: Request,
    database: DatabaseOf,
    runs: Ids = "",
    experiments: Ids = "",
    chosen: Annotated[list[int] | None, Query(alias="id")] = None,
    noun: Annotated[str, Query(max_length=20)] = "runs",
) -> Response:
    """Runs beside each other; without any it says how to choose. ``id`` and ``noun`` come from the lists' bulk bar."""
    if chosen:
        name = "experiments" if noun == "experiments" else "runs"
        return RedirectResponse(f"/compare?{urlencode({name: ','.join(map(str, chosen))}, safe=',')}", status_code=303)
    run_ids, experiment_ids = ids_of("runs", runs), ids_of("experiments", experiments)
    with database.read() as session:
        if not run_ids and not experiment_ids:
            return page(request, "compare_none.html", recent=_recent(session))
        found = find_runs(session, run_ids, experiment_ids)
        context = _context(session, found, request.query_params.getlist("show")[: figures.MAX_CHOSEN])
    named = {"runs": ",".join(map(str, run_ids)), "experiments": ",".join(map(str, experiment_ids))}
    return page(request, "compare.html", named=named, **context)


def _recent(session: Session) -> list[dict[str, Any]]:
    """The newest experiments that one could begin with."""
    query = select(Experiment.id, Experiment.name).order_by(Experiment.created_at.desc(), Experiment.id.desc())
    return [{"id": row.id, "name": row.name} for row in session.execute(query.limit(NUM_RECENT))]


def _context(session: Session, found: Sequence[Run], show: list[str]) -> dict[str, Any]:
    place = spell_experiment_cursor(runs_cursor(session, found))  # the stream goes on from here
    told = difference_of(session, found)
    runs = told["runs"]
    results = {run.id: run.result for run in found}
    groups = _groups(runs)
    styles = {run_id: group["style"] for group in groups for run_id in group["ids"]}
    for run in runs:
        run["style"] = styles[run["id"]]
        run["non_finite"] = non_finite_text(run["metrics"])
        run["result"] = results[run["id"]]
    columns = parallel.columns_of(runs, told["config"])
    axes = parallel.axes_of(columns)
    recorded = {name for run in runs for name in run["metrics"]}
    charts = _charts(session, runs) + figures.chosen_charts(show, recorded)
    return {
        "runs": runs,
        "groups": groups,
        "num_recipes": len({json.dumps(run["recipe"], sort_keys=True) for run in runs}),
        "figures": _figures(runs),
        "axes": axes,
        "paths": [parallel.path_of(axes, index) for index in range(len(runs))],
        "drawing": {"width": parallel.WIDTH, "height": parallel.HEIGHT, "top": parallel.TOP},
        "config": _table(told["config"], runs),
        "environment": _table(told["environment"], runs),
        "sources": told["sources"],
        "numerics": _numerics(told["numerics"], runs),
        "charts": charts,
        "tools": chart_tools.tools(runs, recorded, show, [], _pinnable(groups, runs)),
        "data": _data(session, runs, groups, axes, place)
        | {"charts": figures.describe(charts, step_title_of([run.config for run in found]))},
    }


def _groups(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One group per experiment and recipe, each in a colour of its own as far as there are colours."""
    keys = dict.fromkeys((run["experiment_id"], run["recipe_name"]) for run in runs)
    several = len({experiment for experiment, _ in keys}) > 1
    named = []
    for experiment, recipe_name in keys:
        of_group = [run for run in runs if (run["experiment_id"], run["recipe_name"]) == (experiment, recipe_name)]
        name = f"{recipe_name}, #{experiment}" if several else recipe_name
        named.append({"name": name, "recipe": of_group[0]["recipe"], "ids": [run["id"] for run in of_group],
                      "seeds": [run["seed"] for run in of_group],
                      "emulated": any(run["numerics"] == "emulated" for run in of_group)})  # fmt: skip
    styles = colours.assign([{**group["recipe"], "name": group["name"]} for group in named])
    return [group | {"style": styles[group["name"]]} for group in named]


def _pinnable(
    groups: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]]
) -> list[tuple[str, list[tuple[str, str]]]]:
    """What a curve can be taken from, under headings: each run, and each group of several as the mean of its runs."""
    means = [(",".join(map(str, group["ids"])), f"{group['name']}, mean of {len(group['ids'])} runs")
             for group in groups if len(group["ids"]) > 1]  # fmt: skip
    single = [(str(run["id"]), f"run {run['id']}, {run['recipe_name']}, seed {run['seed']}") for run in runs]
    return [(label, values) for label, values in (("Mean of seeds", means), ("One run", single)) if values]


def _figures(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The figures that decide, a row each: what, and its text for each run."""
    names = [*dict.fromkeys(f"eval/{run['primary']['metric']}" for run in runs), "train/loss", "perf/samples_per_s"]
    memory = [
        name for name in ("memory/allocated_bytes", "memory/process_bytes") if any(name in r["metrics"] for r in runs)
    ]
    found = []
    for name in [*names, *memory[:1]]:
        texts = [_figure_text(run, name) for run in runs]
        if any(text != "–" for text in texts):
            found.append({"label": heading_of(name), "name": name, "texts": texts})
    return found


def _figure_text(run: dict[str, Any], name: str) -> str:
    summary = run["metrics"].get(name)
    if summary is None:
        return "–"
    if name.startswith(("perf/", "memory/")):
        if run["numerics"] == "emulated":
            return "emulated"
        return metric_text(name, summary["mean" if name.startswith("perf/") else "max"])
    return metric_text(name, summary["last"])


def _table(rows: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rows that differ, with a column for each set of runs that agree in them, and the rows that are equal.

    Seeds are meant to differ and are told in the heads of the columns. ``missing`` are the runs that recorded nothing.
    """
    rows = [row for row in rows if row["name"] != "seed"]
    differing = [Row(name=row["name"], values=tuple(row["values"])) for row in rows if row["differs"]]
    known = [index for index in range(len(runs)) if any(row["values"][index] is not None for row in rows)]
    columns = [kept for group in alike(differing, len(runs)) if (kept := [index for index in group if index in known])]
    return {
        "columns": [{"runs": [runs[index] for index in column], "title": _title(runs, column)} for column in columns],
        "rows": [(row.name, [_written(row.values[column[0]]) for column in columns]) for row in differing],
        "equal": [(row["name"], _written(row["values"][next(iter(known), 0)])) for row in rows if not row["differs"]],
        "missing": [run["id"] for index, run in enumerate(runs) if index not in known],
    }


def _title(runs: Sequence[dict[str, Any]], column: Sequence[int]) -> str:
    ids = [f"{runs[index]['id']}" for index in column]
    return (
        f"run {ids[0]}"
        if len(ids) == 1
        else f"runs {', '.join(ids[:4])}{f' and {len(ids) - 4} more' if len(ids) > 4 else ''}"
    )


def _written(value: Any) -> str:
    return "–" if value is None else written(value) or "empty"


def _numerics(told: dict[str, Any], runs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """By module and run: the three figures in words, and whether the share of zeros alarms."""
    if not told["modules"]:
        return None
    known = [index for index in range(len(runs)) if told["steps"][index] is not None]
    return {
        "runs": [{**runs[index], "sample_step": told["steps"][index]} for index in known],
        "modules": [
            {"name": module["module"], "cells": [_cell(module["runs"][index]) for index in known]}
            for module in told["modules"]
        ],
    }


def _cell(item: dict[str, Any] | None) -> dict[str, Any] | None:
    if item is None:
        return None
    return {
        "max_abs": number(item["max_abs"], 3),
        "underflow": percent(item["underflow_fraction"]),
        "zeros": percent(item["zero_fraction"]),
        "alarm": max(_share(item["zero_fraction"]), _share(item["underflow_fraction"])) > 0.5,
    }


def _share(value: object) -> float:
    return value if isinstance(value, float) else 0.0


def _charts(session: Session, runs: Sequence[dict[str, Any]]) -> list[figures.Chart]:
    """The charts of a run page for every series that two runs have, or one when only one is shown."""
    counts: dict[str, int] = {}
    for run in runs:
        for item in series_names(session, run["id"]):
            counts[item["name"]] = counts.get(item["name"], 0) + 1
    names = sorted(name for name, count in counts.items() if count >= min(2, len(runs)))
    primary = runs[0]["primary"]
    return figures.run_charts(names, primary["metric"], primary.get("unit", ""))


def _data(
    session: Session,
    runs: Sequence[dict[str, Any]],
    groups: Sequence[dict[str, Any]],
    axes: Sequence[parallel.Axis],
    place: str,
) -> dict[str, Any]:
    """What the page's script needs besides its charts; points come later."""
    labels = {run["id"]: f"run {run['id']}, seed {run['seed']}" for run in runs}
    by_id = {run["id"]: run for run in runs}
    return {
        "id": 0,
        "ids": [run["id"] for run in runs],
        "attempt": 0,
        "place": place,
        "done": all(run["state"] in ENDED for run in runs),
        "waiting": any(run["state"] not in ENDED for run in runs),
        "steps": max(run["steps"] for run in runs),
        "max_points": MAX_POINTS,
        "plotly": assets.url("plotly.min.js"),
        "themes": figures.THEMES,
        "config": figures.CONFIG,
        "axes": [{"key": axis.key, "ys": axis.ys} for axis in axes],
        "groups": [
            {
                "name": group["name"],
                "style": figures.line_style(group["style"]),
                "emulated": group["emulated"],
                "baseline": False,
                "runs": [chart_tools.run_of_group(by_id[run_id], labels[run_id]) for run_id in group["ids"]],
            }
            for group in groups
        ],
        "skips": _skips(session, [run["id"] for run in runs]),
    }


def _skips(session: Session, run_ids: Sequence[int]) -> dict[int, list[int]]:
    query = (
        select(Event.run_id, Event.step)
        .join(Run, Run.id == Event.run_id)
        .where(Run.id.in_(run_ids), Event.kind == "step_skipped", Event.attempt == Run.attempt)
        .order_by(Event.run_id, Event.step)
    )
    skips: dict[int, list[int]] = {}
    for run_id, step in session.execute(query):
        if step is not None:
            skips.setdefault(run_id, []).append(step)
    return skips
