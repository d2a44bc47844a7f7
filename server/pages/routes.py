"""Every page's routes."""

from __future__ import annotations

from fastapi import APIRouter

from server.pages import (
    analyses,
    appearance,
    assets,
    changes,
    compare,
    compared_points,
    control,
    experiment,
    forks,
    guide,
    hardware,
    heat,
    home,
    list_actions,
    notes,
    notifications,
    people,
    points,
    run,
    runs_list,
    submit,
    table,
    team,
    team_reports,
    trends,
)

router = APIRouter()
# submit before experiment: /experiments/new must not be read as an id
for part in (
    assets,
    people,
    notifications,
    notes,
    home,
    table,
    runs_list,
    list_actions,
    control,
    submit,
    experiment,
    run,
    forks,
    analyses,
    guide,
    heat,
    points,
    changes,
    compare,
    compared_points,
    trends,
    hardware,
    team_reports,
    team,
    appearance,
):
    router.include_router(part.router)
