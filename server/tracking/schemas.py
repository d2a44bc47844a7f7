"""What the tracking routes read and answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, Field, StrictInt

from server.experiments.schemas import Body, Seed


class TrackedRunIn(Body):
    """A run that somebody else executes."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "tracked run"
    experiment: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Runs that name the same one are shown together; by default each is its own."
    )
    project: Annotated[str, Field(min_length=1, max_length=80)] = "default"
    workload: Annotated[str, Field(min_length=1, max_length=80)] = Field(
        default="tracked", description="What is trained, as the team calls it."
    )
    recipe: str | dict[str, Any] = Field(default="32-true", description="How numbers are handled: a name or an object.")
    seed: Seed = 0
    params: dict[str, Any] = Field(default_factory=dict, description="Configuration, searchable by its names.")
    steps: Annotated[StrictInt, Field(ge=0, le=2**53)] = Field(default=0, description="Planned steps; 0: unknown.")
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=40)]], Field(max_length=20)] = Field(
        default_factory=list
    )
    note: Annotated[str, Field(max_length=10_000)] = ""
    host: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        default="outside", description="Where it runs, as shown."
    )


class SegmentsOut(BaseModel):
    """What became of a batch. ``sequence`` is the highest stored; ``cancel_requested``: the run is wanted to end."""

    stored: int
    sequence: int
    state: str
    cancel_requested: bool


class ColumnsIn(msgspec.Struct, forbid_unknown_fields=True):
    """Points of one series; times default to now."""

    steps: list[int]
    values: list[float | str | None]
    times: list[float] | None = None


class SegmentIn(msgspec.Struct, forbid_unknown_fields=True):
    """A segment in JSON, for clients without MessagePack. ``state`` ends the run."""

    sequence: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    series: dict[str, ColumnsIn] = {}
    state: Literal["completed", "failed"] | None = None
    message: str = ""
