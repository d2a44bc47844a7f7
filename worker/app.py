"""The Celery side: one queue, one task, one thread per slot. The message says only that there is work."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import Any

from celery import Celery
from celery.exceptions import SecurityWarning
from celery.signals import worker_shutting_down

from server.broker.publish import QUEUE, TASK, TIMEOUT_S
from server.settings import Settings
from worker.foreman import Foreman

RESTART_S = 1.0

_log = logging.getLogger(__name__)


def make_app(settings: Settings, foreman: Foreman) -> Celery:
    """The Celery application of this worker; its one task has the foreman fill free slots until nothing fits.

    Messages are acknowledged early: redelivery is never relied on, the rows are the record. The worker reconnects to a
    broker that went away for as long as it takes; runs go on and are claimed by polling meanwhile.
    """
    app = Celery("ampboard-worker", broker=settings.celery_broker_url, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        broker_connection_max_retries=None,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=TIMEOUT_S,
        broker_transport_options={"socket_connect_timeout": TIMEOUT_S},
        task_acks_late=False,
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_serializer="json",
        worker_cancel_long_running_tasks_on_connection_loss=True,  # means late acknowledgement, which is never used
        worker_hijack_root_logger=False,
        worker_prefetch_multiplier=1,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
    )

    def work() -> int:
        return foreman.work()

    app.task(work, name=TASK)
    return app


def serve(app: Celery, foreman: Foreman, name: str, num_slots: int) -> int:
    """Consume messages until a signal ends the worker; return the exit code.

    A consumer that fails is followed by another: its broker is a doorbell only, and no reason to end runs.
    On the first signal the children are killed at once: Celery waits for its threads, and they wait for the children.
    """

    stopping = threading.Event()

    def stop(**_: Any) -> None:
        stopping.set()
        foreman.stop()

    warnings.filterwarnings("ignore", category=SecurityWarning)  # about root and pickle; only JSON is accepted here
    for chatty in ("celery.worker.strategy", "celery.app.trace"):  # two lines for each ring of the doorbell
        logging.getLogger(chatty).setLevel(logging.WARNING)
    worker_shutting_down.connect(stop)
    try:
        while True:
            exit_code = _consume(app, name, num_slots)
            if stopping.is_set() or not exit_code:
                return exit_code
            _log.warning("the consumer of messages failed: runs are claimed by polling until the next one is up")
            if stopping.wait(RESTART_S):
                return exit_code
    finally:
        worker_shutting_down.disconnect(stop)


def _consume(app: Celery, name: str, num_slots: int) -> int:
    """One consumer, to its end. It ends by itself where Celery cannot mend a connection that broke."""
    worker = app.Worker(
        hostname=f"ampboard@{name}",
        pool="threads",
        concurrency=num_slots,
        queues=[QUEUE],
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel="INFO",
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)
