"""Where other hosts reach this one: the meeting point of a run that begins here."""

from __future__ import annotations

import contextlib
import ipaddress
import socket

from sqlalchemy import make_url

from amp_core.distributed.interface import address_towards
from server.settings import Settings

LOOPBACK = "127.0.0.1"
_PORTS = {"postgresql": 5432, "postgresql+psycopg": 5432, "redis": 6379, "rediss": 6379}


def endpoint(settings: Settings) -> str:
    """``host:port`` with a port that is free now; the host as AMPBOARD_ADVERTISE_ADDRESS says, else `own_address`."""
    address = settings.advertise_address or own_address(settings)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def own_address(settings: Settings) -> str:
    """This host's address on the way to the database or the broker; loopback where both are on this machine."""
    for url in (settings.sqlalchemy_url, settings.celery_broker_url):
        address = _towards(url)
        if address is not None and not ipaddress.ip_address(address).is_loopback:
            return address
    return LOOPBACK


def _towards(url: str) -> str | None:
    """The address that leads to a URL's host; None for a file or a socket of this machine, or if no way leads there."""
    parsed = make_url(url)
    host = parsed.host or parsed.query.get("host")
    if not isinstance(host, str) or not host or host.startswith("/"):
        return None
    with contextlib.suppress(OSError):
        return address_towards(f"{host}:{parsed.port or _PORTS.get(parsed.drivername, 1)}").partition("%")[0]
    return None
