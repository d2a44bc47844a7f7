"""`amp_core.check`: the answer without a server. Trains briefly under FP32 and each recipe and says what is wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from amp_core import check_report
from amp_core.config import Recipe, parse_recipe
from amp_core.forensics.diagnose import diagnose_subject
from amp_core.forensics.diagnosis import Diagnosis
from amp_core.forensics.gathering import References
from amp_core.forensics.loop_products import ProductCollector
from amp_core.forensics.speed_advice import Advice, advise
from amp_core.forensics.subject import Subject
from amp_core.lint import Finding, Severity, lint_file
from amp_core.verdict.comparison import Comparison, as_json, spell


@dataclass(frozen=True, kw_only=True)
class Check:
    """What a check found: a diagnosis or None by recipe, the linter's findings, what speed to expect, and the verdicts
    where several seeds were trained. Reads as Markdown, and as HTML in a notebook.
    """

    steps: int
    diagnoses: dict[str, Diagnosis | None]
    lint: list[Finding] = field(default_factory=list)
    speed: Advice | None = None
    comparison: Comparison | None = None

    @property
    def sound(self) -> bool:
        """No diagnosis, no lint finding above a hint, and no verdict UNSAFE."""
        linted = all(f.severity < Severity.WARNING for f in self.lint)
        return not any(self.diagnoses.values()) and linted and "UNSAFE" not in self.verdicts.values()

    @property
    def verdicts(self) -> dict[str, str | None]:
        """The verdict by recipe; empty without a comparison."""
        return {one.recipe: one.verdict for one in self.comparison.recipes} if self.comparison is not None else {}

    def to_json(self) -> dict[str, Any]:
        found = {name: msgspec.to_builtins(diagnosis) for name, diagnosis in self.diagnoses.items()}
        lint = [
            {"path": f.path, "line": f.line, "code": f.code, "severity": f.severity.label, "message": f.message}
            for f in self.lint
        ]
        told: dict[str, Any] = {"sound": self.sound, "steps": self.steps, "diagnoses": spell(found), "lint": lint}
        told["speed"] = asdict(self.speed) if self.speed is not None else None
        told["comparison"] = as_json(self.comparison) if self.comparison is not None else None
        return told

    def __str__(self) -> str:
        return check_report.markdown(self)

    def _repr_markdown_(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return check_report.html_of(self)


def check(
    model: nn.Module | Callable[[], nn.Module],
    batches: Iterable[Any],
    loss_fn: Callable[[nn.Module, Any], Tensor],
    recipes: str | Recipe | dict[str, Any] | Sequence[str | Recipe | dict[str, Any]] = ("bf16-mixed", "16-mixed"),
    *,
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
    eval_batches: Iterable[Any] = (),
    source: Path | None = None,
    seed: int = 0,
) -> Check:
    """Train a copy of the model on the batches, each used once, under FP32 and under every recipe, and compare.

    The model given is not changed. ``source`` is a file for the linter.

    Raises:
        RecipeError: if a recipe cannot run on a CPU.
    """
    given = [recipes] if isinstance(recipes, str | Recipe | dict) else list(recipes)
    parsed = [recipe if isinstance(recipe, Recipe) else parse_recipe(recipe) for recipe in given]
    build = (lambda: copy.deepcopy(model)) if isinstance(model, nn.Module) else model
    subject = Subject(
        model=build,
        batches=list(batches),
        loss=loss_fn,
        optimizer=optimizer or (lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)),
        recipe=parsed[0],
        eval_batches=list(eval_batches),
        seed=seed,
    )
    references = References(subject)
    diagnoses = {recipe.name: diagnose_subject(replace(subject, recipe=recipe), references) for recipe in parsed}
    return Check(
        steps=subject.num_steps,
        diagnoses=diagnoses,
        lint=lint_file(source) if source is not None else [],
        speed=_speed(subject),
    )


def _speed(subject: Subject) -> Advice | None:
    """What the shapes of one forward pass let expect; None if it cannot run."""
    collector = ProductCollector()
    try:
        model = subject.model()
        with torch.no_grad(), collector:
            subject.loss(model, subject.batches[0])
    except (RuntimeError, ValueError, TypeError, IndexError):
        return None
    return advise(collector.products)
