"""`amp_core.check`: the answer without a server. Trains briefly under FP32 and each recipe and says what is wrong."""

from __future__ import annotations

import copy
import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from amp_core.config import Recipe, parse_recipe
from amp_core.forensics.diagnose import diagnose_subject
from amp_core.forensics.diagnosis import Diagnosis
from amp_core.forensics.gathering import References
from amp_core.forensics.subject import Subject
from amp_core.lint import Finding, Severity, lint_file

HORIZON = "It looked at {steps} steps with one seed: it finds faults, and says nothing about final quality."


@dataclass(frozen=True, kw_only=True)
class Check:
    """What a check found: a diagnosis or None by recipe, and the linter's findings. Reads as Markdown."""

    steps: int
    diagnoses: dict[str, Diagnosis | None]
    lint: list[Finding] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """No diagnosis, and no lint finding above a hint."""
        return not any(self.diagnoses.values()) and all(f.severity < Severity.WARNING for f in self.lint)

    def to_json(self) -> dict[str, Any]:
        found = {name: msgspec.to_builtins(diagnosis) for name, diagnosis in self.diagnoses.items()}
        lint = [
            {"path": f.path, "line": f.line, "code": f.code, "severity": f.severity.label, "message": f.message}
            for f in self.lint
        ]
        return {"sound": self.sound, "steps": self.steps, "diagnoses": found, "lint": lint}

    def __str__(self) -> str:
        lines = [f"# {'Nothing found' if self.sound else 'Not sound'}", ""]
        for name, found in self.diagnoses.items():
            lines += _section(name, found)
        lines += [f"- {f.path}:{f.line} {f.code} {f.message}" for f in self.lint]
        return "\n".join([*lines, "", HORIZON.format(steps=self.steps)])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _section(name: str, found: Diagnosis | None) -> list[str]:
    if found is None:
        return [f"## {name}", "", "No symptom beside FP32.", ""]
    proved = "repeated under it, the symptom was gone" if found.verified else "not proved to help"
    recipe = msgspec.json.encode(found.recipe).decode() if found.recipe is not None else "none found"
    return [
        f"## {name}",
        "",
        f"**{found.symptom.sentence}** {found.sentence}",
        "",
        f"{found.fix}",
        "",
        f"Recipe ({proved}): `{recipe}`",
        "",
    ]


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
    return Check(steps=subject.num_steps, diagnoses=diagnoses, lint=lint_file(source) if source is not None else [])
