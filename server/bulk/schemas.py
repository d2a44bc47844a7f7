"""What the routes of bulk actions read and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, get_args

from pydantic import Field, StrictInt, model_validator

from server.experiments.schemas import Body

MAX_IDS = 500
Action = Literal["cancel", "retry", "tag", "untag", "archive", "unarchive", "delete", "restore"]
ACTIONS: tuple[Action, ...] = get_args(Action)


class ActionIn(Body):
    """One action on several rows. ``tag`` and ``untag`` name the tag; ``restore`` undoes a deletion."""

    action: Action
    ids: Annotated[list[Annotated[StrictInt, Field(ge=1, lt=2**63)]], Field(min_length=1, max_length=MAX_IDS)]
    tag: Annotated[str, Field(min_length=1, max_length=40)] | None = None

    @model_validator(mode="after")
    def _tag_belongs(self) -> ActionIn:
        if (self.tag is not None) != (self.action in ("tag", "untag")):
            raise ValueError(f"action {self.action!r} {'takes no tag' if self.tag is not None else 'needs a tag'}")
        return self


class Refusal(Body):
    """One row that stays as it is, and why."""

    id: int
    reason: str


class ActionOut(Body):
    """What was done; rows that could not be are told with the reason, and keep no other from being changed."""

    action: Action
    done: list[int]
    refused: list[Refusal]
    undo_until: datetime | None = Field(default=None, description="Until when a deletion can be restored.")
