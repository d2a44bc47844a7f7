"""From a submission to a plan: every rule of a submission is checked here, and every fault is reported at once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from amp_core.analyses import check_analysis, parse_options
from amp_core.config import Recipe, parse_recipe
from amp_core.errors import AnalysisError, RecipeError, WorkloadError
from amp_core.parameters import Parameter
from amp_core.recipe_rules import check_device, check_strategy
from server.db.tables import Workload
from server.errors import Fault, Invalid
from server.experiments.forks import Origin, PlannedFork, Wanted, planned_fork
from server.experiments.plan import CONTROL_STEPS, Plan, PlannedAnalysis, PrimaryMetric, count_runs
from server.experiments.schemas import AnalysisIn, ExperimentIn, PrimaryIn

DEFAULT_RECIPES = ("32-true", "bf16-mixed", "16-mixed")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a submission is checked against besides its workload.

    ``device_kinds`` are those of live workers; empty when none is known, and then no device is refused. ``abilities``
    are those of their GPUs.
    """

    device_kinds: frozenset[str]
    max_runs: int
    abilities: frozenset[str] = frozenset()
    origin: Origin | None = None  # the run that the submission forks from, if there is such a run


def plan_of(given: ExperimentIn, workload: Workload, around: Surroundings) -> Plan:
    """The plan of a submission. Raises `Invalid` with every fault found."""
    check = _Check(given, workload, around)
    recipes = check.recipes()
    baseline = check.baseline(recipes)
    seeds = check.seeds()
    steps = check.steps()
    params = check.params()
    primary = check.primary()
    device = check.device()
    check.recipes_on(device)
    check.ranks(recipes)
    eval_every = check.eval_every(steps)
    analyses = check.analyses(recipes, device)
    fork = check.fork(recipes, baseline, params, device, workload)
    keep_steps = check.keep_steps(steps)
    check.raise_faults()
    assert primary is not None
    is_alone = given.ranks * given.hosts == 1  # a benchmark takes one rank
    plan = Plan(
        workload=workload.name,
        source_hash=workload.source_hash,
        path=workload.path,
        params=params,
        recipes=tuple(recipes),
        baseline=baseline,
        seeds=seeds,
        steps=steps,
        eval_every=eval_every,
        primary=primary,
        control=given.control if given.control is not None else steps * len(seeds) <= CONTROL_STEPS,
        measure_gain=given.measure_gain and is_alone and not workload.description.get("is_script"),
        device=device,
        submission=given.model_dump(mode="json", exclude_unset=True),
        analyses=analyses,
        ranks=given.ranks,
        hosts=given.hosts,
        strategy=given.strategy,
        fork=fork,
        keep_steps=keep_steps,
    )
    check.size(plan)
    check.raise_faults()
    return plan


class _Check:
    """Collects the faults of one submission; each method checks one field and returns its settled value."""

    def __init__(self, given: ExperimentIn, workload: Workload, around: Surroundings) -> None:
        self.given = given
        self.description = workload.description
        self.around = around
        self.faults: list[Fault] = []

    def fault(self, field: str, value: Any, rule: str, remedy: str) -> None:
        self.faults.append(Fault(field=field, value=value, rule=rule, remedy=remedy))

    def raise_faults(self) -> None:
        if self.faults:
            raise Invalid(self.faults)

    def recipes(self) -> list[Recipe]:
        asked = self.given.recipes
        if asked is None:
            asked = list(self.description.get("recipes") or DEFAULT_RECIPES)
        recipes: list[Recipe] = []
        for index, item in enumerate(asked):
            try:
                recipe = parse_recipe(item)
            except RecipeError as error:
                rule, remedy = split_message(str(error))
                self.fault(f"recipes.{index}", item, rule, remedy)
                continue
            if any(other.name == recipe.name for other in recipes):
                rule = f"two recipes are called {recipe.name!r}"
                self.fault(f"recipes.{index}", item, rule, "give one of them another name, or leave it out")
                continue
            recipes.append(recipe)
        if len(asked) < 2:
            rule = "an experiment compares at least one recipe with the baseline"
            self.fault("recipes", asked, rule, "give two or more, such as ['fp32', 'bf16']")
        return recipes

    def recipes_on(self, device: str) -> None:
        """Refuse what this kind of device cannot run whatever the model is."""
        for index, item in enumerate(self.given.recipes or []):
            try:
                recipe = parse_recipe(item)
                check_device(recipe, device)
                self._fp8_on(index, item, recipe, device)
            except RecipeError as error:
                if not any(fault.field == f"recipes.{index}" for fault in self.faults):
                    rule, remedy = split_message(str(error))
                    self.fault(f"recipes.{index}", item, rule, remedy)

    def _fp8_on(self, index: int, item: Any, recipe: Recipe, device: str) -> None:
        """Refuse fp8 kernels where the GPUs are known and none has them; emulation has to be asked for."""
        needs_fp8 = recipe.precision == "fp8-mixed" and device == "cuda" and recipe.fp8_compute != "emulated"
        if needs_fp8 and "cuda" in self.around.device_kinds and "fp8" not in self.around.abilities:
            rule = "fp8-mixed needs a GPU of compute capability 8.9, and no live worker has one"
            self.fault(f"recipes.{index}", item, rule, "give it fp8_compute='emulated', or choose bf16-mixed")

    def ranks(self, recipes: list[Recipe]) -> None:
        """Refuse what several ranks cannot do, and a strategy without ranks."""
        asked, hosts, strategy = self.given.ranks, self.given.hosts, self.given.strategy
        if asked * hosts == 1:
            if strategy != "ddp":
                self.fault("strategy", strategy, "a strategy is for several ranks", "give ranks, or leave it out")
            return
        if self.description.get("is_script"):
            field, value = ("ranks", asked) if asked > 1 else ("hosts", hosts)
            self.fault(field, value, "a script starts its own ranks", "leave it out")
        if hosts > 1 and self.given.fork is not None:
            self.fault("hosts", hosts, "a fork begins at a checkpoint on one host", "leave it out")
        for recipe in recipes:
            try:
                check_strategy(recipe, strategy)
            except RecipeError as error:
                rule, remedy = split_message(str(error))
                self.fault("strategy", strategy, f"{recipe.name}: {rule}", remedy)

    def baseline(self, recipes: list[Recipe]) -> str:
        names = [recipe.name for recipe in recipes]
        asked = self.given.baseline
        if asked is None:
            found = next((recipe.name for recipe in recipes if recipe.precision == "32-true"), None)
            if found is None and recipes:
                rule = "without 32-true among the recipes there is no default baseline"
                self.fault("baseline", None, rule, f"add 'fp32' to the recipes, or name one of {', '.join(names)}")
            return found or ""
        meant = self._name_of(asked, names)
        if meant is None:
            rule = f"the baseline is one of the recipes: {', '.join(names) or 'none is valid'}"
            self.fault("baseline", asked, rule, "name one of them, or add it to the recipes")
        return meant or ""

    @staticmethod
    def _name_of(asked: str, names: list[str]) -> str | None:
        """The recipe meant by a name or an alias such as fp32."""
        if asked in names:
            return asked
        try:
            meant = parse_recipe(asked).name
        except RecipeError:
            return None
        return meant if meant in names else None

    def seeds(self) -> tuple[int, ...]:
        asked = self.given.seeds
        if isinstance(asked, int):
            if asked > self.around.max_runs:
                self.fault("seeds", asked, f"at most {self.around.max_runs} runs fit an experiment", "ask for fewer")
                return ()
            return tuple(range(asked))
        repeated = sorted(seed for seed, count in Counter(asked).items() if count > 1)
        if repeated:
            self.fault("seeds", asked, f"seeds are distinct; repeated: {repeated}", "leave each in once")
        return tuple(asked)

    def steps(self) -> int:
        if self.given.fork is not None:
            if self.given.steps is not None:
                rule = "the horizon of the fork is the length of every run"
                self.fault("steps", self.given.steps, rule, "leave it out, and change fork.horizon")
            return self.given.fork.horizon
        return self.given.steps or int(self.description.get("steps") or 100)

    def fork(
        self, recipes: list[Recipe], baseline: str, params: dict[str, Any], device: str, workload: Workload
    ) -> PlannedFork | None:
        asked = self.given.fork
        if asked is None:
            return None
        if self.description.get("is_script"):
            rule = "a script owns its loop, so that it can only be started from its first step"
            self.fault("fork", asked.model_dump(), rule, "leave it out")
            return None
        wanted = Wanted(
            workload=workload.name,
            source_hash=workload.source_hash,
            params=params,
            baseline=next((recipe for recipe in recipes if recipe.name == baseline), None),
            device=device,
            ranks=self.given.ranks,
            strategy=self.given.strategy,
            may_schedule=bool(self.description.get("may_schedule", True)),
        )
        return planned_fork(asked, self.around.origin, wanted, self.fault)

    def keep_steps(self, steps: int) -> tuple[int, ...]:
        asked = self.given.keep_checkpoints
        if asked is None:
            return ()
        if self.given.fork is not None:
            rule = "runs of a fork keep no checkpoints, since a fork cannot be forked"
            self.fault("keep_checkpoints", asked, rule, "leave it out")
        if self.description.get("is_script"):
            rule = "a script owns its loop: its checkpoints lead back into that run alone"
            self.fault("keep_checkpoints", asked, rule, "leave it out")
        if asked == "last":
            return (steps,)
        late = [step for step in asked if step > steps]
        if late:
            rule = f"a run has {steps:,} steps, and no checkpoint after step {late[0]:,}"
            self.fault("keep_checkpoints", asked, rule, "lower it, or give last for the end of the run")
        return tuple(sorted(set(asked)))

    def eval_every(self, steps: int) -> int:
        asked = self.given.eval_every
        if asked is None:
            return max(1, steps // 10)
        if asked > steps:
            rule = f"evaluations are at most {steps} steps apart, the length of a run"
            self.fault("eval_every", asked, rule, "lower it or leave it out")
        return asked

    def analyses(self, recipes: list[Recipe], device: str) -> tuple[PlannedAnalysis, ...]:
        names = [recipe.name for recipe in recipes]
        settled = []
        if self.given.analyses and self.description.get("is_script"):
            rule = "a script owns its loop, so that only training runs can be made of it"
            self.fault("analyses", [asked.kind for asked in self.given.analyses], rule, "leave them out")
        for index, asked in enumerate(self.given.analyses):
            try:
                parse_options(asked.kind, asked.options)
            except AnalysisError as error:
                rule, remedy = split_message(str(error))
                self.fault(f"analyses.{index}", asked.model_dump(), rule, remedy)
            name = self._name_of(asked.recipe, names)
            self._check_analysis(index, asked, next((one for one in recipes if one.name == name), None), device)
            if name is None:
                rule = f"an analysis is of one of the recipes: {', '.join(names) or 'none is valid'}"
                self.fault(f"analyses.{index}.recipe", asked.recipe, rule, "name one of them, or add it to the recipes")
            else:
                settled.append(PlannedAnalysis(kind=asked.kind, recipe=name, options=asked.options))
        return tuple(settled)

    def _check_analysis(self, index: int, asked: AnalysisIn, recipe: Recipe | None, device: str) -> None:
        try:
            if recipe is not None:
                check_analysis(asked.kind, recipe, device)
        except AnalysisError as error:
            rule, remedy = split_message(str(error))
            self.fault(f"analyses.{index}.recipe", asked.recipe, rule, remedy)

    def params(self) -> dict[str, Any]:
        declared = {item["name"]: _parameter(item) for item in self.description.get("parameters", [])}
        for name, value in self.given.params.items():
            if name not in declared:
                rule = f"workload {self.given.workload!r} has the parameters {', '.join(declared) or 'none'}"
                self.fault(f"params.{name}", value, rule, "mend the name or leave it out")
        settled: dict[str, Any] = {}
        for name, parameter in declared.items():
            value = self.given.params.get(name, self._default(parameter))
            try:
                settled[name] = parameter.accept(value)
            except WorkloadError as error:
                rule, remedy = split_message(str(error))
                self.fault(f"params.{name}", value, rule, remedy)
        return settled

    def _default(self, parameter: Parameter) -> Any:
        """The parameter's own, or that of the run to fork from: a fork has the same in any case."""
        origin = self.around.origin
        if origin is None or origin.run.experiment.plan.get("workload") != self.given.workload:
            return parameter.default
        return (origin.run.experiment.plan.get("params") or {}).get(parameter.name, parameter.default)

    def primary(self) -> PrimaryMetric | None:
        asked = self.given.primary or PrimaryIn()
        own: dict[str, Any] = self.description.get("primary") or {}
        same = asked.metric is None or asked.metric == own.get("name")
        if same and own:
            self._direction(own, asked)
            return PrimaryMetric(
                metric=own["name"],
                higher_is_better=own["higher_is_better"],
                margin=own["margin"] if asked.margin is None else asked.margin,
                relative=bool(own.get("relative")) if asked.relative is None else asked.relative,
                unit=own.get("unit", "") if asked.unit is None else asked.unit,
                resolution=own.get("resolution"),
            )
        if asked.metric is None or asked.margin is None or asked.higher_is_better is None:
            rule = "a metric other than the workload's own needs its direction and its margin beforehand"
            self.fault("primary", asked.model_dump(), rule, "give metric, higher_is_better and margin")
            return None
        return PrimaryMetric(
            metric=asked.metric,
            higher_is_better=asked.higher_is_better,
            margin=asked.margin,
            relative=bool(asked.relative),
            unit=asked.unit or "",
        )

    def _direction(self, own: dict[str, Any], asked: PrimaryIn) -> None:
        if asked.higher_is_better not in (None, own["higher_is_better"]):
            better = "higher" if own["higher_is_better"] else "lower"
            rule = f"{own['name']} of workload {self.given.workload!r} is better when {better}"
            self.fault("primary.higher_is_better", asked.higher_is_better, rule, "leave it out")

    def device(self) -> str:
        asked, known = self.given.device, self.around.device_kinds
        if asked == "auto":
            return "cuda" if "cuda" in known else "cpu"
        if known and asked not in known:
            rule = f"live workers offer {', '.join(sorted(known))}; none has {asked}"
            self.fault("device", asked, rule, "choose one of these, or start a worker that has it")
        return asked

    def size(self, plan: Plan) -> None:
        total = count_runs(plan)["total"]
        if total > self.around.max_runs:
            rule = f"the plan has {total} runs; at most {self.around.max_runs} are accepted"
            self.fault("seeds", len(plan.seeds), rule, "ask for fewer seeds or recipes, or split it")


def _parameter(item: dict[str, Any]) -> Parameter:
    choices = item.get("choices")
    return Parameter(
        name=item["name"],
        type=item["type"],
        default=item["default"],
        minimum=item.get("min"),
        maximum=item.get("max"),
        choices=None if choices is None else tuple(choices),
        help=item.get("help", ""),
    )


_REMEDY_BEGINS = ("choose ", "give ", "leave ", "lower ", "raise ", "one of ", "the default is ")


def split_message(message: str) -> tuple[str, str]:
    """An engine's message as rule and remedy: its last part when that tells what to do."""
    rule, colon, remedy = message.rpartition(": ")
    if colon and remedy.startswith(_REMEDY_BEGINS):
        return rule, remedy
    return message, "mend the value; docs/rest.md shows what is accepted"


def same_submission(plan: dict[str, Any], given: ExperimentIn) -> bool:
    """Whether a stored plan came from this very body."""
    body = given.model_dump(mode="json", exclude_unset=True)
    return json.dumps(plan.get("submission"), sort_keys=True) == json.dumps(body, sort_keys=True)
