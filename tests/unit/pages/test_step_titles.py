"""An axis of steps says what it counts where runs are forks."""

from __future__ import annotations

import numpy as np

from server.pages import figures
from server.reports.curves import Curve, svg_of
from server.runs.forked import step_title, step_title_of

FORK = {"fork": {"run": 12, "step": 1000}}
OTHER = {"fork": {"run": 12, "step": 2000}}


def test_steps_of_a_fork_count_from_its_checkpoint() -> None:
    assert step_title(None) == "step"
    assert step_title(FORK["fork"]) == "steps after step 1,000 of run 12"


def test_several_runs_share_a_title_or_are_told_apart() -> None:
    assert step_title_of([]) == "step"
    assert step_title_of([{}, {"fork": None}]) == "step"
    assert step_title_of([FORK, FORK]) == "steps after step 1,000 of run 12"
    for mixed in ([FORK, {}], [FORK, OTHER]):
        assert step_title_of(mixed) == "step; of forks: after the fork"


def test_live_and_still_charts_carry_it() -> None:
    described = figures.describe([figures.LOSS, figures.SCALE], "steps after step 5 of run 2")
    assert {one["layout"]["xaxis"]["title"]["text"] for one in described} == {"steps after step 5 of run 2"}
    assert figures.describe([figures.LOSS])[0]["layout"]["xaxis"]["title"]["text"] == "step"
    curve = Curve(
        label="a", colour="#000", dash="solid", steps=np.array([1, 2], dtype=np.int64), values=np.array([1.0, 2.0])
    )
    assert "steps after step 5 of run 2</text>" in svg_of([curve], "loss", steps="steps after step 5 of run 2")
