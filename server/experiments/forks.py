"""A submission that begins at a checkpoint: what it forks from, and every rule of it.

Why each rule is as it is: docs/decisions/0110-forks.md and 0112-kept-checkpoints.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from amp_core.config import Recipe
from server.checkpoints.queries import hold_kept, kept_of
from server.db.tables import Checkpoint, Run
from server.experiments.schemas import ForkIn

STATES = ("running", "paused", "completed")
SHARE = "checkpoints stay on their worker's host unless AMPBOARD_ARTIFACTS names a store that workers share"


@dataclass(frozen=True, kw_only=True)
class PlannedFork:
    """Where every training run of a plan begins. ``worker``: it alone has the file; empty if the file is shared.

    ``seed`` and ``steps`` are those of the run that made the checkpoint.
    """

    run: int
    step: int
    name: str
    seed: int
    steps: int
    horizon: int
    experiment_id: int
    worker: str


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The run to fork from, as far as the rules ask."""

    run: Run
    kept: Sequence[Checkpoint]
    live: frozenset[str]  # names of workers that are online


class Fault(NamedTuple):
    field: str
    value: Any
    rule: str
    remedy: str


Tell = Callable[[str, Any, str, str], None]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the submission settles besides its fork."""

    workload: str
    source_hash: str
    params: Mapping[str, Any]
    baseline: Recipe | None
    device: str
    ranks: int
    strategy: str
    may_schedule: bool  # whether the workload lays learning rates out over its steps


def find_origin(session: Session, run_id: int, live: frozenset[str]) -> Origin | None:
    """The run and its kept checkpoints; None if there is no such run."""
    run = session.scalars(select(Run).where(Run.id == run_id).options(joinedload(Run.experiment))).one_or_none()
    return None if run is None else Origin(run=run, kept=kept_of(session, run_id), live=live)


def hold_origin(session: Session, fork: PlannedFork) -> bool:
    """Lock the run that is forked until the transaction ends, and say whether its checkpoint is still there.

    Whoever drops or deletes it waits for that lock, and then sees the fork that needs it.
    """
    return hold_kept(session, fork.run, fork.name)


def planned_fork(given: ForkIn, origin: Origin | None, wanted: Wanted, tell: Tell) -> PlannedFork | None:
    """The fork of a plan; None after every fault was told."""
    if origin is None:
        tell("fork.run", given.run, "there is no such run", "name a baseline run that has kept checkpoints")
        return None
    faults = [*_of_run(given, origin), *_of_training(given, origin.run, wanted)]
    chosen = None if any(fault.field == "fork.run" for fault in faults) else _chosen(given, origin, faults)
    if chosen is not None:
        faults += [*_of_place(given, origin, chosen), *_of_horizon(given, origin.run, chosen, wanted)]
    for fault in faults:
        tell(*fault)
    if faults or chosen is None:
        return None
    return PlannedFork(
        run=given.run,
        step=chosen.step,
        name=chosen.name,
        seed=origin.run.seed,
        steps=origin.run.steps,
        horizon=given.horizon,
        experiment_id=origin.run.experiment_id,
        worker="" if chosen.is_shared else chosen.worker_name,
    )


def _of_run(given: ForkIn, origin: Origin) -> list[Fault]:
    run = origin.run
    if run.kind != "train" or run.device == "outside":
        what = "was tracked from outside" if run.device == "outside" else f"is a {run.kind} run"
        rule = f"run {run.id} {what}, and a fork begins at a training's checkpoint"
        return [Fault("fork.run", given.run, rule, "name a baseline run that has kept checkpoints")]
    if run.config.get("fork"):
        rule = f"run {run.id} is a fork itself, of run {run.config['fork']['run']}"
        return [Fault("fork.run", given.run, rule, "fork from that run, with a checkpoint of a later step")]
    if run.state not in STATES:
        rule = f"run {run.id} is {run.state}; a fork begins at a run that is running or has completed"
        return [Fault("fork.run", given.run, rule, "retry it or wait for it, or name another run")]
    if not origin.kept:
        rule = f"run {run.id} has no kept checkpoint"
        if run.state != "completed" and run.config.get("keep_steps"):
            remedy = f"wait for its step {run.config['keep_steps'][0]:,}"
        else:
            remedy = "train its baseline with keep_checkpoints: completed runs drop all others"
        return [Fault("fork.run", given.run, rule, remedy)]
    return []


def _of_training(given: ForkIn, run: Run, wanted: Wanted) -> list[Fault]:
    """Same workload, source, parameters, device and ranks; FP32 or the experiment's own baseline recipe."""
    faults = []
    plan = run.experiment.plan
    if plan.get("workload") != wanted.workload:
        rule = f"run {run.id} trained workload {plan.get('workload')!r}, and this is {wanted.workload!r}"
        faults.append(Fault("fork.run", given.run, rule, "name a run of the same workload"))
    elif plan.get("source_hash") != wanted.source_hash:
        was, now = str(plan.get("source_hash"))[:12], wanted.source_hash[:12]
        rule = f"the file of workload {wanted.workload!r} has changed since run {run.id}: {was} then, {now} now"
        faults.append(Fault("fork.run", given.run, rule, "train the baseline again, or put that version back"))
    if plan.get("workload") == wanted.workload:
        then = plan.get("params") or {}
        differ = [
            f"{name} was {then.get(name)!r} and is {wanted.params.get(name)!r}"
            for name in {**then, **wanted.params}
            if then.get(name) != wanted.params.get(name)
        ]
        if differ:
            rule = f"a fork has the parameters of run {run.id}: {'; '.join(differ)}"
            faults.append(Fault("params", dict(wanted.params), rule, "give the same, or name another run"))
    recipe = msgspec.convert(run.recipe, Recipe)
    if recipe.precision != "32-true" and (wanted.baseline is None or not _is_same(recipe, wanted.baseline)):
        rule = f"run {run.id} was trained in {recipe.name}; a fork begins at FP32 weights, or at its own baseline's"
        faults.append(Fault("fork.run", given.run, rule, f"name a 32-true run, or make {recipe.name} the baseline"))
    if run.device.partition(":")[0] != wanted.device:
        rule = f"run {run.id} ran on {run.device.partition(':')[0]}; a fork goes on on the same kind of device"
        faults.append(Fault("device", wanted.device, rule, f"give device={run.device.partition(':')[0]!r}"))
    distribution = run.config.get("distribution") or {}
    if (hosts := distribution.get("nnodes", 1)) > 1:
        rule = f"run {run.id} was trained on {hosts} hosts, and a fork begins at a checkpoint of one"
        faults.append(Fault("fork.run", given.run, rule, "name a run that one host trained"))
        return faults
    strategy = distribution.get("strategy", "ddp")
    if (run.config.get("ranks", 1), strategy) != (wanted.ranks, wanted.strategy):
        rule = f"run {run.id} had ranks={run.config.get('ranks', 1)} ({strategy}), and a fork has as many"
        faults.append(Fault("ranks", wanted.ranks, rule, "give the same ranks and strategy"))
    return faults


def _is_same(recipe: Recipe, other: Recipe) -> bool:
    return msgspec.structs.replace(recipe, name=other.name) == other


def _chosen(given: ForkIn, origin: Origin, faults: list[Fault]) -> Checkpoint | None:
    if given.step == "last":
        return origin.kept[-1]
    for one in origin.kept:
        if one.step == given.step:
            return one
    steps = ", ".join(f"{one.step:,}" for one in origin.kept)
    rule = f"run {origin.run.id} has kept checkpoints after steps {steps}, and none after {given.step:,}"
    faults.append(Fault("fork.step", given.step, rule, "name one of these, or last"))
    return None


def _of_place(given: ForkIn, origin: Origin, chosen: Checkpoint) -> list[Fault]:
    if chosen.is_shared or chosen.worker_name in origin.live:
        return []
    rule = f"the checkpoint lies with worker {chosen.worker_name!r}, which is not online; {SHARE}"
    return [Fault("fork.run", given.run, rule, "start that worker again, or train the baseline with a shared store")]


def _of_horizon(given: ForkIn, run: Run, chosen: Checkpoint, wanted: Wanted) -> list[Fault]:
    left = run.steps - chosen.step
    if given.horizon <= left or not wanted.may_schedule:
        return []
    rule = f"learning rates of run {run.id} are laid out for {run.steps:,} steps: {left:,} are left there"
    remedy = f"give a horizon of at most {left:,}" if left else "fork from an earlier kept checkpoint"
    return [Fault("fork.horizon", given.horizon, rule, remedy)]
