"""Every page's routes."""

from __future__ import annotations

from fastapi import APIRouter

from server.pages import appearance, assets, changes, control, experiment, guide, home, people, points, run, submit, table

router = APIRouter()
# submit before experiment: /experiments/new must not be read as an id
for part in (assets, people, home, table, control, submit, experiment, run, guide, points, changes, appearance):
    router.include_router(part.router)
