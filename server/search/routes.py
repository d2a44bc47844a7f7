"""Completion and checking of a query, for search boxes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from server.access import viewer
from server.search.completion import Page, complete
from server.search.language import faults_of
from server.state import DatabaseOf

router = APIRouter(prefix="/api/v1", tags=["search"], dependencies=[Depends(viewer)])


class SuggestionOut(BaseModel):
    text: str
    detail: str


class WordFaultOut(BaseModel):
    """Characters [``start``, ``end``) of the query, from 0."""

    start: int
    end: int
    rule: str
    remedy: str


class SuggestionsOut(BaseModel):
    """``items`` may take the place of characters [``start``, ``end``) of the query."""

    start: int
    end: int
    items: list[SuggestionOut]
    faults: list[WordFaultOut] = Field(description="Words that fit no form.")


@router.get("/search/suggestions")
def suggest(
    database: DatabaseOf,
    page: Page = "runs",
    q: Annotated[str, Query(max_length=400)] = "",
    at: Annotated[int | None, Query(ge=0, le=400, description="Where the cursor stands; by default the end.")] = None,
) -> SuggestionsOut:
    """What may stand where somebody types in a search box, from the store, and which words are wrong."""
    place = len(q) if at is None else min(at, len(q))
    with database.read() as session:
        found = complete(session, page, q, place)
    return SuggestionsOut.model_validate(
        {
            "start": found.start,
            "end": found.end,
            "items": [{"text": text, "detail": detail} for text, detail in found.items],
            "faults": [vars(fault) for fault in faults_of(q)],
        }
    )
