"""Marks on experiments and runs: ``archive``, ``unarchive``, ``tag``, ``untag``, ``undelete``; and saved ``views``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from server.cli.errors import CommandError
from server.cli.listing import AsJson
from server.cli.terminal import out, table
from server.client import connect
from server.settings import Settings

Ids = Annotated[list[int], typer.Argument(help="Numbers of experiments, or of runs with --runs.", min=1)]
Runs = Annotated[bool, typer.Option("--runs", help="The numbers are those of runs.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (archive, unarchive, tag, untag, undelete, views):
        app.command()(command)


def archive(ids: Ids, runs: Runs = False) -> None:
    """Take experiments or runs out of the lists without deleting anything."""
    _act("archive", "archived", ids, runs)


def unarchive(ids: Ids, runs: Runs = False) -> None:
    """Bring archived experiments or runs back into the lists."""
    _act("unarchive", "back in the lists", ids, runs)


def tag(name: Annotated[str, typer.Argument(help="The tag.")], ids: Ids, runs: Runs = False) -> None:
    """Put a tag on experiments or runs."""
    _act("tag", f"tagged {name}", ids, runs, tag=name)


def untag(name: Annotated[str, typer.Argument(help="The tag.")], ids: Ids, runs: Runs = False) -> None:
    """Take a tag off experiments or runs."""
    _act("untag", f"without the tag {name}", ids, runs, tag=name)


def undelete(ids: Ids, runs: Runs = False) -> None:
    """Bring deleted experiments or runs back, as long as AMPBOARD_UNDO_S is not over."""
    _act("restore", "back", ids, runs)


def views(as_json: AsJson = False) -> None:
    """List the saved views of the lists of experiments and runs."""
    with connect(Settings()) as client:
        page = client.get("/api/v1/views")
    if as_json:
        typer.echo(json.dumps(page, indent=2, ensure_ascii=False))
        return
    rows = table("view", "name", "address", "whose")
    for view in page["items"]:
        whose = f"{view['owner']}, shared" if view["shared"] else view["owner"]
        rows.add_row(str(view["id"]), view["name"], view["url"], whose)
    if page["items"]:
        out().print(rows, soft_wrap=False)
    else:
        typer.echo("no views yet: save one on the page of experiments or of runs")


def _act(action: str, done: str, ids: list[int], runs: bool, **more: Any) -> None:
    """Do it and tell; exit 1 when something was refused."""
    noun = "runs" if runs else "experiments"
    with connect(Settings()) as client:
        told = client.post(f"/api/v1/{noun}/actions", {"action": action, "ids": ids, **more})
    if told["done"]:
        listed = ", ".join(map(str, told["done"]))
        typer.echo(f"{noun if len(told['done']) > 1 else noun[:-1]} {listed}: {done}")
    if told["refused"]:
        raise CommandError("; ".join(one["reason"] for one in told["refused"]))
