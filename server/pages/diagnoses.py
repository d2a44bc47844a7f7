"""Diagnoses in words for the pages: where, what, why, the way out, and how the batch fared in other numbers."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy.orm import Session

from server.pages.formats import number
from server.records.diagnoses import diagnoses_of

MAX_SHOWN = 8
_NUMBERS = {"recipe": "this recipe", "fp32": "FP32", "fp64": "FP64"}


def findings(session: Session, experiment_id: int, run_id: int | None = None) -> dict[str, Any]:
    """What a page shows of the diagnoses of an experiment, or of one of its runs."""
    found = diagnoses_of(session, experiment_id, run_id)
    return {
        "items": [_item(one, experiment_id) for one in found[:MAX_SHOWN]],
        "left_out": max(0, len(found) - MAX_SHOWN),
        "faults": sum(one["severity"] == "fault" for one in found),
    }


def _item(one: dict[str, Any], experiment_id: int) -> dict[str, Any]:
    recipe = one["recipe"]
    return {
        "severity": one["severity"],
        "tone": "unsafe" if one["severity"] == "fault" else "",
        "recipe_name": one["recipe_name"],
        "run_id": one["run_id"],
        "num_runs": one["num_runs"],
        "kind": str(one["kind"]).replace("_", " "),
        "where": _place(one),
        "symptom": one["symptom_sentence"],
        "sentence": one["sentence"],
        "fix": one["fix"],
        "cause": "caused by the loss scale" if one["caused_by"] == "scale" else "caused by the values",
        "recipe": json.dumps(recipe, indent=1) if recipe else "",
        "proved": one["verified"],
        "try_url": f"/experiments/new?from={experiment_id}&cure={one['run_id']}.{one['place']}" if recipe else "",
        "bundle_url": f"/api/v1/artifacts/{one['bundle_id']}" if one["bundle_id"] else "",
        "replays": [_replay(replay) for replay in one["replays"]],
    }


def _place(one: dict[str, Any]) -> str:
    module = one["module"]
    where = module or ("the model's own forward" if module == "" else "code outside the model")
    return f"{where}, {one['phase']} of step {one['step']}, batch {one['batch']}"


def _replay(replay: dict[str, Any]) -> dict[str, Any]:
    return {
        "numbers": _NUMBERS.get(replay["numbers"], replay["numbers"]),
        "scale": number(replay["scale"]) if replay["numbers"] == "recipe" else "–",
        "loss": number(replay["loss"], 5),
        "outcome": "finite" if replay["finite"] else "not finite",
        "tone": "" if replay["finite"] else "unsafe",
    }
