"""Following an experiment until its verdict: ``watch``, and what ``demo`` and ``submit --wait`` share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from server.cli.errors import CommandError
from server.cli.terminal import err
from server.cli.verdict_code import ExitCode, verdict_code
from server.client import Client, Json, connect
from server.settings import Settings

POLL_S = 1.0
PLAIN_EVERY_S = 10.0
JUDGE_S = 60.0
FINAL = frozenset({"completed", "failed", "cancelled"})


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command()(watch)


def watch(
    experiment: Annotated[int, typer.Argument(help="Number of the experiment.")],
    exit_code: ExitCode = False,
) -> None:
    """Follow an experiment until all its runs have ended, then print its verdicts."""
    with connect(Settings()) as client:
        comparison = follow_to_verdict(client, experiment)
    if exit_code:
        raise typer.Exit(verdict_code(comparison))


def follow_to_verdict(client: Client, experiment_id: int) -> Json:
    """Follow an experiment, print its verdicts, and return the comparison."""
    from server.cli.verdict_table import print_comparison

    comparison = follow(client, experiment_id)
    print_comparison(comparison, f"{client.url}/experiments/{experiment_id}")
    return comparison


def follow(client: Client, experiment_id: int) -> Json:
    """Show progress on standard error until every run has ended, and return the judged comparison.

    Raises:
        CommandError: the experiment was cancelled, or the server did not judge it in time.
    """
    console = err()
    show = _follow_live if console.is_terminal else _follow_plain
    experiment = show(lambda: client.get(f"/api/v1/experiments/{experiment_id}"))
    if experiment["state"] == "cancelled":
        raise CommandError(f"experiment {experiment_id} was cancelled: there is no verdict; submit it anew")
    return await_judgement(client, experiment_id)


def await_judgement(client: Client, experiment_id: int) -> Json:
    """The comparison, once the server has judged it. Raises `CommandError` after a minute."""
    deadline = time.monotonic() + JUDGE_S
    while True:
        comparison: Json = client.get(f"/api/v1/experiments/{experiment_id}/comparison")
        if comparison["state"] == "judged":
            return comparison
        if time.monotonic() > deadline:
            raise CommandError(
                f"experiment {experiment_id} has ended but was not judged within {JUDGE_S:g} s: "
                "look into the server's log"
            )
        time.sleep(POLL_S)


def _follow_live(poll: Callable[[], Json]) -> Json:
    """A progress bar over all runs with the runs at work below it."""
    progress = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        console=err(),
        transient=True,
    )
    with progress:
        task = progress.add_task("runs", total=None, detail="")
        while True:
            experiment = poll()
            ended, total = count(experiment)
            progress.update(task, completed=ended, total=total, detail=" | ".join(map(at_work, running(experiment))))
            if has_ended(experiment):
                return experiment
            time.sleep(POLL_S)


def _follow_plain(poll: Callable[[], Json]) -> Json:
    """One line for each run that ends, and a sign of life now and then."""
    console = err()
    told: set[int] = set()
    quiet_since = time.monotonic()
    while True:
        experiment = poll()
        ended, total = count(experiment)
        fresh = [run for run in experiment["runs"] if run["state"] in FINAL and run["id"] not in told]
        for run in fresh:
            told.add(run["id"])
            console.print(f"[{len(told)}/{total}] {outcome(run)}", markup=False)
        if fresh:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > PLAIN_EVERY_S:
            quiet_since = time.monotonic()
            doing = " | ".join(map(at_work, running(experiment))) or "waiting for a worker"
            console.print(f"[{ended}/{total}] {doing}", markup=False)
        if has_ended(experiment):
            return experiment
        time.sleep(POLL_S)


def count(experiment: Json) -> tuple[int, int]:
    """Ended runs and all runs."""
    progress = experiment["progress"]
    return progress["completed"] + progress["failed"] + progress["cancelled"], progress["total"]


def has_ended(experiment: Json) -> bool:
    return experiment["state"] in {"ended", "cancelled"}


def running(experiment: Json) -> list[Json]:
    return [run for run in experiment["runs"] if run["state"] == "running"]


def title(run: Json) -> str:
    """``bf16-mixed, seed 3`` and the like."""
    if run["role"] == "analysis":
        return f"{run['recipe_name']}, {run['kind']}"
    words = {"control": "A/A control", "benchmark": "speed and memory"}.get(run["role"])
    name = f"{run['recipe_name']}, {words}" if words else str(run["recipe_name"])
    return name if run["role"] == "benchmark" else f"{name}, seed {run['seed']}"


def at_work(run: Json) -> str:
    """One running run: what, how far, and its newest loss."""
    if run["role"] in ("benchmark", "analysis"):
        return f"{title(run)}: measuring"
    text = f"{title(run)}: step {run['step']} of {run['steps']}"
    loss = newest(run, "train/loss")
    return text if loss is None else f"{text}, loss {loss}"


def outcome(run: Json) -> str:
    """One ended run: its last loss, or why it failed."""
    if run["state"] == "completed":
        loss = None if run["role"] in ("benchmark", "analysis") else newest(run, "train/loss")
        return f"{title(run)}: completed" + (f", loss {loss}" if loss is not None else "")
    reason = (run.get("reason") or {}).get("message", "no reason recorded")
    return f"{title(run)}: {run['state']}: {reason}"


def newest(run: Json, series: str) -> str | None:
    """The last value of a series as text, or None while there is none."""
    value: Any = (run.get("metrics") or {}).get(series, {}).get("last")
    if isinstance(value, str):
        return value  # "NaN" and "Infinity" travel as words
    return None if value is None else f"{value:.4g}"
