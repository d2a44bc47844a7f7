"""Webhooks: who is told what, signed, at public addresses only, again and again until it arrives."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from typing import Any

import pytest
from queue_rows import START, Queue
from sqlalchemy import select
from team import Team

from server.db.engine import Database
from server.db.tables import Delivery, User, Webhook, Worker
from server.queue.claim import claim
from server.queue.finish import finish
from server.settings import Settings
from server.webhooks.address import AddressRefused, check_address, networks, parse_target, post, resolve
from server.webhooks.delivery import PAUSES, Postman, forget_old, note, signature, take_due
from server.webhooks.outbox import EVENTS, add_delivery, announce_verdict
from server.workers.service import note_lost_workers

URL = "/api/v1/webhooks"
PUBLIC = "https://93.184.216.34/hook?x=1"


class Receiver(HTTPServer):
    """Keeps what it was sent, and answers with ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 204
        self.got: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/in"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), body))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "http://169.254.169.254/")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def add_webhook(session: Any, url: str, *, events: list[str] | None = None, team: bool = True, owner: int = 1) -> None:
    session.add(
        Webhook(owner_id=owner, url=url, events=events or list(EVENTS), team=team, secret="s" * 64, created_at=START)
    )
    session.flush()


def postman(database: Database, *allowed: str) -> Postman:
    return Postman(database, Settings(webhook_networks=list(allowed)), threading.Event())


def test_a_failed_run_a_verdict_and_a_lost_worker_are_told_once(database: Database, receiver: Receiver) -> None:
    with database.write() as session:
        queue = Queue(session)
        add_webhook(session, receiver.url)
        (run_id,) = queue.experiment()
        assert claim(session, 1, ["cpu"], 15, queue.at(1)) is not None
        reason = {"kind": "exception", "message": "ValueError: no", "remedy": "mend it", "traceback": "secret path"}
        finish(session, run_id, 1, "failed", reason, 1, queue.at(2))
        verdict = {"headline": "bf16-mixed is safe.", "recipes": [{"recipe": "bf16-mixed", "verdict": "SAFE"}]}
        announce_verdict(session, 1, verdict, queue.at(3))
        assert note_lost_workers(session, 15, queue.at(29)) == []
        assert note_lost_workers(session, 15, queue.at(31)) == ["host-1", "host-2"]
        assert note_lost_workers(session, 15, queue.at(60)) == []
    assert postman(database, "127.0.0.0/8").deliver_due() == 4
    assert postman(database, "127.0.0.0/8").deliver_due() == 0
    told = [json.loads(body) for _, body in receiver.got]
    assert [message["event"] for message in told] == ["run.failed", "experiment.judged", "worker.lost", "worker.lost"]
    assert told[0]["run"]["reason"] == {"kind": "exception", "message": "ValueError: no", "remedy": "mend it"}
    assert told[0]["experiment"] == {"id": 1, "name": "e", "page": "/experiments/1"}
    assert told[1]["verdicts"] == [{"recipe": "bf16-mixed", "verdict": "SAFE"}]
    headers, body = receiver.got[0]
    expected = hmac.new(b"s" * 64, headers["X-Ampboard-Timestamp"].encode() + b"." + body, hashlib.sha256)
    assert headers["X-Ampboard-Signature"] == f"sha256={expected.hexdigest()}"
    assert headers["X-Ampboard-Event"] == "run.failed"


def test_only_those_who_want_an_event_of_their_own_runs_are_told(database: Database) -> None:
    with database.write() as session:
        queue = Queue(session)
        session.add(User(id=2, name="bob", role="submitter", created_at=START))
        session.flush()
        add_webhook(session, PUBLIC, team=False, owner=2)
        add_webhook(session, PUBLIC, team=False, owner=1)
        add_webhook(session, PUBLIC, events=["worker.lost"])
        queue.experiment()
        announce_verdict(session, 1, {}, queue.at(1))
        assert [delivery.webhook_id for delivery in session.scalars(select(Delivery))] == [2]


def test_what_does_not_arrive_is_tried_again_later_each_time_until_given_up(
    database: Database, receiver: Receiver
) -> None:
    receiver.status = 302
    with database.write() as session:
        queue = Queue(session)
        add_webhook(session, receiver.url)
        queue.experiment()
        announce_verdict(session, 1, {}, queue.at(0))
    postman(database, "127.0.0.0/8").deliver_due()
    assert len(receiver.got) == 1, "a redirect is not followed"
    with database.write() as session:
        delivery = session.scalars(select(Delivery)).one()
        assert (delivery.status, delivery.error, delivery.tries) == (302, "it answered 302", 1)
        now, waits = queue.at(10_000_000), []
        while delivery.due_at is not None:
            (letter,) = take_due(session, now := max(now, delivery.due_at))
            assert take_due(session, now) == [], "no other server takes it meanwhile"
            note(session, letter.delivery_id, 500, "it answered 500", now)
            session.refresh(delivery)
            waits.append(None if delivery.due_at is None else delivery.due_at - now)
        assert waits == [*PAUSES[1:], None]
        assert delivery.delivered_at is None
        forget_old(session, delivery.created_at + timedelta(days=15))
        assert session.scalars(select(Delivery)).all() == []


def test_a_private_address_is_never_connected_to(database: Database, receiver: Receiver) -> None:
    with database.write() as session:
        queue = Queue(session)
        add_webhook(session, receiver.url)
        queue.experiment()
        announce_verdict(session, 1, {}, queue.at(0))
    postman(database).deliver_due()
    assert receiver.got == []
    with database.read() as session:
        assert "127.0.0.1 is not a public address" in str(session.scalars(select(Delivery)).one().error)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
     "::1", "fe80::1", "fc00::1", "::ffff:10.0.0.1", "::", "255.255.255.255"],
)  # fmt: skip
def test_addresses_inside_are_refused(address: str) -> None:
    with pytest.raises(AddressRefused, match="not a public address"):
        check_address(ip_address(address), [])
    check_address(ip_address(address), networks(["0.0.0.0/0", "::/0"]))


def test_a_name_is_resolved_once_and_each_of_its_addresses_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["93.184.216.34"], ["93.184.216.34", "10.0.0.5"]]

    def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in answers.pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    target = parse_target("https://rebind.example.org/hook")
    assert resolve(target, []) == "93.184.216.34"
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.5"):
        resolve(target, [])


@pytest.mark.parametrize(
    "url", ["ftp://example.org/", "example.org", "https://", "https://user:pw@example.org/", "https://ex ample.org/",
            "http://127.0.0.1/", "http://localhost:8420/api", "https://[::1]/", "https://example.org:99999/"],
)  # fmt: skip
def test_an_address_that_cannot_be_is_refused_when_it_is_given(team: Team, url: str) -> None:
    answer = team.client("submitter").post(URL, json={"url": url, "events": ["run.failed"]})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == "url"


def test_webhooks_over_rest(team: Team) -> None:
    client, admin = team.client("submitter"), team.client("admin")
    made = client.post(URL, json={"url": PUBLIC, "events": ["run.failed"]}).json()
    assert len(made["secret"]) == 64
    (listed,) = client.get(URL).json()["items"]
    assert (listed["url"], listed["owner"], "secret" in listed) == (PUBLIC, "submitter", False)
    assert client.post(URL, json={"url": PUBLIC, "events": ["nothing"]}).status_code == 422
    assert client.post(URL, json={"url": PUBLIC, "events": ["run.failed"], "team": True}).status_code == 403
    theirs = admin.post(URL, json={"url": PUBLIC, "events": ["worker.lost"], "team": True}).json()["id"]
    assert client.delete(f"{URL}/{theirs}").status_code == 404, "of others' webhooks nobody learns"
    assert len(admin.get(URL).json()["items"]) == 2
    assert client.post(f"{URL}/{made['id']}/ping").status_code == 202
    (ping,) = client.get(f"{URL}/{made['id']}/deliveries").json()["items"]
    assert (ping["event"], ping["payload"]["message"], ping["tries"]) == ("ping", "hello from submitter", 0)
    assert client.delete(f"{URL}/{made['id']}").status_code == 204
    assert client.get(URL).json()["items"] == []


def test_webhooks_on_the_account_page(team: Team) -> None:
    client = team.client("submitter")
    page = client.post("/account/webhooks", data={"url": PUBLIC, "event": ["run.failed", "experiment.judged"]})
    assert page.status_code == 200
    with team.database.read() as session:
        webhook = session.scalars(select(Webhook)).one()
    assert webhook.secret in page.text
    assert webhook.secret not in client.get("/account").text
    refused = client.post("/account/webhooks", data={"url": "http://10.0.0.1/", "event": ["run.failed"]})
    assert (refused.status_code, "10.0.0.1 is not a public address" in refused.text) == (422, True)
    client.post(f"/account/webhooks/{webhook.id}/delete")
    assert client.get(URL).json()["items"] == []


def test_a_worker_that_answers_again_can_be_lost_again(database: Database) -> None:
    with database.write() as session:
        queue = Queue(session)
        assert note_lost_workers(session, 15, queue.at(100)) == ["host-1", "host-2"]
        worker = session.get_one(Worker, 1)
        worker.lost_at, worker.heartbeat_at = None, queue.at(110)
        session.flush()
        assert note_lost_workers(session, 15, queue.at(200)) == ["host-1"]


def test_the_signature_is_over_time_and_body() -> None:
    one, other = signature("s", b"body", 1), signature("s", b"body", 2)
    assert one["X-Ampboard-Signature"] != other["X-Ampboard-Signature"]
    assert datetime.fromtimestamp(int(one["X-Ampboard-Timestamp"]), UTC).year == 1970


@pytest.mark.parametrize(
    "address",
    ["192.0.0.192", "192.88.99.1", "168.63.129.16", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:7f00:1::1",
     "2001:0:7f00:1::", "fec0::1", "3fff::1", "::127.0.0.1"],
)  # fmt: skip
def test_ways_round_to_addresses_inside_are_refused(address: str) -> None:
    with pytest.raises(AddressRefused, match="not a public address"):
        check_address(ip_address(address), [])


@pytest.mark.parametrize("host", ["a..b", ".example.org", "a" * 70 + ".org"])
def test_a_host_name_that_cannot_be_is_refused_and_stops_no_other_delivery(
    team: Team, receiver: Receiver, host: str
) -> None:
    answer = team.client("submitter").post(URL, json={"url": f"https://{host}/", "events": ["run.failed"]})
    assert answer.status_code == 422, answer.text
    with team.database.write() as session:
        for url in (f"https://{host}/", receiver.url):
            add_webhook(session, url, owner=team.ids["admin"])
        for webhook in session.scalars(select(Webhook).order_by(Webhook.id)):
            add_delivery(session, webhook, "ping", {}, START)
    assert postman(team.database, "127.0.0.0/8").deliver_due() == 2
    assert len(receiver.got) == 1
    with team.database.read() as session:
        told = [
            (delivery.tries, delivery.error) for delivery in session.scalars(select(Delivery).order_by(Delivery.id))
        ]
    assert told[1] == (1, None)
    assert told[0][0] == 1
    assert "host name" in str(told[0][1])


def test_an_answer_that_never_ends_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                while not over.wait(0.02):
                    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

        dripping = threading.Thread(target=drip)
        dripping.start()
        target = parse_target(f"http://receiver.example:{listening.getsockname()[1]}/")
        with pytest.raises((OSError, HTTPException)):
            post(target, "127.0.0.1", b"{}", {}, deadline_s=0.3)
        over.set()
        dripping.join()


def test_of_an_address_that_does_not_answer_one_delivery_is_tried_and_not_all(
    database: Database, receiver: Receiver
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    with database.write() as session:
        queue = Queue(session)
        add_webhook(session, nobody)
        add_webhook(session, receiver.url)
        queue.experiment()
        for second in range(3):
            announce_verdict(session, 1, {}, queue.at(second))
    assert postman(database, "127.0.0.0/8").deliver_due() == 4
    assert len(receiver.got) == 3
    with database.read() as session:
        silent = session.scalars(select(Delivery).where(Delivery.webhook_id == 1).order_by(Delivery.id)).all()
        assert [delivery.tries for delivery in silent] == [1, 0, 0]
        assert len({delivery.due_at for delivery in silent}) == 1


@pytest.mark.parametrize("change", [{"disabled_at": START}, {"role": "submitter"}])
def test_who_lost_the_right_is_told_no_more(database: Database, change: dict[str, Any]) -> None:
    with database.write() as session:
        queue = Queue(session)
        add_webhook(session, PUBLIC)
        queue.experiment()
        announce_verdict(session, 1, {}, queue.at(0))
        for name, value in change.items():
            setattr(session.get_one(User, 1), name, value)
        session.flush()
        announce_verdict(session, 1, {}, queue.at(1))
        assert len(session.scalars(select(Delivery)).all()) == 1, "nothing is added"
        assert take_due(session) == [], "what waited is not sent"


def test_a_ping_follows_the_last_one_only_when_that_is_over(team: Team) -> None:
    client = team.client("submitter")
    made = client.post(URL, json={"url": PUBLIC, "events": ["run.failed"]}).json()["id"]
    assert [client.post(f"{URL}/{made}/ping").status_code for _ in range(2)] == [202, 409]


def test_a_letter_shows_no_secret(database: Database) -> None:
    with database.write() as session:
        queue = Queue(session)
        add_webhook(session, PUBLIC)
        queue.experiment()
        announce_verdict(session, 1, {}, queue.at(0))
        assert "s" * 64 not in repr(take_due(session))
