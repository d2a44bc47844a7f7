"""Series, events, logs and artifacts over REST: the right answers, and clear refusals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from histories import add_experiment, add_run, change_run, finished, frame, segment, started
from team import Team

from amp_core import events
from server.db.engine import Database
from server.metrics.schemas import ExperimentSeries, SeriesList, SeriesWindow
from server.metrics.write import store_frames, store_log

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture
def client(database: Database, tmp_path: Path) -> TestClient:
    return Team(database, tmp_path).client("viewer")


def store(database: Database, run_id: int, *frames: events.Frame, attempt: int = 1) -> None:
    with database.write() as session:
        store_frames(session, run_id, attempt, frames)


def artifact(sequence: int, name: str, media_type: str, content: bytes) -> events.Frame:
    return frame(sequence, events.Artifact(name=name, media_type=media_type, content=content, step=1))


def test_series_are_listed_with_their_summaries(client: TestClient, database: Database) -> None:
    run_id = add_run(database)
    store(database, run_id, started(1), segment(2, {"train/loss": ([1, 2], [2.0, math.nan]), "a": ([1], [1.0])}))
    answer = client.get(f"/api/v1/runs/{run_id}/series")
    found = SeriesList.model_validate_json(answer.content)
    assert [item.name for item in found.items] == ["a", "train/loss"]
    assert (found.items[1].last, found.items[1].num_nan, found.items[1].max) == ("NaN", 1, 2.0)
    assert found.cursor == "1.2.0"


def test_a_window_is_exact_or_says_how_it_was_binned(client: TestClient, database: Database) -> None:
    run_id = add_run(database)
    values = [float(n % 7) for n in range(1000)]
    values[400], values[500] = 1e9, -math.inf
    store(database, run_id, segment(1, {"train/loss": (list(range(1000)), values)}))
    path = f"/api/v1/runs/{run_id}/series/train/loss"
    exact = SeriesWindow.model_validate_json(client.get(path).content)
    assert (exact.kind, exact.num_points, exact.num_stored, exact.bin_width) == ("exact", 1000, 1000, None)
    assert exact.values[500] == "-Infinity"
    binned = SeriesWindow.model_validate_json(client.get(path, params={"max_points": 100}).content)
    assert binned.kind == "binned"
    assert binned.num_points == len(binned.steps) <= 100
    assert binned.num_stored == 1000
    assert binned.bin_width is not None
    assert {400, 500} <= set(binned.steps)
    part = SeriesWindow.model_validate_json(client.get(path, params={"from": 10, "to": 12}).content)
    assert (part.steps, part.times) == ([10, 11, 12], [10.0, 11.0, 12.0])
    assert client.get(path, params={"from": 5000}).json()["num_points"] == 0


def test_a_series_name_may_hold_anything(client: TestClient, database: Database) -> None:
    run_id = add_run(database)
    name = "odd/<b>?&#; name ✓"
    store(database, run_id, segment(1, {name: ([1], [1.0])}))
    from urllib.parse import quote

    answer = client.get(f"/api/v1/runs/{run_id}/series/{quote(name)}")
    assert answer.json().get("name") == name, answer.text


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/v1/runs/999/series", 404, "run 999 is not here: GET /api/v1/runs"),
        ("/api/v1/runs/999/series/a", 404, "run 999"),
        ("/api/v1/runs/{run}/series/b", 404, "has no series 'b': GET /api/v1/runs/{run}/series"),
        ("/api/v1/runs/{run}/series/a?max_points=3", 422, "greater than or equal to 16"),
        ("/api/v1/runs/{run}/series/a?from=1e3", 422, "from"),
        ("/api/v1/runs/{run}/series/a?from=99999999999999999999", 422, "from"),
        ("/api/v1/runs/99999999999999999999/series", 422, "run_id"),
        ("/api/v1/runs/999/events", 404, "run 999"),
        ("/api/v1/runs/{run}/events?after=x", 422, "cursor"),
        ("/api/v1/runs/{run}/events?limit=100000", 422, "limit"),
        ("/api/v1/runs/999/logs", 404, "run 999"),
        ("/api/v1/runs/{run}/logs?position=-1", 422, "position"),
        ("/api/v1/runs/999/artifacts", 404, "run 999"),
        ("/api/v1/artifacts/999", 404, "artifact 999"),
        ("/api/v1/experiments/999/series?names=a", 404, "experiment 999"),
        ("/api/v1/experiments/{experiment}/series", 422, "names"),
        ("/api/v1/experiments/{experiment}/series?names=a&after=[1]", 422, "JSON object of run ids and steps"),
        ("/api/v1/experiments/{experiment}/series?names=a&after=" + "[" * 3000, 422, "JSON object"),
    ],
)
def test_refusals_name_the_value_and_the_remedy(
    client: TestClient, database: Database, path: str, status: int, words: str
) -> None:
    experiment_id = add_experiment(database)
    run_id = add_run(database, experiment_id)
    store(database, run_id, segment(1, {"a": ([1], [1.0])}))
    ids = {"run": run_id, "experiment": experiment_id}
    answer = client.get(path.format(**ids))
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert words.format(**ids) in answer.text


def test_an_experiment_gives_the_same_series_of_every_run(client: TestClient, database: Database) -> None:
    experiment_id = add_experiment(database)
    first = add_run(database, experiment_id, seed=1)
    second = add_run(database, experiment_id, seed=2, role="candidate", recipe_name="bf16-mixed")
    queued = add_run(database, experiment_id, seed=3, state="queued", attempt=0)
    for run_id in (first, second):
        store(database, run_id, segment(1, {"a": ([1, 2, 3], [1.0, 2.0, 3.0]), "b": ([1], [0.0]), "c": ([1], [0.0])}))
    path = f"/api/v1/experiments/{experiment_id}/series"
    found = ExperimentSeries.model_validate_json(client.get(path, params={"names": "a,b"}).content)
    assert [(run.run_id, run.recipe, run.seed, run.role) for run in found.runs] == [
        (first, "32-true", 1, "baseline"),
        (second, "bf16-mixed", 2, "candidate"),
        (queued, "32-true", 3, "baseline"),
    ]
    assert [sorted(run.series) for run in found.runs] == [["a", "b"], ["a", "b"], []]
    assert found.cursor == f"{first}:1.1,{second}:1.1"
    later = client.get(path, params={"names": "a,b", "after": f'{{"{first}": 2, "{second}": 3}}'}).json()
    assert [{name: one["steps"] for name, one in run["series"].items()} for run in later["runs"]] == [
        {"a": [3]},
        {},
        {},
    ]


def test_events_come_in_order_page_by_page(client: TestClient, database: Database) -> None:
    run_id = add_run(database)
    skips = [frame(n, events.StepSkipped(step=n, scale_before=2.0, scale_after=1.0)) for n in range(2, 8)]
    store(database, run_id, started(1), *skips)
    change_run(database, run_id, attempt=2)
    store(database, run_id, started(1), finished(2), attempt=2)
    path = f"/api/v1/runs/{run_id}/events"
    seen: list[tuple[int, int]] = []
    after: str | None = None
    while True:
        page = client.get(path, params={"limit": 4} | ({"after": after} if after else {})).json()
        seen += [(item["attempt"], item["sequence"]) for item in page["items"]]
        after = page["next_cursor"]
        if after is None:
            break
    assert seen == [(1, n) for n in range(1, 8)] + [(2, 1), (2, 2)]
    kinds = client.get(path, params={"kind": ["finished", "started"], "attempt": 2}).json()["items"]
    assert [item["kind"] for item in kinds] == ["started", "finished"]


def test_logs_are_read_on_from_where_one_was(client: TestClient, database: Database) -> None:
    run_id = add_run(database)
    with database.write() as session:
        store_log(session, run_id, 1, 0, "one\n")
        store_log(session, run_id, 1, 4, "two\n" * 100)
    path = f"/api/v1/runs/{run_id}/logs"
    whole = client.get(path).json()
    assert (whole["text"], whole["next_position"], whole["end_position"]) == ("one\n" + "two\n" * 100, 404, 404)
    assert client.get(path, params={"position": 400}).json()["text"] == "two\n"
    assert client.get(path, params={"tail": 8}).json() == whole | {"text": "two\ntwo\n", "position": 396}
    assert client.get(path, params={"position": 404}).json()["text"] == ""
    change_run(database, run_id, attempt=2)
    assert client.get(path).json()["text"] == ""
    assert client.get(path, params={"attempt": 1, "tail": 4}).json()["text"] == "two\n"


@pytest.mark.parametrize(
    ("name", "media_type", "content", "shown"),
    [
        ("picture.png", "image/png", PNG, True),
        ("fake.png", "image/png", b"<html><script>alert(1)</script>", False),
        ("page.html", "text/html", b"<script>alert(1)</script>", False),
        ("drawing.svg", "image/svg+xml", b"<svg onload='alert(1)'/>", False),
    ],
)
def test_only_real_pictures_are_shown_by_a_browser(
    client: TestClient, database: Database, name: str, media_type: str, content: bytes, shown: bool
) -> None:
    run_id = add_run(database)
    store(database, run_id, artifact(1, name, media_type, content))
    (item,) = client.get(f"/api/v1/runs/{run_id}/artifacts").json()["items"]
    assert (item["name"], item["num_bytes"]) == (name, len(content))
    answer = client.get(item["url"])
    assert answer.content == content
    assert answer.headers["content-type"] == ("image/png" if shown else "application/octet-stream")
    assert answer.headers["content-disposition"].startswith("inline" if shown else "attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    again = client.get(item["url"], headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_hostile_artifact_name_cannot_break_the_header(client: TestClient, database: Database) -> None:
    run_id = add_run(database)
    store(database, run_id, artifact(1, '../../etc/"passwd"\r\nSet-Cookie: a=b ✓', "x/y", b"1"))
    (item,) = client.get(f"/api/v1/runs/{run_id}/artifacts").json()["items"]
    answer = client.get(item["url"])
    assert answer.headers["content-disposition"] == 'attachment; filename="etc_passwd_Set-Cookie_a_b"'
    assert "set-cookie" not in answer.headers


def test_the_newest_attempt_of_an_artifact_is_listed(client: TestClient, database: Database) -> None:
    run_id = add_run(database)
    store(database, run_id, artifact(1, "out.png", "image/png", PNG), artifact(2, "old.png", "image/png", PNG))
    change_run(database, run_id, attempt=2)
    store(database, run_id, artifact(1, "out.png", "image/png", PNG + b"2"), attempt=2)
    items: list[dict[str, Any]] = client.get(f"/api/v1/runs/{run_id}/artifacts").json()["items"]
    assert [(item["name"], item["attempt"]) for item in items] == [("old.png", 1), ("out.png", 2)]
