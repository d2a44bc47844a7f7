"""Run one case through forensics, and only then compare with what the case says is right."""

from __future__ import annotations

import time
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from amp_core.config import parse_recipe
from amp_core.forensics import Diagnosis, diagnose_subject
from amp_core.forensics.cures import Cure, as_trial
from amp_core.forensics.subject import Subject
from tests.cases.case_file import load, seen_by_case, subject_of

COLUMNS = ("symptom", "module", "kind", "cause", "cured")


@dataclass(kw_only=True)
class Scored:
    """What was found in a case under one autocast policy, and how much of it is right; None: nothing to compare."""

    case: str
    policy: str
    expected: str
    diagnosis: Diagnosis | None
    right: dict[str, bool | None]
    seconds: float

    @property
    def all_right(self) -> bool:
        return all(value is not False for value in self.right.values())

    def to_json(self) -> dict[str, Any]:
        found = msgspec.to_builtins(self.diagnosis) if self.diagnosis is not None else None
        return {"case": self.case, "policy": self.policy, "expected": self.expected, "found": found} | {
            "right": self.right,
            "all_right": self.all_right,
            "seconds": round(self.seconds, 1),
        }


def policies_of(case: types.ModuleType) -> tuple[str, ...]:
    """The CPU's own autocast lists, and CUDA's where the case says that they differ."""
    return ("native", "cuda") if "cuda_symptom" in case.EXPECT else ("native",)


def run_case(path: Path, policy: str) -> Scored:
    """Diagnose, then score."""
    began = time.perf_counter()
    case = load(path)
    subject = subject_of(case, policy)
    diagnosis = diagnose_subject(subject)
    answer = dict(case.EXPECT)
    if policy == "cuda" and "cuda_symptom" in answer:
        answer["symptom"] = answer["cuda_symptom"]
    right = _compare(case, subject, diagnosis, answer)
    seconds = time.perf_counter() - began
    return Scored(
        case=path.stem, policy=policy, expected=answer["symptom"], diagnosis=diagnosis, right=right, seconds=seconds
    )


def _compare(
    case: types.ModuleType, subject: Subject, found: Diagnosis | None, answer: dict[str, Any]
) -> dict[str, bool | None]:
    if answer["symptom"] == "none":
        return {"symptom": found is None, "module": None, "kind": None, "cause": None, "cured": None}
    if found is None:
        return dict.fromkeys(COLUMNS, False)
    return {
        "symptom": True,
        "module": found.module == answer["module"] if answer["module"] is not None else None,
        "kind": answer["kind"] in (found.family, found.kind),
        "cause": found.caused_by == _true_cause(case, subject, answer),
        "cured": _is_cured(case, subject, found),
    }


def _true_cause(case: types.ModuleType, subject: Subject, answer: dict[str, Any]) -> str:
    """``scale`` if the case speaks of gradients that vanish, or is well at some other loss scale; else ``data``."""
    if answer["symptom"] == "zero_gradient":
        return "scale"
    recipe = subject.recipe
    if recipe.precision != "16-mixed" or recipe.scaler is None:
        return "data"
    for exponent in (0, 8, 16):
        scaler = msgspec.structs.replace(recipe.scaler, kind="dynamic", init_scale=2.0**exponent)
        if not case.symptom(seen_by_case(case, subject, msgspec.structs.replace(recipe, scaler=scaler))):
            return "scale"
    return "data"


def _is_cured(case: types.ModuleType, subject: Subject, found: Diagnosis) -> bool:
    """Whether the case's own symptom is gone under the proposed recipe."""
    if found.recipe is None:
        return False
    recipe = parse_recipe(found.recipe)
    trial = as_trial(subject, Cure(recipe=recipe, sentence="", fp32_weights=found.fp32_weights))
    return not case.symptom(seen_by_case(case, replace(trial), recipe))
