"""Series as REST gives them. Numbers that JSON lacks are spelled "NaN", "Infinity" and "-Infinity"."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Number = float | Literal["NaN", "Infinity", "-Infinity"]


class SeriesSummary(BaseModel):
    """What is known of a series without reading it; ``min`` and ``max`` are over its finite values."""

    name: str
    attempt: int
    num_points: int
    first_step: int
    last_step: int
    last: Number
    min: float | None
    max: float | None
    mean: float | None
    num_nan: int
    num_pos_inf: int
    num_neg_inf: int
    first_non_finite_step: int | None


class SeriesList(BaseModel):
    """Every series of a run. ``cursor`` is the place in the run's stream that this answer corresponds to."""

    items: list[SeriesSummary]
    cursor: str


class NonFiniteCounts(BaseModel):
    """How many NaN and infinities the bins hold that have any; ``steps`` are the bins' first steps."""

    steps: list[int]
    nan: list[int]
    pos_inf: list[int]
    neg_inf: list[int]


class SeriesWindow(BaseModel):
    """Points of one series by step, and what was done to them.

    ``binned``: ``num_points`` of ``num_stored`` were kept, with the first, last, lowest, highest and each kind of
    non-finite value of every ``bin_width`` steps. Where attempts overlap, the newest that has a step is shown.
    """

    run_id: int
    name: str
    kind: Literal["exact", "binned"]
    num_points: int
    num_stored: int
    bin_width: int | None = Field(description="Steps per bin; null when exact.")
    steps: list[int]
    values: list[Number]
    times: list[Number] = Field(description="Unix seconds.")
    non_finite: NonFiniteCounts | None = Field(description="Null when exact: then every value is in the lists.")


class SeriesOfRuns(BaseModel):
    """Windows of several series of several runs, by run and name."""

    series: list[SeriesWindow]


class RunSeries(BaseModel):
    """The series asked for, of one run of an experiment."""

    run_id: int
    recipe: str
    seed: int
    role: str
    attempt: int
    series: dict[str, SeriesWindow]


class ExperimentSeries(BaseModel):
    """Series of every run of an experiment. ``cursor`` is where its stream goes on without a gap."""

    runs: list[RunSeries]
    cursor: str
