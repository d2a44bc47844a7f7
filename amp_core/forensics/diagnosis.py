"""What forensics says. Plain data without torch: it travels as an event, and pages and command line read it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Kind = Literal[
    "overflow",
    "underflow",
    "cancellation",
    "precision_loss",
    "swamping",
    "nan_of_infinities",
    "domain_error",
    "dtype_error",
    "misuse",
]
Phase = Literal["forward", "backward", "update", "accumulation", "evaluation"]
Cause = Literal["scale", "data"]
SymptomKind = Literal[
    "error",
    "non_finite_loss",
    "non_finite_gradients",
    "non_finite_weights",
    "non_finite_evaluation",
    "endless_skips",
    "zero_gradients",
    "stuck_weights",
    "stuck_statistics",
    "gradient_error",
    "quality",
    "skipped_step",
]

# Coarser words for the kinds, as bug reports use them.
FAMILIES: dict[Kind, str] = {
    "overflow": "overflow",
    "underflow": "underflow",
    "cancellation": "accuracy",
    "precision_loss": "accuracy",
    "swamping": "accuracy",
    "nan_of_infinities": "nan",
    "domain_error": "nan",
    "dtype_error": "dtype",
    "misuse": "api-misuse",
}


def family_of(kind: Kind, symptom: SymptomKind) -> str:
    """The coarse word for a kind. A stored value that stands still is called underflow: of its increments."""
    return "underflow" if symptom in ("stuck_weights", "stuck_statistics") else FAMILIES[kind]


class Symptom(msgspec.Struct, frozen=True, kw_only=True):
    """What is visibly wrong with the low-precision training although its FP32 twin is healthy.

    ``step`` counts optimizer steps from 1; 0 means that no step is special. ``names`` are parameters or buffers.
    """

    kind: SymptomKind
    step: int
    sentence: str
    names: list[str] = []
    figures: dict[str, float] = {}


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Where a numeric fault starts, what it is, and what mends it.

    ``module`` is a name of `named_modules()`; the empty name is the model's own forward, None code outside the model.
    ``kind`` is the exact fault and ``family`` the coarser word. ``caused_by``: whether another loss scale would remove
    it, or the values themselves do it at any scale. ``recipe`` is what to submit instead, with a model that hands over
    its weights in FP32 if ``fp32_weights``; ``verified`` says that the training was repeated under it and the symptom
    was gone. ``batch`` counts from 0.
    """

    symptom: Symptom
    kind: Kind
    family: str
    module: str | None
    op: str
    phase: Phase
    step: int
    batch: int
    max_abs: float | None
    scale: float | None
    caused_by: Cause
    sentence: str
    fix: str
    recipe: dict[str, Any] | None
    fp32_weights: bool
    verified: bool
    evidence: dict[str, Any] = {}
