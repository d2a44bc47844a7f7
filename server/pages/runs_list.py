"""The table of runs over all experiments: filtered, sorted, grouped, with chosen columns; its view is its address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from server.access import Principal, viewer
from server.errors import Fault, Invalid
from server.pages import colours, run_columns
from server.pages.list_notice import notice_of
from server.pages.list_view import ListView, view_of
from server.pages.metric_text import difference_text, metric_text, together
from server.pages.render import page
from server.runs.group_keys import GROUPS, GroupBy
from server.runs.groups import PRIMARY, Group, Spread, groups_of
from server.runs.queries import STATES, Archived, RunFilter
from server.runs.table import page_of_runs
from server.search.language import faults_of
from server.state import DatabaseOf, SettingsOf
from server.views.service import views_of
from server.workloads.queries import current_workloads

router = APIRouter(include_in_schema=False)
PAGE_SIZE, GROUP_SIZE = 50, 20
DEFAULT_SORT = "-created"
Viewer = Annotated[Principal, Depends(viewer)]


@router.get("/runs")
def runs_page(
    request: Request,
    principal: Viewer,
    database: DatabaseOf,
    settings: SettingsOf,
) -> Response:
    """Runs of the whole team, newest first unless the address says otherwise."""
    view = view_of("runs", DEFAULT_SORT, request.query_params)
    columns = run_columns.chosen(view.get("cols"))
    with database.read() as session:
        listed, fault = _listed(session, view, columns)
        context: dict[str, Any] = {
            "view": view,
            "columns": columns,
            "column_keys": [column.key for column in columns],
            "choosable": run_columns.choosable(session),
            "workload_names": [known.name for known in current_workloads(session)],
            "views": views_of(session, principal, "runs"),
            "states": STATES,
            "group_names": GROUPS,
            "fault": fault,
            "faults": faults_of(view.get("q")),
            "notice": notice_of(request.query_params, settings.undo_s),
            **listed,
        }
    return page(request, "runs.html", **context)


def _listed(session: Session, view: ListView, columns: list[run_columns.Column]) -> tuple[dict[str, Any], Fault | None]:
    """The rows or groups of the view, and what is wrong with its query."""
    empty: dict[str, Any] = {"rows": [], "groups": None, "next_cursor": None}
    chosen = filter_of(view)
    try:
        if view.get("group") in GROUPS:
            return empty | {"groups": _groups(session, chosen, view, columns)}, None
        runs, following = page_of_runs(
            session, chosen, sort=view.get("sort"), cursor=view.get("cursor") or None, limit=PAGE_SIZE
        )
    except Invalid as error:
        if error.faults[0].field != "q":
            raise
        return empty, error.faults[0]
    rows = [_styled(row) for row in run_columns.rows_of(session, runs, columns)]
    return empty | {"rows": rows, "next_cursor": following}, None


def filter_of(view: ListView) -> RunFilter:
    """The filter that a view's address names."""
    by, _, key = view.get("in").partition(":")
    return RunFilter(
        q=view.get("q") or None,
        workload=view.get("workload") or None,
        state=view.get("state") if view.get("state") in STATES else None,
        archived=cast(Archived, view.get("archived")),
        group=(by, key) if by in GROUPS else None,
    )


def _styled(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "style": colours.natural_style(row["recipe_json"])}


def _groups(
    session: Session, chosen: RunFilter, view: ListView, columns: Sequence[run_columns.Column]
) -> list[dict[str, Any]]:
    by = cast(GroupBy, view.get("group"))
    metrics = [column.key for column in columns if column.kind == "metric"]
    return [_group(session, chosen, view, columns, by, group) for group in groups_of(session, chosen, by, metrics)]


def _group(
    session: Session,
    chosen: RunFilter,
    view: ListView,
    columns: Sequence[run_columns.Column],
    by: GroupBy,
    group: Group,
) -> dict[str, Any]:
    """A group as the table shows it, with its first runs when it is open."""
    is_open = group.key in view.open
    rows: list[dict[str, Any]] = []
    if is_open:
        within = RunFilter(**{**vars(chosen), "group": (by, group.key)})
        runs, _ = page_of_runs(session, within, sort=view.get("sort"), limit=GROUP_SIZE)
        rows = [_styled(row) for row in run_columns.rows_of(session, runs, columns)]
    of_control = group.has_baseline and by in ("recipe", "precision")
    cells = {
        name: [spread_text(spread, named=name == PRIMARY, is_baseline=of_control) for spread in spreads]
        for name, spreads in group.spreads.items()
    }
    return {
        "key": group.key,
        "title": group.title,
        "style": _style_of(by, group.key),
        "num_runs": group.num_runs,
        "states": {state: count for state, count in group.states.items() if count},
        "cells": cells,
        "non_finite": _non_finite(group),
        "open": is_open,
        "href": view.toggled(group.key),
        "list_href": view.but(group="", in_=f"{by}:{group.key}"),
        "rows": rows,
    }


def _style_of(by: GroupBy, key: str) -> colours.Style | None:
    """The colour of a group of one precision."""
    if by == "precision":
        return colours.natural_style({"precision": key})
    if by == "recipe":
        precision, _, rest = key.partition(",")
        scaler = {"kind": "none"} if "no scaler" in rest else {"kind": "static"} if "static" in rest else {}
        return colours.natural_style({"precision": precision, "scaler": scaler})
    return None


def spread_text(spread: Spread, *, named: bool, is_baseline: bool = False) -> dict[str, str]:
    """Mean ± sd, range, number and difference of one metric in words; the baseline's is that of its A/A control."""
    name = spread.metric
    mean = metric_text(name, spread.mean)
    if spread.sd is not None:
        mean = together(name, (spread.mean, spread.sd), " ± ", (4, 2))
    low, high = metric_text(name, spread.min), metric_text(name, spread.max)
    of_control = "A/A " if is_baseline else ""
    pairs = f" over {spread.num_pairs} pair{'s' if spread.num_pairs != 1 else ''}"
    return {
        "name": name.removeprefix("eval/") if named else "",
        "mean": mean,
        "range": together(name, (spread.min, spread.max), " to ", (4, 4)) if spread.num > 1 and low != high else "",
        "num": f"{spread.num} run{'s' if spread.num != 1 else ''}",
        "delta": f"{of_control}Δ {difference_text(name, spread.delta)}{pairs}" if spread.delta is not None else "",
    }


def _non_finite(group: Group) -> str:
    if group.first_non_finite_step is None:
        return ""
    kinds = [f"{kind} in {count}" for kind, count in (("NaN", group.num_nan), ("∞", group.num_inf)) if count]
    seeds = f"seed{'s' if len(group.non_finite_seeds) > 1 else ''} {', '.join(map(str, group.non_finite_seeds))}"
    return f"{', '.join(kinds)} of {group.num_runs} runs ({seeds}), since step {group.first_non_finite_step}"
