"""Stability findings: what alarms, what does not, and which cure is proposed."""

from __future__ import annotations

import math

import pytest
from verdict_evidence import (
    BF16,
    FP16,
    FP32,
    STATIC,
    UNSCALED,
    answer,
    change,
    codes,
    evidence,
    numerics,
    skips,
    zero_gradients,
)

from amp_core.events import NonFinite
from amp_core.verdict import judge

BASE = [24.1, 24.4, 24.2, 24.3, 24.25]
ZERO = {"body.0": 0.10, "body.2": 0.995, "body.4": 1.0}
TRAINS = {"body.0": 0.02, "body.2": 0.03, "body.4": 0.0}


def nan_at(step: int, where: str, name: str = "body.2.weight") -> NonFinite:
    return NonFinite(step=step, where=where, name=name, value="nan")


def underflowing() -> object:
    given = evidence(BASE, {UNSCALED: [17.8] * 5})
    given = change(given, FP32, numerics_samples=numerics(TRAINS))
    probe = zero_gradients({"body.2": 0.995, "body.4": 1.0}, {"body.2": 0.04, "body.4": 0.0})
    return change(given, UNSCALED, numerics_samples=numerics(ZERO), zero_gradients=(probe,))


def test_vanished_gradients_are_one_finding_with_cause_and_cure() -> None:
    result = answer(underflowing(), UNSCALED)  # type: ignore[arg-type]
    assert result.verdict == "UNSAFE"
    finding = result.findings[0]
    assert (finding.kind, finding.severity, finding.module) == ("zero_gradients", "fatal", "body.4")
    assert finding.seeds == [0, 1, 2, 3, 4]
    assert finding.sentence == (
        "All of the gradients of body.4 (and of 1 other module) became zero; scaled by 65,536 they return."
    )
    assert finding.evidence["modules"] == ["body.2", "body.4"]
    assert finding.cure is not None
    assert finding.cure.recipe == {"precision": "16-mixed", "scaler": {"kind": "dynamic"}}
    assert result.next_step is not None
    assert result.next_step.action == "run_cure"
    assert result.next_step.submission is not None
    assert [r["precision"] for r in result.next_step.submission["recipes"]] == ["32-true", "16-mixed"]
    assert result.next_step.submission["seeds"] == [0, 1, 2, 3, 4]


def test_vanished_gradients_are_enough_even_when_the_metric_is_equal() -> None:
    given = change(evidence(BASE, {UNSCALED: BASE}), FP32, numerics_samples=numerics(TRAINS))
    given = change(given, UNSCALED, 3, numerics_samples=numerics(ZERO))
    result = answer(given, UNSCALED)
    assert result.verdict == "UNSAFE"
    assert result.sentence.startswith("All of the gradients of body.4")
    assert "return" not in result.sentence


def test_gradients_that_are_zero_in_fp32_too_raise_no_alarm() -> None:
    sparse = {"embedding": 0.985, "dead": 1.0, "relu": 0.7}
    given = change(evidence(BASE, {UNSCALED: BASE}), FP32, numerics_samples=numerics(sparse))
    given = change(given, UNSCALED, numerics_samples=numerics({**sparse, "relu": 0.72}))
    given = change(given, UNSCALED, zero_gradients=(zero_gradients({"dead": 1.0}, {"dead": 1.0}),))
    result = answer(given, UNSCALED)
    assert result.findings == []
    assert result.verdict == "SAFE"


def test_one_bad_sample_is_not_lasting_and_most_gradients_is_a_caution() -> None:
    given = change(evidence(BASE, {FP16: BASE}), FP32, numerics_samples=numerics(TRAINS))
    once = numerics(ZERO, steps=(1,)) + numerics(TRAINS, steps=(50, 100, 150))
    assert answer(change(given, FP16, numerics_samples=once), FP16).findings == []
    late = numerics(TRAINS, steps=(1, 25, 50, 75, 100)) + numerics(ZERO, steps=(125, 150))
    given_long = change(given, FP32, numerics_samples=numerics(TRAINS, steps=(1, 25, 50, 75, 100, 125, 150)))
    assert answer(change(given_long, FP16, numerics_samples=late), FP16).verdict == "UNSAFE"
    most = answer(change(given, FP16, numerics_samples=numerics({"body.2": 0.7})), FP16)
    assert most.verdict == "SAFE WITH CAUTION"
    assert [finding.kind for finding in most.findings] == ["vanishing_gradients"]


def test_samples_of_skipped_steps_are_not_compared() -> None:
    given = change(evidence(BASE, {FP16: BASE}), FP32, numerics_samples=numerics(TRAINS))
    sampled = numerics(ZERO, steps=(1,))
    given = change(given, FP16, numerics_samples=sampled, skips=skips([1]), skipped_steps=1, lost_samples=100)
    assert answer(given, FP16).findings == []


@pytest.mark.parametrize("where", ["weight", "evaluation"])
def test_non_finite_weights_or_evaluation_with_a_healthy_twin_are_unsafe(where: str) -> None:
    given = change(evidence(BASE, {FP16: BASE}), FP16, 2, non_finite=(nan_at(40, where),))
    result = answer(given, FP16)
    assert result.verdict == "UNSAFE"
    assert result.findings[0].seeds == [2]
    assert "NaN at step 40 (seed 2)" in result.sentence
    assert result.findings[0].cure is not None
    assert result.findings[0].cure.recipe == {"precision": "bf16-mixed"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_not_finite_is_a_finding_and_never_dropped(value: float) -> None:
    values = [24.1, value, 24.2, 24.3, 24.25]
    result = answer(evidence(BASE, {BF16: values}))
    assert result.verdict == "UNSAFE"
    assert result.findings[0].kind == "non_finite_evaluation"
    assert result.quality is not None
    assert len(result.quality.pairs) == 5
    assert result.quality.num_pairs == 4


def test_the_twins_own_nan_is_no_finding_of_the_recipe() -> None:
    given = evidence([24.1, math.nan, 24.2], {BF16: [24.1, math.nan, 24.2]})
    assert answer(given).findings == []


@pytest.mark.parametrize(
    ("recipe", "cure"),
    [(UNSCALED, "16-mixed"), (STATIC, "16-mixed"), (FP16, "bf16-mixed"), (BF16, None)],
)
def test_the_cure_of_overflow_depends_on_the_recipe(recipe: object, cure: str | None) -> None:
    given = change(evidence(BASE, {recipe: BASE}), recipe, non_finite=(nan_at(3, "weight"),))  # type: ignore[dict-item, arg-type]
    found = answer(given, recipe).findings[0]  # type: ignore[arg-type]
    assert (found.cure.recipe["precision"] if found.cure else None) == cure


def test_skips_without_end_are_unsafe() -> None:
    endless = change(
        evidence(BASE, {STATIC: BASE}), STATIC, 0, skips=skips(range(51, 151)), skipped_steps=100, lost_samples=10_000
    )
    result = answer(endless, STATIC)
    assert result.verdict == "UNSAFE"
    assert result.findings[0].kind == "endless_skips"
    assert "The last 100 steps were all skipped" in result.findings[0].sentence
    every_other = change(
        evidence(BASE, {STATIC: BASE}), STATIC, 0, skips=skips(range(2, 150, 2)), skipped_steps=74, lost_samples=7400
    )
    assert answer(every_other, STATIC).verdict == "UNSAFE"


@pytest.mark.parametrize("steps", [[1], [1, 2, 3], [1, 2, 5, 9]])
def test_a_few_skips_while_the_scale_settles_do_not_alarm(steps: list[int]) -> None:
    given = change(
        evidence(BASE, {FP16: BASE}),
        FP16,
        skips=skips(steps),
        skipped_steps=len(steps),
        lost_samples=100 * len(steps),
    )
    result = answer(given, FP16)
    assert result.verdict == "SAFE"
    assert "settling_skips" in codes(result)
    assert result.lost_samples_fraction == pytest.approx(len(steps) / 150)


@pytest.mark.parametrize("steps", [[70, 80], list(range(1, 9)), [1, 2, 60, 61]])
def test_more_than_one_percent_of_lost_samples_is_a_caution(steps: list[int]) -> None:
    given = change(
        evidence(BASE, {FP16: BASE}),
        FP16,
        skips=skips(steps),
        skipped_steps=len(steps),
        lost_samples=100 * len(steps),
    )
    result = answer(given, FP16)
    assert result.verdict == "SAFE WITH CAUTION"
    assert "lost_samples" in codes(result)


def test_a_scale_that_keeps_falling_is_a_caution() -> None:
    given = change(
        evidence(BASE, {FP16: BASE}, steps=20_000),
        FP16,
        steps_run=20_000,
        samples=2_000_000,
        skips=skips(range(900, 20_000, 1000)),
        skipped_steps=20,
        lost_samples=2000,
    )
    result = answer(given, FP16)
    assert result.verdict == "SAFE WITH CAUTION"
    assert result.findings[0].kind == "falling_scale"


def test_a_passing_nan_of_the_loss_is_a_caution_unless_fp32_has_it_too() -> None:
    event = NonFinite(step=7, where="loss", name="train/loss", value="inf")
    given = change(evidence(BASE, {BF16: BASE}), BF16, 1, non_finite=(event,))
    result = answer(given)
    assert result.verdict == "SAFE WITH CAUTION"
    assert "The training loss was infinite at step 7 (seed 1); training went on." in result.sentence
    assert answer(change(given, FP32, 1, non_finite=(event,))).verdict == "SAFE"


def test_a_crash_beside_a_healthy_twin_is_a_finding_and_no_safety() -> None:
    reason = {"kind": "exception", "message": "RuntimeError: could not create a primitive"}
    given = change(evidence(BASE, {FP16: BASE}), FP16, 3, state="failed", metric=None, reason=reason)
    result = answer(given, FP16)
    assert result.verdict == "INCONCLUSIVE"
    assert result.findings[0].kind == "run_failed"
    assert "RuntimeError: could not create a primitive" in result.findings[0].sentence
    lost = change(given, FP16, 3, reason={"kind": "lost", "message": "worker died"})
    assert answer(lost, FP16).findings == []


def test_findings_are_shown_while_runs_are_still_going() -> None:
    given = change(evidence(BASE, {FP16: BASE}), FP16, 4, state="running", metric=None)
    result = judge(change(given, FP16, 0, non_finite=(nan_at(9, "weight"),)))
    assert result.state == "so_far"
    assert result.recipes[0].verdict is None
    assert result.statements[0].startswith("16-mixed: weights of body.2.weight became NaN at step 9")
