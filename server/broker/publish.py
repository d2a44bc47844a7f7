"""Ringing the doorbell: tell the workers that rows are queued."""

from __future__ import annotations

import logging
import threading

from celery import Celery
from kombu.exceptions import OperationalError

from server.settings import Settings

TASK = "ampboard.work"
QUEUE = "ampboard"
TIMEOUT_S = 2.0

_log = logging.getLogger(__name__)
_apps: dict[str, Celery] = {}
_apps_lock = threading.Lock()


def ring(settings: Settings, num: int = 1) -> bool:
    """Send up to ``num`` messages "there is work"; False, and a line in the log, if the broker did not take them.

    Never raises and never waits long: queued rows are found without it, by the workers' own polls and the server's
    sweep. Call it after the commit that queued the rows.
    """
    app = _app(settings.celery_broker_url)
    try:
        for _ in range(min(max(num, 1), 16)):
            app.send_task(TASK, queue=QUEUE, ignore_result=True, retry=False, expires=60)
    except (OperationalError, OSError) as error:
        _log.warning("the broker did not take the message (%s): workers will find the queued runs by polling", error)
        return False
    return True


def connection_options() -> dict[str, float | bool]:
    """Redis transport options that make a dead broker known within `TIMEOUT_S`, and a closed door at once."""
    timeouts = {"socket_connect_timeout": TIMEOUT_S, "socket_timeout": TIMEOUT_S, "retry_on_timeout": False}
    return {**timeouts, "max_retries": 0}  # without it kombu knocks again until the timeout, even with retry=False


def _app(broker_url: str) -> Celery:
    """One Celery client per broker; it keeps a small pool of connections for all threads."""
    with _apps_lock:
        app = _apps.get(broker_url)
        if app is None:
            app = _apps[broker_url] = Celery("ampboard", broker=broker_url, set_as_current=False)
            app.conf.update(
                broker_transport_options=connection_options(),
                broker_connection_timeout=TIMEOUT_S,
                broker_pool_limit=4,
                task_ignore_result=True,
                task_serializer="json",
                accept_content=["json"],
            )
        return app
