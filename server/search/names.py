"""Fields whose values are names: recipe, status, tag, owner and the like, as SQL on runs and experiments."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import ColumnElement, String, and_, cast, func, or_, select

from amp_core.config import ALIASES
from server.db.tables import Experiment, Project, Run, Seat, User, Worker, Workload
from server.search.language import refuse
from server.search.terms import Named

RUN_STATES = ("queued", "running", "paused", "completed", "failed", "cancelled")
EXPERIMENT_STATES = ("queued", "running", "ended", "cancelled")
OF_EXPERIMENT = ("experiment", "project", "owner", "tag", "workload", "verdict", "name", "note")
_ENDED = ("completed", "failed", "cancelled")
_VERDICTS = ("SAFE", "SAFE WITH CAUTION", "UNSAFE", "INCONCLUSIVE")

Condition = ColumnElement[bool]


def contains(text: str, *, note_and_tags: bool = False) -> Condition:
    """That the name of the experiment or its workload holds a text, or its note or tags."""
    texts: list[Any] = [Experiment.name]
    if note_and_tags:
        texts += [Experiment.note, cast(Experiment.tags, String)]
    of_workload = select(Workload.id).where(Workload.name.icontains(text, autoescape=True))
    return or_(*(column.icontains(text, autoescape=True) for column in texts), Experiment.workload_id.in_(of_workload))


def states_of_experiments(term: Named) -> bool:
    """Whether every value is a state of experiments; else the word is about runs."""
    return {value.lower() for value in term.values} <= set(EXPERIMENT_STATES)


def named_experiment(term: Named) -> Condition:
    """The condition of a word about experiments. Raises `Invalid`."""
    return or_(*(_experiment(term, value) for value in term.values))


def named_run(term: Named) -> Condition:
    """The condition of a word about runs, joined with their experiments. Raises `Invalid`."""
    if term.field == "tag":
        return or_(*(or_(_tagged(Experiment.tags, value), _tagged(Run.tags, value)) for value in term.values))
    if term.field in OF_EXPERIMENT:
        return named_experiment(term)
    return or_(*(_run(term, value) for value in term.values))


def _experiment(term: Named, value: str) -> Condition:
    match term.field:
        case "experiment" if value.isascii() and value.isdecimal() and len(value) < 19:
            return Experiment.id == int(value)
        case "experiment" | "name":
            return _like(Experiment.name, value)
        case "note":
            return Experiment.note.icontains(value, autoescape=True)
        case "tag":
            return _tagged(Experiment.tags, value)
        case "project":
            return Experiment.project_id.in_(select(Project.id).where(_like(Project.name, value)))
        case "owner":
            return Experiment.owner_id.in_(select(User.id).where(_like(User.name, value)))
        case "workload":
            return Experiment.workload_id.in_(select(Workload.id).where(_like(Workload.name, value)))
        case "status":
            return Experiment.state == value.lower()
        case "verdict":
            return _judged(term, value)
    raise AssertionError(f"{term.field} is about runs")


def _tagged(column: Any, value: str) -> Condition:
    spelled = json.dumps(value)  # as the column holds it; quotes end it, so that "a" is not found in "ab"
    return cast(column, String).icontains(spelled, autoescape=True)


def _judged(term: Named, value: str) -> Condition:
    verdict = {"CAUTION": "SAFE WITH CAUTION"}.get(value.upper(), value.upper())
    if verdict not in _VERDICTS:
        listed = "safe, caution, unsafe, inconclusive"
        raise refuse(term.word, f"{value!r} is no verdict", f"verdicts are {listed}")
    return func.coalesce(cast(Experiment.comparison, String), "").contains(f'"verdict": "{verdict}"', autoescape=True)


def _run(term: Named, value: str) -> Condition:
    match term.field:
        case "recipe":
            return _like(Run.recipe_name, ALIASES.get(value.lower(), value))
        case "status":
            return _in_state(term, value.lower())
        case "kind":
            return _like(Run.kind, value)
        case "role":
            return _like(Run.role, value)
        case "numerics":
            return _like(Run.numerics, value)
        case "worker":
            named = select(Worker.id).where(_like(Worker.name, value))
            of_run = and_(Seat.run_id == Run.id, Seat.attempt == Run.attempt)
            seated = select(Seat.node).where(of_run, Seat.worker_id.in_(named)).exists()
            return or_(Run.worker_id.in_(named), and_(Run.num_hosts > 1, seated))
    raise AssertionError(f"{term.field} is about experiments")


def _in_state(term: Named, value: str) -> Condition:
    if value == "ended":
        return Run.state.in_(_ENDED)
    if value not in RUN_STATES:
        remedy = f"runs are {', '.join(RUN_STATES)} or ended; experiments {', '.join(EXPERIMENT_STATES)}"
        raise refuse(term.word, f"{value!r} is no status", remedy)
    return Run.state == value


def _like(column: Any, value: str) -> Condition:
    """Equal but for case, where ``*`` stands for anything."""
    if "*" not in value:
        condition: Condition = func.lower(column) == value.lower()
        return condition
    pattern = value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")
    like: Condition = column.ilike(pattern, escape="\\")
    return like
