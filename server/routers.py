"""Every router of the application, in the order they are matched."""

from __future__ import annotations

from fastapi import APIRouter

from server.accounts.routes import router as accounts
from server.accounts.signin import router as signin
from server.analyses.routes import router as analyses
from server.audit.routes import router as audit
from server.bulk.routes import router as bulk
from server.checkpoints.routes import router as checkpoints
from server.comparisons.routes import router as comparisons
from server.diff.routes import router as diff
from server.experiments.routes import router as experiments
from server.health.routes import router as health
from server.metrics.routes import router as metrics
from server.metrics.stream import router as streams
from server.notes.routes import router as notes
from server.notifications.routes import router as notifications
from server.pages.routes import router as pages
from server.projects.routes import router as projects
from server.reports.routes import router as reports
from server.runs.routes import router as runs
from server.search.routes import router as search
from server.tracking.routes import router as tracking
from server.trends.routes import router as trends
from server.views.routes import router as views
from server.webhooks.routes import router as webhooks
from server.whatif.routes import router as whatif
from server.workers.routes import router as workers
from server.workloads.routes import router as workloads

ROUTERS: tuple[APIRouter, ...] = (
    health,
    signin,
    accounts,
    projects,
    workloads,
    workers,
    webhooks,
    notifications,
    notes,
    audit,
    views,
    search,
    bulk,
    experiments,
    comparisons,
    diff,
    trends,
    reports,
    runs,
    checkpoints,
    analyses,
    tracking,
    metrics,
    streams,
    whatif,
    pages,
)
