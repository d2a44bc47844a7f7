"""Which address and interface of this host lead to another one. Standard library only."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys

_ADDRESS_OF = 0x8915  # SIOCGIFADDR, Linux


def address_towards(endpoint: str) -> str:
    """This host's address on the way to ``host:port``; nothing is sent. Raises `OSError` if none leads there."""
    host, _, port = endpoint.rpartition(":")
    family, kind, _, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str | None:
    """The name of the interface with this IPv4 address; None where it cannot be told."""
    if not sys.platform.startswith("linux"):
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asked, _ADDRESS_OF, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None
