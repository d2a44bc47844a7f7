"""The controls of charts, decided in Python: axes, chosen series, where a run's points lie."""

from __future__ import annotations

from datetime import UTC, datetime

from server.pages import chart_tools, figures
from server.pages.experiment import divergence_marks


def test_a_run_tells_its_samples_per_step_and_its_start() -> None:
    begun = datetime(2026, 12, 1, 9, tzinfo=UTC)
    metrics = {"perf/samples_per_s": {"mean": 100.0}, "perf/tokens_per_s": {"mean": 6400.0}}
    run = {"id": 3, "result": {"samples": 3200, "steps": 100}, "metrics": metrics, "started_at": begun}
    told = chart_tools.run_of_group(run, "seed 0")
    assert told == {
        "id": 3,
        "label": "seed 0",
        "samples_per_step": 32.0,
        "tokens_per_step": 2048.0,
        "started_at": begun.timestamp(),
    }


def test_what_was_not_recorded_is_none_and_its_axis_cannot_be_chosen() -> None:
    run = {"id": 3, "result": None, "metrics": {}, "started_at": None}
    assert chart_tools.run_of_group(run, "seed 0")["samples_per_step"] is None
    axes = {axis["value"]: axis["known"] for axis in chart_tools.tools([run], ["b", "a"], ["a,b"], [])["axes"]}
    assert axes == {"step": True, "time": True, "wall": True, "samples": False, "tokens": False}


def test_series_are_charted_each_or_together_as_the_address_says() -> None:
    each, together = figures.chosen_charts(["eval/psnr", "train/loss,eval/psnr,none/such"], {"train/loss", "eval/psnr"})
    assert (each.series, each.also, each.title) == ("eval/psnr", (), "eval/psnr")
    assert (together.series, together.also) == ("train/loss", ("eval/psnr",))
    assert figures.layout(together)["yaxis4"]["side"] == "right"
    assert "yaxis4" not in figures.layout(each)
    assert together.names == ["train/loss", "eval/psnr"]


def test_an_address_cannot_ask_for_any_number_of_charts_or_for_unknown_series() -> None:
    known = {f"s/{number}" for number in range(40)}
    assert len(figures.chosen_charts(sorted(known), known)) == figures.MAX_CHOSEN
    assert figures.chosen_charts(["nothing", "", "<script>"], known) == []
    assert len(figures.chosen_charts(["s/1", "s/1"], known)) == 1


def test_divergence_is_marked_where_the_comparison_has_one() -> None:
    recipes = [
        {"recipe": "a", "divergence": {"step": 1200}},
        {"recipe": "b", "divergence": {"step": None}},
        {"recipe": "c"},
    ]
    assert divergence_marks({"recipes": recipes}) == [{"recipe": "a", "step": 1200, "text": "a diverges at step 1,200"}]
