"""Skipped steps, lost samples and the parts of memory as the experiment page tells them."""

from __future__ import annotations

from typing import Any

from server.pages import costs
from server.pages.colours import STYLES

LOOKS = {"32-true": STYLES["fp32"], "16-mixed": STYLES["fp16"]}


def run(recipe: str, result: dict[str, int] | None = None, role: str = "candidate", **memory: float) -> dict[str, Any]:
    metrics = {f"memory/{name}_bytes": {"last": value, "max": 2 * value} for name, value in memory.items()}
    return {"recipe_name": recipe, "role": role, "result": result, "metrics": metrics}


def experiment(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"recipes": [{"name": "32-true"}, {"name": "16-mixed"}], "runs": list(runs)}


def ended(steps: int, skipped: int) -> dict[str, int]:
    return {"steps": steps, "skipped_steps": skipped, "samples": steps * 10, "lost_samples": skipped * 10}


def test_steps_and_samples_are_added_up_over_the_runs_that_ended() -> None:
    told = experiment(run("16-mixed", ended(100, 3)), run("16-mixed", ended(100, 1)), run("16-mixed"))
    baseline, row = costs.skips(told, LOOKS)
    assert baseline["known"] is False
    assert {key: row[key] for key in ("runs", "steps", "skipped", "skipped_share", "samples", "lost")} == {
        "runs": "2 of 3", "steps": "200", "skipped": "4", "skipped_share": "2.00 %", "samples": "2,000", "lost": "40",
    }  # fmt: skip
    assert row["tone"] == "caution", "more than 1 % of the samples are lost"


def test_the_control_and_analyses_are_not_counted() -> None:
    told = experiment(run("32-true", ended(10, 5), role="control"), run("32-true", ended(10, 0), role="baseline"))
    assert costs.skips(told, LOOKS)[0]["skipped"] == "0"


def test_memory_bars_share_one_scale_and_emulated_recipes_have_none() -> None:
    told = experiment(
        run("32-true", role="baseline", weights=4e6, saved_for_backward=12e6, process=1e8),
        run("16-mixed", weights=4e6, saved_for_backward=4e6),
    )
    full, half = costs.memory(told, LOOKS, set())
    assert [part["width"] for part in full["parts"]] == [25.0, 75.0]
    assert [(part["x"], part["width"]) for part in half["parts"]] == [(0.0, 25.0), (25.0, 25.0)]
    assert full["peak"] == "peak of the process 200 MB"
    assert [one["recipe"] for one in costs.memory(told, LOOKS, {"16-mixed"})] == ["32-true"]
    assert costs.memory(experiment(run("32-true")), LOOKS, set()) == []
