"""The rules of runs tracked from outside: they hold a lease like a worker's, renewed by whatever they send."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from amp_core import events
from amp_core.config import Recipe, parse_recipe
from amp_core.errors import AmpError, ProtocolError
from server.access import Principal
from server.audit.service import record
from server.db.errors import LeaseLost
from server.db.tables import Attempt, Experiment, Run, Workload
from server.errors import Conflict, Fault, Invalid, NotFound
from server.experiments.plan import recipe_json
from server.metrics.arrivals import last_arrival
from server.metrics.write import add_frames, check_held
from server.projects.members import check_may_submit
from server.projects.service import project_named
from server.queue.clock import store_now
from server.queue.finish import finish
from server.runs.parameters import add_parameters
from server.runs.service import check_owner
from server.tracking.schemas import TrackedRunIn

DEVICE = "outside"  # no worker offers it, so that none ever takes such a run
SOURCE_HASH = "0" * 64
LEASE = timedelta(seconds=90)


class Stored(NamedTuple):
    """See `server.tracking.schemas.SegmentsOut`."""

    stored: int
    sequence: int
    state: str
    cancel_requested: bool


def begin(session: Session, given: TrackedRunIn, principal: Principal) -> Run:
    """Add a running run, in the experiment it names or in one of its own. Raises `Invalid`."""
    try:
        recipe = parse_recipe(given.recipe)
    except AmpError as error:
        remedy = "name a precision such as 32-true, bf16-mixed or 16-mixed"
        raise Invalid([Fault(field="recipe", value=given.recipe, rule=str(error), remedy=remedy)]) from error
    now = store_now(session)
    experiment = _experiment(session, given, recipe, principal, now)
    run = Run(
        experiment_id=experiment.id, kind="train", role="tracked", recipe_name=recipe.name, recipe=recipe_json(recipe),
        seed=given.seed, steps=given.steps,
        config={"device": DEVICE, "workload": {"name": given.workload, "path": "", "params": given.params}},
        state="running", attempt=1, max_attempts=1, created_at=now, started_at=now, lease_expires_at=now + LEASE,
    )  # fmt: skip
    session.add(run)
    session.flush()
    session.add(Attempt(run_id=run.id, number=1, worker_name=given.host, started_at=now))
    add_parameters(session, [run.id], given.params)
    record(session, principal.user_id, "run.track", f"run/{run.id}", experiment_id=experiment.id)
    return run


def _experiment(
    session: Session, given: TrackedRunIn, recipe: Recipe, principal: Principal, now: datetime
) -> Experiment:
    project = project_named(session, given.project)
    check_may_submit(session, principal, project)
    if given.experiment is not None:
        query = select(Experiment).where(
            Experiment.project_id == project.id,
            Experiment.owner_id == principal.user_id,
            Experiment.name == given.experiment,
            Experiment.plan["device"].as_string() == DEVICE,
        )
        found = session.scalars(query.order_by(Experiment.id.desc()).limit(1).with_for_update()).first()
        if found is not None:
            _extend(found, recipe, given.seed)
            return found
    experiment = Experiment(
        project_id=project.id,
        workload_id=_workload(session, given.workload, now).id,
        owner_id=principal.user_id,
        name=given.experiment or given.name,
        state="running",
        plan=_plan(given, recipe),
        tags=list(dict.fromkeys(given.tags)),
        note=given.note,
        created_at=now,
        judged_at=now,  # there is nothing to judge: no plan was fixed beforehand
    )
    session.add(experiment)
    session.flush()
    return experiment


def _extend(experiment: Experiment, recipe: Recipe, seed: int) -> None:
    plan = experiment.plan
    recipes = {item["name"]: item for item in [recipe_json(recipe), *plan["recipes"]]}
    names = dict.fromkeys([*(item["name"] for item in plan["recipes"]), recipe.name])
    seeds = list(dict.fromkeys([*plan["seeds"], seed]))
    experiment.plan = {**plan, "recipes": [recipes[name] for name in names], "seeds": seeds}
    experiment.state, experiment.ended_at = "running", None


def _plan(given: TrackedRunIn, recipe: Recipe) -> dict[str, Any]:
    primary = {"metric": "loss", "higher_is_better": False, "margin": 0.01, "relative": True, "unit": ""}
    return {
        "workload": given.workload, "source_hash": SOURCE_HASH, "params": given.params,
        "recipes": [recipe_json(recipe)],
        "baseline": recipe.name, "seeds": [given.seed], "steps": given.steps, "eval_every": 1, "primary": primary,
        "control": False, "measure_gain": False, "device": DEVICE, "submission": {},
    }  # fmt: skip


def _workload(session: Session, name: str, now: datetime) -> Workload:
    known = select(Workload).where(Workload.name == name, Workload.source_hash == SOURCE_HASH)
    workload = session.scalars(known).first()
    if workload is None:
        error = "it is tracked from outside: no worker has its file"
        long_ago = datetime(1970, 1, 1, tzinfo=UTC)  # a file of the same name is always newer
        workload = Workload(
            name=name,
            source_hash=SOURCE_HASH,
            path="",
            description={},
            error=error,
            first_seen_at=now,
            seen_at=long_ago,
        )
        session.add(workload)
        session.flush()
    return workload


def store(session: Session, run_id: int, principal: Principal, frames: list[events.Frame]) -> Stored:
    """Store what is new of the frames and renew the lease; `Finished` and `Failed` end the run.

    Raises `NotFound`, `Forbidden`, `Invalid` for what is no series, and `Conflict` when the run has ended otherwise.
    """
    run = _locked_run(session, run_id)
    check_owner(principal, run.experiment, "write to runs of")
    if run.config.get("device") != DEVICE:
        raise Conflict(f"run {run_id} is executed by a worker, which alone writes for it")
    if run.state != "running" and frames and _has_all(session, run, frames):
        return Stored(0, last_arrival(session, run_id, 1), run.state, False)  # the answer to the last batch was lost
    try:
        check_held(run, 1)
        stored = add_frames(session, run, frames)
        run.lease_expires_at = store_now(session) + LEASE
        for frame in frames:
            _end(session, run_id, frame.event)
    except LeaseLost as error:
        raise Conflict(str(error)) from error
    except ProtocolError as error:
        remedy = "send as many steps as values and times"
        raise Invalid([Fault(field="body", value=len(frames), rule=str(error), remedy=remedy)]) from error
    asked = run.cancel_requested_at is not None
    return Stored(stored, last_arrival(session, run_id, 1), run.state, asked)


def _locked_run(session: Session, run_id: int) -> Run:
    """The run with its experiment, locked against claim, cancel and reap. Raises `NotFound`."""
    query = select(Run).where(Run.id == run_id).options(joinedload(Run.experiment))
    run = session.scalar(query.with_for_update(of=Run, key_share=True).execution_options(populate_existing=True))
    if run is None:
        raise NotFound(f"run {run_id} does not exist")
    return run


def _end(session: Session, run_id: int, event: events.AnyEvent) -> None:
    if isinstance(event, events.Finished):
        finish(session, run_id, 1, "completed")
    elif isinstance(event, events.Failed):
        outcome = "cancelled" if event.kind == "interrupted" else "failed"
        reason = {"kind": event.kind, "message": event.message or "It failed.", "traceback": event.traceback}
        finish(session, run_id, 1, "cancelled" if outcome == "cancelled" else "failed", reason)


def _has_all(session: Session, run: Run, frames: list[events.Frame]) -> bool:
    from server.db.tables import Event

    ends = [frame.sequence for frame in frames if isinstance(frame.event, events.Finished | events.Failed)]
    query = select(Event.sequence).where(Event.run_id == run.id, Event.attempt == 1, Event.sequence.in_(ends))
    return bool(ends) and set(session.scalars(query)) == set(ends)
