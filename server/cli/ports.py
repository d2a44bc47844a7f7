"""Is a port free, and if not, which one is."""

from __future__ import annotations

import errno
import socket

from server.cli.errors import CommandError


def claim_port(host: str, port: int) -> int:
    """The port to listen on: ``port`` itself when it is free, a free one when it is 0.

    Raises:
        CommandError: the port is taken, or the address is not this machine's.
    """
    try:
        return _bind(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            free = _bind(host, 0)
            raise CommandError(
                f"port {port} on {host} is taken by another program: each server needs a port of its own; "
                f"stop the other one, or use a free one such as --port {free} (or AMPBOARD_PORT={free})"
            ) from error
        if error.errno == errno.EACCES:
            raise CommandError(f"port {port}: this user may not listen below 1024; use --port 8420") from error
        raise CommandError(
            f"host {host!r} is no address of this machine ({error.strerror or error}): use 127.0.0.1"
        ) from error


def _bind(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As uvicorn binds: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        return int(probe.getsockname()[1])
