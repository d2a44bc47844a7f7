"""What the note routes read and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from server.experiments.schemas import Body
from server.notes.service import MAX_TAGS, MAX_TEXT, Kind

Tag = Annotated[str, Field(min_length=1, max_length=40)]


class NoteIn(Body):
    """The note and tags of a subject. ``version`` is that of the note that was changed, 0 for none; 409 if older."""

    text: Annotated[str, Field(max_length=MAX_TEXT, description="Markdown; an empty one is none.")]
    tags: Annotated[list[Tag], Field(max_length=MAX_TAGS)] | None = Field(
        default=None, description="None: as they are."
    )
    version: Annotated[int, Field(ge=0)]


class NoteOut(BaseModel):
    """What the team noted about a subject; ``version`` 0 says that nobody has yet."""

    kind: Kind
    key: str
    text: str
    tags: list[str]
    version: int
    editor: str | None
    at: datetime | None
