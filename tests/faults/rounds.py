"""One round: runs on every slot, a fault at a random moment, and what must be true once everything is back."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from sqlalchemy import select
from worker_site import FINAL, wait_for

from faults.kinds import kinds_of
from faults.places import SLOTS, STEPS, WORKERS, Place
from server.db.errors import StoreUnavailable
from server.db.tables import Attempt, Run
from server.queue.cancel import retry_run

SEEDS = tuple(range(6))  # more runs than slots: some wait while the fault comes
RECOVERY_S = 90.0
Trace = tuple[list[int], list[float]]


class Broken(AssertionError):
    """Something was lost, doubled, stuck or left behind; says what."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A round that went well. ``step``: of the run watched; ``recovered_s``: from the fault to the last end."""

    fault: str
    told: str
    step: int
    recovered_s: float
    num_attempts: dict[str, int]


def undisturbed(place: Place) -> dict[int, Trace]:
    """Steps and losses by seed, of runs to which nothing happens."""
    run_ids = place.submit(list(SEEDS))
    _await_all_ended(place, run_ids)
    traces = {seed: place.site.series(run_id) for seed, run_id in zip(SEEDS, run_ids, strict=True)}
    for seed, (steps, _) in traces.items():
        if steps != list(range(1, STEPS + 1)):
            raise Broken(f"undisturbed seed {seed} has steps {steps}")
    return traces


def play(place: Place, fault: str, rng: random.Random, traces: dict[int, Trace]) -> Outcome:
    """One round. Raises `Broken`, or `AssertionError` for what did not happen in time."""
    run_ids = place.submit(list(SEEDS))
    slots = SLOTS * len(WORKERS)
    wait_for(lambda: place.num_running() >= slots, f"not all {slots} slots are taken: one leaks", 60, place.site.logs)
    watched, step = rng.choice(run_ids[:slots]), rng.randint(1, STEPS - 5)
    wait_for(lambda: place.site.run(watched).step >= step or place.site.run(watched).state in FINAL, "no step", 60)
    began = time.monotonic()
    reached = place.site.run(watched).step
    told = kinds_of(place)[fault](place, rng)
    _await_all_ended(place, run_ids)
    recovered_s = time.monotonic() - began
    _check(place, run_ids, traces)
    return Outcome(
        fault=fault, told=told, step=reached, recovered_s=recovered_s, num_attempts=_attempts(place, run_ids)
    )


def _await_all_ended(place: Place, run_ids: list[int]) -> None:
    """Return when all are completed; a run whose process was killed failed by the rules, and is retried here."""

    def all_completed() -> bool:
        try:
            with place.site.database.write() as session:
                runs = session.scalars(select(Run).where(Run.id.in_(run_ids))).all()
                for run in runs:
                    if run.state == "failed":
                        _check_failure(run)
                        retry_run(session, run.id)
                return all(run.state == "completed" for run in runs)
        except StoreUnavailable:
            return False

    wait_for(all_completed, f"not all of {run_ids} are completed", RECOVERY_S, place.site.logs)


def _check_failure(run: Run) -> None:
    """Only a killed process and a full disk may fail a run, and the reason says so."""
    reason = run.reason or {}
    if reason.get("kind") not in ("signal", "disk", "store", "crash"):
        raise Broken(f"run {run.id} failed for {reason}")


def _check(place: Place, run_ids: list[int], traces: dict[int, Trace]) -> None:
    for run_id in run_ids:
        run = place.site.run(run_id)
        steps, values = place.site.series(run_id)
        if steps != list(range(1, STEPS + 1)):
            raise Broken(f"run {run_id} has steps {steps}")
        if values != traces[run.seed][1]:
            raise Broken(f"run {run_id} of seed {run.seed} has other losses than undisturbed")
        attempts = place.site.attempts(run_id)
        if [attempt.number for attempt in attempts] != list(range(1, len(attempts) + 1)):
            raise Broken(f"run {run_id} has attempts {[attempt.number for attempt in attempts]}")
        if any(a.outcome is None for a in attempts) or [a.outcome for a in attempts].count("completed") != 1:
            raise Broken(f"run {run_id} has attempts that ended {[attempt.outcome for attempt in attempts]}")
    wait_for(lambda: not place.site.children(), "children live on", 20, place.site.logs)
    wait_for(lambda: not place.orphans(), f"orphans: {place.orphans()}", 20, place.site.logs)
    place.await_workers()
    wait_for(lambda: place.num_listening() >= len(WORKERS), "a worker hears no bell", 40, place.site.logs)
    data = place.site.settings.data_dir
    for pattern in ("spool/**/*.spool", "scratch/*"):
        wait_for(lambda pattern=pattern: not list(data.glob(pattern)), f"{pattern} is not empty", 20)  # type: ignore[misc]


def _attempts(place: Place, run_ids: list[int]) -> dict[str, int]:
    """How many attempts of the round ended in which way."""
    with place.site.database.read() as session:
        outcomes = session.scalars(select(Attempt.outcome).where(Attempt.run_id.in_(run_ids))).all()
    return {str(outcome): outcomes.count(outcome) for outcome in sorted(map(str, set(outcomes)))}
