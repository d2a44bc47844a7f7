"""``ampboard check``: the answer without a server, as a gate for CI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from server.cli.verdict_code import ExitCode


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command()(check)


def check(
    file: Annotated[Path, typer.Argument(help="A file with workload classes.")],
    recipe: Annotated[list[str] | None, typer.Option(help="A precision or a recipe as JSON; repeat for more.")] = None,
    steps: Annotated[int, typer.Option(min=2, help="Training steps.")] = 60,
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0,
    seeds: Annotated[int, typer.Option(min=0, max=20, help="Seeds behind the verdict; 0 leaves it out.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of Markdown.")] = False,
    exit_code: ExitCode = False,
) -> None:
    """Train briefly under FP32 and the recipes; tell faults, lint, and a verdict. A file without workloads is run as a
    script under watch. Exit code: 0 sound, 1 findings or UNSAFE, 2 it cannot run.
    """
    arguments = [str(file), "--steps", str(steps), "--seed", str(seed), "--seeds", str(seeds)]
    arguments += [*(["--json"] if as_json else []), *(["--exit-code"] if exit_code else [])]
    for each in recipe or ["bf16-mixed", "16-mixed"]:
        arguments += ["--recipe", each]
    # torch belongs to a process of its own: this one never loads it
    raise typer.Exit(subprocess.run([sys.executable, "-m", "amp_core", "check", *arguments], check=False).returncode)
