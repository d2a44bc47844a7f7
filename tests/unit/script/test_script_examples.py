"""The examples: few lines changed, and traces equal to torch loops by hand, to the last bit."""

from __future__ import annotations

import difflib
import subprocess
import sys
from typing import Any

import pytest
from scripts_at_hand import EXAMPLES, LOOPS, NATIVE_FP16, by_hand, run_example

from amp_core.events import Evaluated, Finished, Numerics, Started

RECIPES: dict[str, Any] = {"32-true": "32-true", "bf16-mixed": "bf16-mixed", "16-mixed": NATIVE_FP16}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("precision", RECIPES)
def test_traces_equal_the_loop_by_hand(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        hand = by_hand(precision)
        LOOPS[name](hand, seed)
        collected = run_example(name, RECIPES[precision], seed, monkeypatch)
        series = collected.series()
        assert list(map(repr, series["train/loss"])) == list(map(repr, hand.losses))  # a NaN equals itself here
        if precision == "16-mixed":
            assert collected.all(Finished)[0].skipped_steps == sum(series["amp/skipped"])


@pytest.mark.parametrize("name", LOOPS)
def test_at_most_four_lines_change(name: str) -> None:
    """Beside the import and the report of an evaluation; a second backward or unscaling of its own is one more each."""
    before, after = (
        [line.strip() for line in path.read_text().splitlines() if line.strip()]
        for path in (EXAMPLES / "before" / f"{name}.py", EXAMPLES / f"{name}.py")
    )
    changed = [line[2:] for line in difflib.ndiff(before, after) if line.startswith("+ ")]
    core = [line for line in changed if line != "import amp_core" and not line.startswith("amp.evaluated(")]
    extra = sum("s.unscale" in line or "s.grad" in line for line in core)
    extra += sum("s.backward" in line for line in core) - 1
    assert len(core) - extra <= 4, core


@pytest.mark.parametrize("name", LOOPS)
def test_the_emulated_recipe_runs_and_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    collected = run_example(name, "16-mixed", 0, monkeypatch)
    assert collected.all(Started)[0].numerics == "emulated"
    series = collected.series()
    expected = {"train/loss", "grad/norm", "amp/loss_scale", "amp/skipped", "perf/step_time_s", "perf/samples_per_s"}
    assert expected <= series.keys()
    assert collected.all(Numerics)
    assert collected.all(Evaluated)[-1].final
    assert collected.all(Finished)[0].metrics == collected.all(Evaluated)[-1].metrics


def test_an_example_runs_by_itself_outside_the_worker() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "plain.py")], capture_output=True, text=True, check=False, timeout=120,
        env={"AMPBOARD_RECIPE": "bf16-mixed", "PATH": "", "PYTHONPATH": str(EXAMPLES.parents[1])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
