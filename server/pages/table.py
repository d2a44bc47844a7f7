"""The table of experiments; its whole view is in the address."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from server.access import viewer
from server.errors import Invalid
from server.experiments import queries
from server.pages.home import with_styles
from server.pages.render import page
from server.state import DatabaseOf
from server.workloads.queries import current_workloads

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])
PAGE_SIZE = 50
STATES = ("queued", "running", "ended", "cancelled")
SORTS: tuple[queries.Sort, ...] = get_args(queries.Sort)
DEFAULT_SORT: queries.Sort = "-created_at"


@dataclass(frozen=True, kw_only=True)
class View:
    """What the table shows, as its address says it."""

    q: str = ""
    workload: str = ""
    state: str = ""
    sort: queries.Sort = DEFAULT_SORT
    cursor: str = ""
    next_cursor: str = ""

    @property
    def filtered(self) -> bool:
        return bool(self.q or self.workload or self.state)

    @property
    def href(self) -> str:
        fields = {"q": self.q, "workload": self.workload, "state": self.state, "cursor": self.cursor}
        fields["sort"] = self.sort if self.sort != DEFAULT_SORT else ""
        query = urlencode({name: value for name, value in fields.items() if value})
        return f"/experiments?{query}" if query else "/experiments"

    @property
    def first_href(self) -> str:
        return replace(self, cursor="").href

    @property
    def next_href(self) -> str:
        return replace(self, cursor=self.next_cursor).href if self.next_cursor else ""

    def sorted_by(self, column: str) -> str:
        """The address of the same view sorted by ``column``; a second press turns the order round."""
        forward: dict[str, queries.Sort] = {"created_at": "created_at", "name": "name"}
        backward: dict[str, queries.Sort] = {"created_at": "-created_at", "name": "-name"}
        first = backward if column == "created_at" else forward
        second = forward if column == "created_at" else backward
        return replace(self, cursor="", sort=(second if self.sort == first[column] else first)[column]).href


@router.get("/experiments")
def experiments_page(
    request: Request,
    database: DatabaseOf,
    q: Annotated[str, Query(max_length=400)] = "",
    workload: Annotated[str, Query(max_length=80)] = "",
    state: Annotated[str, Query(max_length=20)] = "",
    sort: Annotated[str, Query(max_length=20)] = DEFAULT_SORT,
    cursor: Annotated[str, Query(max_length=800)] = "",
) -> Response:
    """Experiments of the whole team, newest first unless the address says otherwise."""
    order = next((known for known in SORTS if known == sort), DEFAULT_SORT)
    chosen = queries.ExperimentFilter(
        q=q.strip() or None, workload=workload or None, state=state if state in STATES else None
    )
    items: list[dict[str, Any]] = []
    following, fault = None, None
    with database.read() as session:
        try:
            items, following = queries.list_experiments(
                session, chosen, sort=order, cursor=cursor or None, limit=PAGE_SIZE
            )
        except Invalid as error:
            if error.faults[0].field != "q":
                raise
            fault = error.faults[0]
        names = [known.name for known in current_workloads(session)]
    view = View(
        q=q.strip(),
        workload=workload,
        state=state if state in STATES else "",
        sort=order,
        cursor=cursor,
        next_cursor=following or "",
    )
    context: dict[str, Any] = {"items": [with_styles(item) for item in items], "workload_names": names, "view": view}
    context["fault"] = fault
    return page(request, "experiments.html", **context)
