"""Sending what is due: a thread of the server's, apart from its other background work, since receivers may be slow."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session, contains_eager

from server.db.engine import Database
from server.db.tables import Delivery, Webhook
from server.queue.clock import store_now
from server.settings import Settings
from server.version import VERSION
from server.webhooks.address import AddressRefused, networks, parse_target, post, resolve
from server.webhooks.outbox import may_be_told

POLL_S = 2.0
HELD = timedelta(seconds=60)  # while it is being sent no other server takes it
PAUSES = tuple(timedelta(seconds=seconds) for seconds in (10, 60, 300, 1800, 7200))  # then it is given up
KEPT = timedelta(days=14)
AT_ONCE = 20

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Letter:
    """One delivery that is to be tried now."""

    delivery_id: int
    url: str
    secret: str = field(repr=False)  # told to nobody, not even to a log
    event: str
    payload: dict[str, Any]


class Postman:
    """Delivers until ``stop`` is set."""

    def __init__(self, database: Database, settings: Settings, stop: threading.Event) -> None:
        self._database = database
        self._allowed = networks(settings.webhook_networks)
        self._stop = stop
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float = 2.0) -> None:
        """Wait for the delivery at hand, after ``stop`` was set."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def deliver_due(self) -> int:
        """Try everything that is due; return how many that were."""
        num_tried = 0
        while num_tried < AT_ONCE and not self._stop.is_set():
            with self._database.write() as session:
                letters = take_due(session)  # one, so that it is held while it is sent and not while others are
            for letter in letters:
                status, error = self._send(letter)
                with self._database.write() as session:
                    note(session, letter.delivery_id, status, error)
            if not letters:
                break
            num_tried += len(letters)
        return num_tried

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self.deliver_due():
                    continue
            except Exception:  # one failed round must not end the thread: the next one tries again
                logger.exception("webhooks could not be delivered and will be tried again")
            self._stop.wait(POLL_S)

    def _send(self, letter: Letter) -> tuple[int | None, str | None]:
        body = json.dumps(letter.payload, ensure_ascii=False).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"ampboard/{VERSION}",
            "X-Ampboard-Event": letter.event,
            "X-Ampboard-Delivery": str(letter.delivery_id),
            **signature(letter.secret, body, int(time.time())),
        }
        try:
            target = parse_target(letter.url)
            status = post(target, resolve(target, self._allowed), body, headers)
        except AddressRefused as error:
            return None, str(error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return None, f"{type(error).__name__}: {error}"[:500]
        return status, None if 200 <= status < 300 else f"it answered {status}"


def signature(secret: str, body: bytes, at: int) -> dict[str, str]:
    """The headers by which a receiver knows who sent it and when: HMAC-SHA256 over ``{at}.{body}``."""
    mac = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Ampboard-Timestamp": str(at), "X-Ampboard-Signature": f"sha256={mac}"}


def take_due(session: Session, now: datetime | None = None) -> list[Letter]:
    """The delivery that is due longest, held for a minute against other servers; none when nothing is due.

    Counts as a try, should this process die meanwhile.
    """
    now = now or store_now(session)
    due = (
        select(Delivery)
        .join(Delivery.webhook)
        .join(Webhook.owner)
        .where(Delivery.due_at <= now, may_be_told())
        .order_by(Delivery.due_at, Delivery.id)
        .limit(1)
        .options(contains_eager(Delivery.webhook))
        .with_for_update(skip_locked=True, of=Delivery)
    )
    letters = []
    for delivery in session.scalars(due):
        delivery.due_at, delivery.tries = now + HELD, delivery.tries + 1
        webhook = delivery.webhook
        letters.append(
            Letter(delivery_id=delivery.id, url=webhook.url, secret=webhook.secret, event=delivery.event,
                   payload=delivery.payload)
        )  # fmt: skip
    session.flush()
    return letters


def note(
    session: Session, delivery_id: int, status: int | None, error: str | None, now: datetime | None = None
) -> None:
    """Store how a try went, and when the next one is due: later each time, until it is given up."""
    now = now or store_now(session)
    delivery = session.get(Delivery, delivery_id, with_for_update=True)
    if delivery is None:  # its webhook was deleted meanwhile
        return
    delivery.status, delivery.error = status, error
    if error is None:
        delivery.delivered_at, delivery.due_at = now, None
    else:
        delivery.due_at = now + PAUSES[delivery.tries - 1] if delivery.tries <= len(PAUSES) else None
        if status is None:
            _put_off(session, delivery.webhook_id, now, delivery.due_at or now + PAUSES[-1])
    session.flush()


def _put_off(session: Session, webhook_id: int, now: datetime, until: datetime) -> None:
    """An address that does not answer is asked once, not once for each delivery: those of other webhooks wait less."""
    waiting = update(Delivery).where(Delivery.webhook_id == webhook_id, Delivery.due_at <= now)
    session.execute(waiting.values(due_at=until))


def forget_old(session: Session, now: datetime | None = None) -> None:
    """Delete deliveries of more than two weeks ago."""
    now = now or store_now(session)
    session.execute(delete(Delivery).where(Delivery.created_at < now - KEPT))
