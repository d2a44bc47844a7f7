"""What the comparison of runs answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from server.runs.schemas import RunOut

Figure = float | Literal["NaN", "Infinity", "-Infinity"]


class ComparedRun(RunOut):
    workload: str
    primary: dict[str, Any]


class RowOut(BaseModel):
    """One fact of every run, under its dotted name."""

    name: str
    values: list[Any] = Field(description="In the order of `runs`; null where a run does not have it.")
    differs: bool = Field(description="Whether two runs do; a run of which nothing is recorded is left out.")


class LineOut(BaseModel):
    mark: Literal["-", "+", " ", "@"] = Field(description="@ stands for equal lines left out.")
    old: int | None
    new: int | None
    text: str


class SourceOut(BaseModel):
    """One version of a workload among the runs."""

    workload: str
    source_hash: str
    path: str
    is_stored: bool
    run_ids: list[int]
    against: str | None = Field(description="The source_hash of the version that `lines` compares with.")
    lines: list[LineOut] | None
    note: str


class ModuleNumbers(BaseModel):
    max_abs: Figure
    underflow_fraction: Figure
    zero_fraction: Figure


class ModuleOut(BaseModel):
    module: str
    runs: list[ModuleNumbers | None]


class NumericsOut(BaseModel):
    steps: list[int | None]
    modules: list[ModuleOut]


class DifferenceOut(BaseModel):
    """Runs beside each other. Points are at GET /api/v1/series."""

    runs: list[ComparedRun]
    config: list[RowOut]
    environment: list[RowOut]
    sources: list[SourceOut]
    numerics: NumericsOut
