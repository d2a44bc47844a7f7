"""What is done to a place while runs are at work: each kind waits, heals what an operator would, and says what."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
from kombu import Connection
from kombu.utils.json import loads
from redis import Redis

from faults.places import WORKERS, Place
from server.broker.publish import QUEUE, ring

FULL_BYTES = 512  # nothing may grow beyond it: neither checkpoints nor spools nor the database
_HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE workers SET slots = 63")
print("held", flush=True)
time.sleep(600)
"""

Kind = Callable[[Place, random.Random], str]


def kill_child(place: Place, rng: random.Random) -> str:
    children = place.site.children()
    if not children:
        return "no child was alive"
    os.kill(rng.choice(children), signal.SIGKILL)
    return "one run's process"


def kill_fork_server(place: Place, rng: random.Random) -> str:
    """The process from which a worker forks warm children: those at work go on, the next one starts cold."""
    found = [p for p in psutil.Process(place.workers[rng.choice(WORKERS)].pid).children() if "amp_core" in _line(p)]
    for process in found:
        process.kill()
    return f"{len(found)} process(es) that fork runs"


def kill_worker(place: Place, rng: random.Random) -> str:
    """Back at once, when it takes its runs back, or after others have reaped them."""
    name, away_s = rng.choice(WORKERS), rng.choice((0.0, 1.0, 4.0))
    place.site.kill(place.workers[name])
    time.sleep(away_s)
    place.start()
    return f"{name}, back after {away_s:g} s"


def kill_both_workers(place: Place, rng: random.Random) -> str:
    for name in WORKERS:
        place.site.kill(place.workers[name])
    away_s = rng.uniform(0, 3)
    time.sleep(away_s)
    place.start()
    return f"back after {away_s:.1f} s"


def kill_server(place: Place, rng: random.Random) -> str:
    assert place.server is not None
    place.site.kill(place.server)
    away_s = rng.uniform(0, 3)
    time.sleep(away_s)
    place.start()
    return f"back after {away_s:.1f} s"


def kill_broker(place: Place, rng: random.Random) -> str:
    """Redis comes back by its supervisor; the embedded one is started by the workers."""
    place.kill_broker()
    ring(place.site.settings, 4)
    if place.redis is None:
        return "restarted by a worker"
    away_s = rng.uniform(0, 4)
    time.sleep(away_s)
    place.redis.start()
    return f"back after {away_s:.1f} s"


def kill_database(place: Place, rng: random.Random) -> str:
    """PostgreSQL with all its processes; for SQLite one that writes, in the middle of its transaction."""
    away_s = rng.uniform(0, 5)
    if place.postgres is None:
        path = place.site.settings.sqlalchemy_url.removeprefix("sqlite:///")
        writer = subprocess.Popen([sys.executable, "-c", _HOLD, path], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"held\n"
        time.sleep(away_s)
        writer.kill()
        writer.wait()
        writer.stdout.close()
        with sqlite3.connect(path) as connection:
            assert connection.execute("SELECT max(slots) FROM workers").fetchone() != (63,), "half a transaction stayed"
        connection.close()
        return f"a writer that held the lock for {away_s:.1f} s"
    place.postgres.crash()
    time.sleep(away_s)
    place.postgres.start()
    return f"back after {away_s:.1f} s"


def flush_broker(place: Place, rng: random.Random) -> str:
    with Redis.from_url(place.redis_url) as client:
        num = client.llen(QUEUE) + client.hlen("unacked")
        client.flushall()
    return f"{num} message(s) lost"


def double_messages(place: Place, rng: random.Random) -> str:
    """What waits is sent again as it is, several times, and the bell rings on top."""
    ring(place.site.settings, 2)
    copies = rng.randint(1, 5)
    with Redis.from_url(place.redis_url) as client:
        waiting = client.lrange(QUEUE, 0, -1)
        held = [str(loads(text)[0]) for text in client.hvals("unacked")]
        for message in [*waiting, *held] * copies:
            client.lpush(QUEUE, message)
    ring(place.site.settings, 16)
    return f"{len(waiting) + len(held)} message(s), {copies} more of each, and 16 rings"


def redeliver_messages(place: Place, rng: random.Random) -> str:
    """Kombu delivers again what no worker has acknowledged for longer than the visibility timeout, here a moment."""
    ring(place.site.settings, 8)
    time.sleep(rng.uniform(0.3, 1.0))
    url = place.broker_url
    with Connection(url, transport_options={"visibility_timeout": 0.1}) as connection:
        channel = connection.default_channel
        held = channel.client.hlen("unacked")
        channel.qos.restore_visible(num=1000, interval=1)
    return f"{held} message(s) that were delivered and not acknowledged"


def cut_network(place: Place, rng: random.Random) -> str:
    """Between both workers and PostgreSQL; connections are reset, and no new one is made."""
    assert place.proxy is not None
    away_s = rng.uniform(0.5, 5)
    place.proxy.cut()
    time.sleep(away_s)
    place.proxy.mend()
    return f"refused for {away_s:.1f} s"


def silence_network(place: Place, rng: random.Random) -> str:
    """Packets are lost both ways; nobody is told."""
    assert place.proxy is not None
    away_s = rng.uniform(0.5, 5)
    place.proxy.silence()
    time.sleep(away_s)
    place.proxy.mend()
    return f"silent for {away_s:.1f} s"


def fill_disk(place: Place, rng: random.Random) -> str:
    """No file of a worker and its runs can grow: checkpoints, spools, and SQLite, too."""
    family = [psutil.Process(process.pid) for process in place.workers.values()]
    family += [child for process in family for child in process.children(recursive=True)]
    limits = {p.pid: _limit(p.pid, FULL_BYTES) for p in family}
    full_s = rng.uniform(0.5, 4)
    time.sleep(full_s)
    late = [c for p in place.workers.values() for c in psutil.Process(p.pid).children(recursive=True)]
    for pid in {*limits, *(child.pid for child in late)}:
        _limit(pid, resource.RLIM_INFINITY)
    return f"full for {full_s:.1f} s"


def jump_clock(place: Place, rng: random.Random) -> str:
    """The clock of store, server and workers, back or forth, and to the truth again."""
    jump_s = rng.choice((-86_400.0, -3600.0, -30.0, 30.0, 3600.0, 86_400.0))
    place.clock.write_text(str(jump_s))
    time.sleep(rng.uniform(1, 4))
    place.clock.unlink()
    return f"by {jump_s:+g} s, and back"


def jump_clock_without_worker(place: Place, rng: random.Random) -> str:
    """The clock is set back, and a worker dies for good before it has renewed its leases: they lie far ahead."""
    name = rng.choice(WORKERS)
    place.site.kill(place.workers[name])
    place.clock.write_text("-3600")
    time.sleep(rng.uniform(6, 8))
    place.start()
    return f"by -3600 s for good, {name} gone for longer than a lease"


EVERYWHERE: dict[str, Kind] = {
    "child killed": kill_child,
    "worker killed": kill_worker,
    "server killed": kill_server,
    "broker killed": kill_broker,
    "database killed": kill_database,
    "disk full": fill_disk,
    "clock jumps": jump_clock,
    "message redelivered": redeliver_messages,
    "broker flushed": flush_broker,
    "message doubled": double_messages,
    "fork server killed": kill_fork_server,
    "both workers killed": kill_both_workers,
    "clock set back, worker gone": jump_clock_without_worker,
}
OVER_A_NETWORK: dict[str, Kind] = {"network cut": cut_network, "network silent": silence_network}


def kinds_of(place: Place) -> dict[str, Kind]:
    """The faults that can happen there, kills first."""
    return EVERYWHERE if place.proxy is None else EVERYWHERE | OVER_A_NETWORK


def _limit(pid: int, num_bytes: int) -> None:
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))
    except ProcessLookupError:
        return


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
