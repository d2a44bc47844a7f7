"""The forms of the lists: bulk actions and saved views, for browsers with and without scripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import APIRouter, Depends, Form
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from server.access import Principal, submitter, viewer
from server.accounts.signin import safe_target
from server.bulk.routes import act
from server.bulk.schemas import ActionIn
from server.db.engine import Database
from server.errors import Fault, Invalid
from server.settings import Settings
from server.state import DatabaseOf, SettingsOf
from server.views import service
from server.views.schemas import Page, ViewIn
from server.views.service import NOT_KEPT

router = APIRouter(include_in_schema=False)
Submitter = Annotated[Principal, Depends(submitter)]
Back = Annotated[str, Form(max_length=4000)]


@dataclass(frozen=True, kw_only=True)
class ActionForm:
    """The fields of the bulk bar."""

    ids: tuple[int, ...]
    action: str
    tag: str
    back: str


def action_form(
    ids: Annotated[list[int] | None, Form(alias="id")] = None,
    action: Annotated[str, Form(max_length=20)] = "",
    tag: Annotated[str, Form(max_length=200)] = "",
    back: Back = "/",
) -> ActionForm:
    """What the bulk bar sent."""
    return ActionForm(ids=tuple(ids or ()), action=action, tag=tag.strip(), back=back)


Sent = Annotated[ActionForm, Depends(action_form)]


@router.post("/experiments/act")
def act_on_experiments(sent: Sent, principal: Submitter, database: DatabaseOf, settings: SettingsOf) -> Response:
    """Do it to the chosen experiments and show the list again with what was done."""
    return _acted("experiments", sent, principal, database, settings)


@router.post("/runs/act")
def act_on_runs(sent: Sent, principal: Submitter, database: DatabaseOf, settings: SettingsOf) -> Response:
    """Do it to the chosen runs and show the list again with what was done."""
    return _acted("runs", sent, principal, database, settings)


def _acted(noun: str, sent: ActionForm, principal: Principal, database: Database, settings: Settings) -> Response:
    action, tag, back = sent.action, sent.tag, sent.back
    ids = list(sent.ids)
    if not ids:
        return RedirectResponse(_with(back, did=action, ids="", refused=""), status_code=303)
    given = {"action": action, "ids": ids} | ({"tag": tag} if action in ("tag", "untag") else {})
    try:
        body = ActionIn.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        remedy = "write a tag of up to 40 characters" if action in ("tag", "untag") else "go back and try again"
        raise Invalid([Fault(field=action[:20], value=tag[:60], rule=first["msg"], remedy=remedy)]) from error
    told = act(database, settings, noun, body, principal)
    done = ",".join(map(str, told.done))
    refused = ",".join(str(one.id) for one in told.refused)
    return RedirectResponse(_with(back, did=action, ids=done, refused=refused), status_code=303)


@router.post("/views")
def save_view_by_form(
    principal: Annotated[Principal, Depends(viewer)],
    database: DatabaseOf,
    page: Annotated[Page, Form()],
    name: Annotated[str, Form(max_length=200)] = "",
    query: Annotated[str, Form(max_length=4000)] = "",
    shared: Annotated[bool, Form()] = False,
) -> Response:
    """Save the view that the list shows, and show it."""
    try:
        given = ViewIn(page=page, name=name.strip(), query=query, shared=shared)
    except ValidationError as error:
        rule = error.errors()[0]["msg"]
        remedy = "give it a name of up to 80 characters"
        raise Invalid([Fault(field="name", value=name[:100], rule=rule, remedy=remedy)]) from error
    with database.write() as session:
        view = service.save(session, given, principal)
        target = service.view_json(view, principal)["url"]
    return RedirectResponse(target, status_code=303)


@router.post("/views/{view_id}/delete")
def delete_view_by_form(
    view_id: int, principal: Annotated[Principal, Depends(viewer)], database: DatabaseOf, back: Back = "/"
) -> Response:
    """Delete a view and show the list as it was."""
    with database.write() as session:
        service.remove(session, view_id, principal)
    return RedirectResponse(safe_target(back), status_code=303)


def _with(back: str, **message: str) -> str:
    """The address to go back to, with a message in place of an earlier one."""
    parts = urlsplit(safe_target(back))
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name not in NOT_KEPT or name == "cursor"]
    return f"{parts.path}?{urlencode([*kept, *((name, value) for name, value in message.items() if value)])}"
