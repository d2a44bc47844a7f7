"""``ampboard diff``: what differs between runs, in a terminal."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from server.cli.errors import CommandError
from server.cli.terminal import out
from server.client import Json, connect
from server.search.terms import told_part
from server.settings import Settings

Numbers = Annotated[list[int] | None, typer.Argument(help="Numbers of runs.")]


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command()(diff)


def diff(
    runs: Numbers = None,
    experiment: Annotated[list[int] | None, typer.Option(help="All runs of this experiment; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as the REST interface gives it.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Print equal rows, too.")] = False,
) -> None:
    """Show runs beside each other: figures, configuration, environment, source line by line."""
    if not runs and not experiment:
        raise CommandError("name the runs, such as 'ampboard diff 1 2', or --experiment and its number")
    params = {"runs": ",".join(map(str, runs or [])), "experiments": ",".join(map(str, experiment or []))}
    with connect(Settings()) as client:
        told: Json = client.get("/api/v1/compare", **params)
    if as_json:
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    _print_figures(told["runs"])
    for title in ("config", "environment"):
        _print_rows(title, told["runs"], [row for row in told[title] if everything or row["differs"]])
    for version in told["sources"]:
        _print_source(version)


def _table(title: str, runs: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_edge=False)
    table.add_column("")
    for run in runs:
        table.add_column(f"run {run['id']}", overflow="fold")
    return table


def _print_figures(runs: list[dict[str, Any]]) -> None:
    table = _table("figures", runs)
    table.add_row("recipe", *(run["recipe_name"] for run in runs))
    table.add_row("seed", *(str(run["seed"]) for run in runs))
    table.add_row("state", *(run["state"] for run in runs))
    names = dict.fromkeys(name for run in runs for name in run["metrics"])
    for name in names:
        table.add_row(name, *(_figure(name, run["metrics"].get(name)) for run in runs))
    out().print(table)


def _figure(name: str, summary: dict[str, Any] | None) -> str:
    value = summary[told_part(name)] if summary is not None else None
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.6g}"


def _print_rows(title: str, runs: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape

    if not rows:
        out().print(f"{title}: no difference")
        return
    table = _table(title, runs)
    for row in rows:
        values = [
            "-" if value is None else value if isinstance(value, str) else json.dumps(value) for value in row["values"]
        ]
        table.add_row(escape(row["name"]), *(escape(value) for value in values))
    out().print(table)


def _print_source(version: dict[str, Any]) -> None:
    if version["against"] is None:
        return
    head = f"{version['workload']}: source {version['against'][:12]} against {version['source_hash'][:12]}"
    if version["lines"] is None:
        typer.echo(f"{head}: {version['note']}")
        return
    typer.echo(head)
    for line in version["lines"]:
        typer.echo(f"{line['mark']} {line['text']}" if line["mark"] != "@" else f"@ {line['text']} @")
