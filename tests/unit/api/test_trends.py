"""A workload's history over REST and as pages; rules that tell when it gets worse."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from team import Team

from server.db.tables import Audit, Delivery, Experiment, Run, Series, Webhook
from server.trends.alerts import check_rules

START = datetime.now(UTC) - timedelta(days=60)


def ended(team: Team, number: int, speed: float, *, at: datetime | None = None, emulated: bool = False) -> int:
    """An experiment that has ended with that throughput in both recipes."""
    body = {"workload": "digits-cnn", "recipes": ["fp32", "bf16"], "seeds": 1, "measure_gain": False, "control": False}
    experiment_id = int(team.client("submitter").post("/api/v1/experiments", json=body).json()["id"])
    with team.database.write() as session:
        experiment = session.get_one(Experiment, experiment_id)
        experiment.state, experiment.ended_at = "ended", at or START + timedelta(days=number)
        for run in session.scalars(select(Run).where(Run.experiment_id == experiment_id)):
            run.state, run.attempt, run.numerics = "completed", 1, "emulated" if emulated else "native"
            run.environment = {"device": {"name": "NVIDIA H200"}, "git_commit": f"{number:040x}"}
            for name, value in (
                ("perf/samples_per_s", speed),
                ("eval/accuracy", 0.97),
                ("memory/allocated_bytes", 4e9),
            ):
                session.add(
                    Series(
                        run_id=run.id, attempt=1, name=name, num_points=1, first_step=1, last_step=1,
                        last_value=struct.pack("<d", value), finite_last=value, finite_min=value, finite_max=value,
                        finite_sum=value,
                    )
                )  # fmt: skip
    return experiment_id


def trend(team: Team) -> dict[str, Any]:
    told: dict[str, Any] = team.client("viewer").get("/api/v1/trends/digits-cnn").json()
    return told


def test_points_carry_figures_commit_and_device(team: Team) -> None:
    first = ended(team, 1, 800.0)
    ended(team, 2, 810.0, emulated=True)
    points = trend(team)["points"]
    assert [(point["recipe"], point["speed"]) for point in points] == [
        ("32-true", 800.0), ("bf16-mixed", 800.0), ("32-true", None), ("bf16-mixed", None),
    ]  # fmt: skip
    assert points[0] | {"experiment_id": first, "device": "NVIDIA H200", "quality": 0.97, "memory": 4e9} == points[0]
    assert points[0]["commit"].endswith("1")


def test_a_shift_is_a_change_for_the_worse(team: Team) -> None:
    ids = [ended(team, number, 800.0 + number % 3 if number < 6 else 600.0) for number in range(9)]
    changes = [change for change in trend(team)["changes"] if change["recipe"] == "bf16-mixed"]
    assert [(change["measure"], change["experiment_id"], change["is_worse"]) for change in changes] == [
        ("speed", ids[6], True)
    ]
    page = team.browser("viewer").get("/trends?workload=digits-cnn").text
    assert "bf16-mixed: −25." in page
    assert f"since experiment {ids[6]}" in page


def test_a_rule_tells_once_of_what_ends_after_it(team: Team) -> None:
    for number in range(3):
        ended(team, number, 800.0)
    ended(team, 4, 500.0)  # bad, but before the rule
    client = team.client("submitter")
    rule = client.post("/api/v1/alert-rules", json={"workload": "digits-cnn", "measure": "speed", "worse_by": 0.1})
    assert rule.status_code == 201, rule.text
    with team.database.write() as session:
        session.add(Webhook(owner_id=team.ids["submitter"], url="https://hooks.example/x", events=["trend.alert"],
                            team=False, secret="s", created_at=datetime.now(UTC)))  # fmt: skip
    assert check_rules(team.database) == 0
    bad = ended(team, 5, 600.0, at=datetime.now(UTC) + timedelta(seconds=1))
    assert check_rules(team.database) == 2, "both recipes became slower"
    assert check_rules(team.database) == 0
    items = client.get("/api/v1/alerts").json()["items"]
    assert {(item["experiment_id"], item["value"], item["reference"]) for item in items} == {(bad, 600.0, 800.0)}
    with team.database.read() as session:
        assert {delivery.event for delivery in session.scalars(select(Delivery))} == {"trend.alert"}
        assert "alert.create" in {entry.action for entry in session.scalars(select(Audit))}
    browser = team.browser("submitter")
    assert "25.0 % slower" in browser.get("/").text
    for item in items:
        assert browser.post(f"/alerts/{item['id']}/seen").status_code == 303
    assert "25.0 % slower" not in browser.get("/").text


def test_a_rule_of_one_recipe_and_of_quality_says_nothing_of_others(team: Team) -> None:
    for number in range(3):
        ended(team, number, 800.0)
    client = team.client("submitter")
    for body in ({"measure": "speed", "recipe": "16-mixed"}, {"measure": "quality"}, {"measure": "memory"}):
        assert client.post("/api/v1/alert-rules", json={"workload": "digits-cnn", **body}).status_code == 201
    ended(team, 5, 100.0, at=datetime.now(UTC) + timedelta(seconds=1))
    assert check_rules(team.database) == 0


def test_rules_are_their_owners_and_admins_to_delete(team: Team) -> None:
    ended(team, 0, 800.0)
    rule = (
        team.client("submitter").post("/api/v1/alert-rules", json={"workload": "digits-cnn", "measure": "speed"}).json()
    )
    other = team.client("admin").post("/api/v1/alert-rules", json={"workload": "digits-cnn", "measure": "speed"}).json()
    assert team.client("submitter").delete(f"/api/v1/alert-rules/{other['id']}").status_code == 403
    assert team.client("admin").delete(f"/api/v1/alert-rules/{rule['id']}").status_code == 204
    assert [item["id"] for item in team.client("viewer").get("/api/v1/alert-rules").json()["items"]] == [other["id"]]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"workload": "digits-cnn", "measure": "speed", "percent": "x"}, "it is no number"),
        ({"workload": "digits-cnn", "measure": "taste", "percent": "5"}, "it is none of speed, memory, quality"),
        ({"workload": "nothing", "measure": "speed", "percent": "5"}, "it is unknown"),
        ({"workload": "digits-cnn", "measure": "speed", "percent": "400"}, "between 0.1 % and 100 %"),
    ],
)
def test_a_wrong_rule_is_refused_with_the_reason(team: Team, form: dict[str, str], words: str) -> None:
    answer = team.browser("submitter").post("/trends/rules", data=form)
    assert answer.status_code == 422
    assert words in answer.text


def test_devices_and_batch_sizes_have_pages(team: Team) -> None:
    browser = team.browser("viewer")
    assert "No device has finished this workload yet" in browser.get("/devices").text
    assert "ampboard analyse RUN --kind batch-size" in browser.get("/batch-size").text
    ended(team, 1, 800.0)
    shown = browser.get("/devices?workload=digits-cnn").text
    assert "NVIDIA H200" in shown
    assert "800 /s" in shown
