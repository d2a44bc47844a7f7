"""Who a worker may run as, and what its heartbeat says of clocks and of tables that were upgraded under it."""

from __future__ import annotations

import logging

import pytest
from pydantic import SecretStr
from queue_rows import Queue
from sqlalchemy import text

from server.db.engine import Database
from server.db.tables import Worker
from server.queue.claim import claim
from server.settings import Settings
from worker.active import ActiveRuns
from worker.heartbeat import Heartbeat
from worker.privilege import RootRefused, check_privilege, is_local
from worker.readings import Devices

TEAM = Settings(database_url=SecretStr("postgresql+psycopg://a:b@db.example.org/ampboard"))


def test_root_is_refused_on_a_store_elsewhere_and_warned_of_here() -> None:
    with pytest.raises(RootRefused, match=r"its database is on another host: .* AMPBOARD_ALLOW_ROOT=true"):
        check_privilege(TEAM, effective_user=0)
    allowed = TEAM.model_copy(update={"allow_root": True})
    assert "runs as root" in str(check_privilege(allowed, effective_user=0))
    assert "runs as root" in str(check_privilege(Settings(), effective_user=0)), "a newcomer's container works"
    assert check_privilege(TEAM, effective_user=1000) is None


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("sqlite:////data/a.sqlite3", True),
        ("postgresql+psycopg:///ampboard?host=/run/postgresql", True),
        ("postgresql+psycopg://u:p@127.0.0.1:5432/ampboard", True),
        ("postgresql+psycopg://u:p@[::1]/ampboard", True),
        ("postgresql+psycopg://u:p@10.0.0.5/ampboard", False),
        ("redis://:secret@localhost:6379/0", True),
        ("redis://[::1]:6379/0", True),
        ("rediss://user:pa:ss@redis.example.org:6379/0", False),
        ("redis+socket:///run/redis.sock", True),
    ],
)
def test_where_a_url_leads(url: str, local: bool) -> None:
    assert is_local(url) is local


def test_a_worker_whose_tables_were_upgraded_takes_no_more_and_says_why(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with database.write() as session:
        Queue(session).experiment()
    heartbeat = Heartbeat(database, Settings(), 1, ActiveRuns(), Devices([]))
    heartbeat.beat()
    with database.write() as session:
        assert session.get_one(Worker, 1).problem is None
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with caplog.at_level(logging.WARNING):
        heartbeat.beat()
        heartbeat.beat()
    (said,) = caplog.messages
    assert said.startswith("the store has tables of version 9999, this worker's program knows version ")
    with database.write() as session:
        assert session.get_one(Worker, 1).problem == said
        assert claim(session, 1, ["cpu"], 60) is None


def test_a_wrong_clock_is_measured_and_told_once(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with database.write() as session:
        Queue(session)
    real = __import__("time").time
    monkeypatch.setattr("worker.heartbeat.time.time", lambda: real() + 90.0)
    heartbeat = Heartbeat(database, Settings(), 1, ActiveRuns(), Devices([]))
    with caplog.at_level(logging.WARNING):
        heartbeat.beat()
        heartbeat.beat()
    assert len(caplog.messages) == 1
    assert "differs from the store's by +90.0 s" in caplog.messages[0]
    with database.read() as session:
        skew_s = session.get_one(Worker, 1).clock_skew_s
    assert skew_s is not None
    assert abs(skew_s - 90.0) < 1.0
