"""Events, logs and artifacts as REST gives them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from server.db.tables import Artifact


class EventOut(BaseModel):
    """A typed fact of a run; docs/rest.md lists the kinds. ``payload`` is the event as the engine gave it."""

    kind: str
    step: int | None
    payload: dict[str, Any]
    at: datetime
    attempt: int
    sequence: int


class EventList(BaseModel):
    items: list[EventOut]
    next_cursor: str | None


class LogOut(BaseModel):
    """A piece of an attempt's log: it begins after ``position`` characters; go on at ``next_position``."""

    run_id: int
    attempt: int
    position: int
    next_position: int
    end_position: int
    text: str


class ArtifactOut(BaseModel):
    """A file of a run; its bytes are at ``url``."""

    id: int
    run_id: int
    attempt: int
    name: str
    media_type: str
    step: int
    num_bytes: int
    sha256: str
    created_at: datetime
    url: str

    @classmethod
    def of(cls, row: Artifact) -> ArtifactOut:
        fields = {name: getattr(row, name) for name in cls.model_fields if name != "url"}
        return cls(**fields, url=f"/api/v1/artifacts/{row.id}")


class ArtifactList(BaseModel):
    items: list[ArtifactOut]
    next_cursor: str | None = None


class ExponentSampleOut(BaseModel):
    """Elements by exponent at one step: ``counts[i]`` have magnitudes from 2**exponents[i] to below twice that.

    ``classes[i]`` splits ``counts[i]`` at the ``edges`` of the mantissa, where some format's rounding turns.
    ``scale`` is the loss scale of the step; gradients are counted after unscaling.
    """

    step: int
    attempt: int
    scale: float | str
    num_elements: int
    zeros: int
    infinite: int
    nan: int
    exponents: list[int]
    counts: list[int]
    classes: list[list[int]]


class ExponentsOut(BaseModel):
    """Exponent histograms of a run, by step: of one module, or of all of them merged when ``module`` is null."""

    run_id: int
    kind: str
    module: str | None
    modules: list[str]
    edges: list[int]
    samples: list[ExponentSampleOut]
