"""Where the command line writes: rich output on a terminal, plain unbroken lines elsewhere."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

PLAIN_WIDTH = 200


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH, color_system=None, soft_wrap=True)
    return console


def out() -> Console:
    """Standard output, looked up anew so that a redirected stream is honoured."""
    return _console(stderr=False)


def err() -> Console:
    """Standard error, for messages that are not the command's result."""
    return _console(stderr=True)


def table(*headings: str, title: str | None = None) -> Table:
    """An empty table in the one style of the command line."""
    made = Table(box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for heading in headings:
        made.add_column(heading, overflow="fold")
    return made
