"""The plan of an experiment, fixed at submission, and the runs it expands into. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from amp_core.config import Recipe
from amp_core.recipe_rules import is_emulated
from server.experiments.forks import PlannedFork

CONTROL_PERTURBATION = 1e-6
CONTROL_STEPS = 2_500  # steps over all seeds up to which the A/A control is on by default: it costs as much as a recipe


@dataclass(frozen=True, kw_only=True)
class PrimaryMetric:
    """The metric the verdict is about, its direction, and the margin fixed beforehand."""

    metric: str
    higher_is_better: bool
    margin: float
    relative: bool = False
    unit: str = ""
    resolution: float | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedAnalysis:
    """A question about one recipe; ``options`` are checked, see `amp_core.analyses`."""

    kind: str
    recipe: str
    options: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What an experiment will run. ``device`` is settled: ``cpu`` or ``cuda``, the same for every run."""

    workload: str
    source_hash: str
    path: str
    params: dict[str, Any]
    recipes: tuple[Recipe, ...]
    baseline: str
    seeds: tuple[int, ...]
    steps: int
    eval_every: int
    primary: PrimaryMetric
    control: bool
    measure_gain: bool
    device: str
    submission: dict[str, Any]
    analyses: tuple[PlannedAnalysis, ...] = ()
    ranks: int = 1
    hosts: int = 1
    strategy: str = "ddp"
    fork: PlannedFork | None = None
    keep_steps: tuple[int, ...] = ()

    @property
    def baseline_recipe(self) -> Recipe:
        return next(recipe for recipe in self.recipes if recipe.name == self.baseline)

    @property
    def candidates(self) -> tuple[Recipe, ...]:
        return tuple(recipe for recipe in self.recipes if recipe.name != self.baseline)

    def to_json(self) -> dict[str, Any]:
        """The plan as the experiment's row keeps it."""
        plan = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "path"}
        return {
            **plan,
            "recipes": [recipe_json(recipe) for recipe in self.recipes],
            "seeds": list(self.seeds),
            "fork": None if self.fork is None else asdict(self.fork),
            "keep_steps": list(self.keep_steps),
            "analyses": [asdict(analysis) for analysis in self.analyses],
            "primary": {name: getattr(self.primary, name) for name in PrimaryMetric.__dataclass_fields__},
        }


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run before it has a row. ``config`` is what `amp_core.config.RunConfig` needs beyond the row's columns."""

    kind: str
    role: str
    recipe: Recipe
    seed: int
    config: dict[str, Any]


def recipe_json(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain JSON values."""
    plain: dict[str, Any] = msgspec.to_builtins(recipe)
    return plain


def expand(plan: Plan) -> Iterator[PlannedRun]:
    """The runs in queue order: seed by seed with the baseline first, then the A/A control, benchmarks, analyses."""
    config = {
        "workload": {"name": plan.workload, "path": plan.path, "params": plan.params},
        "eval_every": plan.eval_every,
        "device": plan.device,
    }
    training = {**config, **_ranks(plan), **fork_config(plan.fork)}
    baseline = plan.baseline_recipe
    kept = {**training, "keep_steps": list(plan.keep_steps)} if plan.keep_steps else training
    for seed in plan.seeds:
        yield PlannedRun(kind="train", role="baseline", recipe=baseline, seed=seed, config=kept)
        for recipe in plan.candidates:
            yield PlannedRun(kind="train", role="candidate", recipe=recipe, seed=seed, config=training)
    if plan.control:
        perturbed = {**training, "init_perturbation": CONTROL_PERTURBATION}
        for seed in plan.seeds:
            yield PlannedRun(kind="train", role="control", recipe=baseline, seed=seed, config=perturbed)
    for recipe in benchmarked(plan):
        against = {**config, "baseline": recipe_json(baseline)}
        yield PlannedRun(kind="benchmark", role="benchmark", recipe=recipe, seed=plan.seeds[0], config=against)
    recipes = {recipe.name: recipe for recipe in plan.recipes}
    for analysis in plan.analyses:
        asked = {**config, **fork_config(plan.fork), "options": analysis.options}
        recipe = recipes[analysis.recipe]
        yield PlannedRun(kind=analysis.kind, role="analysis", recipe=recipe, seed=plan.seeds[0], config=asked)


def _ranks(plan: Plan) -> dict[str, Any]:
    """What a training run on several ranks has in its configuration; nothing for one."""
    if plan.ranks * plan.hosts == 1:
        return {}
    over = {"nnodes": plan.hosts} if plan.hosts > 1 else {}
    return {"ranks": plan.ranks, "distribution": {"strategy": plan.strategy, **over}}


def fork_config(fork: PlannedFork | None) -> dict[str, Any]:
    """Where a run begins, as `amp_core.config.Fork` has it but for the place on the host; nothing without a fork."""
    if fork is None:
        return {}
    return {"fork": {"run": fork.run, "step": fork.step, "name": fork.name, "seed": fork.seed, "steps": fork.steps}}


def benchmarked(plan: Plan) -> tuple[Recipe, ...]:
    """The candidates whose speed and memory are measured against the baseline's."""
    if not plan.measure_gain or is_emulated(plan.baseline_recipe, plan.device):
        return ()
    return tuple(recipe for recipe in plan.candidates if not is_emulated(recipe, plan.device))


def count_runs(plan: Plan) -> dict[str, int]:
    """How many runs of each sort the plan has, without building them."""
    train = len(plan.seeds) * len(plan.recipes)
    control = len(plan.seeds) if plan.control else 0
    benchmark, analysis = len(benchmarked(plan)), len(plan.analyses)
    total = train + control + benchmark + analysis
    return {"train": train, "control": control, "benchmark": benchmark, "analysis": analysis, "total": total}
