"""Notes on pages: the panel of a subject, and the form that writes it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup
from sqlalchemy.orm import Session

from server.access import Principal, submitter
from server.errors import Conflict, Invalid
from server.notes import service
from server.notes.service import Kind
from server.pages.render import page
from server.reports.document import html_of
from server.state import DatabaseOf

router = APIRouter(include_in_schema=False)
PAGES: dict[Kind, str] = {
    "experiment": "/experiments/{}#notes", "run": "/runs/{}#notes", "report": "/reports/{}#notes",
    "workload": "/workloads#notes-{}",
}  # fmt: skip


def panel(session: Session, kind: Kind, key: object) -> dict[str, Any]:
    """What parts/notes.html shows of a subject. ``taggers``: who besides admins is offered its tags; None: all."""
    return shown(service.note_json(session, kind, str(key))) | {"taggers": service.taggers(session, kind, str(key))}


def shown(note: dict[str, Any]) -> dict[str, Any]:
    """A note with its text as HTML."""
    return note | {"html": Markup(html_of(note["text"]))}  # noqa: S704 - markdown-it with HTML off


@router.post("/notes/{kind}/{key}")
def write_note(
    kind: Kind,
    key: str,
    request: Request,
    principal: Annotated[Principal, Depends(submitter)],
    database: DatabaseOf,
    text: Annotated[str, Form(max_length=50_000)] = "",
    tags: Annotated[str, Form(max_length=1000)] = "",
    keep_tags: Annotated[bool, Form(description="The form offered no tags: they stay.")] = False,
    version: Annotated[int, Form(ge=0)] = 0,
) -> Response:
    """Keep the note and show its subject; what cannot be kept comes back with what is wrong, and nothing is lost."""
    try:
        with database.write() as session:
            service.write(session, principal, kind, key[:80], text, None if keep_tags else tags.split(","), version)
    except (Conflict, Invalid) as error:
        with database.read() as session:
            theirs = panel(session, kind, key[:80])
        mine = theirs["tags"] if keep_tags else [tag.strip() for tag in tags.split(",")]
        given = {"text": text, "tags": mine, "version": theirs["version"]}
        status = 409 if isinstance(error, Conflict) else 422
        return page(request, "note_edit.html", status=status, note=theirs | given, theirs=theirs, error=str(error),
                    back=PAGES[kind].format(key))  # fmt: skip
    return RedirectResponse(PAGES[kind].format(key), status_code=303)
