"""Verdicts as exit codes, for scripts and CI."""

from __future__ import annotations

from typing import Annotated

import typer

from server.cli.errors import CommandError
from server.client import Json

# Worst last: with several recipes the exit code is that of the worst verdict.
EXIT_CODES = {"SAFE": 0, "SAFE WITH CAUTION": 10, "INCONCLUSIVE": 11, "UNSAFE": 12}
NOT_JUDGED = 13

ExitCode = Annotated[
    bool,
    typer.Option(
        "--exit-code",
        help="Exit with the worst verdict: 0 SAFE, 10 SAFE WITH CAUTION, 11 INCONCLUSIVE, 12 UNSAFE, "
        "13 not judged yet.",
    ),
]


def verdict_code(comparison: Json, recipe: str | None = None) -> int:
    """The exit code of the worst verdict, or of one recipe's.

    Raises:
        CommandError: no such recipe in this experiment.
    """
    judged = [r for r in comparison["recipes"] if recipe is None or r["recipe"] == recipe]
    if not judged:
        names = ", ".join(repr(r["recipe"]) for r in comparison["recipes"])
        raise CommandError(f"--recipe {recipe!r} is not compared in this experiment: it has {names}")
    return max(EXIT_CODES.get(r["verdict"], NOT_JUDGED) for r in judged)
