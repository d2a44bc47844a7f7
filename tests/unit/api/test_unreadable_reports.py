"""Reports of any shape: a run's page shows them or says that it cannot read them, and never fails."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from team import Team
from test_analysis_pages import SENSITIVITY, STRESS, _asked, _trained

from amp_core.events import Frame, Report
from server.db.tables import Run
from server.metrics.write import store_frames

SHAPES: dict[str, dict[str, Any]] = {
    "sensitivity": SENSITIVITY,
    "stress": STRESS,
    "batch-size": {
        "answer": "A batch of 64 fits.",
        "points": [
            {"batch": 64, "fits": True, "reason": "", "samples_per_s": 900.0, "peak_bytes": 10**9},
            {"batch": 128, "fits": False, "reason": "out of memory", "samples_per_s": None, "peak_bytes": None},
        ],
    },
    "layers": {
        "step": 3, "dtype": "float16", "reference": "float32", "loss": 1.5, "reference_loss": 1.4, "departs": "1",
        "layers": [{"module": "1", "type": "Linear", "output": {"relative_error": 0.1, "cosine": 1.0, "ulp": 3.0,
                    "max_abs": 2.0, "flushed": 0.0}}],
    },
}  # fmt: skip
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)  # NUL is never stored
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT | st.sampled_from(["NaN", "Infinity", "<b>", {}, []]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value but the whole."""
    inner = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [place for key, one in inner for place in [(*path, key), *places(one, (*path, key))]]


@st.composite
def spoilt(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """A report with one or two values replaced or missing; sometimes anything at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.dictionaries(st.sampled_from(sorted(SHAPES[kind])), JSON))
    content = copy.deepcopy(SHAPES[kind])
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(places(content)))
        held = content
        for key in path[:-1]:
            held = held[key]
        if draw(st.booleans()) and isinstance(held, dict):
            del held[path[-1]]
        else:
            held[path[-1]] = draw(JSON)
    return content


def _report(team: Team, run: int, sequence: int, kind: str, content: dict[str, Any]) -> None:
    with team.database.write() as session:
        row = session.get_one(Run, run)
        row.state, row.attempt = "running", 1
        session.flush()
        frame = Frame(sequence=sequence, at=0.0, event=Report(kind=kind, content=content, final=True))
        store_frames(session, run, 1, [frame])


@pytest.mark.parametrize("kind", sorted(SHAPES))
def test_no_report_costs_the_page(team: Team, kind: str) -> None:
    experiment, trained = _trained(team)
    run = _asked(team, trained, "stress")
    with team.database.write() as session:
        session.get_one(Run, run).kind = kind  # each of them on one run: no host here could search for a batch
    browser, sequence = team.browser("submitter"), 0

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(content=spoilt(kind))
    def any_shape(content: dict[str, Any]) -> None:
        nonlocal sequence
        sequence += 1
        _report(team, run, sequence, kind, content)
        shown = browser.get(f"/runs/{run}")
        assert shown.status_code == 200, content
        assert f'data-analysis="{kind}"' in shown.text
        raw = team.client("viewer").get(f"/api/v1/runs/{run}/report")
        assert raw.status_code == 200
        assert raw.json()["content"] == content

    any_shape()
    assert browser.get(f"/experiments/{experiment}").status_code == 200
    assert browser.get("/batch-size?workload=digits-cnn").status_code == 200


def test_an_unreadable_report_says_so_and_gives_the_json(team: Team) -> None:
    run = _asked(team, _trained(team)[1], "stress")
    _report(team, run, 1, "stress", {"answer": "half of it", "cases": [{"case": "huge_inputs"}]})
    shown = team.browser("viewer").get(f"/runs/{run}").text
    assert "Unreadable report" in shown
    assert f'href="/api/v1/runs/{run}/report"' in shown
    _report(team, run, 2, "stress", STRESS)
    shown = team.browser("viewer").get(f"/runs/{run}").text
    assert "Unreadable report" not in shown
    assert STRESS["answer"] in shown
