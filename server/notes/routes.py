"""Notes and tags over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from server.access import Principal, submitter, viewer
from server.notes import service
from server.notes.schemas import NoteIn, NoteOut
from server.notes.service import Kind
from server.state import DatabaseOf

router = APIRouter(prefix="/api/v1", tags=["notes"], dependencies=[Depends(viewer)])
Key = Annotated[
    str, Path(min_length=1, max_length=80, description="The number of the subject; of a workload its name.")
]


@router.get("/notes/{kind}/{key}")
def show_note(kind: Kind, key: Key, database: DatabaseOf) -> NoteOut:
    """What the team noted about an experiment, run, report or workload, and its tags."""
    with database.read() as session:
        return NoteOut.model_validate(service.note_json(session, kind, key))


@router.put("/notes/{kind}/{key}")
def write_note(
    kind: Kind, key: Key, body: NoteIn, principal: Annotated[Principal, Depends(submitter)], database: DatabaseOf
) -> NoteOut:
    """Write the note, and the tags if they are given; 409 when somebody wrote since ``version``."""
    with database.write() as session:
        told = service.write(session, principal, kind, key, body.text, body.tags, body.version)
        return NoteOut.model_validate(told)
