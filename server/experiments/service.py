"""The rules of experiments. Every function works inside the caller's transaction; the caller rings after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from server.access import Principal
from server.audit.service import record
from server.checkpoints.service import refuse_without_origin
from server.db.tables import Experiment, Run, Worker, Workload
from server.errors import Conflict, Fault, Invalid
from server.experiments.forks import Origin, find_origin, hold_origin
from server.experiments.plan import Plan, PlannedRun, expand, recipe_json
from server.experiments.queries import find_experiment
from server.experiments.schemas import ExperimentIn
from server.experiments.submission import Surroundings, plan_of, same_submission
from server.projects.members import check_may_submit
from server.projects.service import project_named
from server.queue.cancel import cancel_experiment, retry_experiment
from server.queue.durations import expect
from server.queue.needs import Needs, needs_of
from server.runs.parameters import add_parameters
from server.runs.queries import find_run
from server.runs.service import check_owner
from server.settings import Settings
from server.workers.queries import device_kinds, gpu_abilities, live_workers
from server.workloads.queries import current_workloads, find_workload

IDEMPOTENCY_WINDOW = timedelta(hours=24)


def make_plan(session: Session, settings: Settings, given: ExperimentIn) -> tuple[Plan, Workload]:
    """Check a submission against its workload and the live workers. Raises `Invalid`."""
    workload = _usable_workload(session, given.workload)
    live = live_workers(session, settings.lease_s)
    around = Surroundings(
        device_kinds=frozenset(device_kinds(live)),
        max_runs=settings.max_runs_per_experiment,
        abilities=frozenset(gpu_abilities(live)),
        origin=_origin(session, given, live),
    )
    return plan_of(given, workload, around), workload


def _origin(session: Session, given: ExperimentIn, live: Sequence[Worker]) -> Origin | None:
    if given.fork is None:
        return None
    return find_origin(session, given.fork.run, frozenset(worker.name for worker in live))


def _usable_workload(session: Session, name: str) -> Workload:
    workload = find_workload(session, name)
    if workload is None:
        known = [found.name for found in current_workloads(session) if found.error is None]
        listed = ", ".join(known) if known else "none yet: a worker lists them when it starts"
        fault = Fault(
            field="workload",
            value=name,
            rule=f"no worker has found a workload of that name; known are {listed}",
            remedy="choose one of these, or put its file into a folder of AMPBOARD_WORKLOADS",
        )
        raise Invalid([fault])
    if workload.error is not None:
        fault = Fault(
            field="workload",
            value=name,
            rule=f"its file {workload.path} cannot be loaded: {workload.error}",
            remedy="mend the file; workers look at it again within seconds",
        )
        raise Invalid([fault])
    return workload


def submit(
    session: Session,
    settings: Settings,
    given: ExperimentIn,
    principal: Principal,
    idempotency_key: str | None = None,
) -> tuple[Experiment, int]:
    """Queue an experiment and return it with the number of its new runs.

    With an idempotency key the same person's same submission within a day is the same experiment (and no new run);
    another submission under the key is a `Conflict`. Raises `Invalid`.
    """
    if idempotency_key is not None:
        earlier = _earlier(session, principal, idempotency_key)
        if earlier is not None:
            if not same_submission(earlier.plan, given):
                raise Conflict(
                    f"Idempotency-Key {idempotency_key[:80]!r} was used for another submission: take a new one"
                )
            return earlier, 0
    plan, workload = make_plan(session, settings, given)
    if plan.fork is not None and not hold_origin(session, plan.fork):
        raise Conflict(f"the checkpoint of run {plan.fork.run} was dropped this moment: fork from another one")
    experiment = _add(session, plan, workload, given, principal, idempotency_key)
    num_runs = _add_runs(session, settings, experiment, plan, given)
    record(session, principal.user_id, "experiment.submit", f"experiment/{experiment.id}", runs=num_runs)
    return experiment, num_runs


def _earlier(session: Session, principal: Principal, key: str) -> Experiment | None:
    if session.get_bind().dialect.name == "postgresql":  # SQLite's writers are alone already
        session.execute(text("SELECT pg_advisory_xact_lock(hashtext(:key))"), {"key": f"{principal.user_id}:{key}"})
    query = select(Experiment).where(
        Experiment.owner_id == principal.user_id,
        Experiment.created_at > datetime.now(UTC) - IDEMPOTENCY_WINDOW,
        Experiment.plan["idempotency_key"].as_string() == key,
    )
    return session.scalars(query.limit(1)).first()


def _add(
    session: Session, plan: Plan, workload: Workload, given: ExperimentIn, principal: Principal, key: str | None
) -> Experiment:
    stored: dict[str, Any] = plan.to_json()
    if key is not None:
        stored["idempotency_key"] = key
    project = project_named(session, given.project.strip() or "default")
    check_may_submit(session, principal, project)
    experiment = Experiment(
        project_id=project.id,
        workload_id=workload.id,
        owner_id=principal.user_id,
        name=(given.name or "").strip() or workload.description.get("title") or workload.name,
        state="queued",
        plan=stored,
        tags=list(dict.fromkeys(given.tags)),
        note=given.note,
        created_at=datetime.now(UTC),
    )
    session.add(experiment)
    session.flush()
    return experiment


def _add_runs(session: Session, settings: Settings, experiment: Experiment, plan: Plan, given: ExperimentIn) -> int:
    limits = {
        "max_time_s": given.max_time_s or settings.max_time_s,
        "max_memory_bytes": given.max_memory_bytes or settings.max_memory_bytes,
    }
    runs = [
        Run(
            experiment_id=experiment.id,
            kind=planned.kind,
            role=planned.role,
            recipe_name=planned.recipe.name,
            recipe=recipe_json(planned.recipe),
            seed=planned.seed,
            steps=plan.steps,
            config={**planned.config, **limits},
            needs=_needs(planned, plan, given).spell(),
            num_devices=planned.config.get("ranks", 1) if plan.device == "cuda" else 1,  # ranks on a CPU share it
            num_hosts=planned.config.get("distribution", {}).get("nnodes", 1),
            state="queued",
            priority=given.priority,
            max_attempts=given.max_attempts,
            created_at=experiment.created_at,
            published_at=experiment.created_at,  # the caller rings after its commit
        )
        for planned in expand(plan)
    ]
    session.add_all(runs)
    session.flush()
    expect(session, runs, plan.workload)
    add_parameters(session, [run.id for run in runs], plan.params)
    return len(runs)


def _needs(planned: PlannedRun, plan: Plan, given: ExperimentIn) -> Needs:
    recipes = [planned.recipe, *([plan.baseline_recipe] if planned.kind == "benchmark" else [])]
    needs = needs_of(recipes, plan.device, given.device_memory_bytes or 0, given.labels)
    if "fork" in planned.config and plan.fork is not None and plan.fork.worker:
        return replace(needs, worker=plan.fork.worker)
    return needs


def cancel(session: Session, experiment_id: int, principal: Principal) -> int:
    """Cancel what has not ended; return how many runs that were. Raises `NotFound`, `Forbidden`, `Conflict`."""
    experiment = find_experiment(session, experiment_id)
    check_owner(principal, experiment, "cancel")
    num_runs = cancel_experiment(session, experiment_id, principal.name)
    if num_runs == 0:
        raise Conflict(f"experiment {experiment_id} has ended ({experiment.state}): there is nothing to cancel")
    record(session, principal.user_id, "experiment.cancel", f"experiment/{experiment_id}", runs=num_runs)
    return num_runs


def retry(session: Session, experiment_id: int, principal: Principal) -> int:
    """Queue its failed and cancelled runs again; return how many. Raises `NotFound`, `Forbidden`, `Conflict`."""
    experiment = find_experiment(session, experiment_id)
    check_owner(principal, experiment, "retry")
    if experiment.plan.get("device") == "outside":
        raise Conflict(f"experiment {experiment_id} was tracked from outside: run it again where it ran")
    refuse_without_origin(session, experiment)
    num_runs = retry_experiment(session, experiment_id)
    if num_runs == 0:
        raise Conflict(f"experiment {experiment_id} has no failed or cancelled run: clone it to run it again")
    record(session, principal.user_id, "experiment.retry", f"experiment/{experiment_id}", runs=num_runs)
    return num_runs


def copied(session: Session, experiment_id: int, changes: dict[str, Any]) -> ExperimentIn:
    """The submission of an experiment with ``changes`` laid over it. Raises `NotFound`, `Invalid`."""
    experiment = find_experiment(session, experiment_id)
    return _changed(experiment, changes)


def copied_run(session: Session, run_id: int, changes: dict[str, Any]) -> ExperimentIn:
    """The submission that repeats one run: its recipe beside the baseline, its seed, with ``changes`` laid over it.

    Raises `NotFound`, `Conflict` for a run tracked from outside, and `Invalid`.
    """
    run = find_run(session, run_id)
    if run.device == "outside":
        raise Conflict(f"run {run_id} was tracked from outside: its workload is not here to be executed again")
    plan = run.experiment.plan
    baseline = next(recipe for recipe in plan["recipes"] if recipe["name"] == plan["baseline"])
    recipes = [baseline]
    if run.recipe_name != plan["baseline"]:
        recipes.append(run.recipe)
    else:  # an experiment compares: the baseline is repeated beside its first rival
        recipes += [recipe for recipe in plan["recipes"] if recipe["name"] != plan["baseline"]][:1]
    own = {"recipes": recipes, "baseline": plan["baseline"], "seeds": [run.seed], "priority": run.priority}
    name = f"{run.experiment.name}: {run.recipe_name}, seed {run.seed}"[:200]
    return _changed(run.experiment, {**own, "name": name, **changes})


def _changed(experiment: Experiment, changes: dict[str, Any]) -> ExperimentIn:
    """The submission of an experiment with ``changes`` laid over it. Raises `Invalid`."""
    merged = {**experiment.plan.get("submission", {}), **changes}
    merged.setdefault("name", experiment.name)
    try:
        return ExperimentIn.model_validate(merged)
    except ValidationError as error:
        faults = [
            Fault(
                field=".".join(str(part) for part in item["loc"]) or "body",
                value=item["input"],
                rule=item["msg"].removeprefix("Value error, "),
                remedy="send a value that fits, or leave the field out to keep the original's",
            )
            for item in error.errors()
        ]
        raise Invalid(faults) from error
