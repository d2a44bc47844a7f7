"""The command ``ampboard``: joins the groups of commands and turns every expected error into one message."""

from __future__ import annotations

import io
import sys

import typer
from pydantic import ValidationError

from server.cli import (
    accounts,
    analyse,
    check,
    checkpoints,
    compare,
    control,
    database,
    demo,
    diff,
    follow,
    keeping,
    lint,
    listing,
    marking,
    processes,
    submit,
    webhooks,
)
from server.cli.errors import CommandError
from server.cli.terminal import err
from server.client import ClientError
from server.db.errors import StoreError

app = typer.Typer(
    name="ampboard",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run mixed precision experiments, watch them, and read whether the lower precision is as good, faster and "
    "smaller. 'ampboard demo' shows all of it on this machine. Settings: AMPBOARD_* (docs/configuration.md).",
)
GROUPS = (
    processes, demo, submit, control, follow, listing, analyse, compare, diff, keeping, marking, lint, check,
    checkpoints,
)  # fmt: skip
for group in GROUPS:
    group.register(app)
app.add_typer(accounts.user, name="user", help="People: add them, list them, sign them in.")
app.add_typer(accounts.token, name="token", help="API tokens: create, list, revoke.")
app.add_typer(control.workers, name="workers", help="Workers: list them, drain them.")
app.add_typer(webhooks.app, name="webhook", help="Webhooks: tell other services of verdicts and failures.")
app.add_typer(database.app, name="db", help="The database: upgrade its schema, give back space.")

EXPECTED = (CommandError, ClientError, StoreError)


def main() -> None:
    """Run the command line; exit 1 with one message for expected errors, 2 for a wrong command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without × and − shows ?, not a traceback
    try:
        app()
    except EXPECTED as error:
        err().print(f"[bold red]error:[/] {_escaped(str(error))}", soft_wrap=True)
        sys.exit(1)
    except ValidationError as error:
        for line in _settings_errors(error):
            err().print(f"[bold red]error:[/] {_escaped(line)}", soft_wrap=True)
        sys.exit(1)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _settings_errors(error: ValidationError) -> list[str]:
    """Faults of the settings under the names that people set; values of secrets are not repeated."""
    lines = []
    for fault in error.errors(include_url=False):
        field = ".".join(str(part) for part in fault["loc"])
        if not field:
            lines.append(str(fault["msg"]).removeprefix("Value error, "))
            continue
        value = "" if field.endswith("_url") else f"={fault.get('input')!r}"
        lines.append(f"AMPBOARD_{field.upper()}{value}: {fault['msg']}: see docs/configuration.md")
    return lines
