"""``submit`` and ``cancel``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from server.cli.checkpoints import fork_of, kept_of
from server.cli.follow import follow_to_verdict
from server.cli.terminal import out
from server.cli.verdict_code import ExitCode, verdict_code
from server.client import Json, connect
from server.experiments.sweep_text import sweep_of
from server.settings import Settings

Workload = Annotated[str, typer.Argument(help="Name of the workload; 'ampboard workloads' lists them.")]
Recipes = Annotated[
    list[str] | None,
    typer.Option(
        "--recipe",
        "-r",
        help="A precision (fp32, bf16, fp16), one with its scaler (fp16:none, fp16:static), or a JSON object. "
        "Repeat it. Without one, the workload's own are taken.",
    ),
]
Params = Annotated[
    list[str] | None, typer.Option("--param", "-p", help="NAME=VALUE of a parameter of the workload; repeat it.")
]
Seeds = Annotated[str | None, typer.Option(help="How many (5), or which ones (0,1,2).")]
Steps = Annotated[int | None, typer.Option(min=1, help="Optimizer steps of each run.")]
Name = Annotated[str | None, typer.Option(help="Name of the experiment.")]
Baseline = Annotated[str | None, typer.Option(help="Name of the recipe to compare with; else the first fp32.")]
Margin = Annotated[float | None, typer.Option(help="Largest harm to the primary metric that still counts as good.")]
Control = Annotated[bool | None, typer.Option(help="Also run the A/A control.")]
Gain = Annotated[bool | None, typer.Option(help="Also measure speed and memory.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or auto.")]
Fork = Annotated[str | None, typer.Option(help="Begin at a kept checkpoint: RUN@STEP, or RUN for its last one.")]
Horizon = Annotated[int | None, typer.Option(min=1, help="Steps after the checkpoint of --fork.")]
Keep = Annotated[
    str | None,
    typer.Option(help="Checkpoints of the baseline's runs that stay, for forks: last, or steps such as 100,200."),
]
Ranks = Annotated[int | None, typer.Option(min=1, help="Processes of each host that train a run together.")]
Hosts = Annotated[int | None, typer.Option(min=1, help="Hosts over which each training run goes.")]
Strategy = Annotated[str | None, typer.Option(help="How ranks hold the model: ddp or fsdp.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A tag to find it by; repeat it.")]
Sweep = Annotated[
    list[str] | None,
    typer.Option(help="NAME=VALUE,VALUE or NAME=MIN..MAX[:log]: an experiment for each set of values; repeat it."),
]
Draws = Annotated[int | None, typer.Option(min=1, help="Draw so many sets at random instead of taking all.")]
Wait = Annotated[bool, typer.Option("--wait", help="Follow it and print the verdicts.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(submit)
    app.command()(cancel)


def submit(
    workload: Workload,
    recipe: Recipes = None,
    param: Params = None,
    seeds: Seeds = None,
    steps: Steps = None,
    name: Name = None,
    baseline: Baseline = None,
    margin: Margin = None,
    control: Control = None,
    gain: Gain = None,
    device: Device = None,
    ranks: Ranks = None,
    hosts: Hosts = None,
    strategy: Strategy = None,
    fork: Fork = None,
    horizon: Horizon = None,
    keep_checkpoints: Keep = None,
    tag: Tags = None,
    sweep: Sweep = None,
    draws: Draws = None,
    wait: Wait = False,
    exit_code: ExitCode = False,
) -> None:
    """Submit an experiment: one workload under several recipes and seeds, compared with a baseline.

    Example: ampboard submit digits-cnn -r fp32 -r bf16 -r fp16 --seeds 5 -p width=32 --wait
    """
    if exit_code and not wait:
        raise typer.BadParameter("--exit-code needs the verdict: add --wait")
    body: Json = {
        "name": name,
        "workload": workload,
        "recipes": [recipe_of(text) for text in recipe] if recipe else None,
        "params": dict(parameter_of(text) for text in param) if param else None,
        "seeds": seeds_of(seeds) if seeds is not None else None,
        "primary": {"margin": margin} if margin is not None else None,
        "tags": tag or None,
    } | {"steps": steps, "baseline": baseline, "control": control, "measure_gain": gain, "device": device}
    body |= {"ranks": ranks, "hosts": hosts, "strategy": strategy, "fork": fork_of(fork, horizon)}
    body |= {"keep_checkpoints": kept_of(keep_checkpoints)}
    if sweep:
        if wait:
            raise typer.BadParameter("--wait follows one experiment: leave it out with --sweep")
        try:
            swept = sweep_of(sweep, draws)
        except ValueError as error:
            raise typer.BadParameter(f"--sweep {error}") from error
        _submit_sweep({**body, "sweep": swept})
        return
    with connect(Settings()) as client:
        made: Json = client.submit(**{k: v for k, v in body.items() if v is not None})
        url = f"{client.url}/experiments/{made['id']}"
        if not wait:
            out().print(f"experiment {made['id']}: {made['progress']['total']} runs queued   {url}", soft_wrap=True)
            return
        comparison = follow_to_verdict(client, made["id"])
    if exit_code:
        raise typer.Exit(verdict_code(comparison))


def _submit_sweep(body: Json) -> None:
    with connect(Settings()) as client:
        made: Json = client.post("/api/v1/sweeps", {k: v for k, v in body.items() if v is not None})
        url = f"{client.url}/experiments?q=tag:{made['tag']}"
    for experiment in made["experiments"]:
        typer.echo(f"experiment {experiment['id']}: {experiment['name']}")
    out().print(f"{len(made['experiments'])} experiments, {made['num_runs']} runs queued   {url}", soft_wrap=True)


def recipe_of(text: str) -> str | Json:
    """``bf16`` stays a name; ``fp16:none`` names its scaler; ``{…}`` is a recipe in full."""
    if text.lstrip().startswith("{"):
        try:
            recipe: Json = json.loads(text)
        except ValueError as error:
            raise typer.BadParameter(f"--recipe {text!r} is not JSON ({error}): mend it") from error
        return recipe
    precision, colon, scaler = text.partition(":")
    return {"precision": precision, "scaler": scaler} if colon else precision


def parameter_of(text: str) -> tuple[str, Any]:
    """``width=64`` with the value read as JSON where it is JSON, else as text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--param {text!r} must have the form NAME=VALUE, such as width=64")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def seeds_of(text: str) -> int | list[int]:
    """``5`` is a number of seeds, ``0,1,2`` a list of them; a list of one ends with a comma."""
    try:
        if "," in text:
            return [int(part) for part in text.split(",") if part.strip()]
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"--seeds {text!r} must be a number such as 5 or a list such as 0,1,2") from error


def cancel(
    experiment: Annotated[int | None, typer.Argument(help="Number of the experiment.")] = None,
    run: Annotated[int | None, typer.Option(help="Cancel only this run.")] = None,
) -> None:
    """Cancel an experiment, or one run: queued runs never start, running ones are stopped."""
    if (experiment is None) == (run is None):
        raise typer.BadParameter("give either the number of an experiment or --run with the number of a run")
    with connect(Settings()) as client:
        if run is not None:
            client.post(f"/api/v1/runs/{run}/cancel")
            typer.echo(f"run {run}: cancel requested")
        else:
            client.post(f"/api/v1/experiments/{experiment}/cancel")
            typer.echo(f"experiment {experiment}: cancel requested")
