"""The smallest set of modules, or of operations, that must stay in FP32: ranking, search, certificate.

docs/analyses.md tells the method; `amp_core.analysis.minimal_set` is the search itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import msgspec
import torch

from amp_core.analyses import SensitivityOptions, parse_options
from amp_core.analysis.frame import Analysis
from amp_core.analysis.minimal_set import Found, Search
from amp_core.analysis.op_ranking import rank_operations
from amp_core.analysis.oracle import Judgement, Limits, Oracle, fix_limits
from amp_core.analysis.plain import plain
from amp_core.analysis.ranking import ModuleScore, rank
from amp_core.analysis.replays import replay
from amp_core.analysis.speed import short_speed
from amp_core.analysis.start import Start, find_start, keeping, reference_recipe, trial_recipe
from amp_core.config import Recipe, RunConfig
from amp_core.errors import RecipeError
from amp_core.events import Event, Progress, Report
from amp_core.recipe_rules import AUTOCAST
from amp_core.workload import Workload

REPORT_EVERY = 5  # evaluations between two partial reports
KIND = "sensitivity"
LOWERED = ("bf16-mixed", "16-mixed", "bf16-true", "16-true", "fp8-mixed")


def sensitivity(config: RunConfig, workload: Workload) -> Iterator[Event]:
    """Search: `Started`, `Progress` and partial `Report`s, the final `Report`, `Finished`.

    Raises:
        RecipeError: for a recipe that lowers nothing, or that the device cannot run.
    """
    options = parse_options(KIND, config.options)
    assert isinstance(options, SensitivityOptions)
    if config.recipe.precision not in LOWERED:
        raise RecipeError(
            f"precision={config.recipe.precision!r} computes nothing in half precision, so nothing is to be kept from "
            f"it: choose one of {', '.join(LOWERED)}"
        )
    if options.by == "op" and config.recipe.precision not in AUTOCAST:
        raise RecipeError(
            f"by='op' with precision={config.recipe.precision!r}: operations are kept from autocast in bf16 or fp16, "
            "which it does not use: choose by='module'"
        )
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    work = _Sensitivity(config, workload, options)
    yield work.started(workload)
    yield from work.told()


class _Sensitivity(Analysis):
    """The state of one analysis between its evaluations."""

    def __init__(self, config: RunConfig, workload: Workload, options: SensitivityOptions) -> None:
        super().__init__(config)
        self.workload = workload
        self.options = options
        self.scores: list[ModuleScore] = []
        self.start: Start | None = None
        self.oracle: Oracle | None = None
        self.search: Search | None = None
        self.found: Found | None = None
        self.speed: dict[str, Any] | None = None
        self.answer = "It has not begun to search."
        self.state = "preparing"
        self.evaluations = 0

    def events(self) -> Iterator[Event]:
        options = self.options
        fork = self.config.fork
        after = "" if fork is None else f" after step {fork.step} of run {fork.run}"
        yield self._progress(f"Training {options.start} steps in FP32{after}")
        self.start = start = find_start(self.config, self.workload, options.start, options.horizon)
        reference = replay(self.config, self.workload, start, reference_recipe(self.config.recipe))
        if reference.refused:
            yield from self._end("impossible", f"FP32 does not come through either: {reference.refused}.")
            return
        yield self._progress("Measuring the noise of FP32 against itself")
        limits = fix_limits(self.config, self.workload, start, reference, options)
        self.oracle = Oracle(self.config, self.workload, start, reference, limits, options.by)
        yield self._progress(f"Ranking {self._things}")
        ranked = rank_operations if options.by == "op" else rank
        self.scores = ranked(self.config, self.workload, start, trial_recipe(self.config.recipe))
        self.state, self.answer = "searching", "The search goes on."
        yield self.report(final=False)
        yield from self._searched(limits)

    def _searched(self, limits: Limits) -> Iterator[Event]:
        """Search among the innermost candidates first, and among all of them if those do not suffice."""
        names = [score.module for score in self.scores]
        inner = [name for name in names if not any(other.startswith(f"{name}.") for other in names)]
        for ranked in (inner, names) if len(inner) < len(names) else (names,):
            self.search = Search(ranked, error_rate=limits.error_rate)
            yield from self._drive(self.search)
            if self.found is None:
                yield from self._end("stopped", self._stopped())
                return
            if self.found.minimal is not None:
                yield from self._conclude(self.found.minimal)
                return
        yield from self._end(
            "none",
            "No set of operations makes it pass: what fails lies in the gradients of what stays low, or in the loss "
            "scale."
            if self.options.by == "op"
            else "No set of modules makes it pass: what fails lies outside of modules (the model's own forward or the "
            "loss), in stored weights, or in the loss scale.",
        )

    def _drive(self, search: Search) -> Iterator[Event]:
        """Answer the search's questions until it ends or the budget does; ``found`` is None in the latter case."""
        assert self.oracle is not None
        self.found = None
        queries = search.queries()
        try:
            kept = next(queries)
            while not self._spent():
                yield self._progress(self._asked(kept))
                judgement = self.oracle.judge(kept)
                self.evaluations += 1
                if self.evaluations % REPORT_EVERY == 0:
                    yield self.report(final=False)
                kept = queries.send(judgement.passed)
        except StopIteration as end:
            self.found = end.value

    def _conclude(self, minimal: tuple[str, ...]) -> Iterator[Event]:
        if not minimal:
            yield from self._end("passes", f"Nothing must be kept in FP32: {self.config.recipe.name} passes as it is.")
            return
        if self.options.speed:
            yield self._progress("Timing the recipe with the set in place")
            assert self.start is not None
            self.speed = short_speed(self.config, self.workload, self.start, minimal, self.options.by)
        listed = ", ".join(minimal)
        yield from self._end(
            "found",
            f"Keep {listed} in FP32: with {'them' if len(minimal) > 1 else 'it'} it passes, and without "
            f"{'any one of them' if len(minimal) > 1 else 'it'} it fails.",
        )

    def _end(self, state: str, answer: str) -> Iterator[Event]:
        self.state, self.answer = state, answer
        yield self.report(final=True)

    def _spent(self) -> bool:
        late = time.monotonic() - self.began > self.options.max_seconds
        return late or self.evaluations >= self.options.max_evaluations

    def _stopped(self) -> str:
        best = self.search.best if self.search is not None else None
        if best is None:
            return f"The budget ended after {self.evaluations} evaluations, before any set had passed: raise it."
        return (
            f"The budget ended after {self.evaluations} evaluations: the smallest set known to pass has {len(best)} "
            f"{self._things}, which may be more than needed. Raise max_evaluations or max_seconds to go on."
        )

    def _progress(self, message: str) -> Progress:
        total = self.search.expected_total if self.search is not None else max(self.evaluations + 1, 10)
        return Progress(done=self.evaluations, total=min(total, self.options.max_evaluations), message=message)

    @property
    def _things(self) -> str:
        return "operations" if self.options.by == "op" else "modules"

    def _asked(self, kept: frozenset[str]) -> str:
        if not kept:
            return "Trying the recipe as it is"
        return f"Trying with {len(kept)} {self._things if len(kept) > 1 else self._things[:-1]} in FP32"

    def report(self, final: bool) -> Report:
        """What is known so far."""
        best = self._best()
        content = {
            "state": self.state,
            "by": self.options.by,
            "answer": self.answer,
            "minimal": list(self.found.minimal) if self.found and self.found.minimal is not None else None,
            "smallest_passing": best,
            "recipe": msgspec.to_builtins(self._recipe(tuple(best))) if best else None,
            "certificate": self._certificate(),
            "evaluations": self.evaluations,
            "seconds": time.monotonic() - self.began,
            "modules": [_row(score, best or []) for score in self.scores],
            "speed": self.speed,
        }
        return Report(kind=KIND, content=plain(content), final=final)

    def _best(self) -> list[str] | None:
        """The minimal set, or the smallest one known to pass, in the ranking's order."""
        best = self.search.best if self.search is not None else None
        if self.found is not None and self.found.minimal is not None:
            best = frozenset(self.found.minimal)
        return None if best is None else [score.module for score in self.scores if score.module in best]

    def _recipe(self, kept: tuple[str, ...]) -> Recipe:
        recipe = self.config.recipe
        name = f"{recipe.name}, {len(kept)} in FP32"[:80]
        return keeping(msgspec.structs.replace(recipe, name=name), kept, self.options.by)

    def _certificate(self) -> dict[str, Any] | None:
        """Everything it takes to repeat the proof."""
        if self.oracle is None or self.start is None:
            return None
        judged, found = self.oracle.judged, self.found
        proven = found.minimal if found is not None and found.minimal is not None else ()
        whole = frozenset(proven)
        limits, fork = self.oracle.limits, self.config.fork
        return {
            "checkpoint": {
                "step": self.start.number + (fork.step if fork is not None else 0),
                "training": "32-true" if fork is None else f"run {fork.run}",
                "sha256": self.start.fingerprint,
            },
            "batches": self.start.batches,
            "horizon": self.options.horizon,
            "seed": self.config.seed,
            "limits": {
                "loss": limits.loss,
                "loss_noise": limits.loss_noise,
                "update": self.options.update_tolerance,
                "update_noise": max(limits.update_noise.values(), default=0.0),
                "repeatable": limits.repeatable,
            },
            "alone": _judged(judged.get(frozenset())),
            "with_set": _judged(judged.get(whole)) if found is not None else None,
            "without": [
                {
                    "module": name,
                    "fails": _judged(judged.get(whole - {name})),
                    "passed_failed": list(found.proofs[name]),
                }
                for name in proven
                if found is not None
            ],
        }


def _judged(judgement: Judgement | None) -> dict[str, Any] | None:
    return asdict(judgement) if judgement is not None else None


def _row(score: ModuleScore, kept: list[str]) -> dict[str, Any]:
    return {
        "module": score.module,
        "kind": score.kind,
        "sensitivity": score.sensitivity,
        "error": score.error,
        "max_abs": score.max_abs,
        "overflow": score.overflow,
        "gradient_overflow": score.gradient_overflow,
        "gradient_lost": score.gradient_lost,
        "gradient_nonzero": score.gradient_nonzero,
        "out_of_range": score.out_of_range,
        "kept": score.module in kept,
    }
