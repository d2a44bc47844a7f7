"""Chart layouts and the scorecard's drawing, decided in Python."""

from __future__ import annotations

import math
import re

import pytest

from server.pages import figures
from server.pages.colours import STYLES
from server.pages.whisker import WIDTH, Difference, Scale, draw


def test_the_lane_shares_the_x_axis_of_the_loss_scale() -> None:
    layout = figures.layout(figures.SCALE)
    assert layout["xaxis"]["anchor"] == "y2"
    assert layout["yaxis"]["domain"][0] > layout["yaxis2"]["domain"][1]
    assert figures.SCALE.names == ["amp/loss_scale", "amp/skipped"]


def test_no_chart_smooths_scrolls_or_repeats_the_legend() -> None:
    for chart in figures.describe(figures.experiment_charts()):
        assert chart["layout"]["showlegend"] is False
        assert chart["help"]
    assert figures.CONFIG["scrollZoom"] is False


def test_charts_of_speed_leave_emulated_runs_out() -> None:
    assert {chart.id for chart in figures.experiment_charts() if chart.speed} == {"throughput", "memory"}


def test_a_run_has_a_chart_for_every_series_it_wrote() -> None:
    names = ["train/loss", "eval/psnr", "eval/loss", "my/thing", "amp/skipped"]
    charts = figures.run_charts(names, "psnr", "dB")
    assert [chart.series for chart in charts] == ["train/loss", "eval/psnr", "eval/loss", "my/thing"]
    assert len({chart.id for chart in charts}) == len(charts)


def test_lines_take_the_colours_of_their_slot() -> None:
    style = figures.line_style(STYLES["bf16"])
    assert style["colour"] == {"light": STYLES["bf16"].light, "dark": STYLES["bf16"].dark}


def cx_of(svg: str) -> float:
    found = re.search(r'class="dot" cx="([\d.]+)"', svg)
    assert found
    return float(found.group(1))


def test_worse_is_left_and_the_margin_is_always_inside() -> None:
    better = Difference(mean=0.1, interval=(0.0, 0.2), seeds=[0.05, 0.15])
    worse = Difference(mean=-0.1, interval=(-0.2, 0.0), seeds=[-0.05])
    scale = Scale(0.25, [better, worse])
    assert cx_of(draw(scale, worse, "a")) < scale.x(0.0) < cx_of(draw(scale, better, "b"))
    assert 0 < scale.x(-0.25) < scale.x(0.0)


def test_one_hopeless_recipe_does_not_shrink_the_others() -> None:
    hopeless, fine = (
        Difference(mean=-6.4, interval=(-6.5, -6.3), seeds=[-6.4]),
        Difference(mean=0.0, interval=None, seeds=[]),
    )
    scale = Scale(0.25, [hopeless, fine])
    assert scale.x(0.0) - scale.x(-0.25) > WIDTH / 8
    assert '<path class="dot"' in draw(scale, hopeless, "beyond")


@pytest.mark.parametrize("mean", [math.nan, math.inf, -math.inf])
def test_a_mean_that_is_no_number_is_not_drawn_as_one(mean: float) -> None:
    svg = draw(
        Scale(0.25, [Difference(mean=0.0, interval=None, seeds=[])]),
        Difference(mean=mean, interval=None, seeds=[]),
        "x",
    )
    assert "nan" not in svg
    assert "inf" not in svg


def test_the_label_is_escaped() -> None:
    svg = draw(Scale(1.0, []), Difference(mean=0.0, interval=None, seeds=[]), '"><script>')
    assert "<script>" not in svg
