"""Parallel coordinates: which axes there are, and where each run crosses them."""

from __future__ import annotations

from typing import Any

from server.pages import parallel

PRIMARY = {"metric": "accuracy"}


def run(recipe: str, accuracy: object, *, numerics: str = "native", speed: float = 100.0) -> dict[str, Any]:
    summary = {"last": accuracy, "mean": accuracy, "max": accuracy}
    rate = {"last": speed, "mean": speed, "max": speed}
    return {"recipe_name": recipe, "experiment_name": "e", "primary": PRIMARY, "numerics": numerics,
            "metrics": {"eval/accuracy": summary, "perf/samples_per_s": rate}}  # fmt: skip


def config(name: str, *values: object) -> dict[str, Any]:
    return {"name": name, "values": list(values), "differs": len({str(value) for value in values}) > 1}


def test_axes_are_recipe_differing_parameters_and_figures() -> None:
    runs = [run("32-true", 0.98, speed=100), run("bf16-mixed", 0.97, speed=150)]
    rows = [
        config("workload.params.lr", 0.1, 0.2),
        config("workload.params.width", 32, 32),
        config("device", "cpu", "cuda"),
    ]
    axes = parallel.axes_of(parallel.columns_of(runs, rows))
    assert [axis.key for axis in axes] == ["recipe", "workload.params.lr", "perf/samples_per_s", "eval/accuracy"]
    assert axes[0].x == parallel.SIDE
    assert axes[-1].x == parallel.WIDTH - parallel.SIDE
    foot, top = parallel.HEIGHT - parallel.BOTTOM, parallel.TOP
    assert axes[1].ys == (foot, top), "the lowest value lies at the foot, the highest at the top"
    assert axes[3].ys == (top, foot)
    assert [text for _, text in axes[0].ticks] == ["32-true", "bf16-mixed"]


def test_values_that_are_not_finite_lie_below_the_foot_and_missing_ones_interrupt_the_line() -> None:
    runs = [run("a", "NaN"), run("b", 0.5), run("c", 0.9), run("d", None)]
    axes = parallel.axes_of(parallel.columns_of(runs, [config("workload.params.lr", 1, None, 3, 4)]))
    quality = axes[-1]
    assert quality.ys[0] is not None
    assert quality.ys[0] > parallel.HEIGHT - parallel.BOTTOM
    assert quality.ys[3] is None
    assert parallel.path_of(axes, 1).count("M") == 2
    assert parallel.path_of(axes, 2).count("M") == 1


def test_emulated_speed_is_no_figure() -> None:
    runs = [run("a", 0.5, numerics="emulated", speed=10), run("b", 0.6, speed=20), run("c", 0.7, speed=30)]
    speed = next(axis for axis in parallel.axes_of(parallel.columns_of(runs, [])) if axis.key == "perf/samples_per_s")
    assert speed.ys[0] is None


def test_values_over_decades_stand_on_a_log_axis() -> None:
    runs = [run(name, 0.1 * number) for number, name in enumerate("abc", 1)]
    axes = parallel.axes_of(parallel.columns_of(runs, [config("workload.params.lr", 1e-5, 1e-3, 1e-1)]))
    rate = next(axis for axis in axes if axis.key == "workload.params.lr")
    low, middle, high = (y for y in rate.ys if y is not None)
    assert abs(middle - (low + high) / 2) < 0.2
