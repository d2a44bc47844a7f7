"""``analyse``: ask one question about a run's recipe, and wait for its answer if wanted."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from server.cli.checkpoints import checkpoint_of
from server.cli.errors import CommandError
from server.cli.terminal import err
from server.client import Client, ClientError, Json, connect
from server.settings import Settings

POLL_S = 1.0
FINAL = ("completed", "failed", "cancelled")


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command()(analyse)


def analyse(
    run: Annotated[int, typer.Argument(help="Number of the run whose workload, seed and device are used.")],
    kind: Annotated[str, typer.Option(help="sensitivity (the smallest FP32 set), stress (edge cases), …")],
    recipe: Annotated[str | None, typer.Option(help="Another recipe: a precision, or JSON.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the analysis, as NAME=VALUE.")] = None,
    from_checkpoint: Annotated[
        str | None, typer.Option(help="Begin at a kept checkpoint: RUN@STEP, or RUN for its last one.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the answer and print it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the REST interface gives.")] = False,
) -> None:
    """Queue an analysis of a run: ampboard analyse 12 --kind sensitivity --option horizon=20 --wait."""
    body: dict[str, Any] = {"kind": kind, "options": dict(_option(text) for text in option or [])}
    if recipe is not None:
        body["recipe"] = _value(recipe) if recipe.startswith("{") else recipe
    if from_checkpoint is not None:
        body["from_checkpoint"] = checkpoint_of("--from-checkpoint", from_checkpoint)
    with connect(Settings()) as client:
        made: Json = client.post(f"/api/v1/runs/{run}/analyses", body)
        if not wait:
            typer.echo(json.dumps(made, indent=2, ensure_ascii=False) if as_json else _queued(made))
            return
        err().print(_queued(made), markup=False)
        _await_end(client, made["id"])
        report: Json = client.get(f"/api/v1/runs/{made['id']}/report")
    typer.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else _answer(report))


def _option(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise typer.BadParameter(f"option {text!r} must be NAME=VALUE, as horizon=20")
    return name, _value(value)


def _value(text: str) -> Any:
    """JSON where it is some, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _queued(made: Json) -> str:
    return f"run {made['id']}: {made['kind']} of {made['recipe_name']} is queued"


def _await_end(client: Client, run_id: int) -> None:
    """Return when the run has completed. Raises `CommandError` if it fails or is cancelled."""
    said = ""
    while True:
        run: Json = client.get(f"/api/v1/runs/{run_id}")
        if run["state"] in FINAL:
            break
        answer = _newest_answer(client, run_id)
        if answer and answer != said:
            said = answer
            err().print(answer, markup=False)
        time.sleep(POLL_S)
    if run["state"] != "completed":
        reason = (run.get("reason") or {}).get("message", "no reason recorded")
        raise CommandError(f"run {run_id} {run['state']}: {reason}")


def _newest_answer(client: Client, run_id: int) -> str:
    try:
        return str(client.get(f"/api/v1/runs/{run_id}/report")["content"].get("answer", ""))
    except ClientError:
        return ""  # nothing has been reported yet


def _answer(report: Json) -> str:
    content: Json = report["content"]
    lines = [str(content.get("answer", "It said nothing."))]
    recipe = content.get("recipe")
    if recipe:
        lines += ["", json.dumps(recipe, ensure_ascii=False)]
    return "\n".join(lines)
