"""Finds out who asks, before any route: the session cookie or the API token, looked up anew for each request.

Nothing is cached: a disabled user, a revoked token and a closed session are out at once.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.access.cookies import SESSION_COOKIE
from server.access.principal import Principal
from server.access.proxy import proxy_user
from server.access.public import is_public, is_static
from server.accounts import credentials
from server.db.errors import StoreUnavailable
from server.errors import RequestError, Unauthenticated, Unavailable, respond_to

if TYPE_CHECKING:
    from server.db.engine import Database

logger = logging.getLogger(__name__)


RECHECK_S = 5.0


class SignedOut(Exception):
    """Whoever follows an open stream may not any more."""


class Authentication:
    """Puts the `Principal` into ``request.state.principal`` and refuses strangers everywhere but on public paths.

    A response that goes on is checked again every ``recheck_s``: an open stream ends when its reader is disabled.
    """

    def __init__(self, app: ASGIApp, database: Database, recheck_s: float = RECHECK_S) -> None:
        self.app = app
        self.database = database
        self.recheck_s = recheck_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        scope.setdefault("state", {})["principal"] = None
        if not is_static(scope["method"], scope["path"]):
            try:
                scope["state"]["principal"] = await self._identify(request)
            except RequestError as error:
                await respond_to(request, error)(scope, receive, send)
                return
        if scope["state"]["principal"] is not None:
            send = self._while_signed_in(request, send)
        with suppress(SignedOut):
            await self.app(scope, receive, send)

    def _while_signed_in(self, request: Request, send: Send) -> Send:
        checked_at = time.monotonic()

        async def send_while_signed_in(message: Message) -> None:
            nonlocal checked_at
            if message.get("more_body") and time.monotonic() - checked_at > self.recheck_s:
                checked_at = time.monotonic()
                if not await self._still(request):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    raise SignedOut
            await send(message)

        return send_while_signed_in

    async def _still(self, request: Request) -> bool:
        try:
            return await self._look_up(request) is not None
        except Unauthenticated:
            return False
        except StoreUnavailable:  # nobody can be identified now; the stream itself waits for the store
            return True

    async def _identify(self, request: Request) -> Principal | None:
        public = is_public(request.method, request.scope["path"])  # not url.path, which ends at an encoded ?
        principal = None
        try:
            principal = await self._look_up(request)
        except Unauthenticated:
            if not public:
                raise
        except StoreUnavailable as error:
            logger.error("nobody can be identified: %s", error)
            if not public:
                raise Unavailable(str(error)) from error
        if principal is None and not public:
            raise Unauthenticated(
                "this needs an account: sign in, or send Authorization: Bearer with an API token "
                "(`ampboard token create` makes one)"
            )
        return principal

    async def _look_up(self, request: Request) -> Principal | None:
        """The caller by token, proxy or cookie; None without any. Raises `Unauthenticated` for a bad token or name."""
        authorization = request.headers.get("authorization")
        if authorization is not None:
            scheme, _, secret = authorization.partition(" ")
            if scheme.lower() != "bearer" or not secret.strip():
                raise Unauthenticated(f"Authorization scheme {scheme[:20]!r} is not accepted: send Bearer and a token")
            principal = await run_in_threadpool(credentials.principal_of_token, self.database, secret.strip())
            if principal is None:
                raise Unauthenticated("the API token is unknown, revoked, or its owner is disabled: create a new one")
            return principal
        name = proxy_user(request.scope)
        if name:
            principal = await run_in_threadpool(credentials.principal_of_name, self.database, name)
            if principal is None:
                raise Unauthenticated(
                    f"{name[:80]!r} is signed in at the proxy and has no account here, or a disabled one: an admin "
                    "makes it with `ampboard user create`"
                )
            return principal
        secret = request.cookies.get(SESSION_COOKIE, "")
        if not secret:
            return None
        return await run_in_threadpool(credentials.principal_of_session, self.database, secret)
