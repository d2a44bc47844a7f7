"""Who is told of what in the browser, what people choose, and reading."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from team import Team

from server.db.tables import Experiment, Notification, Run, User, Worker
from server.webhooks.outbox import announce, announce_failure, announce_loss, announce_verdict

NOW = datetime.now(UTC)


@pytest.fixture
def experiment(team: Team) -> int:
    body = {"workload": "digits-cnn", "seeds": 2, "name": "Is <b>bf16</b> good?"}
    made: int = team.client("submitter").post("/api/v1/experiments", json=body).json()["id"]
    return made


def _fail(team: Team, experiment: int, number: int) -> None:
    with team.database.write() as session:
        for run in session.scalars(select(Run).where(Run.experiment_id == experiment).order_by(Run.id).limit(number)):
            run.reason = {"kind": "exception", "message": "out of memory"}
            announce_failure(session, run, NOW)


def _told(team: Team, role: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = team.client(role).get("/api/v1/notifications").json()["items"]
    return items


def test_the_owner_hears_of_verdicts_and_failures_and_nobody_else(team: Team, experiment: int) -> None:
    with team.database.write() as session:
        comparison = {"headline": "bf16-mixed is SAFE.", "recipes": [{"recipe": "bf16-mixed", "verdict": "SAFE"}]}
        announce_verdict(session, experiment, comparison, NOW)
    _fail(team, experiment, 3)
    failed, verdict = sorted(_told(team, "submitter"), key=lambda item: item["event"], reverse=True)
    assert verdict["text"] == "Is <b>bf16</b> good?: bf16-mixed is SAFE."
    assert verdict["page"] == f"/experiments/{experiment}"
    assert (failed["event"], failed["count"]) == ("run.failed", 3)  # three runs of one experiment are one line
    assert "out of memory" in failed["text"]
    assert _told(team, "admin") == _told(team, "viewer") == []


def test_choices_decide_and_outlive_other_events(team: Team, experiment: int) -> None:
    viewer = team.client("viewer")
    defaults = viewer.get("/api/v1/notification-choices").json()["choices"]
    assert defaults == {
        "experiment.judged": "mine", "run.failed": "mine", "worker.lost": "off", "trend.alert": "mine",
    }  # fmt: skip
    assert team.client("admin").get("/api/v1/notification-choices").json()["choices"]["worker.lost"] == "team"
    changed = viewer.put("/api/v1/notification-choices", json={"choices": {"run.failed": "team"}}).json()["choices"]
    assert changed == defaults | {"run.failed": "team"}
    team.client("submitter").put("/api/v1/notification-choices", json={"choices": {"run.failed": "off"}})
    _fail(team, experiment, 1)
    assert [item["event"] for item in _told(team, "viewer")] == ["run.failed"]
    assert _told(team, "submitter") == []
    for body in ({"run.failed": "loud"}, {"run.lost": "team"}):
        assert viewer.put("/api/v1/notification-choices", json={"choices": body}).status_code == 422


def test_lost_workers_reach_admins_and_disabled_people_hear_nothing(team: Team) -> None:
    with team.database.write() as session:
        announce_loss(session, Worker(name="gpu-07", host="rack", heartbeat_at=NOW), NOW)
    assert ["gpu-07" in item["text"] for item in _told(team, "admin")] == [True]
    assert _told(team, "submitter") == []
    with team.database.write() as session:
        session.get_one(User, team.ids["admin"]).disabled_at = NOW
        announce(session, "worker.lost", {"worker": {"name": "other", "host": "h"}}, NOW, None)
        assert len(session.scalars(select(Notification)).all()) == 1


def test_a_trend_alert_reaches_whoever_watches(team: Team) -> None:
    payload = {
        "workload": "digits-cnn",
        "message": "7 % slower",
        "experiment": {"id": 1, "name": "e", "page": "/experiments/1"},
    }
    with team.database.write() as session:
        announce(session, "trend.alert", payload, NOW, team.ids["viewer"])
    assert [(item["text"], item["page"]) for item in _told(team, "viewer")] == [("7 % slower", "/experiments/1")]


def test_the_bell_counts_until_they_are_read(team: Team, experiment: int) -> None:
    _fail(team, experiment, 1)
    browser = team.browser("submitter")
    assert 'aria-label="Notifications: 1 unread"' in browser.get("/experiments").text
    (item,) = _told(team, "submitter")
    shown = browser.get("/notifications").text
    assert "Is &lt;b&gt;bf16&lt;/b&gt; good?" in shown
    opened = browser.post(f"/notifications/{item['id']}/open", follow_redirects=False)
    assert opened.headers["location"] == item["page"]
    assert 'aria-label="Notifications"' in browser.get("/experiments").text
    _fail(team, experiment, 1)  # one that was read does not count on: it is news again
    assert team.client("submitter").get("/api/v1/notifications?unread=true").json()["num_unread"] == 1
    assert len(_told(team, "submitter")) == 2
    browser.post("/notifications/read")
    assert team.client("submitter").get("/api/v1/notifications?unread=true").json()["items"] == []


def test_nobody_reads_for_others(team: Team, experiment: int) -> None:
    _fail(team, experiment, 1)
    (item,) = _told(team, "submitter")
    assert team.client("admin").post(f"/api/v1/notifications/{item['id']}/read").status_code == 404
    assert team.browser("admin").post(f"/notifications/{item['id']}/open").status_code == 404
    assert team.client("submitter").get("/api/v1/notifications").json()["num_unread"] == 1


def test_old_ones_go_when_new_ones_come(team: Team, experiment: int) -> None:
    with team.database.write() as session:
        announce(session, "trend.alert", {"workload": "old"}, NOW - timedelta(days=61), team.ids["submitter"])
    _fail(team, experiment, 1)
    assert [item["event"] for item in _told(team, "submitter")] == ["run.failed"]


def test_the_form_saves_choices(team: Team) -> None:
    form = {"event": ["run.failed", "worker.lost"], "scope": ["off", "team"]}
    answer = team.browser("viewer").post("/notifications/choices", data=form, follow_redirects=False)
    assert answer.headers["location"] == "/notifications?saved=1#choices"
    choices = team.client("viewer").get("/api/v1/notification-choices").json()["choices"]
    assert (choices["run.failed"], choices["worker.lost"]) == ("off", "team")


def test_the_digest_counts_what_happened(team: Team, experiment: int) -> None:
    with team.database.write() as session:
        row = session.get_one(Experiment, experiment)
        row.judged_at, row.state = NOW - timedelta(days=2), "ended"
        row.comparison = {"headline": "h", "recipes": [{"verdict": "SAFE"}, {"verdict": "UNSAFE"}, {"verdict": None}]}
        first = session.scalars(select(Run).where(Run.experiment_id == experiment)).first()
        assert first is not None
        first.state, first.ended_at = "failed", NOW
    client = team.client("viewer")
    week = client.get("/api/v1/digest?span=week").json()
    assert (week["verdicts"], week["num_judged"], week["num_failed"]) == ({"SAFE": 1, "UNSAFE": 1}, 1, 1)
    page = " ".join(team.browser("viewer").get("/notifications?span=week").text.split())
    assert '<dt class="sub">SAFE</dt> <dd>1 recipe</dd>' in page
    day = client.get("/api/v1/digest").json()
    assert (day["num_judged"], day["num_failed"]) == (0, 1)
    assert client.get("/api/v1/digest?span=week&mine=true").json()["num_judged"] == 0
