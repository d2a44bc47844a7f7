"""Where rounds take place: store, broker, two workers, a server; on SQLite as installed, and as a team has it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from postgres_server import PostgresProcess, own_server
from redis import Redis
from redis.exceptions import RedisError
from redis_server import RedisProcess
from sqlalchemy import func, select, update
from worker_site import TINY, Site, wait_for

import faults
from faults.disturbed import CLOCK
from faults.tcp_proxy import Proxy
from server.broker.embedded import EmbeddedBroker
from server.db.errors import StoreUnavailable
from server.db.tables import Experiment, Run, Worker
from server.db.upgrade import upgrade

WORKERS = ("one", "two")
SLOTS = 2
STEPS = 60
CONFIG: dict[str, Any] = {"checkpoint_every_steps": 15, "diagnose_s": 0.0, "max_attempts": 20}


class Place:
    """Two workers of two slots each and a server, all started anew when a round has killed them."""

    name = "sqlite"
    postgres: PostgresProcess | None = None
    redis: RedisProcess | None = None
    proxy: Proxy | None = None

    def __init__(self, folder: Path, environment: dict[str, str] | None = None) -> None:
        self.clock, self.temporary = folder / "clock", folder / "tmp"
        self.temporary.mkdir()
        # TMPDIR is inherited by all that is started here, children of runs too, and tells them from other processes.
        mine = {CLOCK: str(self.clock), "TMPDIR": str(self.temporary), "AMPBOARD_WORKER_SLOTS": str(SLOTS)}
        self.site = Site(folder, {**mine, "AMPBOARD_PORT": "0", **(environment or {})})
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.server: subprocess.Popen[bytes] | None = None

    @property
    def broker_url(self) -> str:
        return self.site.settings.celery_broker_url

    @property
    def redis_url(self) -> str:
        """The broker's, as a plain client spells it."""
        return self.broker_url.replace("redis+socket://", "unix://")

    def start(self) -> None:
        """Whatever does not run now."""
        for name in WORKERS:
            if name not in self.workers or self.workers[name].poll() is not None:
                command = [sys.executable, str(Path(faults.__file__).with_name("disturbed.py")), "worker"]
                self.workers[name] = self.site.start(command, name, AMPBOARD_WORKER_NAME=name)
        if self.server is None or self.server.poll() is not None:
            command = [sys.executable, str(Path(faults.__file__).with_name("disturbed.py")), "server"]
            self.server = self.site.start(command, "server")

    def await_workers(self) -> None:
        """Return once every worker beats."""
        pids = {process.pid for process in self.workers.values()}
        wait_for(lambda: self._online() >= pids, "the workers are not online", 60, self.site.logs)

    def submit(self, seeds: list[int]) -> list[int]:
        """Queue a run for each seed."""
        run_ids = []
        for seed in seeds:
            run_ids += self.site.submit("tiny", steps=STEPS, first_seed=seed, **CONFIG)
        with self.site.database.write() as session:  # they have no plan to be judged by
            session.execute(update(Experiment).values(judged_at=datetime.now(UTC)))
        return run_ids

    def num_running(self) -> int:
        with self.site.database.read() as session:
            return session.scalar(select(func.count()).where(Run.state == "running")) or 0

    def processes(self) -> list[psutil.Process]:
        """All that was started here, directly or not, and lives."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("TMPDIR") == str(self.temporary):
                    found.append(process)
        return found

    def orphans(self) -> list[str]:
        """Processes started here that no worker and no server of now looks after; the embedded broker is its own."""
        kept = {process.pid for process in [*self.workers.values(), self.server] if process is not None}
        if self.redis is None:
            kept |= {pid for pid in [EmbeddedBroker(self.site.settings).pid()] if pid is not None}
        lost = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                family = {process.pid, *(parent.pid for parent in process.parents())}
                if not family & kept and process.status() != psutil.STATUS_ZOMBIE:
                    lost.append(f"{process.pid} {' '.join(process.cmdline())[:80]}")
        return lost

    def num_listening(self) -> int:
        """How many workers wait at the broker for the bell."""
        try:
            with Redis.from_url(self.redis_url) as client:
                return sum(found["cmd"] == "brpop" for found in client.client_list())
        except RedisError:
            return 0

    def kill_broker(self) -> None:
        if self.redis is not None:
            self.redis.stop(signal.SIGKILL)
        elif (pid := EmbeddedBroker(self.site.settings).pid()) is not None:
            os.kill(pid, signal.SIGKILL)

    def _online(self) -> set[int]:
        try:
            with self.site.database.read() as session:
                return set(session.scalars(select(Worker.pid).where(Worker.state == "online")))
        except StoreUnavailable:
            return set()


class TeamPlace(Place):
    """PostgreSQL behind a proxy, and Redis."""

    name = "postgres"

    def __init__(self, folder: Path, postgres: PostgresProcess, redis: RedisProcess) -> None:
        self.proxy = Proxy(postgres.folder / ".s.PGSQL.5432")
        self.postgres, self.redis = postgres, redis
        self._direct = {"AMPBOARD_DATABASE_URL": postgres.url, "AMPBOARD_BROKER_URL": redis.url}
        super().__init__(folder, self._direct)
        behind = f"postgresql+psycopg://postgres@127.0.0.1:{self.proxy.port}/postgres"
        self.site.environment["AMPBOARD_DATABASE_URL"] = behind  # for processes; this one asks directly


@contextlib.contextmanager
def place(name: str, folder: Path) -> Iterator[Place]:
    """The place of that name with everything started."""
    with ExitStack() as stack:
        if name == "postgres":
            postgres = stack.enter_context(own_server())
            upgrade(postgres.url)
            redis = RedisProcess(folder)
            stack.callback(redis.stop)
            redis.start()
            found: Place = TeamPlace(folder, postgres, redis)
        else:
            found = Place(folder)
        stack.enter_context(found.site)
        found.site.add_workload(TINY, "tiny")
        found.start()
        found.await_workers()
        yield found
