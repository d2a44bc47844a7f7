"""What a search box is offered while somebody types, and which words it marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from team import Team

from server.db.engine import Database
from server.db.tables import Series
from server.errors import Invalid
from server.search.language import faults_of, parse

URL = "/api/v1/search/suggestions"


@pytest.fixture
def team(database: Database, tmp_path: Path) -> Team:
    made = Team(database, tmp_path)
    made.add_workload()
    made.add_worker()
    body = {"workload": "digits-cnn", "seeds": 1, "tags": ["night shift", "baseline"], "params": {"lr": 0.25}}
    run = made.client("admin").post("/api/v1/experiments", json=body).json()["runs"][0]["id"]
    with database.write() as session:
        for name in ("eval/accuracy", "train/loss"):
            session.add(
                Series(
                    run_id=run, attempt=1, name=name, num_points=1, first_step=1, last_step=1, last_value=b"",
                    finite_last=1.0, finite_min=1.0, finite_max=1.0,
                )
            )  # fmt: skip
    return made


def suggested(team: Team, query: str, at: int | None = None, page: str = "runs") -> dict[str, Any]:
    params: dict[str, Any] = {"q": query, "page": page} | ({"at": at} if at is not None else {})
    answer = team.client("viewer").get(URL, params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found | {"texts": [item["text"] for item in found["items"]]}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("rec", "recipe:"), ("-sta", "-status:"), ("eval", "eval/accuracy>"), ("lr", "params.lr="),
        ("status:fa", "status:failed"), ("recipe:bf", "recipe:bf16-mixed"), ("tag:ni", 'tag:"night shift"'),
        ("tag:baseline,ni", 'tag:baseline,"night shift"'), ("owner:", "owner:admin"), ("params.lr=0", "params.lr=0.25"),
        ("workload:dig", "workload:digits-cnn"), ("created:", "created:<7d"), ('tag:"night s', 'tag:"night shift"'),
    ],
)  # fmt: skip
def test_fields_and_values_are_offered(team: Team, query: str, expected: str) -> None:
    found = suggested(team, f"status:queued {query}")
    assert expected in found["texts"]
    assert (found["start"], found["end"]) == (14, 14 + len(query))


def test_the_word_at_the_cursor_is_completed(team: Team) -> None:
    found = suggested(team, "rec status:failed", at=3)
    assert (found["start"], found["end"], found["texts"][0]) == (0, 3, "recipe:")
    assert "running" not in str(suggested(team, "numerics:")["texts"])


def test_wrong_words_are_marked_where_they_stand(team: Team) -> None:
    faults = suggested(team, "recipe:fp16 staus:failed loss> seed:x")["faults"]
    assert [(one["start"], one["end"]) for one in faults] == [(12, 24), (25, 30), (31, 37)]
    assert faults[0]["rule"] == "staus is no field"
    assert "did you mean status" in faults[0]["remedy"]


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='ab:<>="-, .1/*', max_size=30))
def test_a_query_is_refused_exactly_when_a_word_is_marked(query: str) -> None:
    try:
        parse(query)
    except Invalid:
        assert faults_of(query) != []
    else:
        assert faults_of(query) == []
