"""The layer-by-layer comparison on the run page."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from team import Team
from test_diagnosis_pages import experiment_with

from amp_core.events import Report
from server.pages.layers import figure

OFF = {"relative_error": 0.5, "cosine": 0.9, "ulp": 80.0, "max_abs": 4096.0, "flushed": 0.25, "num_bad": 0}
FINE = {**OFF, "relative_error": 0.001, "flushed": 0.0}


def report(departs: str | None, step: int = 20) -> Report:
    layers = [
        {"module": "first", "type": "Linear", "output": FINE, "weight": FINE},
        {"module": "norm", "type": "LayerNorm", "output": OFF},
    ]
    content: dict[str, Any] = {
        "step": step, "dtype": "bfloat16", "reference": "fp32", "loss": 0.5, "reference_loss": 0.1,
        "departs": departs, "layers": layers,
    }  # fmt: skip
    return Report(kind="layers", content=content, final=True)


@pytest.mark.parametrize(
    ("departs", "words"),
    [("norm", "The numbers part at"), ("loss", "look at the code of the loss"), (None, "within ordinary rounding")],
)
def test_the_page_says_where_numbers_part_and_hands_the_figure_over(
    team: Team, departs: str | None, words: str
) -> None:
    _, run = experiment_with(team, report(departs))
    page = team.browser("viewer").get(f"/runs/{run}").text
    assert words in page
    assert 'data-figure="layers-20"' in page
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    (drawn,) = json.loads(found[1])["figures"]
    assert drawn["data"][0]["x"] == ["first", "norm"]
    assert bool(drawn["layout"]["shapes"]) == (departs == "norm")


def test_what_is_not_finite_leaves_a_gap_and_no_error_is_still_drawn() -> None:
    rows = [
        {"module": "a", "output": {"relative_error": "Infinity"}},
        {"module": "b", "output": {"relative_error": 0.0}},
    ]
    assert figure(1, rows, None)["data"][0]["y"][0] is None
    assert figure(1, rows, None)["data"][0]["y"][1] > 0  # the axis is logarithmic


def test_a_run_without_a_comparison_shows_none(team: Team) -> None:
    _, run = experiment_with(team)
    assert "Layer by layer, step" not in team.browser("viewer").get(f"/runs/{run}").text


def test_the_first_step_is_shown_below_the_last(team: Team) -> None:
    _, run = experiment_with(team, report(None, 1), report("norm", 20))
    page = team.browser("viewer").get(f"/runs/{run}").text
    assert 0 < page.index('data-figure="layers-20"') < page.index('data-figure="layers-1"')
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    assert [figure["id"] for figure in json.loads(found[1])["figures"]] == ["layers-20", "layers-1"]
