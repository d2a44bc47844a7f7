"""A new experiment by form: typed fields, a preview as it is filled in, faults shown where they are."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Form, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import ValidationError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from server.access import Principal, submitter
from server.broker.publish import ring
from server.db.engine import Database
from server.errors import Fault, Invalid, NotFound
from server.experiments import queries, service, sweeps
from server.experiments.estimate import estimate
from server.experiments.schemas import ExperimentIn
from server.pages.forks import fork_form
from server.pages.formats import duration
from server.pages.render import page
from server.pages.submission_form import MATRIX, blank, copied, placed, submission_of, sweep_in
from server.pages.terminal_commands import cli_of, curl_of
from server.pages.workload_forms import with_hints
from server.records.diagnoses import recipe_of_diagnosis
from server.runs.queries import find_run
from server.settings import Settings
from server.state import DatabaseOf, SettingsOf
from server.workers.queries import live_workers
from server.workloads.queries import current_workloads, workload_json

router = APIRouter(include_in_schema=False)
Submitter = Annotated[Principal, Depends(submitter)]
FIRST_CHOICE = "photo-denoiser"
MAX_FORM_FIELDS = 400
INNER = ("margin", "run", "step", "horizon")  # of fields that are objects


@router.get("/experiments/new", dependencies=[Depends(submitter)])
def new_experiment(
    request: Request,
    database: DatabaseOf,
    settings: SettingsOf,
    workload: Annotated[str | None, Query(max_length=80)] = None,
    source: Annotated[int | None, Query(alias="from")] = None,
    cure: Annotated[str | None, Query(pattern=r"^\d{1,9}\.\d{1,9}\.\d{1,9}$")] = None,
    fork: Annotated[str | None, Query(pattern=r"^\d{1,9}(@(\d{1,9}|last))?$")] = None,
) -> Response:
    """The form with a workload's defaults, or filled with an earlier experiment's submission.

    ``cure`` is run, attempt and sequence of a diagnosis: its recipe then takes the place of the others. ``fork`` is a
    run and a step after which it kept a checkpoint: the form then begins there.
    """
    with database.read() as session:
        workloads = _usable(session)
        if fork is not None:
            number, _, step = fork.partition("@")
            run = find_run(session, int(number))
            chosen = _chosen(workloads, run.experiment.workload.name)
            form = fork_form(chosen, run, step or "last") if chosen else {}
        elif source is not None:
            experiment = queries.find_experiment(session, source)
            chosen = _chosen(workloads, experiment.workload.name)
            submission = {**experiment.plan.get("submission", {})}
            if cure is not None:
                submission |= _cured(session, submission, cure)
            form = copied(chosen, submission) if chosen else {}
        else:
            chosen = _chosen(workloads, workload)
            form = blank(chosen) if chosen else {}
        return _form_page(request, session, settings, workloads, chosen, form)


def _cured(session: Session, submission: dict[str, Any], cure: str) -> dict[str, Any]:
    """The recipes with the one that a diagnosis proposes beside the baseline; nothing if it proposes none."""
    run_id, attempt, sequence = (int(part) for part in cure.split("."))
    recipe = recipe_of_diagnosis(session, run_id, attempt, sequence)
    if recipe is None:
        return {}
    given = submission.get("recipes") or []
    return {"name": f"{submission.get('name') or 'cure'}: cure"[:200], "recipes": [*(given[:1] or ["32-true"]), recipe]}


@router.post("/experiments/new")
async def submit_form(request: Request, principal: Submitter, database: DatabaseOf, settings: SettingsOf) -> Response:
    """Submit what the form says; with faults, the same form comes back with each one at its field."""
    given = await _fields(request)
    return await run_in_threadpool(_submit_form, request, given, principal, database, settings)


def _submit_form(
    request: Request, given: dict[str, str], principal: Principal, database: Database, settings: Settings
) -> Response:
    with database.read() as session:
        workloads = _usable(session)
    chosen = next((item for item in workloads if item["name"] == given.get("workload")), None)
    if chosen is None:
        raise NotFound(f"workload {given.get('workload', '')[:80]!r} is not known any more: choose another")
    form = _filled(chosen, given)
    body, rows = submission_of(form, chosen)
    try:
        return _submitted(database, settings, body, principal, sweep_in(form))
    except Invalid as error:
        with database.read() as session:
            faults = (*error.faults, *_further_faults(session, settings, body, error.faults))
            return _form_page(request, session, settings, workloads, chosen, form, placed(faults, rows))


def _further_faults(
    session: Session, settings: Settings, body: dict[str, Any], known: tuple[Fault, ...]
) -> tuple[Fault, ...]:
    """What is wrong with the other fields too: a field that cannot be read must not hide a value out of range."""
    bad = {fault.field.split(".")[0] for fault in known}
    try:
        service.make_plan(session, settings, _checked({name: body[name] for name in body if name not in bad}))
    except Invalid as error:
        return tuple(fault for fault in error.faults if fault.field.split(".")[0] not in bad)
    return ()


@router.post("/experiments/preview", dependencies=[Depends(submitter)])
async def preview_form(request: Request, database: DatabaseOf, settings: SettingsOf) -> Response:
    """What the form as it stands would take, and how to write it in a terminal."""
    given = await _fields(request)

    def work() -> dict[str, str]:
        with database.read() as session:
            chosen = _chosen(_usable(session), given.get("workload"))
            if chosen is None:
                raise NotFound("the workload is not known any more: choose another")
            return _preview(session, settings, chosen, _filled(chosen, given), str(request.base_url))

    return JSONResponse(await run_in_threadpool(work))


@router.post("/experiments/submission")
def submit_ready(
    principal: Submitter, database: DatabaseOf, settings: SettingsOf, submission: Annotated[str, Form()]
) -> Response:
    """Submit a ready body: the cure of a finding, or more seeds, as the comparison proposes them."""
    try:
        body = json.loads(submission)
    except ValueError as error:
        fault = Fault(field="submission", value=submission[:80], rule=f"not JSON: {error}", remedy="reload the page")
        raise Invalid([fault]) from error
    return _submitted(database, settings, body, principal)


def _submitted(
    database: Database, settings: Settings, body: Any, principal: Principal, sweep: dict[str, Any] | None = None
) -> Response:
    given = _checked(body)
    if sweep is not None:
        return _swept(database, settings, _with_sweep(body, sweep), principal)
    with database.write() as session:
        experiment, num_runs = service.submit(session, settings, given, principal)
        target = f"/experiments/{experiment.id}"
    if num_runs:
        ring(settings, num_runs)
    return RedirectResponse(target, status_code=303)


def _swept(database: Database, settings: Settings, given: sweeps.SweepIn, principal: Principal) -> Response:
    with database.write() as session:
        made = sweeps.submit(session, settings, given, principal)
    ring(settings, made.num_runs)
    return RedirectResponse(f"/experiments?{urlencode({'q': f'tag:{made.tag}'})}", status_code=303)


def _with_sweep(body: dict[str, Any], sweep: dict[str, Any]) -> sweeps.SweepIn:
    """Raises `Invalid` at the fields of the sweep; the rest of the body was checked before."""
    try:
        return sweeps.SweepIn.model_validate({**body, "sweep": sweep})
    except ValidationError as error:
        found = error.errors()[0]
        field = "sweep.num" if "num" in found["loc"] else "sweep"
        raise Invalid([Fault(field=field, value=found["input"], rule=str(found["msg"]), remedy="mend it")]) from error


def _checked(body: Any) -> ExperimentIn:
    """The body as the API reads it. Raises `Invalid` with the field of each fault."""
    try:
        return ExperimentIn.model_validate(body)
    except ValidationError as error:
        faults: list[Fault] = []
        for item in error.errors():
            path = [str(part) for part in item["loc"] if isinstance(part, str) and (part in body or part in INNER)]
            rule = str(item["msg"]).removeprefix("Value error, ")
            field = ".".join(path) or "body"
            fault = Fault(field=field, value=item["input"], rule=rule, remedy="")
            if all(other.field != field for other in faults):
                faults.append(fault)
        raise Invalid(faults) from error


async def _fields(request: Request) -> dict[str, str]:
    async with request.form(max_fields=MAX_FORM_FIELDS, max_files=0) as form:
        return {name: value for name, value in form.items() if isinstance(value, str)}


def _usable(session: Session) -> list[dict[str, Any]]:
    found = [workload_json(workload) for workload in current_workloads(session) if workload.error is None]
    return [with_hints(workload) for workload in found if workload["primary"]]


def _chosen(workloads: list[dict[str, Any]], name: str | None) -> dict[str, Any] | None:
    for wanted in (name, FIRST_CHOICE):
        for workload in workloads:
            if workload["name"] == wanted:
                return workload
    return workloads[0] if workloads else None


def _filled(workload: dict[str, Any], given: dict[str, str]) -> dict[str, str]:
    """What was sent, over the names of the form; an unticked box sends nothing."""
    return {name: given.get(name, "") for name in blank(workload)}


def _preview(
    session: Session, settings: Settings, workload: dict[str, Any], form: dict[str, str], base_url: str
) -> dict[str, str]:
    body, rows = submission_of(form, workload)
    told = {"cli": cli_of(body), "curl": curl_of(body, base_url), "errors": "", "estimate": "Not ready", "runs": ""}
    num_sets = 1
    try:
        plan, _ = service.make_plan(session, settings, _checked(body))
        if (sweep := sweep_in(form)) is not None:
            told |= {"cli": cli_of({**body, "sweep": sweep}), "curl": curl_of({**body, "sweep": sweep}, base_url)}
            kinds = {item["name"]: item["type"] for item in workload["parameters"]}
            num_sets = len(sweeps.expand(_with_sweep(body, sweep).sweep, kinds))
    except Invalid as error:
        problems = placed(error.faults, rows)
        told["errors"] = "; ".join(f"{fault['field']}: {fault['rule']}" for fault in problems[:3])
        return told
    slots = sum(worker.slots for worker in live_workers(session, settings.lease_s))
    expected = estimate(session, plan, slots)
    runs = {name: count for name, count in expected.runs.items() if name != "total" and count}
    told["runs"] = f"{expected.runs['total']} runs: " + ", ".join(f"{count} {name}" for name, count in runs.items())
    if expected.expected_minutes is None:
        told["estimate"] = f"{expected.runs['total']} runs"
        told["runs"] += ". No run of this workload has ended yet, so there is no time estimate."
    else:
        told["estimate"] = f"about {duration(60 * expected.expected_minutes)}"
        told["runs"] += f"; judging by {expected.based_on_runs} earlier runs"
    if num_sets > 1:
        told["runs"] = f"{num_sets} experiments of {told['runs']}"
        told["estimate"] = f"{num_sets} × {told['estimate']}"
    if not slots:
        told["runs"] += ". No worker is online: the runs will wait."
    return told


def _form_page(
    request: Request,
    session: Session,
    settings: Settings,
    workloads: list[dict[str, Any]],
    chosen: dict[str, Any] | None,
    form: dict[str, str],
    errors: list[dict[str, Any]] | None = None,
) -> Response:
    preview = _preview(session, settings, chosen, form, str(request.base_url)) if chosen else {}
    return page(
        request,
        "new.html",
        status=422 if errors else 200,
        workloads=workloads,
        chosen=chosen,
        form=form,
        matrix=MATRIX,
        preview=preview,
        errors=errors or [],
        error_fields={error["field"] for error in errors or []},
    )
