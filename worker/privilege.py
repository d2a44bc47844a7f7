"""Whether a worker may run as root: what it runs is other people's code, with its rights."""

from __future__ import annotations

import os
from ipaddress import ip_address

from sqlalchemy.engine import make_url

from server.settings import Settings


class RootRefused(RuntimeError):
    """A worker of a team's store would run as root; the message says what to do."""


def check_privilege(settings: Settings, effective_user: int | None = None) -> str | None:
    """What to warn of when this worker runs as root; None when it does not.

    On a store of this very machine (the embedded one, or one on loopback) whoever submits could log in here as well: a
    warning is enough, and a container that knows only root works. A store elsewhere is a team's.

    Raises:
        RootRefused: as root on a store or broker on another host, unless AMPBOARD_ALLOW_ROOT is set.
    """
    user = os.geteuid() if effective_user is None else effective_user
    if user != 0:
        return None
    elsewhere = [
        name
        for name, url in (("database", settings.database_url), ("broker", settings.broker_url))
        if url is not None and not is_local(url.get_secret_value())
    ]
    if elsewhere and not settings.allow_root:
        raise RootRefused(
            f"this worker runs as root, and its {' and '.join(elsewhere)} is on another host: everybody who may submit "
            "there would be root here; start it as a user of its own, or set AMPBOARD_ALLOW_ROOT=true"
        )
    return "this worker runs as root, and so do the runs it starts: give it a user of its own where others may submit"


def is_local(url: str) -> bool:
    """Whether a database or broker URL leads to this machine: a file, a socket, or a loopback address."""
    scheme, _, rest = url.partition("://")
    if scheme.startswith(("sqlite", "redis+socket", "unix")):
        return True
    if scheme.startswith("postgres"):
        parsed = make_url(url)
        host = parsed.host or str(parsed.query.get("host", ""))
    else:
        host = rest.rpartition("@")[2].partition("/")[0]
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if host in ("", "localhost") or host.startswith("/"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
