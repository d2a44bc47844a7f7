"""Gradients by module beside each other for every recipe: where one recipe loses what another keeps."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from server.db.tables import Event, Run
from server.pages.colours import Style
from server.pages.formats import as_float, percent

MAX_ROWS = 40
ALARM = 0.5  # more than half of a module's gradients are lost
TRAINED = ("baseline", "candidate")


def modules_by_recipe(session: Session, experiment: dict[str, Any], styles: dict[str, Style]) -> dict[str, Any] | None:
    """Exact zeros and underflow of each module at the last sample of each recipe's first run; None without any."""
    samples = {name: sample for name, sample in _samples(session, experiment["id"]).items() if name in styles}
    order = [recipe["name"] for recipe in experiment["recipes"] if recipe["name"] in samples]
    names = dict.fromkeys(module for name in order for module in samples[name]["modules"])
    if not names:
        return None
    rows = [
        {"module": module, "cells": [_cell(samples[name]["modules"].get(module)) for name in order]} for module in names
    ]
    shown = sorted(rows, key=lambda row: -max(cell["worst"] for cell in row["cells"]))[:MAX_ROWS]
    return {
        "recipes": [
            {"name": name, "style": styles[name], "run_id": samples[name]["run_id"], "step": samples[name]["step"]}
            for name in order
        ],
        "rows": shown,
        "left_out": len(rows) - len(shown),
    }


def _samples(session: Session, experiment_id: int) -> dict[str, dict[str, Any]]:
    """The newest sample of the first run of each recipe that has one."""
    firsts = session.execute(
        select(Run.recipe_name, func.min(Run.id))
        .join(Event, and_(Event.run_id == Run.id, Event.kind == "numerics", Event.attempt == Run.attempt))
        .where(Run.experiment_id == experiment_id, Run.role.in_(TRAINED))
        .group_by(Run.recipe_name)
    ).all()
    found = {}
    for recipe, run_id in firsts:
        newest = session.execute(
            select(Event.step, Event.payload)
            .where(Event.run_id == run_id, Event.kind == "numerics")
            .order_by(Event.attempt.desc(), Event.sequence.desc())
            .limit(1)
        ).one()
        modules = {module["module"]: module for module in newest.payload["modules"]}
        found[recipe] = {"run_id": run_id, "step": newest.step, "modules": modules}
    return found


def _cell(module: dict[str, Any] | None) -> dict[str, Any]:
    if module is None:
        return {"zeros": "–", "underflow": "–", "alarm": False, "worst": 0.0}
    zeros, lost = (as_float(module.get(key)) for key in ("zero_fraction", "underflow_fraction"))
    worst = max(zeros or 0.0, lost or 0.0)
    return {"zeros": percent(zeros), "underflow": percent(lost), "alarm": worst > ALARM, "worst": worst}
