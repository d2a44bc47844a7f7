"""This worker's row in the store: who it is, that it lives, and what an earlier process of its name left behind."""

from __future__ import annotations

import logging
import os
import socket
from datetime import datetime

import psutil
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from server.db.tables import Worker
from server.queue.clock import store_now
from server.queue.reap import Reaped, release
from server.settings import Settings
from server.version import VERSION
from worker.devices import describe_devices
from worker.slots import Slot

CLOCK_SLACK_S = 5.0

_log = logging.getLogger(__name__)


class NameTaken(RuntimeError):
    """Another live worker has this name."""


def worker_name(settings: Settings) -> str:
    """The name of the settings, or this host's."""
    return settings.worker_name or socket.gethostname()


def machine_name(settings: Settings) -> str:
    """The machine of this worker, as the settings or the system call it."""
    return settings.worker_host or socket.gethostname()


def register(session: Session, settings: Settings, slots: list[Slot]) -> int:
    """Make or take over the row of this worker's name and return its id. The worker shows as ``starting`` work later.

    Raises:
        NameTaken: if a process that lives, here or on another host, uses the name.
    """
    now = store_now(session)
    name, host = worker_name(settings), machine_name(settings)
    worker = session.execute(select(Worker).where(Worker.name == name).with_for_update()).scalar_one_or_none()
    if worker is None:
        worker = Worker(name=name)
        session.add(worker)
    elif worker.state != "offline" and _lives(worker, host, now, settings.lease_s):
        raise NameTaken(
            f"a worker named {name!r} already runs on {worker.host} (pid {worker.pid}): "
            "stop it, or set AMPBOARD_WORKER_NAME to another name"
        )
    worker.host, worker.pid, worker.version = host, os.getpid(), VERSION
    worker.slots, worker.devices = len(slots), describe_devices(slots)
    worker.labels, worker.problem, worker.clock_skew_s = settings.worker_labels, None, None
    worker.lost_at = None
    worker.state, worker.started_at, worker.heartbeat_at = "online", now, now
    session.flush()
    return worker.id


def take_back(session: Session, worker_id: int, name: str) -> list[Reaped]:
    """Requeue at once what the process before this one still held when it died."""
    reaped = release(session, worker_id, f"Worker {name} was restarted while it ran this attempt.")
    for run in reaped:
        _log.info(
            "run %d lost attempt %d with the worker's last process, and is %s", run.run_id, run.attempt, run.state
        )
    return reaped


def sign_off(session: Session, worker_id: int, name: str) -> None:
    """Requeue what this worker gives up by stopping, without charging the runs an attempt, and show it as offline."""
    release(session, worker_id, f"Worker {name} was stopped while it ran this attempt.", charged=False)
    session.execute(update(Worker).where(Worker.id == worker_id, Worker.pid == os.getpid()).values(state="offline"))


def _lives(worker: Worker, host: str, now: datetime, lease_s: float) -> bool:
    """Whether the row's process is still there. Elsewhere its heartbeat tells; here its pid, unless reused."""
    if worker.host != host:
        return (now - worker.heartbeat_at).total_seconds() < lease_s
    if worker.pid == os.getpid():  # first process of a container, started again
        return False
    try:
        process = psutil.Process(worker.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return bool(process.create_time() <= worker.started_at.timestamp() + CLOCK_SLACK_S)
    except psutil.Error:
        return False
