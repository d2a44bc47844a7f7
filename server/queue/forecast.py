"""When it is each queued run's turn: the schedule played forward with the durations that are expected.

The answer is kept for a few seconds while the queue stays the same, since many pages ask for it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from sqlalchemy import URL, Engine, case, func, select
from sqlalchemy.orm import Session

from server.db.tables import Run, Worker
from server.queue.clock import store_now
from server.queue.cluster import Cluster, Queued, Running, num_machines
from server.queue.policy import Policy
from server.queue.schedule import over_limit, rank
from server.queue.simulate import Simulation
from server.queue.snapshot import read_cluster, read_queue
from server.queue.usage import usage_at

MAX_STARTS = 1000  # further ones are told in the order of the queue, without a time
KEPT_S = 3.0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The place of a queued run, from 1, when it is expected to start (None: not known), and what holds it back."""

    position: int
    starts_at: datetime | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Kept:
    mark: tuple[object, ...]
    made: float
    turns: Mapping[int, Turn]


_lock = threading.Lock()
_policies: dict[URL, Policy] = {}
_kept: dict[URL, _Kept] = {}


def order_by(engine: Engine, policy: Policy) -> None:
    """Forecast the queue of this database under a policy; the process that serves it says so once, at its start."""
    with _lock:
        _policies[engine.url] = policy
        _kept.pop(engine.url, None)


def turns(session: Session) -> Mapping[int, Turn]:
    """The turn of every queued run, by run id."""
    bind = session.get_bind()
    url, mark = bind.engine.url, _mark(session)
    with _lock:
        kept, policy = _kept.get(url), _policies.get(url, Policy())
    if kept is not None and kept.mark == mark and time.monotonic() - kept.made < KEPT_S:
        return kept.turns
    now = store_now(session)
    waiting = read_queue(session)
    cluster = read_cluster(session, now, policy, usage_at(session, now, policy.half_life_s))
    found = forecast(waiting, cluster, policy.half_life_s) if waiting else {}
    with _lock:
        _kept[url] = _Kept(mark=mark, made=time.monotonic(), turns=found)
    return found


def forecast(waiting: Sequence[Queued], cluster: Cluster, half_life_s: float) -> dict[int, Turn]:
    """The turn of every waiting run: those that start in the simulation in that order, then the others by rank."""
    simulation = Simulation(
        cluster, waiting, duration_of=_expected, ends_of=lambda run: _end(run, cluster.now_s), half_life_s=half_life_s
    )
    found: dict[int, Turn] = {}
    for start in islice(simulation.run(), MAX_STARTS):
        starts_at = datetime.fromtimestamp(start.at_s, UTC)
        found[start.run.run_id] = Turn(position=len(found) + 1, starts_at=starts_at)
    for run in rank(simulation.backlog.rest(), cluster):
        found[run.run_id] = Turn(position=len(found) + 1, note=note_of(run, cluster))
    return found


def note_of(run: Queued, cluster: Cluster) -> str | None:
    """What holds a run back besides the runs before it, in words; None when nothing does."""
    if run.num_hosts > 1 and not cluster.could_run(run):
        return _too_few_hosts(run, cluster)
    if not cluster.could_run(run):
        devices = f"{run.num_devices} devices" if run.num_devices > 1 else "a device"
        kind = "" if run.device == "auto" else f" ({run.device})"
        return f"no live worker has {devices}{kind} with what it needs: {run.needs}"
    return over_limit(run, cluster)


def _too_few_hosts(run: Queued, cluster: Cluster) -> str:
    kind = "" if run.device == "auto" else f" ({run.device})"
    each = f"{run.num_devices} free devices{kind}" if run.num_devices > 1 else f"a free device{kind}"
    connected, fitting = num_machines(cluster.hosts.values()), num_machines(cluster.hosts_for(run))
    counted = f"{connected} connected"
    if fitting < connected:
        counted += f", {fitting or 'none'} of them with what it needs: {run.needs}"
    return f"needs {run.num_hosts} hosts with {each} each; {counted}"


def _expected(run: Queued) -> float:
    return math.inf if run.expected_s is None else min(run.expected_s, run.limit_s)


def _end(run: Running, now_s: float) -> float:
    """When a running run ends; nobody knows before a tenth of its steps unless such runs were measured."""
    return math.inf if run.expected_s is None and run.progress < 0.1 else run.ends_s(now_s)


def _mark(session: Session) -> tuple[object, ...]:
    """Differs when the queue, what runs, or the workers changed."""
    state = case((Run.state == "queued", 1), else_=0)
    runs = session.execute(
        select(state, func.count(), func.sum(Run.id), func.sum(Run.priority), func.sum(Run.attempt))
        .where(Run.state.in_(("queued", "running")))
        .group_by(state)
    ).all()
    workers = session.execute(select(Worker.id, Worker.state, Worker.draining).order_by(Worker.id)).all()
    return tuple(map(tuple, runs)), tuple(map(tuple, workers))
