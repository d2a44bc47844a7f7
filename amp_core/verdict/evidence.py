"""What a verdict is reached from: the facts of one experiment's runs, and nothing that says where they are stored.

The events are those of `amp_core.events`, as the child sent them. No torch, no database.
"""

from __future__ import annotations

from typing import Any

import msgspec

from amp_core.config import Recipe
from amp_core.events import (
    BenchmarkBlock,
    BenchmarkMemory,
    EffectivePrecision,
    Evaluated,
    NonFinite,
    Numerics,
    StepSkipped,
    ZeroGradients,
)

FINAL_STATES = ("completed", "failed", "cancelled")


class Primary(msgspec.Struct, frozen=True, kw_only=True):
    """The primary metric and the margin fixed at submission.

    With ``relative`` the margin is a fraction of each pair's baseline value (0.01 is 1 %), else it has the metric's
    ``unit``. ``resolution`` is the smallest step the metric can take, in the metric's unit; None means the smallest
    step that follows from the evaluation: 1/size for an accuracy, float32's for anything else.
    """

    metric: str
    higher_is_better: bool
    margin: float
    relative: bool = False
    unit: str = ""
    resolution: float | None = None


class RunEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One training run, its newest attempt.

    ``state`` is queued, running, completed, failed or cancelled; ``reason`` says why it failed: {kind, message}.
    ``metric`` is the primary metric at the last evaluation: None when there is none, and possibly NaN or infinite.
    ``samples`` counts all samples seen, ``lost_samples`` those of skipped steps. ``num_evaluated`` is the number of
    samples of the last evaluation.
    """

    run_id: int
    seed: int
    recipe: str
    state: str
    reason: dict[str, Any] | None = None
    metric: float | None = None
    num_evaluated: int | None = None
    steps_run: int = 0
    skipped_steps: int = 0
    samples: int = 0
    lost_samples: int = 0
    evaluations: tuple[Evaluated, ...] = ()
    skips: tuple[StepSkipped, ...] = ()
    non_finite: tuple[NonFinite, ...] = ()
    numerics_samples: tuple[Numerics, ...] = ()
    zero_gradients: tuple[ZeroGradients, ...] = ()
    effective: tuple[EffectivePrecision, ...] = ()
    numerics: str | None = None
    environment: dict[str, Any] | None = None
    duration_s: float | None = None
    attempt: int = 1
    losses: tuple[tuple[int, ...], tuple[float, ...]] = ((), ())

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES


class BenchmarkEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The benchmark run of one candidate against the baseline."""

    recipe: str
    state: str
    reason: dict[str, Any] | None = None
    numerics: str | None = None
    blocks: tuple[BenchmarkBlock, ...] = ()
    memory: tuple[BenchmarkMemory, ...] = ()
    duration_s: float | None = None

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES


class Forked(msgspec.Struct, frozen=True, kw_only=True):
    """Where all training runs began: the checkpoint after ``step`` of a run that was to have ``steps``."""

    run_id: int
    step: int
    steps: int


class ExperimentEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment: its plan, fixed at submission, and everything its runs have reported so far.

    ``runs`` holds the training runs of every recipe, ``control_runs`` the A/A control. ``submission`` is the request
    body as it was given, from which follow-up submissions are made. ``wall_s`` is the time from the first start to
    the last end, or None. ``fork`` is where the training runs began, None for the weights of their seeds; ``steps``
    counts from there.
    """

    experiment_id: int
    workload: str
    primary: Primary
    baseline: Recipe
    candidates: tuple[Recipe, ...]
    seeds: tuple[int, ...]
    steps: int
    runs: tuple[RunEvidence, ...] = ()
    control_planned: bool = False
    control_runs: tuple[RunEvidence, ...] = ()
    gain_planned: bool = False
    benchmarks: tuple[BenchmarkEvidence, ...] = ()
    device: str = "cpu"
    submission: dict[str, Any] = {}
    wall_s: float | None = None
    fork: Forked | None = None

    def runs_of(self, recipe: str) -> dict[int, RunEvidence]:
        """The training runs of a recipe by seed."""
        return {run.seed: run for run in self.runs if run.recipe == recipe}

    def control_by_seed(self) -> dict[int, RunEvidence]:
        return {run.seed: run for run in self.control_runs}

    def benchmark_of(self, recipe: str) -> BenchmarkEvidence | None:
        return next((one for one in self.benchmarks if one.recipe == recipe), None)

    @property
    def all_runs(self) -> tuple[RunEvidence | BenchmarkEvidence, ...]:
        return (*self.runs, *self.control_runs, *self.benchmarks)

    @property
    def has_ended(self) -> bool:
        """Whether every planned run is final; a planned run that has no row is not."""
        planned = len(self.seeds) * (1 + len(self.candidates) + int(self.control_planned))
        return len(self.runs) + len(self.control_runs) >= planned and all(run.is_final for run in self.all_runs)
