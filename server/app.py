"""The web application: its parts, its checks, its background work, and the process that serves it."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Event
from types import FrameType

import uvicorn
from fastapi import Depends, FastAPI

from server import logs
from server.access.authentication import Authentication
from server.access.dependencies import refuse_undeclared
from server.access.middleware import BodyLimit, HeadersAndLog, HostCheck, OriginCheck
from server.access.proxy import TrustedProxy
from server.accounts.service import has_account
from server.accounts.throttle import Throttle
from server.allocator import share_one_arena
from server.db.engine import Database
from server.db.upgrade import open_database
from server.errors import ConfigurationError, install_handlers
from server.pages.problems import error_page
from server.queue.forecast import order_by
from server.queue.policy import Policy
from server.routers import ROUTERS
from server.settings import LOOPBACK, Settings
from server.sweep import Sweep
from server.version import VERSION
from server.webhooks.delivery import Postman

logger = logging.getLogger(__name__)

GRACEFUL_SHUTDOWN_S = 5


def create_app(settings: Settings, database: Database | None = None) -> FastAPI:
    """The application over ``database``, or over that of ``settings`` (an embedded one is created or upgraded).

    ``app.state`` holds ``database``, ``settings``, ``stop`` (a `threading.Event` that ends open streams), ``throttle``
    (of password guesses) and ``error_page``, which renders problems for browsers. Raises `server.db.errors.StoreError`
    when the database cannot be used.
    """
    database = database or open_database(settings)
    sweep = Sweep(database, settings)
    postman = Postman(database, settings, sweep.stop)
    order_by(database.engine, Policy.of(settings))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        sweep.start()
        postman.start()
        yield
        app.state.stop.set()
        postman.join()
        sweep.join()
        database.dispose()

    app = FastAPI(
        title="ampboard",
        version=VERSION,
        lifespan=lifespan,
        dependencies=[Depends(refuse_undeclared)],
        openapi_url=None,  # server.health.routes serves it to signed-in people
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.database = database
    app.state.stop = sweep.stop
    app.state.throttle = Throttle(max_failures=8, window_s=300.0)
    app.state.error_page = error_page
    install_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    _add_checks(app, settings, database)
    return app


def _add_checks(app: FastAPI, settings: Settings, database: Database) -> None:
    """What comes before any route; the last added runs first: headers and log, proxy, host, origin, who asks, size."""
    app.add_middleware(BodyLimit, limit=settings.max_body_bytes)
    app.add_middleware(Authentication, database=database)
    app.add_middleware(OriginCheck)
    app.add_middleware(HostCheck, settings=settings)
    if settings.trusted_proxy_header is not None:
        app.add_middleware(TrustedProxy, networks=settings.trusted_proxy, header=settings.trusted_proxy_header)
    app.add_middleware(HeadersAndLog)


def serve(settings: Settings, on_listening: Callable[[str], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM. ``on_listening`` gets the base URL once connections are accepted.

    Raises:
        ConfigurationError: when the address cannot be listened on, or is open to the network and nobody has an account.
        StoreError: when the database cannot be used.
    """
    share_one_arena()
    logs.configure(settings.log_level, settings.log_format)
    database = open_database(settings)
    check_exposure(settings, database)
    listener = listen(settings.host, settings.port)
    app = create_app(settings, database)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # server.access.middleware writes it, without query strings
        server_header=False,
        proxy_headers=settings.trusted_proxy_header is None,  # else TrustedProxy must see who really connects
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
    )
    url = base_url(listener)
    logger.info("ampboard %s listens on %s", VERSION, url)
    if on_listening is not None:
        on_listening(url)
    with listener:
        _Server(config, app.state.stop).run(sockets=[listener])


class _Server(uvicorn.Server):
    """uvicorn, which by itself waits for ever for open event streams: here a signal ends them first."""

    def __init__(self, config: uvicorn.Config, stop: Event) -> None:
        super().__init__(config)
        self._stop = stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stop.set()
        super().handle_exit(sig, frame)


def check_exposure(settings: Settings, database: Database) -> None:
    """Refuse to listen beyond loopback while nobody could prove who they are. Raises `ConfigurationError`."""
    if settings.host in LOOPBACK:
        return
    with database.read() as session:
        if has_account(session):
            return
    raise ConfigurationError(
        f"host={settings.host!r} is open to the network, which needs at least one person with a password or an API "
        "token: run `ampboard user add NAME --role admin --password`, or listen on 127.0.0.1"
    )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises `ConfigurationError` naming the address and the remedy."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio switches Nagle off for what it accepts; without, bodies wait 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ConfigurationError(_why_not(host, port, error)) from error
    listener.set_inheritable(False)
    return listener


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port={port} on {host} is taken by another program: set AMPBOARD_PORT to a free one (0 picks one)"
    if error.errno == errno.EACCES:
        return f"port={port} on {host} needs privileges: set AMPBOARD_PORT to one above 1023"
    return f"host={host!r} cannot be listened on ({error}): set AMPBOARD_HOST to an address of this machine"


def base_url(listener: socket.socket) -> str:
    """The URL under which a browser on this machine reaches the listener."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not bound to
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
