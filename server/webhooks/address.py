"""Where a webhook may lead: public addresses only, so that nobody reaches the inside of the network through the server.

A name is resolved once, each address it has is checked, and the connection goes to a checked address, not to the name:
a name that answers differently the second time (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
TIMEOUT_S = 10.0  # of one wait
DEADLINE_S = 20.0  # of the whole request: an answer that drips keeps no other delivery waiting
MAX_URL_CHARS = 500
_INSIDE = tuple(  # what some version of Python takes for public: ways to IPv4 addresses, and addresses of a cloud's own
    ip_network(text)
    for text in (
        "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32",
        "64:ff9b::/96", "64:ff9b:1::/48", "2001::/23", "2002::/16", "3fff::/20", "fec0::/10",
    )
)  # fmt: skip


class AddressRefused(ValueError):
    """A webhook's address that is no address, or that leads where it may not; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A checked URL. ``path`` begins with a slash and has its query."""

    scheme: str
    host: str
    port: int
    path: str


def parse_target(url: str) -> Target:
    """Raises `AddressRefused` for what is no plain http or https URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressRefused(f"url={url[:80]!r} cannot be read ({error}): write https://host/path") from None
    if len(url) > MAX_URL_CHARS or any(character <= " " or character > "~" for character in url):
        raise AddressRefused(f"url={url[:80]!r} must be at most {MAX_URL_CHARS} printable ASCII characters")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AddressRefused(f"url={url[:80]!r} must begin with https:// (or http://) and a host")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("a webhook's url holds no user and password: what is sent is signed instead")
    try:
        parts.hostname.encode("idna")  # as a look-up encodes it
    except UnicodeError:
        raise AddressRefused(f"url={url[:80]!r} has no possible host name: write https://host/path") from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme=parts.scheme, host=parts.hostname, port=port or (443 if parts.scheme == "https" else 80),
                  path=path)  # fmt: skip


def networks(texts: Sequence[str]) -> list[Network]:
    """The networks of `Settings.webhook_networks`. Raises `ValueError`."""
    return [ip_network(text, strict=False) for text in texts]


def check_address(address: Address, allowed: Sequence[Network]) -> None:
    """Raises `AddressRefused` for an address that is not public and not in an allowed network."""
    plain = address.ipv4_mapped if isinstance(address, IPv6Address) and address.ipv4_mapped else address
    if _is_in(plain, allowed):
        return
    if not plain.is_global or plain.is_multicast or plain.is_reserved or _is_in(plain, _INSIDE):
        raise AddressRefused(
            f"{plain} is not a public address, and webhooks may reach only those: name another url, or have it "
            "allowed by AMPBOARD_WEBHOOK_NETWORKS"
        )


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def resolve(target: Target, allowed: Sequence[Network]) -> str:
    """An address of the target, after every one it has was checked. Raises `AddressRefused`, `OSError`."""
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
    for address in addresses:
        check_address(ip_address(address), allowed)
    return addresses[0]


class _Pinned(http.client.HTTPConnection):
    """A connection to one address, whatever its host's name leads to by now; TLS is checked against the name."""

    def __init__(self, target: Target, address: str) -> None:
        super().__init__(target.host, target.port, timeout=TIMEOUT_S)
        self._target, self._address = target, address

    def connect(self) -> None:
        connected = socket.create_connection((self._address, self._target.port), timeout=TIMEOUT_S)
        if self._target.scheme == "https":
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(connected, server_hostname=self._target.host, do_handshake_on_connect=False)
            self.sock.do_handshake()  # within reach of `give_up`
        else:
            self.sock = connected

    def give_up(self) -> None:
        """End every wait of the connection, from another thread."""
        if self.sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


def post(target: Target, address: str, body: bytes, headers: dict[str, str], deadline_s: float = DEADLINE_S) -> int:
    """Send a request to the checked address and return the status. No redirect is followed, no proxy used.

    Raises `OSError` and `http.client.HTTPException`; so it does when the answer takes longer than ``deadline_s``.
    """
    connection = _Pinned(target, address)
    deadline = threading.Timer(deadline_s, connection.give_up)
    deadline.daemon = True
    deadline.start()
    try:
        connection.request("POST", target.path, body=body, headers={**headers, "Connection": "close"})
        return connection.getresponse().status
    finally:
        deadline.cancel()
        connection.close()
