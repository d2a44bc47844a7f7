"""Liveness, readiness, Prometheus figures, and the OpenAPI description."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from server.access import viewer
from server.db import upgrade
from server.db.errors import StoreError
from server.health.prometheus import exposition
from server.state import DatabaseOf, SettingsOf
from server.version import VERSION

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process lives. Open to everybody, tells nothing else."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "The database is away or its tables are of another version."}})
def readyz(database: DatabaseOf) -> JSONResponse:
    """The process can serve: the database answers and its tables are of this version."""
    try:
        upgrade.check(database)
    except StoreError as error:
        kind = "schema" if type(error).__name__ == "SchemaError" else "database"
        return JSONResponse({"status": "unavailable", "cause": kind}, status_code=503)
    return JSONResponse({"status": "ready"})


@router.get("/metrics", dependencies=[Depends(viewer)], response_class=PlainTextResponse)
def metrics(database: DatabaseOf, settings: SettingsOf) -> PlainTextResponse:
    """Figures in the Prometheus text format. Scrape it with an API token of the viewer role."""
    with database.read() as session:
        text = exposition(session, settings.lease_s, VERSION)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/api/v1/openapi.json", dependencies=[Depends(viewer)], include_in_schema=False)
def openapi(request: Request) -> dict[str, Any]:
    """The OpenAPI description of this server."""
    schema: dict[str, Any] = request.app.openapi()
    return schema
