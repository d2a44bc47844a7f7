"""Analyses: asked for with a submission or of a run, and without any say in the verdict."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sqlalchemy import select
from team import Team

from amp_core import analyses
from amp_core.events import Frame, Report
from server.db.tables import Experiment, Run
from server.metrics.write import store_frames
from server.queue.finish import settle_experiment

URL = "/api/v1/experiments"


class _Options(analyses.Options, frozen=True, kw_only=True):
    depth: int = 3


@pytest.fixture(autouse=True)
def _one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(analyses.OPTIONS, "stress", _Options)


def _post(team: Team, url: str, **body: Any) -> Any:
    return team.client("submitter").post(url, json=body)


def _experiment(team: Team, **body: Any) -> Any:
    body = {"workload": "digits-cnn", "seeds": [4], "recipes": ["fp32", "bf16"], "control": False, **body}
    response = _post(team, URL, **body)
    assert response.status_code == 201, response.text
    return response.json()


def test_an_analysis_goes_with_a_submission(team: Team) -> None:
    made = _experiment(team, analyses=[{"kind": "stress", "recipe": "bf16", "options": {"depth": 5}}])
    run = made["runs"][-1]
    assert (run["kind"], run["role"], run["recipe_name"], run["seed"]) == ("stress", "analysis", "bf16-mixed", 4)
    with team.database.read() as session:
        assert session.get_one(Run, run["id"]).config["options"] == {"depth": 5}


@pytest.mark.parametrize(
    ("analysis", "field"),
    [
        ({"kind": "guess", "recipe": "bf16"}, "analyses.0"),
        ({"kind": "stress", "recipe": "bf16", "options": {"depth": "deep"}}, "analyses.0"),
        ({"kind": "stress", "recipe": "bf16", "options": {"width": 1}}, "analyses.0"),
        ({"kind": "stress", "recipe": "16-true"}, "analyses.0.recipe"),
    ],
)
def test_what_cannot_be_analysed_is_refused(team: Team, analysis: dict[str, Any], field: str) -> None:
    body = {"workload": "digits-cnn", "recipes": ["fp32", "bf16"], "analyses": [analysis]}
    response = _post(team, URL, **body)
    assert response.status_code == 422
    assert [fault["field"] for fault in response.json()["errors"]] == [field]


def test_an_analysis_of_a_run_uses_what_the_run_used(team: Team) -> None:
    of = _experiment(team, params={"width": 16})["runs"][0]
    response = _post(team, f"/api/v1/runs/{of['id']}/analyses", kind="stress", recipe="fp16", options={"depth": 1})
    assert response.status_code == 201, response.text
    made = response.json()
    assert (made["kind"], made["role"], made["recipe_name"], made["seed"]) == ("stress", "analysis", "16-mixed", 4)
    assert made["config"]["workload"]["params"]["width"] == 16
    assert made["config"]["of_run"] == of["id"]
    assert made["experiment_id"] == of["experiment_id"]


def test_an_experiment_ends_without_its_analyses(team: Team) -> None:
    made = _experiment(team, measure_gain=False, analyses=[{"kind": "stress", "recipe": "bf16"}])
    with team.database.write() as session:
        for run in session.scalars(select(Run).where(Run.experiment_id == made["id"], Run.role != "analysis")):
            run.state = "completed"
        session.flush()
        settle_experiment(session, made["id"], session.get_one(Experiment, made["id"]).created_at)
        assert session.get_one(Experiment, made["id"]).state == "ended"
    analysis = made["runs"][-1]
    assert _post(team, f"/api/v1/runs/{analysis['id']}/cancel").json()["state"] == "cancelled"
    assert _post(team, f"{URL}/{made['id']}/retry").status_code == 200
    shown = team.client("viewer").get(f"{URL}/{made['id']}").json()
    assert (shown["state"], shown["runs"][-1]["state"]) == ("ended", "queued")


def test_the_newest_report_is_the_answer(team: Team) -> None:
    run = _experiment(team, analyses=[{"kind": "stress", "recipe": "bf16"}])["runs"][-1]
    url = f"/api/v1/runs/{run['id']}/report"
    assert team.client("viewer").get(url).status_code == 404
    with team.database.write() as session:
        row = session.get_one(Run, run["id"])
        row.state, row.attempt = "running", 1
        session.flush()
        reports = [Report(kind="stress", content={"found": n}, final=n == 2) for n in (1, 2)]
        frames = [Frame(sequence=n, at=0.0, event=report) for n, report in enumerate(reports, start=1)]
        store_frames(session, run["id"], 1, frames)
    shown = team.client("viewer").get(url).json()
    assert (shown["final"], shown["content"]) == (True, {"found": 2})
    assert msgspec.to_builtins(reports[1])["content"] == shown["content"]


def test_only_the_owner_and_an_admin_ask_about_a_run(team: Team) -> None:
    body = {"workload": "digits-cnn", "seeds": [4], "recipes": ["fp32", "bf16"], "control": False}
    made = team.client("admin").post(URL, json=body).json()
    url = f"/api/v1/runs/{made['runs'][0]['id']}/analyses"
    refused = _post(team, url, kind="stress", recipe="bf16")
    assert (refused.status_code, "belongs to admin" in refused.json()["detail"]) == (403, True)
    assert team.client("admin").post(url, json={"kind": "stress", "recipe": "bf16"}).status_code == 201


def test_a_script_is_not_analysed(team: Team) -> None:
    of = _experiment(team)["runs"][1]
    page = f"/runs/{of['id']}"
    assert f'action="{page}/analyse"' in team.client("submitter").get(page).text
    with team.database.write() as session:
        workload = session.get_one(Run, of["id"]).experiment.workload
        workload.description = {**workload.description, "is_script": True}

    response = _post(team, f"/api/v1/runs/{of['id']}/analyses", kind="stress")
    assert response.status_code == 409
    assert "a script, which owns its loop" in response.text
    assert f'action="{page}/analyse"' not in team.client("submitter").get(page).text
    asked = {"workload": "digits-cnn", "recipes": ["fp32", "bf16"], "analyses": [{"kind": "stress", "recipe": "bf16"}]}
    assert [fault["field"] for fault in _post(team, URL, **asked).json()["errors"]] == ["analyses"]
