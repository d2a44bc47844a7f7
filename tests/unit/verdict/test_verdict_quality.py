"""Which word is reached from the numbers, and that it does not depend on how they are written."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_evidence import (
    ACCURACY,
    BF16,
    FP16,
    FP32,
    LOSS,
    PSNR,
    STATIC,
    UNSCALED,
    answer,
    change,
    codes,
    evidence,
    of,
)

from amp_core.verdict import Primary, judge, statistics

BASE = [24.1, 24.4, 24.2, 24.3, 24.25]
RANK = {"UNSAFE": 0, "INCONCLUSIVE": 1, "SAFE WITH CAUTION": 2, "SAFE": 3}
harms_of_five = st.lists(st.floats(-1.0, 1.0), min_size=5, max_size=5)


def plus(values: list[float], harms: list[float], sign: float = -1.0) -> list[float]:
    return [value + sign * harm for value, harm in zip(values, harms, strict=True)]


def test_a_small_difference_is_safe_and_says_its_number() -> None:
    result = answer(evidence(BASE, {BF16: plus(BASE, [0.02, 0.05, -0.01, 0.03, 0.01])}))
    assert result.verdict == "SAFE"
    assert result.sentence.startswith("As good as 32-true: PSNR is 0.02 dB lower on average, at most 0.04 dB lower")
    assert result.quality is not None
    assert result.quality.difference_text == "−0.02 dB"
    assert result.quality.interval_text == "−0.04 to +0.00 dB" or result.quality.interval_text == "−0.04 to 0.00 dB"
    assert codes(result) == {"within_margin"}


def test_a_large_loss_is_unsafe() -> None:
    result = answer(evidence(BASE, {BF16: plus(BASE, [6.2, 6.5, 6.4, 6.3, 6.6])}))
    assert result.verdict == "UNSAFE"
    assert result.sentence == "Worse than 32-true: PSNR is 6.40 dB lower on average."
    assert codes(result) == {"margin_exceeded"}


def test_an_interval_over_the_margin_is_inconclusive_and_asks_for_seeds() -> None:
    result = answer(evidence(BASE, {BF16: plus(BASE, [0.6, -0.4, 0.1, 0.3, -0.2])}))
    assert result.verdict == "INCONCLUSIVE"
    assert result.next_step is not None
    assert result.next_step.action == "more_seeds"


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_are_never_safe(seeds: int) -> None:
    result = answer(evidence(BASE[:seeds], {BF16: BASE[:seeds]}))
    assert result.verdict == "INCONCLUSIVE"
    assert "too_few_seeds" in codes(result)


def test_a_better_recipe_is_safe_without_a_number_of_harm() -> None:
    result = answer(evidence(BASE, {BF16: plus(BASE, [-0.5, -0.6, -0.55, -0.5, -0.6])}))
    assert result.verdict == "SAFE"
    assert "0.55 dB higher on average, in the worst case still 0.50 dB higher" in result.sentence


def test_lower_is_better_and_relative_margins() -> None:
    base = [2.0, 2.1, 1.9, 2.05, 2.0]
    good = [value * (1 + harm) for value, harm in zip(base, [0.001, 0.002, 0.0, 0.001, 0.002], strict=True)]
    bad = [value * 1.05 for value in base]
    result = judge(evidence(base, {BF16: good, FP16: bad}, primary=LOSS))
    assert of(result, BF16).verdict == "SAFE"
    assert "loss is 0.1 % higher on average" in of(result, BF16).sentence
    assert of(result, FP16).verdict == "UNSAFE"
    assert result.primary.margin_text == "1 % of the baseline"


def test_accuracies_are_told_in_points_and_floored_at_their_resolution() -> None:
    base = [0.97, 0.975, 0.98, 0.972, 0.969]
    result = answer(evidence(base, {BF16: base}, primary=ACCURACY))
    assert result.verdict == "SAFE"
    assert result.quality is not None
    assert result.quality.floored
    assert result.quality.interval == pytest.approx((-1 / 360, 1 / 360))
    assert "accuracy is the same on average, at most 0.28 percentage points lower" in result.sentence
    coarse = evidence(base, {BF16: base}, primary=msgspec.structs.replace(ACCURACY, margin=1 / 400))
    assert answer(coarse).verdict == "INCONCLUSIVE"
    assert "Evaluate on more samples" in answer(coarse).next_step.sentence  # type: ignore[union-attr]


def test_a_relative_margin_of_a_zero_baseline_is_said() -> None:
    result = answer(evidence([0.0, 0.1, 0.1], {BF16: [0.0, 0.1, 0.1]}, primary=LOSS))
    assert result.verdict == "INCONCLUSIVE"
    assert "baseline_zero" in codes(result)


@given(harms_of_five)
def test_the_word_is_that_of_the_interval(harms: list[float]) -> None:
    result = answer(evidence(BASE, {BF16: plus(BASE, harms)}))
    floor = 2.0**-23 * 24.4
    interval = statistics.paired_interval(np.array([b - (b - h) for b, h in zip(BASE, harms, strict=True)]), floor)
    edge = min(abs(float(interval.upper) - 0.25), abs(float(interval.lower) - 0.25))
    if edge < 1e-9:
        return
    expected = "SAFE" if interval.upper < 0.25 else "UNSAFE" if interval.lower > 0.25 else "INCONCLUSIVE"
    assert result.verdict == expected


@given(harms_of_five, st.floats(0.0, 2.0))
def test_more_harm_to_every_seed_never_makes_it_safer(harms: list[float], more: float) -> None:
    before = answer(evidence(BASE, {BF16: plus(BASE, harms)})).verdict
    after = answer(evidence(BASE, {BF16: plus(BASE, [harm + more for harm in harms])})).verdict
    assert RANK[str(after)] <= RANK[str(before)]


@given(harms_of_five)
def test_turning_the_direction_around_changes_no_word(harms: list[float]) -> None:
    turned = msgspec.structs.replace(PSNR, higher_is_better=False)
    up = answer(evidence(BASE, {BF16: plus(BASE, harms)}))
    down = answer(evidence([-b for b in BASE], {BF16: [-v for v in plus(BASE, harms)]}, primary=turned))
    assert up.verdict == down.verdict
    assert up.quality is not None
    assert down.quality is not None
    assert up.quality.interval == down.quality.interval


@settings(max_examples=50)
@given(harms_of_five, st.integers(-8, 8))
def test_the_unit_changes_no_word(harms: list[float], exponent: int) -> None:
    factor = 2.0**exponent  # exact in binary, so that rounding cannot move an edge
    scaled = msgspec.structs.replace(PSNR, margin=PSNR.margin * factor)
    given_values = plus(BASE, harms)
    here = answer(evidence(BASE, {BF16: given_values})).verdict
    there = answer(
        evidence([b * factor for b in BASE], {BF16: [v * factor for v in given_values]}, primary=scaled)
    ).verdict
    assert here == there


@given(st.permutations(range(5)), harms_of_five)
def test_the_order_of_seeds_changes_no_word(order: list[int], harms: list[float]) -> None:
    values = plus(BASE, harms)
    before = answer(evidence(BASE, {BF16: values}))
    after = answer(evidence([BASE[i] for i in order], {BF16: [values[i] for i in order]}))
    assert before.quality is not None
    assert after.quality is not None
    assert before.quality.mean_harm == pytest.approx(after.quality.mean_harm)


def test_recipes_to_choose_from_pass_holm_and_ruled_out_ones_take_no_share() -> None:
    tight = [0.02, 0.05, -0.01, 0.03, 0.01]
    loose = [0.25, 0.02, 0.20, 0.00, 0.16]  # alone below the margin: p is a little below 0.05
    alone = answer(evidence(BASE, {BF16: plus(BASE, loose)}))
    assert alone.verdict == "SAFE"
    assert alone.quality is not None
    assert alone.quality.holm is not None
    assert 0.01 < alone.quality.holm.p_value < 0.05
    several = judge(evidence(BASE, {BF16: plus(BASE, tight), FP16: plus(BASE, loose), UNSCALED: [17.8] * 5}))
    assert of(several, BF16).quality.holm.num_recipes == 3  # type: ignore[union-attr]
    assert of(several, BF16).verdict == "SAFE"
    both = judge(evidence(BASE, {BF16: plus(BASE, loose), FP16: plus(BASE, loose), STATIC: plus(BASE, loose)}))
    assert {one.verdict for one in both.recipes} == {"INCONCLUSIVE"}
    assert "several_recipes" in codes(both.recipes[0])


def test_the_control_says_what_no_difference_looks_like() -> None:
    calm = judge(evidence(BASE, {BF16: BASE}, control=plus(BASE, [0.02, -0.03, 0.01, 0.0, -0.01])))
    assert calm.control is not None
    assert calm.control.passes is True
    assert "what no difference looks like" in calm.control.sentence
    assert calm.recipes[0].verdict == "SAFE"


def test_a_control_beyond_the_margin_means_the_experiment_cannot_tell() -> None:
    noisy = judge(evidence(BASE, {BF16: BASE}, control=plus(BASE, [0.6, -0.7, 0.5, -0.4, 0.2])))
    assert noisy.control is not None
    assert noisy.control.passes is False
    assert noisy.recipes[0].verdict == "INCONCLUSIVE"
    assert "control_fails" in codes(noisy.recipes[0])
    assert "cannot tell" in noisy.headline
    harmed = judge(evidence(BASE, {BF16: [12.0] * 5}, control=plus(BASE, [0.6, -0.7, 0.5, -0.4, 0.2])))
    assert harmed.recipes[0].verdict == "UNSAFE"


def test_an_incomplete_control_blocks_nothing_and_is_said() -> None:
    ended = evidence(BASE, {BF16: BASE}, control=BASE)
    broken = tuple(
        msgspec.structs.replace(run, state="failed", metric=None, reason={"kind": "lost", "message": "gone"})
        for run in ended.control_runs[:3]
    )
    result = judge(msgspec.structs.replace(ended, control_runs=broken + ended.control_runs[3:]))
    assert result.control is not None
    assert result.control.passes is None
    assert result.recipes[0].verdict == "SAFE"
    assert any("A/A control is incomplete" in caveat for caveat in result.caveats)


def test_no_verdict_before_every_run_has_ended() -> None:
    ended = evidence(BASE, {BF16: [17.0] * 5})
    result = judge(change(ended, BF16, 4, state="running", metric=None))
    assert result.state == "so_far"
    assert result.recipes[0].verdict is None
    assert result.recipes[0].next_step is None
    assert result.recipes[0].sentence.startswith("So far 4 of 5 pairs: PSNR is 7.")
    assert result.headline == "So far 9 of 10 runs have ended; the verdict comes with the last."
    assert "margin_exceeded" not in codes(result.recipes[0])


def test_a_missing_baseline_is_inconclusive_with_its_reason() -> None:
    ended = change(evidence(BASE, {BF16: BASE}), FP32, 2, state="failed", metric=None, reason={"kind": "lost"})
    result = answer(ended)
    assert result.verdict == "INCONCLUSIVE"
    assert "32-true did not finish for seed 2" in result.sentence
    assert result.next_step is not None
    assert result.next_step.action is None
    assert result.findings == []


def test_a_baseline_that_is_not_finite_is_the_workloads_fault() -> None:
    result = answer(evidence([24.0, math.nan, 24.1], {BF16: [24.0, math.nan, 24.1]}))
    assert result.verdict == "INCONCLUSIVE"
    assert "baseline_unstable" in codes(result)
    assert result.findings == []


def test_a_cancelled_candidate_is_missing_not_guilty() -> None:
    ended = change(evidence(BASE, {BF16: BASE}), BF16, 1, state="cancelled", metric=None, reason={"kind": "cancelled"})
    result = answer(ended)
    assert result.verdict == "INCONCLUSIVE"
    assert result.findings == []


def test_a_custom_metric_without_a_unit_is_told_plainly() -> None:
    primary = Primary(metric="top1_score", higher_is_better=True, margin=2.0)
    result = answer(evidence([50.0, 51.0, 52.0], {BF16: [49.5, 50.6, 51.4]}, primary=primary))
    assert "top1 score is 0.5 lower on average" in result.sentence
