"""``ampboard demo``: everything on this machine, and one experiment that fails silently without loss scaling."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from server.cli.follow import follow_to_verdict
from server.cli.processes import DataDir, Host, NoBrowser, Port, greet, settings_with, tell, wait_for_interrupt
from server.cli.terminal import out
from server.client import Client, Json

WORKLOAD = "photo-denoiser"
SUBMISSION: Json = {
    "name": "Demo: which precision is safe for this denoiser?",
    "workload": WORKLOAD,
    "recipes": ["32-true", "bf16-mixed", "16-mixed", {"precision": "16-mixed", "scaler": "none"}],
    "seeds": 5,
    "control": True,
    "measure_gain": True,
    "tags": ["demo"],
}
CONSTRUCTED = (
    "The demo's workload is constructed: its loss is small on purpose, so that fp16 without loss scaling loses its "
    "gradients. Ask the same of a workload of your own: docs/workloads.md."
)


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command()(demo)


def demo(
    host: Host = None,
    port: Port = None,
    data_dir: DataDir = None,
    no_browser: NoBrowser = False,
    leave: Annotated[
        bool,
        typer.Option("--exit", help="Stop when done; the exit status is 0 when every run completed and was judged."),
    ] = False,
    steps: Annotated[int | None, typer.Option(min=1, help="Another number of steps than the demo's 150.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Another number of seeds than the demo's 5.")] = None,
) -> None:
    """Start everything, train a small denoiser in four precisions, and print which of them are as good as fp32."""
    from server.cli.up import running

    settings = settings_with(host, port, data_dir)
    tell("Starting ampboard …")
    with running(settings, tell) as installation:
        greet(settings, installation, open_browser=not (no_browser or leave))
        with installation.client() as client:
            judged = run_demo(client, SUBMISSION | _changes(steps, seeds))
        if not leave:
            with contextlib.suppress(KeyboardInterrupt):
                out().print("\n  ampboard keeps serving; stop with Ctrl-C\n")
                wait_for_interrupt()
    if leave and not judged:
        raise typer.Exit(1)


def _changes(steps: int | None, seeds: int | None) -> Json:
    return {key: value for key, value in (("steps", steps), ("seeds", seeds)) if value is not None}


def run_demo(client: Client, submission: Json) -> bool:
    """Submit, follow, print. Whether every run completed and every recipe got its verdict."""
    experiment = client.post("/api/v1/experiments", submission)
    url = f"{client.url}/experiments/{experiment['id']}"
    out().print(
        f"  experiment {experiment['id']}, {experiment['progress']['total']} runs: watch it live at {url}\n",
        soft_wrap=True,
    )
    comparison = follow_to_verdict(client, experiment["id"])
    out().print(f"  note: {CONSTRUCTED}", style="dim", soft_wrap=True)
    progress = client.get(f"/api/v1/experiments/{experiment['id']}")["progress"]
    return progress["completed"] == progress["total"] and all(recipe["verdict"] for recipe in comparison["recipes"])
