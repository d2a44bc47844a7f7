"""Home: what runs, what just ended with its verdict, the queue, the devices; and the pages of workers and workloads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from sqlalchemy import or_, select
from sqlalchemy.orm import Session, contains_eager

from server.access import viewer
from server.db.tables import Experiment, Run, Series
from server.experiments import queries
from server.pages import colours, formats, notes
from server.pages.render import page
from server.pages.workload_forms import margin_text
from server.runs.queries import num_queued, queued_runs
from server.state import DatabaseOf, SettingsOf
from server.trends.alerts import alerts_json
from server.version import VERSION
from server.workers.queries import list_workers
from server.workloads.queries import current_workloads, workload_json

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])
NUM_FINISHED, NUM_RUNNING, NUM_QUEUED, NUM_TROUBLED = 6, 12, 8, 6
TROUBLE_DAYS = 14  # failures and NaN older than this are known

OWN_EXAMPLE = '''\
import torch
from torch import nn
from amp_core.workload import Metric, Workload, param


class MyModel(Workload):
    """Classify my data."""

    width: int = param(128, min=8, max=4096, help="hidden units")
    primary = Metric("accuracy", True, 0.005)

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(20, self.width), nn.ReLU(), nn.Linear(self.width, 2)
        )

    def batches(self, split, seed):
        torch.manual_seed(seed if split == "train" else 0)
        for _ in range(50):
            x = torch.randn(64, 20)
            yield x, (x.sum(1) > 0).long()
'''


@router.get("/")
def home(request: Request, database: DatabaseOf, settings: SettingsOf) -> Response:
    """The first page after signing in; before the first experiment it teaches."""
    with database.read() as session:
        running = [
            item
            for state in ("running", "queued")
            for item in queries.list_experiments(session, queries.ExperimentFilter(state=state), limit=NUM_RUNNING)[0]
        ]
        finished = _finished(session)
        queue, _ = queued_runs(session, limit=NUM_QUEUED)
        context: dict[str, Any] = {
            "running": running[:NUM_RUNNING],
            "finished": finished,
            "queue": with_run_styles(queue),
            "queue_length": num_queued(session),
            "workers": _workers(session, settings.lease_s, offline=False),
            "troubled": _troubled(session),
            "alerts": alerts_json(session, unseen=True)[:NUM_TROUBLED],
            "first_run": not running and not finished and session.scalar(select(Experiment.id).limit(1)) is None,
        }
    return page(request, "home.html", **context)


def _finished(session: Session) -> list[dict[str, Any]]:
    """The newest experiments that ended, each with its headline."""
    found: list[dict[str, Any]] = []
    query = (
        select(Experiment)
        .where(Experiment.state.in_(("ended", "cancelled")))
        .order_by(Experiment.ended_at.desc(), Experiment.id.desc())
        .limit(NUM_FINISHED)
    )
    rows = session.scalars(query).all()
    for row, item in zip(rows, queries.experiments_json(session, rows), strict=True):
        headline = (row.comparison or {}).get("headline", "")
        found.append({**with_styles(item), "headline": headline})
    return found


def _troubled(session: Session) -> list[dict[str, Any]]:
    """Experiments whose runs failed or lost their finite values lately, the newest first: how many, and why."""
    since = datetime.now(UTC) - timedelta(days=TROUBLE_DAYS)
    broken = (
        select(Series.run_id)
        .where(Series.is_newest, Series.first_non_finite_step.is_not(None), Series.name != "amp/loss_scale")
        .correlate(None)
    )
    failed = Run.state == "failed"
    query = (
        select(Run, Run.id.in_(broken))
        .join(Run.experiment)
        .options(contains_eager(Run.experiment).load_only(Experiment.name))
        .where(Run.ended_at > since, Experiment.archived_at.is_(None), or_(failed, Run.id.in_(broken)))
        .order_by(Run.ended_at.desc())
        .limit(200)
    )
    found: dict[int, dict[str, Any]] = {}
    for run, lost in session.execute(query):
        item = found.setdefault(
            run.experiment_id,
            {"id": run.experiment_id, "name": run.experiment.name, "failed": 0, "non_finite": 0, "at": run.ended_at,
             "reason": "", "run_id": run.id},
        )  # fmt: skip
        item["failed"] += run.state == "failed"
        item["non_finite"] += bool(lost)
        item["reason"] = item["reason"] or (run.reason or {}).get("message", "")
    return list(found.values())[:NUM_TROUBLED]


def with_styles(item: dict[str, Any]) -> dict[str, Any]:
    """An experiment of a list with the styles of its recipes."""
    return {**item, "styles": colours.assign(item["recipes"])}


def with_run_styles(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of a list with the style of their recipe."""
    return [{**run, "style": colours.natural_style(run["recipe"])} for run in runs]


def _workers(session: Session, lease_s: float, *, offline: bool = True) -> list[dict[str, Any]]:
    """Workers with one line per device."""
    workers = list_workers(session, lease_s)
    if not offline:
        workers = [worker for worker in workers if worker["state"] != "offline"]
    for worker in workers:
        worker["devices"] = [
            {
                "kind": device.get("kind", ""),
                "name": device.get("name", ""),
                "summary": device.get("unused") or device_summary(device),
                "now": reading_summary(worker["readings"].get(device.get("device"), {})),
            }
            for device in worker["devices"]
        ]
    return workers


def reading_summary(reading: dict[str, Any]) -> str:
    """A device's reading in one line; empty while there is none."""
    parts = []
    if "utilisation" in reading:
        parts.append(f"{reading['utilisation']:.0%} busy")
    if "memory_used_bytes" in reading:
        total = reading["memory_used_bytes"] + reading.get("memory_free_bytes", 0)
        parts.append(f"{formats.size(reading['memory_used_bytes'])} of {formats.size(total)} used")
    for name, unit in (("power_w", "W"), ("temperature_c", "°C")):
        if name in reading:
            parts.append(f"{reading[name]:.0f} {unit}")
    if reading.get("throttled"):
        parts.append(f"slowed: {', '.join(reading['throttled'])}")
    return " · ".join(parts)


def device_summary(device: dict[str, Any]) -> str:
    """The abilities of a device in one line, leaving out what is empty."""
    parts = []
    for name, value in device.items():
        if name in ("kind", "name") or value in (None, "", [], {}, False):
            continue
        words = name.replace("_", " ")
        if value is True:
            parts.append(words)
        elif isinstance(value, list):
            parts.append(f"{words} {', '.join(str(item) for item in value[:8])}")
        else:
            parts.append(f"{words} {value}")
    return " · ".join(parts)


@router.get("/workers")
def workers_page(request: Request, database: DatabaseOf, settings: SettingsOf) -> Response:
    """Every worker ever seen, and the queue in the order in which runs start."""
    with database.read() as session:
        queue, _ = queued_runs(session, limit=100)
        context: dict[str, Any] = {
            "workers": _workers(session, settings.lease_s),
            "queue": queue,
            "queue_length": num_queued(session),
            "version": VERSION,
        }
    return page(request, "workers.html", **context)


@router.get("/workloads")
def workloads_page(request: Request, database: DatabaseOf) -> Response:
    """What can be trained, broken files with their error, and how to add one."""
    with database.read() as session:
        workloads = [workload_json(workload) for workload in current_workloads(session)]
        for workload in workloads:
            workload["note"] = notes.panel(session, "workload", workload["name"])
    for workload in workloads:
        workload["margin_text"] = margin_text(workload["primary"])
    return page(request, "workloads.html", workloads=workloads, own_example=OWN_EXAMPLE)
