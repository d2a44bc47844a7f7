"""Who asks by word of a proxy in front that signs people in: taken from its addresses only, and from nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from server.errors import Unauthenticated, respond_to


class TrustedProxy:
    """Notes the name in ``header`` as ``request.state.proxy_user``, and the scheme that the proxy was asked by.

    Only a connection from one of ``networks`` may carry that header, once; any other request with it is refused, so
    that nobody can name themselves, and a proxy that the settings forgot is noticed at once.
    """

    def __init__(self, app: ASGIApp, networks: Iterable[str], header: str) -> None:
        self.app = app
        self.networks = [ip_network(text, strict=False) for text in networks]
        self.header = header

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            given = headers.getlist(self.header)
            is_trusted = self._is_trusted(scope)
            if given and (not is_trusted or len(given) > 1):
                request = Request(scope)
                await respond_to(request, self._refusal(is_trusted))(scope, receive, send)
                return
            if is_trusted:
                scope.setdefault("state", {})["proxy_user"] = given[0].strip() if given else ""
                if headers.get("x-forwarded-proto") in ("http", "https"):
                    scope["scheme"] = headers["x-forwarded-proto"]
        await self.app(scope, receive, send)

    def _is_trusted(self, scope: Scope) -> bool:
        try:
            address = ip_address((scope.get("client") or ("",))[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self.networks)

    def _refusal(self, is_trusted: bool) -> Unauthenticated:
        if is_trusted:
            return Unauthenticated(f"more than one {self.header} header: the proxy must replace what browsers send")
        return Unauthenticated(
            f"{self.header} is taken from the proxy only, and this connection is not from AMPBOARD_TRUSTED_PROXY: sign "
            "in by that proxy, or send no such header"
        )


def proxy_user(scope: Scope) -> str:
    """The name that a trusted proxy gave for this request; empty without one."""
    name: str = scope.get("state", {}).get("proxy_user", "")
    return name
