"""Every router of the application, in the order they are matched."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from fastapi import APIRouter

from server.accounts.routes import router as accounts
from server.accounts.signin import router as signin
from server.audit.routes import router as audit
from server.health.routes import router as health
from server.projects.routes import router as projects
from server.workers.routes import router as workers
from server.workloads.routes import router as workloads


def _when_there(module: str) -> list[APIRouter]:
    if not (Path(__file__).parent.parent / (module.replace(".", "/") + ".py")).exists():
        return []
    return [import_module(module).router]


ROUTERS: tuple[APIRouter, ...] = (
    health,
    signin,
    accounts,
    projects,
    workloads,
    workers,
    audit,
    *_when_there("server.experiments.routes"),
    *_when_there("server.runs.routes"),
    *_when_there("server.metrics.routes"),
    *_when_there("server.metrics.stream"),
    *_when_there("server.comparisons.routes"),
    *_when_there("server.pages.routes"),
)
