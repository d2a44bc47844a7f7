"""Commands that start processes: ``up``, ``server``, ``worker``."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from server.cli.errors import CommandError
from server.cli.terminal import err, out
from server.settings import Settings

if TYPE_CHECKING:
    from server.cli.up import Installation

Host = Annotated[str | None, typer.Option(help="Address to listen on (AMPBOARD_HOST); not loopback needs accounts.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port (AMPBOARD_PORT, 8420); 0 takes a free one.")]
DataDir = Annotated[Path | None, typer.Option(help="Data folder (AMPBOARD_DATA_DIR, ~/.ampboard).")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address, open nothing.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(up)
    app.command()(server)
    app.command()(worker)


def settings_with(host: str | None, port: int | None, data_dir: Path | None) -> Settings:
    """The settings of the environment, with what was given on the command line in front."""
    given: dict[str, Any] = {"host": host, "port": port, "data_dir": data_dir}
    return Settings(**{key: value for key, value in given.items() if value is not None})


def up(host: Host = None, port: Port = None, data_dir: DataDir = None, no_browser: NoBrowser = False) -> None:
    """Start server, worker and embedded broker here, open the browser, and keep them running until Ctrl-C."""
    from server.cli.up import running

    settings = settings_with(host, port, data_dir)
    err().print("Starting ampboard …")
    with running(settings, tell) as installation, contextlib.suppress(KeyboardInterrupt):
        greet(settings, installation, open_browser=not no_browser)
        wait_for_interrupt()


def tell(line: str) -> None:
    """A line about the running processes; it is not part of any command's result."""
    err().print(line, markup=False, soft_wrap=True)


def greet(settings: Settings, installation: Installation, *, open_browser: bool) -> None:
    """Say where the server is and how to get in; open a browser where there is one."""
    from server.cli.up import display_folder

    console = out()
    console.print(f"\n  ampboard runs at  [bold]{installation.url}[/]", soft_wrap=True)
    console.print(
        f"  sign in once with {installation.sign_in_url}\n  (the link works once, for 15 minutes; "
        "'ampboard user link' makes another)",
        soft_wrap=True,
        markup=False,
    )
    console.print(f"  data and logs in  {display_folder(settings.data_dir)}    stop with Ctrl-C\n", markup=False)
    if open_browser and _has_display():
        import webbrowser

        webbrowser.open(installation.sign_in_url)


def _has_display() -> bool:
    if sys.platform == "darwin":
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def wait_for_interrupt() -> None:
    """Wait until Ctrl-C, SIGTERM or SIGHUP raises KeyboardInterrupt."""
    import threading

    threading.Event().wait()


def server(host: Host = None, port: Port = None, data_dir: DataDir = None) -> None:
    """Start the server alone: pages and REST. Workers run elsewhere, joined by database and broker."""
    from server.app import serve
    from server.errors import ConfigurationError

    try:
        settings = settings_with(host, port, data_dir)
        # In a JSON log every line is an object; that it listens is one of them.
        is_told = settings.log_format != "json" or sys.stderr.isatty()
        serve(settings, on_listening=(lambda url: tell(f"ampboard serves at {url}")) if is_told else None)
    except ConfigurationError as error:
        raise CommandError(str(error)) from error


def worker(
    data_dir: DataDir = None,
    allow_root: Annotated[
        bool, typer.Option("--allow-root", help="Run as root on a team's store (AMPBOARD_ALLOW_ROOT).")
    ] = False,
) -> None:
    """Start a worker alone: it claims queued runs and executes them on this machine's devices."""
    environment = dict(os.environ)
    if allow_root:
        environment["AMPBOARD_ALLOW_ROOT"] = "true"
    if data_dir is not None:
        environment["AMPBOARD_DATA_DIR"] = str(data_dir.absolute())
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "worker"], environment)  # noqa: S606 - the server never imports the worker
