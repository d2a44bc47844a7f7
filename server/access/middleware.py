"""Checks that come before any route: headers, host, origin, body size. Pure ASGI, so that streams stay streams."""

from __future__ import annotations

import logging
import time
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.access.cookies import SESSION_COOKIE
from server.access.proxy import proxy_user
from server.access.public import is_static
from server.errors import Forbidden, RequestError, TooLarge, internal_error, respond_to
from server.settings import LOOPBACK, Settings

access_log = logging.getLogger("ampboard.access")

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

# Plotly sets styles on elements (style-src-attr); its stylesheet finds a same-origin <link> to write into.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "style-src-attr 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # no-referrer would turn the Origin of our own forms into "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class HeadersAndLog:
    """Adds the security headers to every response and writes one access line, never with the query string.

    It also answers exceptions that nobody foresaw, so that their responses carry the headers, too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if not is_static(scope["method"], scope["path"]):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception:
            access_log.exception("%s %s failed", scope["method"], _printable(scope["path"]))
            if status:
                raise  # too late for another answer: the connection is closed
            await internal_error(Request(scope))(scope, receive, send_with_headers)
        finally:
            elapsed_ms = (time.perf_counter() - began) * 1000
            level = logging.DEBUG if is_static(scope["method"], scope["path"]) else logging.INFO
            access_log.log(level, "%s %s %d %.1f ms", scope["method"], _printable(scope["path"]), status, elapsed_ms)


def _printable(path: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in path[:300])


def host_name(host: str) -> str:
    """The name in a Host header without its port; IPv6 addresses lose their brackets. Empty when it is malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


class HostCheck:
    """Refuses names that are not ours, so that a rebound DNS name cannot speak to a server on loopback."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        names = {*LOOPBACK, *settings.allowed_hosts}
        if settings.host not in ("0.0.0.0", "::", ""):  # noqa: S104 - compared with, not bound to
            names.add(settings.host)
        self.names = {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = Headers(scope=scope).getlist("host")
            if len(given) != 1 or host_name(given[0]) not in self.names:
                await respond_to(Request(scope), _unknown_host(given))(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _unknown_host(given: list[str]) -> RequestError:
    error = RequestError(
        f"Host {', '.join(given)[:120]!r} is not a name of this server: open it under 127.0.0.1 or localhost, or add "
        "the name to AMPBOARD_ALLOWED_HOSTS"
    )
    error.status, error.code, error.title = 421, "unknown-host", "Unknown host name"
    return error


class OriginCheck:
    """Refuses state-changing requests that another site makes a browser send.

    A request with an API token is exempt: no foreign page knows it. Any other unsafe request must come from our own
    pages by ``Sec-Fetch-Site`` or ``Origin``; one with a session, or a proxy's word, and neither header is refused too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS:
            request = Request(scope)
            refusal = self._refusal(request)
            if refusal is not None:
                await respond_to(request, Forbidden(refusal))(scope, receive, send)
                return
        await self.app(scope, receive, send)

    @staticmethod
    def _refusal(request: Request) -> str | None:
        if "authorization" in request.headers:
            return None
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if site is not None and site != "same-origin":
            return f"Sec-Fetch-Site {site[:40]!r}: only this server's own pages may change something with a session"
        if origin is not None and urlsplit(origin).netloc != request.headers["host"]:
            return f"Origin {origin[:120]!r} is another site: only this server's own pages may do this"
        by_browser = SESSION_COOKIE in request.cookies or proxy_user(request.scope)
        if site is None and origin is None and by_browser:
            return "a session without an Origin header is refused: scripts use Authorization: Bearer and a token"
        return None


class BodyLimit:
    """Refuses bodies above ``limit`` bytes, declared or streamed, before they are held in memory."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdigit() and int(declared) > self.limit:
            await respond_to(Request(scope), self._error(int(declared)))(scope, receive, send)
            return
        received = 0

        async def limited_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.limit:
                # FastAPI turns any other exception while it reads a body into a plain 400.
                raise HTTPException(413, detail=str(self._error(received)))
            return message

        await self.app(scope, limited_receive, send)

    def _error(self, num_bytes: int) -> TooLarge:
        return TooLarge(
            f"the body has {num_bytes} bytes or more; at most {self.limit} are accepted: send less, "
            "or raise AMPBOARD_MAX_BODY_BYTES"
        )
