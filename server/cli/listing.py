"""Lists: ``runs`` and ``workloads``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from server.cli.follow import newest, title
from server.cli.terminal import out, table
from server.client import Json, connect
from server.settings import Settings

AsJson = Annotated[bool, typer.Option("--json", help="Print what the REST interface gives.")]

Query = Annotated[str | None, typer.Option("--query", "-q", help="Words that must all hold, see docs/search.md.")]

Archived = Annotated[bool, typer.Option("--archived", help="Show archived ones too.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(runs)
    app.command()(experiments)
    app.command()(workloads)


def runs(
    experiment: Annotated[int | None, typer.Option(help="Only the runs of this experiment.")] = None,
    state: Annotated[str | None, typer.Option(help="queued, running, completed, failed or cancelled.")] = None,
    query: Query = None,
    sort: Annotated[str | None, typer.Option(help="A column or a metric; - before it puts the highest first.")] = None,
    archived: Archived = False,
    limit: Annotated[int, typer.Option(min=1, max=200, help="At most so many.")] = 30,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    with connect(Settings()) as client:
        page = client.get(
            "/api/v1/runs",
            experiment_id=experiment,
            state=state,
            q=query,
            sort=sort,
            limit=limit,
            archived=_shown(archived),
        )
    if as_json:
        typer.echo(json.dumps(page, indent=2, ensure_ascii=False))
        return
    rows = table("run", "experiment", "recipe and seed", "state", "step", "loss", "worker")
    for run in page["items"]:
        rows.add_row(
            str(run["id"]),
            f"{run['experiment_id']} {run['experiment_name']}",
            title(run),
            run["state"],
            "–" if run["kind"] == "benchmark" else f"{run['step']}/{run['steps']}",
            newest(run, "train/loss") or "–",
            run.get("worker") or "–",
        )
    _print(rows, page, "no runs yet: submit an experiment with 'ampboard submit' or start with 'ampboard demo'")


def experiments(
    query: Query = None,
    archived: Archived = False,
    limit: Annotated[int, typer.Option(min=1, max=200, help="At most so many, newest first.")] = 30,
    as_json: AsJson = False,
) -> None:
    """List experiments with their verdicts, newest first."""
    with connect(Settings()) as client:
        page = client.get("/api/v1/experiments", q=query, limit=limit, archived=_shown(archived))
    if as_json:
        typer.echo(json.dumps(page, indent=2, ensure_ascii=False))
        return
    rows = table("experiment", "name", "workload", "state", "runs ended", "verdicts")
    for experiment in page["items"]:
        progress = experiment["progress"]
        ended = progress["completed"] + progress["failed"] + progress["cancelled"]
        verdicts = "; ".join(f"{v['recipe']}: {v['verdict']}" for v in experiment["verdicts"])
        rows.add_row(
            str(experiment["id"]), experiment["name"], experiment["workload"], experiment["state"],
            f"{ended}/{progress['total']}", verdicts or "–",
        )  # fmt: skip
    _print(rows, page, "no experiments yet: submit one with 'ampboard submit', or start with 'ampboard demo'")


def workloads(as_json: AsJson = False) -> None:
    """List the workloads that can be submitted, with their parameters; broken files with their error."""
    with connect(Settings()) as client:
        page = client.get("/api/v1/workloads")
    if as_json:
        typer.echo(json.dumps(page, indent=2, ensure_ascii=False))
        return
    rows = table("workload", "what it trains", "primary metric", "parameters")
    for item in page["items"]:
        if item.get("error"):
            rows.add_row(item["name"], f"broken: {item['error'].strip().splitlines()[-1]}", "–", item["path"])
            continue
        primary = item["primary"]
        better = "higher" if primary["higher_is_better"] else "lower"
        parameters = ", ".join(f"{p['name']}={p['default']}" for p in item["parameters"])
        rows.add_row(item["name"], item["title"], f"{primary['name']} ({better} is better)", parameters or "–")
    _print(rows, page, "no workloads yet: a worker lists them when it starts ('ampboard worker')")


def _shown(archived: bool) -> str | None:
    return "any" if archived else None


def _print(rows: object, page: Json, when_empty: str) -> None:
    if page["items"]:
        out().print(rows, soft_wrap=False)
    else:
        typer.echo(when_empty)
