"""Sweeps: one experiment per set of parameter values, all with one tag, each compared and judged by itself."""

from __future__ import annotations

import itertools
import json
import math
import random
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictBool, StrictInt
from sqlalchemy.orm import Session

from server.access import Principal
from server.audit.service import record
from server.db.tables import Experiment
from server.errors import Fault, Invalid
from server.experiments import service
from server.experiments.schemas import Body, ExperimentIn
from server.settings import Settings
from server.workloads.queries import find_workload

MAX_SETS = 200
MAX_EXPERIMENTS = 10  # of the largest size: all are written in one transaction, and workers wait for it
TRIES = 50  # draws per set before a space counts as exhausted


class Range(Body):
    """Values between two bounds, drawn evenly, or evenly in the logarithm; whole numbers for a whole parameter."""

    min: float
    max: float
    log: StrictBool = False


class Sweep(Body):
    """``grid``: every combination of the listed values. ``random``: ``num`` draws from lists and ranges."""

    method: Literal["grid", "random"] = "grid"
    params: Annotated[dict[str, list[Any] | Range], Field(min_length=1, max_length=20)]
    num: Annotated[StrictInt, Field(ge=1, le=MAX_SETS)] | None = Field(default=None, description="Draws of random.")
    seed: Annotated[StrictInt, Field(ge=0)] = Field(default=0, description="Makes random draws repeatable.")


class SweepIn(ExperimentIn):
    """A submission with a sweep over parameters of its workload; the sweep's values go before those of ``params``."""

    sweep: Sweep


class SweptExperiment(BaseModel):
    id: int
    name: str
    params: dict[str, Any]
    num_runs: int


class SweepOut(BaseModel):
    """The experiments of a sweep; ``tag`` finds them all."""

    tag: str
    num_runs: int
    experiments: list[SweptExperiment]


def expand(sweep: Sweep, kinds: dict[str, str]) -> list[dict[str, Any]]:
    """The distinct sets of values in order. ``kinds`` are the types of the workload's parameters. Raises `Invalid`."""
    faults = [fault for name, values in sweep.params.items() for fault in _faults(name, values, sweep, kinds)]
    if sweep.method == "random" and sweep.num is None:
        faults.append(Fault(field="sweep.num", value=None, rule="random needs a number of draws", remedy="give num"))
    if faults:
        raise Invalid(faults)
    if sweep.method == "random":
        return _drawn(sweep, kinds)
    lists = [values for values in sweep.params.values() if isinstance(values, list)]
    size = math.prod(map(len, lists))
    if size > MAX_SETS:
        rule = f"the grid has {size} sets of values, and a sweep at most {MAX_SETS}"
        raise Invalid([Fault(field="sweep", value=size, rule=rule, remedy="list fewer values, or use random with num")])
    return _distinct(dict(zip(sweep.params, values, strict=True)) for values in itertools.product(*lists))


def _faults(name: str, values: list[Any] | Range, sweep: Sweep, kinds: dict[str, str]) -> list[Fault]:
    field = f"sweep.params.{name}"
    if name not in kinds:
        rule = f"the workload has the parameters {', '.join(kinds) or 'none'}"
        return [Fault(field=field, value=name, rule=rule, remedy="mend the name or leave it out")]
    if isinstance(values, list):
        return [] if values else [Fault(field=field, value=[], rule="a list of values is empty", remedy="list some")]
    given = values.model_dump()
    if sweep.method == "grid":
        rule = "a grid needs lists of values"
        return [Fault(field=field, value=given, rule=rule, remedy="list the values, or use random")]
    if kinds[name] not in ("int", "float"):
        rule = f"a range is for numbers, and {name} is {kinds[name]}"
        return [Fault(field=field, value=given, rule=rule, remedy="list the values instead")]
    if values.min > values.max or (values.log and values.min <= 0) or not math.isfinite(values.max - values.min):
        rule = "min is at most max, and above 0 on a logarithmic scale; their difference is a number, too"
        return [Fault(field=field, value=given, rule=rule, remedy="mend the bounds")]
    return []


def _drawn(sweep: Sweep, kinds: dict[str, str]) -> list[dict[str, Any]]:
    chance = random.Random(sweep.seed)  # noqa: S311 - repeatable draws, no secret
    assert sweep.num is not None
    found: dict[str, dict[str, Any]] = {}
    for _ in range(sweep.num * TRIES):
        drawn = {name: _draw(chance, values, kinds[name]) for name, values in sweep.params.items()}
        found.setdefault(_spelled(drawn), drawn)
        if len(found) == sweep.num:
            break
    return list(found.values())


def _draw(chance: random.Random, values: list[Any] | Range, kind: str) -> Any:
    if isinstance(values, list):
        return chance.choice(values)
    if values.log:
        value = math.exp(chance.uniform(math.log(values.min), math.log(values.max)))
    else:
        value = chance.uniform(values.min, values.max)
    value = min(max(value, values.min), values.max)
    return round(value) if kind == "int" else float(f"{value:.6g}")


def _distinct(sets: Any) -> list[dict[str, Any]]:
    return list({_spelled(values): values for values in sets}.values())


def _spelled(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


def submit(session: Session, settings: Settings, given: SweepIn, principal: Principal) -> SweepOut:
    """Queue every experiment of a sweep, or none. Raises `Invalid`."""
    workload = find_workload(session, given.workload)
    declared = workload.description.get("parameters", []) if workload is not None else []
    kinds = {item["name"]: item["type"] for item in declared}
    base = given.model_dump(exclude={"sweep"}, exclude_unset=True)
    if workload is None:  # the submission's own check says so, and what there is
        service.make_plan(session, settings, ExperimentIn.model_validate(base))
    title = (given.name or "").strip() or given.workload
    made: list[tuple[Experiment, int, dict[str, Any]]] = []
    total, most = 0, MAX_EXPERIMENTS * settings.max_runs_per_experiment
    for values in expand(given.sweep, kinds):
        spelled = ", ".join(f"{name}={value}" for name, value in values.items())
        fields = {**base, "params": {**given.params, **values}, "name": f"{title}: {spelled}"[:200]}
        experiment, num_runs = service.submit(session, settings, ExperimentIn.model_validate(fields), principal)
        made.append((experiment, num_runs, values))
        total += num_runs
        if total > most:
            rule = f"the sweep has more than {most} runs, {num_runs} for each set of values"
            raise Invalid([Fault(field="sweep", value=total, rule=rule, remedy="take fewer sets, recipes or seeds")])
    tag = f"sweep-{made[0][0].id}"
    for experiment, _, _ in made:
        experiment.tags = [*experiment.tags, tag]
    session.flush()
    record(session, principal.user_id, "sweep.submit", f"experiment/{made[0][0].id}", experiments=len(made), runs=total)
    return SweepOut(
        tag=tag,
        num_runs=total,
        experiments=[
            SweptExperiment(id=experiment.id, name=experiment.name, params=values, num_runs=num_runs)
            for experiment, num_runs, values in made
        ],
    )
