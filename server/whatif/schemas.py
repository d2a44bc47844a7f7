"""What the what-if route answers."""

from __future__ import annotations

from pydantic import BaseModel, Field

Number = float | str


class SharesOut(BaseModel):
    """Shares of the finite nonzero elements: become zero, keep fewer bits, leave the range.

    ``scale``: what the elements were multiplied with before the cast. ``module`` is null for all of them together.
    """

    module: str | None
    num_elements: int
    num_finite: int
    zeros: int
    scale: float
    underflow: float
    subnormal: float
    overflow: float


class BestScaleOut(BaseModel):
    """The largest power of two at which no recorded element overflows. ``lossless_scale``: the smallest at which none
    becomes zero either, or null if none is both."""

    scale: float
    underflow: float
    lossless_scale: float | None


class ScalerOut(BaseModel):
    """A scaler's rules on the recorded steps. ``same_as_run``: whether every decision is the run's own, for its own."""

    name: str
    scaler: dict[str, float | int | str | None]
    skipped: int
    skipped_steps: list[int] = Field(description="The first hundred.")
    final_scale: float
    lowest_scale: float
    same_as_run: bool | None


class PredictionOut(BaseModel):
    """Shares predicted from this run beside those measured in another, in that one's steps and at its loss scales."""

    against: int
    pairs: int
    mean_error: float
    largest_error: float


class WhatIfOut(BaseModel):
    """Exact for the recorded tensors; about another trajectory it is a prediction, whose error ``prediction`` tells."""

    run_id: int
    kind: str
    format: str
    step: int
    steps: list[int] = Field(description="The sampled steps.")
    whole: SharesOut
    modules: list[SharesOut]
    best: BestScaleOut | None
    scalers: list[ScalerOut]
    prediction: PredictionOut | None
