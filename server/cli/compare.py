"""``ampboard compare``: the verdicts as a table, as JSON or as a Markdown report, and as an exit code."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from server.cli.terminal import out
from server.cli.verdict_code import ExitCode, verdict_code
from server.client import Json, connect
from server.settings import Settings


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
    exit_code: ExitCode = False,
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
