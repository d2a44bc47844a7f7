"""``pause``, ``resume``, ``priority`` and ``queue`` for runs that wait or run; ``workers`` for who takes them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated

import typer

from server.cli.errors import CommandError
from server.cli.terminal import out, table
from server.client import Client, Json, connect
from server.settings import Settings

Experiment = Annotated[int | None, typer.Argument(help="Number of the experiment.")]
Run = Annotated[int | None, typer.Option(help="Only this run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print what the REST interface gives.")]
Name = Annotated[str, typer.Argument(help="Name of the worker, as 'ampboard workers list' shows it.")]

workers = typer.Typer(no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(pause)
    app.command()(resume)
    app.command()(priority)
    app.command()(queue)


def _subject(experiment: int | None, run: int | None) -> str:
    """``experiments/3`` or ``runs/12``, whichever was given."""
    if (experiment is None) == (run is None):
        raise typer.BadParameter("give either the number of an experiment or --run with the number of a run")
    return f"experiments/{experiment}" if run is None else f"runs/{run}"


def _spoken(subject: str) -> str:
    return subject.replace("s/", " ")


def pause(experiment: Experiment = None, run: Run = None) -> None:
    """Pause an experiment, or one run: running ones write a checkpoint and give their devices back."""
    subject = _subject(experiment, run)
    with connect(Settings()) as client:
        client.post(f"/api/v1/{subject}/pause")
    typer.echo(f"{_spoken(subject)}: pause requested; 'ampboard resume' lets it go on")


def resume(experiment: Experiment = None, run: Run = None) -> None:
    """Queue the paused runs of an experiment, or one paused run, again: they go on from their checkpoints."""
    subject = _subject(experiment, run)
    with connect(Settings()) as client:
        client.post(f"/api/v1/{subject}/resume")
    typer.echo(f"{_spoken(subject)}: queued again")


def priority(
    value: Annotated[int, typer.Argument(min=-100, max=100, help="A higher one starts first; 0 is usual.")],
    experiment: Experiment = None,
    run: Run = None,
) -> None:
    """Change the priority of an experiment's open runs, or of one run: ampboard priority 5 12."""
    subject = _subject(experiment, run)
    with connect(Settings()) as client:
        client.post(f"/api/v1/{subject}/priority", {"priority": value})
    typer.echo(f"{_spoken(subject)}: priority {value}")


def queue(
    limit: Annotated[int, typer.Option(min=1, max=200, help="At most so many.")] = 30, as_json: AsJson = False
) -> None:
    """Show the queue in the order in which runs are expected to start, and when."""
    with connect(Settings()) as client:
        page: Json = client.get("/api/v1/queue", limit=limit)
    if as_json:
        typer.echo(json.dumps(page, indent=2, ensure_ascii=False))
        return
    if not page["items"]:
        typer.echo(f"the queue is empty; {len(page['running'])} runs are at work")
        return
    rows = table("#", "run", "experiment", "recipe and seed", "priority", "expected start")
    for run in page["items"]:
        rows.add_row(
            str(run["queue_position"]), str(run["id"]), f"{run['experiment_id']} {run['experiment_name']}",
            f"{run['recipe_name']}, seed {run['seed']}", str(run["priority"]), _start_of(run),
        )  # fmt: skip
    out().print(rows, soft_wrap=False)
    typer.echo(f"{page['num_queued']} runs wait, {len(page['running'])} are at work on {page['slots']} slots")


def _start_of(run: Json) -> str:
    if run["queue_note"]:
        return f"{run['queue_note']}"
    if run["expected_start_at"] is None:
        return "not known yet"
    return f"{datetime.fromisoformat(run['expected_start_at']).astimezone():%Y-%m-%d %H:%M}"


@workers.command("list")
def list_workers(as_json: AsJson = False) -> None:
    """List workers with their devices and what they do."""
    with connect(Settings()) as client:
        page: Json = client.get("/api/v1/workers")
    if as_json:
        typer.echo(json.dumps(page, indent=2, ensure_ascii=False))
        return
    if not page["items"]:
        typer.echo("no worker yet: start one with 'ampboard worker'")
        return
    rows = table("name", "state", "devices", "labels", "busy", "problem")
    for worker in page["items"]:
        devices = ", ".join(f"{device.get('device', device.get('kind'))}" for device in worker["devices"])
        busy = f"{len(worker['runs'])}/{worker['slots']}"
        labels = ", ".join(worker["labels"]) or "–"
        rows.add_row(worker["name"], worker["state"], devices, labels, busy, worker["problem"] or "–")
    out().print(rows, soft_wrap=False)


@workers.command("drain")
def drain(name: Name) -> None:
    """Let a worker finish what it runs and take no more, also after a restart."""
    with connect(Settings()) as client:
        worker = client.post(f"/api/v1/workers/{_id_of(client, name)}/drain")
    typer.echo(f"{name} is draining: {len(worker['runs'])} runs are left there; 'ampboard workers undrain' ends it")


@workers.command("undrain")
def undrain(name: Name) -> None:
    """Let a drained worker take runs again."""
    with connect(Settings()) as client:
        client.post(f"/api/v1/workers/{_id_of(client, name)}/undrain")
    typer.echo(f"{name} takes runs again")


def _id_of(client: Client, name: str) -> int:
    found = {worker["name"]: int(worker["id"]) for worker in client.get("/api/v1/workers")["items"]}
    if name not in found:
        raise CommandError(f"no worker is called {name!r}: known are {', '.join(sorted(found)) or 'none'}")
    return found[name]
