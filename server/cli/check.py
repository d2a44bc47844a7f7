"""``ampboard check``: the answer without a server, as a gate for CI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command()(check)


def check(
    file: Annotated[Path, typer.Argument(help="A file with workload classes.")],
    recipe: Annotated[list[str] | None, typer.Option(help="A precision or a recipe as JSON; repeat for more.")] = None,
    steps: Annotated[int, typer.Option(min=2, help="Training steps.")] = 60,
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of Markdown.")] = False,
) -> None:
    """Train briefly under FP32 and the recipes, and tell faults. Exit code: 0 sound, 1 findings, 2 it cannot run."""
    arguments = [str(file), "--steps", str(steps), "--seed", str(seed), *(["--json"] if as_json else [])]
    for each in recipe or ["bf16-mixed", "16-mixed"]:
        arguments += ["--recipe", each]
    # torch belongs to a process of its own: this one never loads it
    raise typer.Exit(subprocess.run([sys.executable, "-m", "amp_core", "check", *arguments], check=False).returncode)
