"""``ampboard webhook``: other services are told of verdicts, failed runs and lost workers."""

from __future__ import annotations

from typing import Annotated

import typer

from server.cli.terminal import out, table
from server.client import Json, connect
from server.settings import Settings

app = typer.Typer(no_args_is_help=True)
Number = Annotated[int, typer.Argument(help="Its number, as 'ampboard webhook list' shows.")]


@app.command("add")
def add(
    url: Annotated[str, typer.Argument(help="Where to send; private addresses are refused.")],
    event: Annotated[
        list[str] | None, typer.Option(help="experiment.judged, run.failed or worker.lost; repeat it. All by default.")
    ] = None,
    team: Annotated[bool, typer.Option("--team", help="Of everybody's experiments; for admins.")] = False,
) -> None:
    """Have an address told, and print the secret that signs what is sent; it cannot be shown again."""
    events = event or ["experiment.judged", "run.failed", *(["worker.lost"] if team else [])]
    with connect(Settings()) as client:
        made: Json = client.post("/api/v1/webhooks", {"url": url, "events": events, "team": team})
    typer.echo(f"webhook {made['id']} is told of {', '.join(made['events'])}; its secret is {made['secret']}")


@app.command("list")
def list_webhooks() -> None:
    """List your webhooks; as an admin everybody's."""
    with connect(Settings()) as client:
        page: Json = client.get("/api/v1/webhooks")
    if not page["items"]:
        typer.echo("no webhook yet: 'ampboard webhook add URL' makes one")
        return
    rows = table("number", "owner", "url", "events", "whose runs")
    for item in page["items"]:
        rows.add_row(str(item["id"]), item["owner"], item["url"], ", ".join(item["events"]),
                     "the team's" if item["team"] else "its owner's")  # fmt: skip
    out().print(rows, soft_wrap=False)


@app.command("ping")
def ping(number: Number) -> None:
    """Send it a greeting; 'ampboard webhook deliveries' says whether it arrived."""
    with connect(Settings()) as client:
        client.post(f"/api/v1/webhooks/{number}/ping")
    typer.echo(f"webhook {number}: a greeting is on its way")


@app.command("deliveries")
def deliveries(number: Number) -> None:
    """Show what a webhook was told lately, and what it answered."""
    with connect(Settings()) as client:
        page: Json = client.get(f"/api/v1/webhooks/{number}/deliveries")
    rows = table("event", "at", "tries", "outcome")
    for item in page["items"]:
        waits = "tried again later" if item["due_at"] else "given up"
        outcome = f"delivered ({item['status']})" if item["delivered_at"] else f"{item['error'] or 'due'}; {waits}"
        rows.add_row(item["event"], item["created_at"][:19], str(item["tries"]), outcome)
    out().print(rows, soft_wrap=False)


@app.command("remove")
def remove(number: Number) -> None:
    """Delete a webhook."""
    with connect(Settings()) as client:
        client.delete(f"/api/v1/webhooks/{number}")
    typer.echo(f"removed webhook {number}")
