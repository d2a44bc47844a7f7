"""``ampboard compare``: the verdicts as a table, as JSON or as a Markdown report, and as an exit code."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from server.cli.errors import CommandError
from server.cli.terminal import out
from server.client import Json, connect
from server.settings import Settings

# Worst last: with several recipes the exit code is that of the worst verdict.
EXIT_CODES = {"SAFE": 0, "SAFE WITH CAUTION": 10, "INCONCLUSIVE": 11, "UNSAFE": 12}
NOT_JUDGED = 13


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command()(compare)


def compare(
    experiment: Annotated[int, typer.Argument(help="Number of the experiment.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the comparison as the REST interface gives it.")
    ] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the report as Markdown.")] = False,
    recipe: Annotated[str | None, typer.Option(help="Let only this recipe decide the exit code.")] = None,
    exit_code: Annotated[
        bool,
        typer.Option(
            "--exit-code",
            help="Exit with the worst verdict: 0 SAFE, 10 SAFE WITH CAUTION, 11 INCONCLUSIVE, 12 UNSAFE, "
            "13 not judged yet.",
        ),
    ] = False,
) -> None:
    """Compare an experiment's recipes with its baseline: verdicts, figures, reasons."""
    if as_json and as_markdown:
        raise typer.BadParameter("--json and --markdown exclude each other: choose one")
    with connect(Settings()) as client:
        comparison: Json = client.get(f"/api/v1/experiments/{experiment}/comparison")
        if as_json:
            typer.echo(json.dumps(comparison, indent=2, ensure_ascii=False))
        elif as_markdown:
            typer.echo(client.text(f"/api/v1/experiments/{experiment}/report.md").rstrip())
        else:
            from server.cli.verdict_table import print_comparison

            print_comparison(comparison, f"{client.url}/experiments/{experiment}")
            if comparison["state"] != "judged":
                out().print("  so far: runs are still to come, so there is no verdict yet", style="bold")
    if exit_code or recipe is not None:
        raise typer.Exit(verdict_code(comparison, recipe))


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
