"""What the view routes read and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StrictBool

from server.experiments.schemas import Body

Page = Literal["experiments", "runs"]


class ViewIn(Body):
    """A view to save; one of the same owner, page and name is replaced."""

    page: Page
    name: Annotated[str, Field(min_length=1, max_length=80)]
    query: Annotated[str, Field(max_length=2000)] = Field(
        default="", description="What follows the question mark in the page's address."
    )
    shared: StrictBool = Field(default=False, description="Whether the whole team sees it.")


class ViewOut(BaseModel):
    id: int
    page: str
    name: str
    query: str
    shared: bool
    owner: str
    mine: bool
    url: str
    created_at: datetime


class ViewList(BaseModel):
    items: list[ViewOut]
