"""A run that two workers claim together, each in a network namespace, through a server, PostgreSQL and Redis outside.

The workers share nothing but these: each has its own data folder, and they meet at the address that the first of them
finds on its way to the database.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from namespaces import SITE, Namespace
from postgres_server import own_server
from redis_server import RedisProcess
from sqlalchemy import delete, select
from worker_site import Site, wait_for

from server.accounts.service import create_token
from server.db.tables import Run, Seat, User, Worker, Workload
from server.db.upgrade import upgrade

PORT = 18421
URL = f"http://{SITE}:{PORT}"
GPT = {"width": 16, "depth": 1, "num_heads": 2, "context": 16, "dropout": 0.0, "batch_size": 8}
SUBMISSION = {
    "workload": "stdlib-gpt", "params": GPT, "recipes": ["fp32", "bf16"], "seeds": 1, "steps": 24, "eval_every": 12,
    "control": False, "hosts": 2,
}  # fmt: skip


def compare(hosts: Sequence[Namespace], folder: Path) -> int:
    """Submit from one of the namespaces, let both workers train, and compare with one process; 0 if all is as it is."""
    redis = RedisProcess(folder, SITE)
    with own_server(SITE):
        redis.start()
        try:
            environment = {
                "AMPBOARD_DATABASE_URL": f"postgresql+psycopg://postgres@{SITE}/postgres",
                "AMPBOARD_BROKER_URL": f"{redis.url}/0",
                "AMPBOARD_ALLOW_ROOT": "true",
            }
            upgrade(environment["AMPBOARD_DATABASE_URL"])
            with Site(folder, environment) as site:
                return _trained(site, hosts)
        finally:
            redis.stop()


def _trained(site: Site, hosts: Sequence[Namespace]) -> int:
    token = _token(site)
    site.start([sys.executable, "-m", "server.cli", "server"], "server", AMPBOARD_HOST=SITE, AMPBOARD_PORT=str(PORT),
               AMPBOARD_ALLOWED_HOSTS=f'["{SITE}"]')  # fmt: skip
    wait_for(_answers, "the server does not answer", 60, site.logs)
    for host in hosts:
        site.start([*host.prefix, sys.executable, "-m", "worker"], host.name, AMPBOARD_WORKER_NAME=host.name,
                   AMPBOARD_WORKER_HOST=host.name, AMPBOARD_DATA_DIR=str(site.folder / host.name))  # fmt: skip
    wait_for(lambda: _num_live(site) == len(hosts), "the workers are not online", 60, site.logs)
    wait_for(lambda: _is_listed(site), "no worker lists the workload", 120, site.logs)
    began = time.monotonic()
    made = _from(hosts[0], token, "post", "/api/v1/experiments", SUBMISSION)
    run_ids = [run["id"] for run in made["runs"]]
    ended = [site.await_end(run_id, 180) for run_id in run_ids]
    took_s = time.monotonic() - began
    over_one = _from(hosts[1], token, "post", "/api/v1/experiments", {**SUBMISSION, "hosts": 1, "measure_gain": False})
    alone = [site.await_end(run["id"], 180) for run in over_one["runs"]]
    return 0 if _told(site, hosts, ended, alone, took_s) and _cut(site, hosts) else 1


def _cut(site: Site, hosts: Sequence[Namespace]) -> bool:
    """Take the wire of one host away in the middle of a run: it is lost, waits, and goes on when the host is back."""
    over_two = {"num_hosts": 2, "distribution": {"strategy": "ddp", "nnodes": 2}}
    (run_id,) = site.submit("stdlib-gpt", steps=400, params=GPT, checkpoint_every_steps=50, max_attempts=5, **over_two)
    site.await_step(run_id, 100)
    hosts[1].cut()
    began = time.monotonic()
    wait_for(lambda: site.run(run_id).state == "queued", "the run does not notice", 60, site.logs)
    noticed_s = time.monotonic() - began
    reason = site.run(run_id).reason or {}
    hosts[1].mend()
    run = site.await_end(run_id, 240)
    outcomes = [attempt.outcome for attempt in site.attempts(run_id)]
    print(f"wire of {hosts[1].name} cut at step 100: lost after {noticed_s:.0f} s ({reason.get('message')})")
    print(f"  and back: {run.state}, attempts {', '.join(map(str, outcomes))}")
    passed = run.state == "completed" and outcomes[-1] == "completed" and set(outcomes[:-1]) == {"lost"}
    passed = passed and site.series(run_id)[0] == list(range(1, 401))
    print("passed: every step once" if passed else f"FAILED\n{run.reason}\n{site.logs()}")
    return passed


def _told(site: Site, hosts: Sequence[Namespace], ended: list[Run], alone: list[Run], took_s: float) -> bool:
    passed = True
    for run, one in zip(ended, alone, strict=True):
        with site.database.read() as session:
            rows = session.execute(select(Seat, Worker.name).join(Worker).where(Seat.run_id == run.id)).all()
        places = ", ".join(f"host {seat.node + 1} is {name}" for seat, name in rows)
        met = {seat.endpoint.rpartition(":")[0] for seat, _ in rows}
        print(f"run {run.id}, {run.recipe_name}: {run.state}; {places}; they met at {', '.join(met)}")
        losses, same = site.series(run.id)[1], site.series(one.id)[1]
        passed = passed and run.state == one.state == "completed" and len(losses) == SUBMISSION["steps"]
        if not passed:
            print(run.reason, site.logs(), sep="\n")
            return False
        gap = float(np.max(np.abs(np.subtract(losses, same)) / np.abs(same)))
        print(
            f"  losses {losses[0]:.6f} … {losses[-1]:.6f}; from those of one process they differ by {gap:.1e} at most"
        )
        passed = passed and gap < (2e-5 if run.recipe_name == "32-true" else 2e-2)
        passed = passed and {name for _, name in rows} == {host.name for host in hosts}
        passed = passed and met <= {host.address for host in hosts}
    print(f"two workers in two namespaces, server, PostgreSQL and Redis outside: {took_s:.0f} s")
    print("passed" if passed else "FAILED")
    return passed


def _token(site: Site) -> str:
    with site.database.write() as session:
        session.execute(delete(Workload))  # the workers describe them as they are
        return create_token(session, session.get_one(User, 1), "test", "admin")[1]


def _answers() -> bool:
    try:
        return httpx.get(f"{URL}/healthz").is_success
    except httpx.TransportError:
        return False


def _num_live(site: Site) -> int:
    with site.database.read() as session:
        workers = session.scalars(select(Worker)).all()
    return sum((datetime.now(UTC) - worker.heartbeat_at).total_seconds() < 2 for worker in workers)


def _is_listed(site: Site) -> bool:
    with site.database.read() as session:
        return session.scalar(select(Workload.id).where(Workload.name == SUBMISSION["workload"])) is not None


def _from(host: Namespace, token: str, method: str, path: str, body: dict[str, Any]) -> Any:
    """Ask the server from inside of a namespace."""
    asked = (
        "import httpx, json, sys; "
        f"answer = httpx.request({method!r}, {URL + path!r}, json=json.load(sys.stdin), "
        f"headers={{'Authorization': 'Bearer {token}'}}); "
        "print(answer.text); sys.exit(not answer.is_success)"
    )
    done = subprocess.run(
        [*host.prefix, sys.executable, "-c", asked], input=json.dumps(body), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"{path} from {host.name}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)
