"""Runs beside each other over REST and as a page."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import select
from team import Team

from server.db.tables import Experiment, Run, Workload


@pytest.fixture
def runs(team: Team) -> list[int]:
    """Two experiments of one seed each, with a workload that changed between them."""
    client = team.client("submitter")
    ids = []
    for width in (32, 64):
        body = {"workload": "digits-cnn", "recipes": ["fp32", "bf16"], "seeds": 1, "params": {"width": width}}
        experiment = client.post("/api/v1/experiments", json=body).json()["id"]
        items = client.get("/api/v1/runs", params={"experiment_id": experiment, "kind": "train"}).json()["items"]
        ids += sorted(item["id"] for item in items if item["role"] != "control")
        with team.database.write() as session:
            row = session.scalars(select(Workload)).first()
            assert row is not None
            row.source = row.source or "a = 1\nb = 2\n"
            for run in session.scalars(select(Run).where(Run.experiment_id == experiment)):
                run.environment = {"torch": "2.13", "git_commit": f"c{width}", "packages": {"numpy": "2.0"}}
            if width == 64:
                newer = Workload(
                    name="digits-cnn", source_hash="f" * 64, path="w.py", description=row.description, error=None,
                    first_seen_at=row.seen_at, seen_at=row.seen_at, source="a = 1\nb = 3\n",
                )  # fmt: skip
                session.add(newer)
                session.flush()
                session.get_one(Experiment, experiment).workload_id = newer.id
    return ids


def compare(team: Team, **params: str) -> dict[str, Any]:
    answer = team.client("viewer").get("/api/v1/compare", params=params)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_what_differs_is_told_by_row(team: Team, runs: list[int]) -> None:
    told = compare(team, runs=f"{runs[0]},{runs[2]}")
    assert [run["id"] for run in told["runs"]] == [runs[0], runs[2]]
    config = {row["name"]: row for row in told["config"]}
    assert config["workload.params.width"] == {"name": "workload.params.width", "values": [32, 64], "differs": True}
    assert not config["steps"]["differs"]
    environment = {row["name"]: row["differs"] for row in told["environment"]}
    assert environment == {"torch": False, "git_commit": True, "packages.numpy": False}


def test_a_run_that_recorded_no_environment_differs_from_none(team: Team, runs: list[int]) -> None:
    with team.database.write() as session:
        session.get_one(Run, runs[0]).environment = None
        session.get_one(Run, runs[1]).environment = {"torch": "2.13", "setup_s": 0.5}
        session.get_one(Run, runs[2]).environment = {"torch": "2.13", "setup_s": 0.7}
    named = ",".join(map(str, runs[:3]))
    row = {"name": "torch", "values": [None, "2.13", "2.13"], "differs": False}
    assert compare(team, runs=named)["environment"] == [row]
    page = " ".join(team.browser("viewer").get("/compare", params={"runs": named}).text.split())
    assert "0 of 1 rows differ" in page
    assert f"Not counted: run {runs[0]}, of which nothing is recorded." in page
    assert '<dd class="mono">2.13</dd>' in page
    with team.database.write() as session:
        session.get_one(Run, runs[2]).environment = {"torch": "2.14"}
    page = team.browser("viewer").get("/compare", params={"runs": named}).text
    environment = page[page.index('id="environment-title"') :]
    assert f'<span class="nowrap">run {runs[1]}</span>' in environment
    assert f'<span class="nowrap">run {runs[0]}</span>' not in environment
    with team.database.write() as session:
        for run in session.scalars(select(Run)):
            run.environment = None
    page = team.browser("viewer").get("/compare", params={"runs": named}).text
    assert f"Not counted: runs {', '.join(map(str, runs[:3]))}, of which" in page
    assert "All ran in the same environment" not in page


def test_sources_are_compared_line_by_line(team: Team, runs: list[int]) -> None:
    first, second = compare(team, runs=f"{runs[0]},{runs[2]}")["sources"]
    assert first["against"] is None
    assert first["run_ids"] == [runs[0]]
    assert second["against"] == first["source_hash"]
    changed = [(line["mark"], line["text"]) for line in second["lines"] if line["mark"] != " "]
    assert changed == [("-", "b = 2"), ("+", "b = 3")]


def test_an_experiment_stands_for_its_runs(team: Team, runs: list[int]) -> None:
    experiment = compare(team, runs=str(runs[0]))["runs"][0]["experiment_id"]
    told = compare(team, experiments=str(experiment), runs=str(runs[1]))
    assert [run["id"] for run in told["runs"]] == [runs[1], runs[0]]


@pytest.mark.parametrize(
    ("params", "status", "words"),
    [
        ({}, 422, "nothing is named"),
        ({"runs": "1,x"}, 422, "'x' is no number of a run"),
        ({"runs": "99999"}, 404, "run 99999 is not here"),
        ({"experiments": "99999"}, 404, "experiment 99999 is not here"),
    ],
)
def test_what_cannot_be_compared_is_said(team: Team, params: dict[str, str], status: int, words: str) -> None:
    answer = team.client("viewer").get("/api/v1/compare", params=params)
    assert answer.status_code == status
    assert words in answer.text


def test_the_page_shows_it_and_the_lists_lead_to_it(team: Team, runs: list[int]) -> None:
    browser = team.browser("viewer")
    shown = browser.get("/compare", params={"runs": f"{runs[0]},{runs[2]}"})
    assert shown.status_code == 200
    assert "workload.params.width" in shown.text
    assert "b = 3" in shown.text
    sent = browser.get("/compare", params={"id": [runs[0], runs[2]], "noun": "runs", "back": "/runs", "tag": ""})
    assert (sent.status_code, sent.headers["location"]) == (303, f"/compare?runs={runs[0]},{runs[2]}")
    assert "Any runs beside each other" in browser.get("/compare").text
    assert 'formaction="/compare"' in team.browser("submitter").get("/runs").text


def test_a_recipe_of_two_experiments_is_one(team: Team, runs: list[int]) -> None:
    page = team.browser("viewer").get("/compare", params={"runs": ",".join(map(str, runs))}).text
    head = " ".join(page.split())
    assert "<span>2 experiments</span> <span>2 recipes</span>" in head
    assert len(set(re.findall(r'data-recipe="([^"]+)"', page))) == 4  # each experiment's has a line of its own
    with team.database.write() as session:
        run = session.get_one(Run, runs[3])
        run.recipe = run.recipe | {"accumulate": 2}
    assert "3 recipes" in team.browser("viewer").get("/compare", params={"runs": ",".join(map(str, runs))}).text


def test_points_of_runs_of_several_experiments(team: Team, runs: list[int]) -> None:
    answer = team.browser("viewer").get(f"/compare/{runs[0]},{runs[2]}/points", params={"names": "train/loss"})
    assert answer.status_code == 200
    assert answer.json() == {"runs": []}, "nothing was written yet"
