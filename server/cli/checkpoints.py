"""``checkpoints``: what a run keeps for forks; and how ``submit`` spells forks and kept steps."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from server.cli.sizes import readable
from server.cli.terminal import out, table
from server.client import Json, connect
from server.settings import Settings


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command()(checkpoints)


def checkpoints(
    run: Annotated[int, typer.Argument(help="Number of the run.")],
    drop: Annotated[bool, typer.Option("--drop", help="Delete them, unless a fork still needs one.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the REST interface gives.")] = False,
) -> None:
    """List the checkpoints that a run keeps: 'ampboard submit … --fork RUN@STEP' begins at one of them."""
    with connect(Settings()) as client:
        if drop:
            client.delete(f"/api/v1/runs/{run}/checkpoints")
            typer.echo(f"run {run} keeps no checkpoints any more; workers free the space within a minute")
            return
        page: Json = client.get(f"/api/v1/runs/{run}/checkpoints")
    if as_json:
        typer.echo(json.dumps(page, indent=2, ensure_ascii=False))
        return
    if not page["items"]:
        typer.echo(f"run {run} keeps no checkpoints: submit its experiment with --keep-checkpoints")
        return
    rows = table("step", "size", "lies with", "shared", "file")
    for one in page["items"]:
        shared = "yes" if one["is_shared"] else "no"
        rows.add_row(f"{one['step']:,}", readable(one["num_bytes"]), one["worker"], shared, one["name"])
    out().print(rows, soft_wrap=False)
    needed = ", ".join(f"experiment {number}" for number in page["needed_by"])
    typer.echo(f"{readable(page['num_bytes'])} in all{f'; needed by {needed}' if needed else ''}")


def fork_of(text: str | None, horizon: int | None) -> Json | None:
    """``12@1000`` or ``12`` (the last kept step) with the steps after it. Raises `typer.BadParameter`."""
    if text is None:
        if horizon is not None:
            raise typer.BadParameter(
                f"--horizon {horizon} counts from a checkpoint: add --fork RUN@STEP, or use --steps"
            )
        return None
    found = checkpoint_of("--fork", text)
    if horizon is None:
        raise typer.BadParameter("--fork needs the number of steps after the checkpoint: add --horizon N")
    return {**found, "horizon": horizon}


def checkpoint_of(option: str, text: str) -> Json:
    """The run and the step of ``12@1000``; of ``12`` the last one it keeps. Raises `typer.BadParameter`."""
    run, at, step = text.partition("@")
    if not run.isdigit() or (at and step != "last" and not step.isdigit()):
        raise typer.BadParameter(f"{option} {text!r} must be a run, or a run and a step, such as 12 or 12@1000")
    return {"run": int(run), "step": int(step) if step.isdigit() else "last"}


def kept_of(text: str | None) -> str | list[int] | None:
    """``last``, or steps such as ``100,200``. Raises `typer.BadParameter`."""
    if text is None or text == "last":
        return text
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise typer.BadParameter(f"--keep-checkpoints {text!r} must be last, or steps such as 100,200") from error
