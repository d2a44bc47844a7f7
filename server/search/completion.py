"""What may stand where somebody types: fields, metrics, parameters, operators, and the values that the store has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.db.tables import Experiment, Project, Run, RunParameter, User, Worker, Workload
from server.search.distinct import distinct_values, metric_names, parameter_names
from server.search.names import EXPERIMENT_STATES, RUN_STATES

Page = Literal["experiments", "runs"]
MAX_ITEMS = 12
_NEWEST_TAGGED = 1000  # rows looked through for tags

HELP = {
    "recipe": "precision or recipe name, * for anything", "status": "queued, running, completed, failed …",
    "kind": "train, benchmark …", "role": "baseline, candidate, control, benchmark", "workload": "what is trained",
    "experiment": "number or name", "project": "project", "owner": "who submitted", "tag": "a whole tag",
    "worker": "where it ran", "numerics": "native or emulated", "verdict": "safe, caution, unsafe, inconclusive",
    "name": "name of the experiment", "note": "part of the note", "created": "<7d, >2026-01-31",
    "started": "<7d, >2026-01-31", "ended": "<7d, >2026-01-31", "id": "number", "seed": "number", "step": "last step",
    "steps": "planned steps", "attempt": "number of tries", "priority": "number",
}  # fmt: skip
_FIXED: dict[str, tuple[str, ...]] = {
    "kind": ("train", "benchmark", "sensitivity", "stress", "layers", "batch-size"),
    "role": ("baseline", "candidate", "control", "benchmark", "analysis"),
    "numerics": ("native", "emulated"),
    "verdict": ("safe", "caution", "unsafe", "inconclusive"),
    **dict.fromkeys(("created", "started", "ended"), ("<1d", "<7d", "<30d", ">30d")),
}
_NAMED: dict[str, InstrumentedAttribute[str]] = {
    "workload": Workload.name, "project": Project.name, "owner": User.name, "worker": Worker.name,
}  # fmt: skip
_COMPARISON = re.compile(r"(?P<head>(?:params?\.)?(?P<name>[A-Za-z_][\w./-]*)(?:!=|=))(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Completions:
    """What may take the place of characters [``start``, ``end``) of the query, best first."""

    start: int
    end: int
    items: list[tuple[str, str]]  # text, explanation


def complete(session: Session, page: Page, query: str, at: int) -> Completions:
    """Completions of the word that ends at or holds character ``at`` (from 0) of the query."""
    at = max(0, min(at, len(query)))
    start = _start_of_word(query, at)
    word = query[start:at]
    sign = "-" if word.startswith("-") else ""
    body = word[len(sign) :]
    field, colon, value = body.partition(":")
    compared = _COMPARISON.fullmatch(body)
    if colon and field.lower() in HELP:
        items = _of_values(session, page, field.lower(), value, f"{sign}{field}:")
    elif compared is not None:
        items = _of_parameter(session, compared["name"].removeprefix("params."), compared["value"], compared["head"])
    else:
        items = _of_names(session, body, sign)
    return Completions(start=start, end=at, items=items[:MAX_ITEMS])


def _start_of_word(query: str, at: int) -> int:
    """Where the word at ``at`` begins; spaces between quotation marks do not end one."""
    start, quoted = 0, False
    for place, character in enumerate(query[:at]):
        if character == '"':
            quoted = not quoted
        elif character.isspace() and not quoted:
            start = place + 1
    return start


def _of_names(session: Session, typed: str, sign: str) -> list[tuple[str, str]]:
    """Fields, metrics and parameters that hold the typed text, those that begin with it first."""
    known = [(f"{sign}{name}:", text) for name, text in HELP.items()]
    known += [(f"{sign}{name}>", "metric, its last finite value") for name in metric_names(session)]
    known += [(f"{sign}params.{name}=", "parameter") for name in parameter_names(session)]
    return _fitting(known, typed, len(sign))


def _of_values(session: Session, page: Page, field: str, typed: str, head: str) -> list[tuple[str, str]]:
    *earlier, last = typed.split(",")
    before = head + "".join(f"{value}," for value in earlier)
    values = _values(session, page, field)
    return _fitting([(before + quoted(value), "") for value in values], last.strip('"'), len(before))


def _of_parameter(session: Session, name: str, typed: str, head: str) -> list[tuple[str, str]]:
    values = distinct_values(session, RunParameter.text, RunParameter.name == name, limit=50)
    return _fitting([(head + quoted(value), "") for value in values], typed.strip('"'), len(head))


def _values(session: Session, page: Page, field: str) -> Iterable[str]:
    if field == "status":
        return (*RUN_STATES, "ended") if page == "runs" else dict.fromkeys((*EXPERIMENT_STATES, *RUN_STATES))
    if field in _FIXED:
        return _FIXED[field]
    if field in _NAMED:
        column = _NAMED[field]
        return session.scalars(select(column).distinct().order_by(column).limit(100)).all()
    if field == "recipe":
        return session.scalars(select(Run.recipe_name).distinct().order_by(Run.recipe_name).limit(100)).all()
    if field == "tag":
        return _tags(session, page)
    if field in ("name", "experiment"):
        query = select(Experiment.name).order_by(Experiment.id.desc()).limit(50)
        return dict.fromkeys(session.scalars(query))
    return ()


def _tags(session: Session, page: Page) -> Iterable[str]:
    """The tags of the newest experiments, and on the page of runs of the newest tagged runs."""
    query = select(Experiment.tags).order_by(Experiment.id.desc()).limit(_NEWEST_TAGGED)
    found = {tag for tags in session.scalars(query) for tag in tags}
    if page == "runs":
        newest = select(Run.tags).order_by(Run.id.desc()).limit(_NEWEST_TAGGED)
        found |= {tag for tags in session.scalars(newest) for tag in tags}
    return sorted(found)


def _fitting(known: Iterable[tuple[str, str]], typed: str, skip: int) -> list[tuple[str, str]]:
    """Those whose text after ``skip`` characters holds what was typed; beginnings first."""
    wanted = typed.lower()
    found = [(item, item[0][skip:].lower().lstrip('"')) for item in known]
    begin = [item for item, text in found if text.startswith(wanted)]
    inside = [item for item, text in found if wanted in text and not text.startswith(wanted)]
    return begin + inside


def quoted(value: str) -> str:
    """A value as a query spells it."""
    plain = value.replace('"', "")
    return f'"{plain}"' if re.search(r"[\s,]", plain) else plain
