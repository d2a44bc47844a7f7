"""Starting and stopping a worker."""

from __future__ import annotations

import logging
import re
import sys

from pydantic import ValidationError

from server import logs
from server.broker.embedded import BrokerError, EmbeddedBroker
from server.db.engine import Database
from server.db.errors import StoreError, StoreUnavailable
from server.db.upgrade import open_database
from server.settings import Settings
from worker.app import make_app, serve
from worker.artifact_store import ArtifactStore, ArtifactsUnusable
from worker.devices import inventory
from worker.foreman import Foreman
from worker.heartbeat import Heartbeat
from worker.launchers import Launchers
from worker.nvml import open_nvml
from worker.privilege import RootRefused, check_privilege
from worker.readings import Devices
from worker.record import replay_folder
from worker.registry import NameTaken, register, sign_off, take_back, worker_name
from worker.rounds import Rounds
from worker.scan import Scanner
from worker.slots import SlotPool

JOIN_S = 20.0

_log = logging.getLogger(__name__)


def main() -> int:
    """Run a worker with the settings of the environment until a signal ends it; return the exit code."""
    try:
        settings = Settings()
    except ValidationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    logs.configure(settings.log_level, settings.log_format)
    try:
        warning = check_privilege(settings)
    except RootRefused as error:
        _log.error("%s", error)
        return 1
    if warning is not None:
        _log.warning("%s", warning)
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        if settings.embedded_broker:
            EmbeddedBroker(settings).ensure()
        database = open_database(settings)
    except (BrokerError, StoreError) as error:
        _log.error("%s", error)
        return 1
    try:
        return run_worker(settings, database)
    except (NameTaken, StoreError, ArtifactsUnusable) as error:
        _log.error("%s", error)
        return 1
    finally:
        database.dispose()


def run_worker(settings: Settings, database: Database) -> int:
    """Register, take over what an earlier process of this name left, work, and sign off."""
    name = worker_name(settings)
    artifacts = ArtifactStore(settings.artifacts) if settings.artifacts else None
    nvml = open_nvml()
    slots = inventory(settings.worker_slots, nvml)
    devices = Devices(slots, nvml)
    spool_folder = settings.data_dir / "spool" / re.sub(r"[^\w-]", "_", name)
    with database.write() as session:
        worker_id = register(session, settings, slots)
    replay_folder(database, spool_folder)
    with database.write() as session:
        take_back(session, worker_id, name)
    with Launchers(slots, warm=settings.warm_children) as launchers:
        foreman = Foreman(
            database=database, settings=settings, worker_id=worker_id, slots=SlotPool(slots),
            launcher_of=launchers.of, free_bytes=devices.free_bytes, spool_folder=spool_folder,
            artifacts=artifacts,
        )  # fmt: skip
        heartbeat = Heartbeat(database, settings, worker_id, foreman.active, devices)
        threads = (heartbeat, Scanner(database, settings), Rounds(database, settings, foreman, artifacts))
        for thread in threads:
            thread.start()
        _log.info("worker %s offers %s", name, ", ".join(slot.device for slot in slots))
        try:
            return serve(make_app(settings, foreman), foreman, name, len(slots))
        finally:
            foreman.stop()
            foreman.join(JOIN_S)
            for thread in threads:
                thread.stop()
            _sign_off(database, worker_id, name)
            if nvml is not None:
                nvml.close()


def _sign_off(database: Database, worker_id: int, name: str) -> None:
    try:
        with database.write() as session:
            sign_off(session, worker_id, name)
    except StoreUnavailable as error:
        _log.warning("could not sign off (%s): the leases of this worker will expire", error)
