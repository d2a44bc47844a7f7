"""Diagnoses of numeric faults: what `amp_core.events.Diagnosis` events say, equal ones of several runs as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db.tables import Artifact, Event, Run

_SAME = ("severity", "kind", "module", "op", "phase", "caused_by")


def diagnoses_of(session: Session, experiment_id: int, run_id: int | None = None) -> list[dict[str, Any]]:
    """The diagnoses of an experiment's runs (of one of them, if given), faults first; newest attempts only.

    Each has the event's own fields, ``recipe_name``, ``run_id``, ``place`` (attempt.sequence), ``bundle_id`` (the
    artifact, or None) and ``num_runs``: runs of the same recipe whose diagnosis names the same module, operation and
    kind are told once, with the first of them.
    """
    query = (
        select(Event, Run.recipe_name)
        .join(Run, Run.id == Event.run_id)
        .where(Run.experiment_id == experiment_id, Event.kind == "diagnosis", Event.attempt == Run.attempt)
        .order_by(Event.run_id, Event.sequence)
    )
    if run_id is not None:
        query = query.where(Event.run_id == run_id)
    told: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event, recipe_name in session.execute(query):
        key = (recipe_name, *(event.payload.get(name) for name in _SAME))
        known = told.get(key)
        if known is not None:
            known["run_ids"].add(event.run_id)
            continue
        told[key] = {
            **event.payload,
            "recipe_name": recipe_name,
            "run_id": event.run_id,
            "run_ids": {event.run_id},
            "place": f"{event.attempt}.{event.sequence}",
        }
    found = sorted(told.values(), key=lambda one: one["severity"] != "fault")
    bundles = _bundles(session, [one["run_id"] for one in found if one["bundle"]])
    return [
        {**one, "run_ids": sorted(one["run_ids"]), "num_runs": len(one["run_ids"])}
        | {"bundle_id": bundles.get((one["run_id"], one["bundle"]))}
        for one in found
    ]


def recipe_of_diagnosis(session: Session, run_id: int, attempt: int, sequence: int) -> dict[str, Any] | None:
    """The recipe that a diagnosis or an analysis proposes, or None where there is none."""
    event = session.get(Event, (run_id, attempt, sequence))
    if event is None or event.kind not in ("diagnosis", "report"):
        return None
    content = event.payload if event.kind == "diagnosis" else event.payload["content"]
    recipe: dict[str, Any] | None = content.get("recipe")
    return recipe


def _bundles(session: Session, run_ids: Sequence[int]) -> dict[tuple[int, str], int]:
    if not run_ids:
        return {}
    query = (
        select(Artifact.run_id, Artifact.name, Artifact.id)
        .join(Run, (Run.id == Artifact.run_id) & (Run.attempt == Artifact.attempt))
        .where(Artifact.run_id.in_(run_ids), Artifact.name.startswith("repro-"))
    )
    return {(run, name): number for run, name, number in session.execute(query)}
