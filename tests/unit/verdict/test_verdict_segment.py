"""A verdict on a segment of a training: the horizon and where it began are in its words and in its JSON."""

from __future__ import annotations

import msgspec
import pytest
from verdict_evidence import BF16, FP16, FP32, change, evidence

from amp_core.verdict import as_json, judge
from amp_core.verdict.comparison import from_json
from amp_core.verdict.evidence import ExperimentEvidence, Forked

FORK = Forked(run_id=12, step=1_000, steps=20_000)
OVER = " over 200 steps from step 1,000 of run 12"
GOOD, BAD = [30.0, 30.1, 30.2, 30.1, 30.0], [28.0, 28.1, 28.2, 28.1, 28.0]


def forked(*values: list[float], **given: object) -> ExperimentEvidence:
    recipes = dict(zip((BF16, FP16), values, strict=False))
    whole = evidence(GOOD, recipes, control=[30.0, 30.11, 30.2, 30.1, 30.01], steps=200, **given)
    return msgspec.structs.replace(whole, fork=FORK)


def test_a_good_recipe_is_good_over_the_segment() -> None:
    comparison = judge(forked([30.0, 30.09, 30.2, 30.11, 30.0]))
    (recipe,) = comparison.recipes
    assert recipe.verdict == "SAFE"
    assert comparison.headline.startswith(f"bf16-mixed is as good as 32-true{OVER} (PSNR")
    assert recipe.sentence.startswith(f"As good as 32-true{OVER}: PSNR is")
    assert comparison.caveats[0].startswith(
        "True for 200 steps of photo-denoiser on this CPU from step 1,000 of run 12:"
    )
    assert comparison.caveats[0].endswith("it says nothing about a whole training.")
    assert "all begin at the checkpoint after step 1,000 of run 12" in comparison.why
    assert "same initial weights" not in comparison.why
    assert "weights at the checkpoint perturbed" in comparison.why
    assert comparison.control is not None
    assert "its weights at the checkpoint changed" in comparison.control.sentence


def test_a_bad_recipe_is_bad_over_the_segment() -> None:
    comparison = judge(forked(BAD))
    assert comparison.recipes[0].verdict == "UNSAFE"
    assert comparison.headline.startswith(f"bf16-mixed is not as good as 32-true{OVER}: PSNR is")
    assert comparison.recipes[0].sentence.startswith(f"Worse than 32-true{OVER}: ")


def test_what_is_open_stays_a_segment_and_so_do_more_seeds() -> None:
    given = forked([29.0, 30.9, 30.2, 29.5, 30.4], submission={"workload": "photo-denoiser", "fork": {"run": 12}})
    comparison = judge(given)
    (recipe,) = comparison.recipes
    assert recipe.verdict == "INCONCLUSIVE"
    assert comparison.headline.startswith(f"Not settled for bf16-mixed{OVER}. ")
    assert recipe.next_step is not None
    body = recipe.next_step.submission
    assert body is not None
    assert body["fork"] == {"run": 12, "step": 1_000, "horizon": 200}
    assert "steps" not in body, "the horizon is the length"


def test_more_seeds_keep_no_checkpoints() -> None:
    asked = {"workload": "photo-denoiser", "steps": 200, "keep_checkpoints": [100]}
    given = evidence(GOOD, {BF16: [29.0, 30.9, 30.2, 29.5, 30.4]}, submission=asked, steps=200)
    step = judge(given).recipes[0].next_step
    assert step is not None
    assert step.submission is not None
    assert step.submission["steps"] == 200
    assert "keep_checkpoints" not in step.submission


def test_no_recipe_that_broke_is_safe_to_use_there() -> None:
    broken = change(forked(GOOD), BF16, metric=float("nan"))
    assert f"safe to use{OVER}. " in judge(broken).headline


def test_the_segment_is_in_the_json_and_comes_back() -> None:
    comparison = judge(forked(GOOD))
    spelled = as_json(comparison)
    segment = spelled["segment"]
    assert {name: segment[name] for name in ("run_id", "step", "horizon", "steps")} == {
        "run_id": 12, "step": 1_000, "horizon": 200, "steps": 20_000,
    }  # fmt: skip
    assert "says nothing about a whole training" in segment["sentence"]
    assert spelled["conditions"]["forked_from"] == "step 1,000 of run 12"
    assert spelled["conditions"]["steps"] == 200
    assert from_json(spelled) == comparison
    spelled.pop("segment")
    assert from_json(spelled).segment is None, "as comparisons of before forks are stored"


@pytest.mark.parametrize("values", [GOOD, BAD])
def test_whole_trainings_say_nothing_of_segments(values: list[float]) -> None:
    comparison = judge(evidence(GOOD, {BF16: values}))
    assert comparison.segment is None
    assert " over " not in comparison.headline
    assert "whole training" not in str(as_json(comparison))
    assert FP32.name in comparison.headline
