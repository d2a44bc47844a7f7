"""The events that people and webhooks are told of, and their words. Pure."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

Event = Literal["experiment.judged", "run.failed", "worker.lost", "trend.alert"]
Scope = Literal["off", "mine", "team"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
MAX_TEXT, MAX_SUBJECT, MAX_PAGE, MAX_NAME = 500, 80, 200, 70


class About(NamedTuple):
    """One event for people, in their order on the page of choices."""

    title: str
    help: str
    default: Scope
    has_owner: bool  # else "mine" means nothing


ABOUT: dict[Event, About] = {
    "experiment.judged": About("Verdicts", "An experiment has ended and is judged.", "mine", True),
    "run.failed": About(
        "Failed runs", "A run failed for good; runs of one experiment are counted together.", "mine", True
    ),
    "worker.lost": About("Lost workers", "A worker fell silent; others take its runs.", "off", False),
    "trend.alert": About("Trend alerts", "A watched figure of a workload is worse than before.", "mine", True),
}


def default_scope(event: Event, role: str) -> Scope:
    """What reaches somebody who chose nothing: their own work; admins also hear of workers."""
    return "team" if event == "worker.lost" and role == "admin" else ABOUT[event].default


class Told(NamedTuple):
    """An event in words: its subject (equal ones are counted together), a sentence, and the page to look at."""

    subject: str
    text: str
    page: str


def told_of(event: Event, payload: dict[str, Any]) -> Told:
    """The sentence of an event from what its webhook is sent."""
    experiment = payload.get("experiment") or {}
    name, page = _middle(str(experiment.get("name") or "")), str(experiment.get("page") or "/")
    subject = f"experiment/{experiment.get('id')}"
    if event == "experiment.judged":
        text = f"{name}: {payload.get('headline') or 'it is judged'}"
    elif event == "run.failed":
        run = payload.get("run") or {}
        reason = (run.get("reason") or {}).get("message") or "no reason was given"
        text, page = (
            f"Run {run.get('id')} ({run.get('recipe')}, seed {run.get('seed')}) of {name}: {reason}",
            str(run.get("page") or page),
        )
    elif event == "worker.lost":
        worker = payload.get("worker") or {}
        subject, page = f"worker/{worker.get('name')}", "/workers"
        text = f"Worker {worker.get('name')} on {worker.get('host')} fell silent; its runs are queued again."
    else:
        subject, text = f"workload/{payload.get('workload')}", str(payload.get("message") or "")
    return Told(subject[:MAX_SUBJECT], _short(text), page[:MAX_PAGE])


def _middle(name: str) -> str:
    """A long name without its middle: names that begin alike differ at their ends."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME // 2]}…{name[-MAX_NAME // 2 + 1 :]}"


def _short(text: str) -> str:
    line = " ".join(text.replace("\0", "\ufffd").split())
    return line if len(line) <= MAX_TEXT else f"{line[: MAX_TEXT - 1]}…"
