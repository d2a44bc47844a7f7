"""The throughput of a run is one figure, the mean over its steps, wherever it is told."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from team import Team, one_line
from typer.testing import CliRunner

from server.cli import diff as command
from server.cli.main import app
from server.db.tables import Attempt, Run, Series

NAME = "perf/samples_per_s"
FIRST, SECOND = (100.0, 900.0), (300.0, 400.0)  # last step and mean: the order differs


@pytest.fixture
def runs(team: Team) -> list[int]:
    """Three runs of one recipe: one with the faster mean, one with the faster last step, and one without a figure."""
    body = {"workload": "digits-cnn", "seeds": 3, "recipes": ["fp32", "bf16"], "control": False, "measure_gain": False}
    made = team.client("submitter").post("/api/v1/experiments", json=body).json()
    ids = sorted(run["id"] for run in made["runs"] if run["recipe_name"] == "32-true")
    with team.database.write() as session:
        for run_id, told in zip(ids, (FIRST, SECOND, None), strict=True):
            run = session.get_one(Run, run_id)
            run.state, run.attempt, run.step, run.numerics = "completed", 1, 4, "native"
            session.add(Attempt(run_id=run_id, number=1, worker_name="w", started_at=run.created_at))
            session.add(_series(run_id, told))
    return ids


def _series(run_id: int, told: tuple[float, float] | None) -> Series:
    last, mean = told or (float("nan"), 0.0)
    finite = last if told else None
    return Series(run_id=run_id, attempt=1, name=NAME, num_points=4, first_step=1, last_step=4, finite_last=finite,
                  last_value=struct.pack("<d", last), finite_min=finite, finite_max=finite, finite_sum=4 * mean,
                  num_nan=0 if told else 4)  # fmt: skip


def test_lists_and_the_page_of_a_run_tell_the_mean(team: Team, runs: list[int]) -> None:
    browser = team.browser("viewer")
    page = one_line(browser.get(f"/runs/{runs[0]}").text)
    assert "<dd>900 <small>samples/s, mean</small></dd>" in page
    table = browser.get("/runs", params={"cols": NAME}).text
    assert "900 samples/s" in table
    assert "400 samples/s" in table
    assert "100 samples/s" not in table
    assert "900 samples/s" in browser.get("/compare", params={"runs": ",".join(map(str, runs))}).text
    assert "650 ± 354 samples/s" in one_line(browser.get("/experiments", params={"cols": NAME}).text)


def test_groups_and_sorting_go_by_the_mean(team: Team, runs: list[int]) -> None:
    client = team.client("viewer")
    found = client.get("/api/v1/runs/groups", params={"by": "recipe", "metrics": NAME}).json()["items"]
    spread = next(item for item in found if item["key"] == "32-true")["spreads"][NAME][0]
    assert (spread["num"], spread["mean"], spread["min"], spread["max"]) == (2, 650.0, 400.0, 900.0)
    listed = client.get("/api/v1/runs", params={"sort": f"-{NAME}"}).json()["items"]
    assert [run["id"] for run in listed][:2] == runs[:2]
    by_last = client.get("/api/v1/runs", params={"sort": f"-{NAME}.last"}).json()["items"]
    assert [run["id"] for run in by_last][:2] == [runs[1], runs[0]]
    for query, ids in ((f"{NAME}>500", [runs[0]]), (f"{NAME}.last>200", [runs[1]])):
        assert [run["id"] for run in client.get("/api/v1/runs", params={"q": query}).json()["items"]] == ids


def test_the_terminal_tells_the_mean(team: Team, runs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    told = team.client("viewer").get("/api/v1/compare", params={"runs": f"{runs[0]},{runs[1]},{runs[2]}"}).json()

    class Server:
        def __enter__(self) -> Server:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def get(self, path: str, **params: Any) -> Any:
            assert path == "/api/v1/compare"
            return told

    monkeypatch.setattr(command, "connect", lambda _: Server())
    shown = CliRunner().invoke(app, ["diff", *map(str, runs)]).output
    line = next(line for line in shown.splitlines() if NAME in line)
    assert [word for word in line.split() if word not in ("│", "|")] == [NAME, "900", "400", "-"]
