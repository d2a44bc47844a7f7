"""The table of experiments: filtered, sorted, grouped, with chosen columns; its whole view is in the address."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Annotated, Any, cast, get_args

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.access import Principal, viewer
from server.db.tables import Experiment
from server.errors import Fault, Invalid
from server.experiments import queries
from server.experiments.groups import NO_TAG, OVERLAPPING, overlapping_groups
from server.pages.experiment_metrics import metric_cells
from server.pages.formats import number
from server.pages.home import with_styles
from server.pages.list_notice import notice_of
from server.pages.list_view import ListView, view_of
from server.pages.metric_text import heading_of
from server.pages.render import page
from server.runs.queries import Archived
from server.search.completion import quoted
from server.search.distinct import metric_names, parameter_names
from server.search.language import faults_of
from server.state import DatabaseOf, SettingsOf
from server.views.service import views_of
from server.workloads.queries import current_workloads

router = APIRouter(include_in_schema=False)
PAGE_SIZE = 50
STATES = ("queued", "running", "ended", "cancelled")
SORTS: tuple[queries.Sort, ...] = get_args(queries.Sort)
DEFAULT_SORT: queries.Sort = "-created_at"
GROUPS = ("workload", "owner", "project", "state")
GROUP_SIZE = 20  # rows of each group that overlaps with others
COLUMNS = {
    "workload": "Workload", "verdicts": "Verdicts", "progress": "Progress", "state": "State", "owner": "Owner",
    "project": "Project", "primary": "Primary metric", "seeds": "Seeds", "steps": "Steps", "device": "Device",
    "created_at": "Submitted", "ended_at": "Ended",
}  # fmt: skip
DEFAULT_COLUMNS = ("workload", "verdicts", "progress", "state", "owner", "created_at")
Viewer = Annotated[Principal, Depends(viewer)]


@router.get("/experiments")
def experiments_page(request: Request, principal: Viewer, database: DatabaseOf, settings: SettingsOf) -> Response:
    """Experiments of the whole team, newest first unless the address says otherwise."""
    view = view_of("experiments", DEFAULT_SORT, request.query_params)
    if view.get("group") not in ("", *GROUPS, *OVERLAPPING):
        rule, remedy = "experiments have no such groups", f"use one of {', '.join((*GROUPS, *OVERLAPPING))}"
        raise Invalid([Fault(field="group", value=view.get("group")[:80], rule=rule, remedy=remedy)])
    columns = [name for name in view.get("cols").split(",") if name][:20] or list(DEFAULT_COLUMNS)
    with database.read() as session:
        metrics = metric_names(session)
        columns = [name for name in columns if name in COLUMNS or name in metrics or name.startswith("params.")]
        groups, following, fault = _listed(session, view)
        _measure(session, groups, [name for name in columns if name in metrics])
        parameters = {f"params.{name}": name for name in parameter_names(session)}
        context: dict[str, Any] = {
            "view": view,
            "groups": groups,
            "next_cursor": following,
            "columns": {name: _label(name, metrics) for name in columns},
            "metrics": [name for name in columns if name in metrics],
            "choosable": COLUMNS | {name: heading_of(name) for name in metrics} | parameters,
            "workload_names": [known.name for known in current_workloads(session)],
            "views": views_of(session, principal, "experiments"),
            "states": STATES,
            "group_names": (*GROUPS, *OVERLAPPING),
            "fault": fault,
            "faults": faults_of(view.get("q")),
            "notice": notice_of(request.query_params, settings.undo_s),
        }
    return page(request, "experiments.html", **context)


def _sort(view: ListView) -> queries.Sort:
    """The order of the rows; groups stand together, so that their key comes first, and then the newest."""
    wanted = view.get("group") if view.get("group") in GROUPS else view.get("sort")
    return next((known for known in SORTS if known == wanted), DEFAULT_SORT)


def filter_of(view: ListView) -> queries.ExperimentFilter:
    """The filter that a view's address names."""
    return queries.ExperimentFilter(
        q=view.get("q") or None,
        workload=view.get("workload") or None,
        state=view.get("state") if view.get("state") in STATES else None,
        archived=cast(Archived, view.get("archived")),
    )


def _label(column: str, metrics: Collection[str]) -> str:
    return COLUMNS.get(column) or (heading_of(column) if column in metrics else column.removeprefix("params."))


def _measure(session: Session, groups: list[dict[str, Any]], metrics: list[str]) -> None:
    """Give every row its ``metrics``: by column a line for each recipe."""
    rows = [item for group in groups for item in group["items"]]
    cells = metric_cells(session, list({item["id"] for item in rows}), metrics)
    for item in rows:
        item["metrics"] = cells.get(item["id"], {})


def _listed(session: Session, view: ListView) -> tuple[list[dict[str, Any]], str | None, Fault | None]:
    """The groups of the view with their rows, the cursor of the next page, and what is wrong with its query."""
    try:
        if view.get("group") in OVERLAPPING:
            return _overlapping(session, view), None, None
        items, following = queries.list_experiments(
            session,
            filter_of(view),
            sort=_sort(view),
            cursor=view.get("cursor") or None,
            limit=PAGE_SIZE,
            newest=view.get("group") in GROUPS,
        )
    except Invalid as error:
        if error.faults[0].field != "q":
            raise
        return [], None, error.faults[0]
    return list(_groups(session, view, [_shown(item) for item in items])), following, None


def _overlapping(session: Session, view: ListView) -> list[dict[str, Any]]:
    """Groups in which an experiment may stand several times, each with its newest rows."""
    by = view.get("group")
    found = overlapping_groups(session, filter_of(view), by)
    wanted = {number for group in found for number in group.ids[:GROUP_SIZE]}
    rows = session.scalars(select(Experiment).where(Experiment.id.in_(wanted)))
    items = {item["id"]: _shown(item) for item in queries.experiments_json(session, list(rows))}
    return [
        {
            "title": group.key,
            "items": [items[number] for number in group.ids[:GROUP_SIZE]],
            "totals": {"total": len(group.ids), **group.verdicts},
            "more": "" if group.key == NO_TAG or len(group.ids) <= GROUP_SIZE else view.but(
                group="", q=f"{view.get('q')} {by}:{quoted(group.key)}".strip()
            ),
        }
        for group in found
    ]  # fmt: skip


def _shown(item: dict[str, Any]) -> dict[str, Any]:
    return with_styles(item) | {"params_text": _params(item)}


def _params(item: dict[str, Any]) -> dict[str, str]:
    return {
        f"params.{name}": number(value)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else str(value)
        for name, value in (item["params"] or {}).items()
    }


def _groups(session: Session, view: ListView, items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows in groups, with how many there are in all and with which verdicts; ungrouped, one without a title."""
    by = view.get("group")
    if by not in GROUPS:
        yield {"title": "", "items": items, "more": ""}
        return
    totals = queries.group_totals(session, filter_of(view), by)
    for title, members in groupby(items, key=lambda item: str(item[by])):
        yield {"title": title, "items": list(members), "totals": totals.get(title, {}), "more": ""}
