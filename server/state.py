"""Dependencies that hand the application's database and settings to routes. Routes open the transactions."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from server.db.engine import Database
from server.settings import Settings


async def database_of(request: Request) -> Database:
    """The application's database. No transaction is open: a stream must not hold one."""
    database: Database = request.app.state.database
    return database


async def settings_of(request: Request) -> Settings:
    """The application's settings."""
    settings: Settings = request.app.state.settings
    return settings


DatabaseOf = Annotated[Database, Depends(database_of)]
SettingsOf = Annotated[Settings, Depends(settings_of)]
