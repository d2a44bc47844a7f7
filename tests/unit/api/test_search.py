"""The query language: what each word means, what is refused and where, and that pages of a sorted list are whole."""

from __future__ import annotations

import contextlib
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import update
from team import Team

from server.db.tables import Experiment, Run, RunParameter, Series
from server.errors import Invalid
from server.search.language import parse
from server.search.terms import Measure, Moment, Named, Number, Parameter, Text

RUNS = "/api/v1/runs"
NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("", []),
        ("two words", [Text, Text]),
        ('"two words" -old', [Text, Text]),
        ("recipe:16-mixed,bf16 status:failed", [Named, Named]),
        ("eval/accuracy>0.95 loss.min<=1e-3 metrics.loss<3", [Measure, Measure, Measure]),
        ("lr=0.1 params.norm=batch seed>=3 step:>10", [Parameter, Parameter, Number, Number]),
        ("created:<7d ended:>2026-01-31 started:2026-01-31T10:00", [Moment, Moment, Moment]),
        ("' or 1=1 --", [Text, Text, Text, Text]),
        ("100% -3 a_b", [Text, Text, Text]),
    ],
)
def test_each_word_is_read_as_what_it_looks_like(query: str, kinds: list[type]) -> None:
    assert [type(term) for term in parse(query)] == kinds


def test_times_are_ages_or_dates() -> None:
    def bounds(query: str) -> tuple[datetime | None, datetime | None]:
        (term,) = parse(query, NOW)
        assert isinstance(term, Moment)
        return term.low, term.high

    day = datetime(2026, 1, 31, tzinfo=UTC)
    assert bounds("created:<7d") == (NOW - timedelta(days=7), None)
    assert bounds("created:>2h") == (None, NOW - timedelta(hours=2))
    assert bounds("created:2026-01-31") == (day, day + timedelta(days=1))
    assert bounds("created:>2026-01-31") == (day + timedelta(days=1), None)
    assert bounds("created:<2026-01-31") == (None, day)


@pytest.mark.parametrize(
    ("query", "place", "rule", "remedy"),
    [
        ("ok staus:failed", 4, "staus is no field", "did you mean status?"),
        ("a  status:", 4, "nothing follows status:", "write status:value"),
        ("eval/accuracy>high", 1, "'high' is no number", "compare with a number"),
        ("x created:<7x", 3, "'7x' is no age and no date", "created:<7d"),
        ('two "words', 5, "a quotation mark is not closed", "both marks"),
        ("status>3", 1, "status is no number", "status:value"),
        ("seed:x", 1, "'x' is no number", "compare"),
        ("-lr>", 1, "nothing follows >", "lr>0.5"),
    ],
)
def test_the_offending_word_is_named_with_its_place(query: str, place: int, rule: str, remedy: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(query)
    (fault,) = caught.value.faults
    assert fault.rule.startswith(f"at character {place}, ")
    assert rule in fault.rule
    assert remedy in fault.remedy
    assert query[place - 1 :].startswith(str(fault.value))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(query: str) -> None:
    with contextlib.suppress(Invalid):
        assert all(term.word.text in query for term in parse(query))


@pytest.fixture
def runs(team: Team) -> dict[str, int]:
    """Six runs of two experiments with metrics and parameters; by a short name."""
    client = team.client("submitter")
    bodies = [
        {
            "name": "first try",
            "tags": ["baseline", "night"],
            "params": {"lr": 0.1, "norm": "batch"},
            "project": "vision",
        },
        {"name": "second", "tags": ["base"], "params": {"lr": 0.001, "norm": "none"}},
    ]
    found: dict[str, int] = {}
    for number, body in enumerate(bodies):
        body |= {"workload": "digits-cnn", "seeds": 1, "recipes": ["fp32", "bf16", "fp16"], "control": False,
                 "measure_gain": False}  # fmt: skip
        detail = client.post("/api/v1/experiments", json=body).json()
        for run in detail["runs"]:
            found[f"{number}:{run['recipe_name']}"] = run["id"]
    with team.database.write() as session:
        for place, run_id in enumerate(found.values()):
            for attempt in (1, 2) if place == 1 else (1,):
                value = 0.9 + place / 100 - (0.5 if attempt == 2 else 0.0)
                session.add(
                    Series(run_id=run_id, attempt=attempt, name="eval/accuracy", num_points=2, first_step=1,
                           last_step=2, last_value=struct.pack("<d", value), finite_last=value, finite_min=value - 0.1,
                           finite_max=value, finite_sum=2 * value - 0.1, num_nan=0,
                           is_newest=attempt == 2 or place != 1)
                )  # fmt: skip
        session.execute(update(Run).where(Run.id == found["0:16-mixed"]).values(state="failed"))
        session.execute(
            update(Series).where(Series.run_id == found["0:16-mixed"]).values(num_nan=1)
        )  # fmt: skip
        old = datetime.now(UTC) - timedelta(days=30)
        session.execute(update(Run).where(Run.id == found["1:32-true"]).values(created_at=old))
    return found


def _found(team: Team, names: dict[str, int], query: str, **more: Any) -> list[str]:
    answer = team.client("viewer").get(RUNS, params={"q": query, **more}).json()
    by_id = {run_id: name for name, run_id in names.items()}
    return [by_id[item["id"]] for item in answer["items"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("recipe:16-mixed", {"0:16-mixed", "1:16-mixed"}),
        ("recipe:fp16", {"0:16-mixed", "1:16-mixed"}),
        ("recipe:*mixed -recipe:bf16", {"0:16-mixed", "1:16-mixed"}),
        ("status:failed", {"0:16-mixed"}),
        ("status:queued,failed tag:baseline", {"0:32-true", "0:bf16-mixed", "0:16-mixed"}),
        ("tag:base", {"1:32-true", "1:bf16-mixed", "1:16-mixed"}),
        ("eval/accuracy>0.935", {"1:bf16-mixed", "1:16-mixed"}),
        ("eval/accuracy<0.5", {"0:bf16-mixed"}),
        ("eval/accuracy.min>=0.84 eval/accuracy.max<0.945", {"1:bf16-mixed"}),
        ("eval/accuracy:nan", {"0:16-mixed"}),
        ("lr>0.01", {"0:32-true", "0:bf16-mixed", "0:16-mixed"}),
        ("params.norm=none lr=1e-3 recipe:fp32", {"1:32-true"}),
        ("norm=none -recipe:fp32", {"1:bf16-mixed", "1:16-mixed"}),
        ("created:>7d", {"1:32-true"}),
        ("created:<7d second", {"1:bf16-mixed", "1:16-mixed"}),
        ('"first try" bf16', {"0:bf16-mixed"}),
        ("project:vision owner:submitter role:baseline", {"0:32-true"}),
        ("experiment:second workload:digits* seed:0 step<1 recipe:bf16", {"1:bf16-mixed"}),
        ("tag:nothing", set()),
    ],
)
def test_words_find_runs(team: Team, runs: dict[str, int], query: str, expected: set[str]) -> None:
    assert set(_found(team, runs, query)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("status:failed", {"first try"}),
        ("status:queued", {"first try", "second"}),
        ("recipe:bf16 eval/accuracy>0.9", {"second"}),
        ("lr<0.01", {"second"}),
        ("-status:failed", {"second"}),
        ("-verdict:unsafe tag:night", {"first try"}),
        ("try", {"first try"}),
    ],
)
def test_words_find_experiments(team: Team, runs: dict[str, int], query: str, expected: set[str]) -> None:
    answer = team.client("viewer").get("/api/v1/experiments", params={"q": query}).json()
    assert {item["name"] for item in answer["items"]} == expected


@pytest.mark.parametrize("query", ["status:ended2", "verdict:great", "nope:1"])
def test_values_that_cannot_be_are_refused(team: Team, query: str) -> None:
    for url in (RUNS, "/api/v1/experiments"):
        answer = team.client("viewer").get(url, params={"q": f"x {query}"})
        assert answer.status_code == 422
        assert "at character 3" in answer.json()["errors"][0]["rule"]


@pytest.mark.parametrize("limit", [1, 2, 200])
@pytest.mark.parametrize("sort", ["eval/accuracy", "-eval/accuracy.max", "-eval/accuracy.mean", "created", "-created"])
def test_pages_of_a_sorted_list_hold_each_run_once(team: Team, runs: dict[str, int], sort: str, limit: int) -> None:
    with team.database.write() as session:
        session.execute(
            update(Series).where(Series.run_id == runs["1:16-mixed"]).values(finite_last=0.9, finite_max=0.9)
        )
        row = session.get_one(Series, (runs["0:32-true"], 1, "eval/accuracy"))
        session.delete(row)
    items: list[Any] = []
    cursor = None
    while True:
        params = {"sort": sort, "limit": limit, **({"cursor": cursor} if cursor else {})}
        page = team.client("viewer").get(RUNS, params=params).json()
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(item["id"] for item in items) == sorted(runs.values())
    if "accuracy" in sort:
        assert items[-1]["id"] == runs["0:32-true"]
        part = "max" if "max" in sort else "mean" if "mean" in sort else "last"
        values = [item["metrics"]["eval/accuracy"][part] for item in items[:-1]]
        assert part == "last" or values == sorted(values, reverse=sort.startswith("-"))


def test_submitted_parameters_are_rows(team: Team, runs: dict[str, int]) -> None:
    with team.database.read() as session:
        row = session.get_one(RunParameter, (runs["0:32-true"], "lr"))
        assert (row.text, row.number) == ("0.1", 0.1)
        assert session.get_one(Experiment, 1).name == "first try"
