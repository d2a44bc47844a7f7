"""The next step: how many seeds, how long, and a body that can be posted as it is."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from verdict_evidence import (
    BF16,
    FP16,
    PSNR,
    UNSCALED,
    answer,
    benchmark,
    change,
    evidence,
    numerics,
)
from verdict_evidence import FP32 as BASELINE

from amp_core.config import parse_recipe
from amp_core.verdict import judge
from amp_core.verdict.next_step import fresh_seeds

BASE = [24.1, 24.4, 24.2, 24.3, 24.25]
NOISE = np.array([1.0, -1.0, 0.5, -0.5, 0.0])


def noisy(sd: float, harm: float = 0.0) -> list[float]:
    wobble = NOISE / NOISE.std(ddof=1) * sd
    return [base - harm - float(one) for base, one in zip(BASE, wobble, strict=True)]


@pytest.mark.parametrize(("sd", "seeds"), [(0.30, 11), (0.50, 27), (0.80, 65)])
def test_the_number_of_seeds_follows_from_the_measured_spread(sd: float, seeds: int) -> None:
    step = answer(evidence(BASE, {BF16: noisy(sd)})).next_step
    assert step is not None
    assert step.action == "more_seeds"
    assert step.num_seeds == pytest.approx(seeds, abs=1)  # G*Power: one-sided paired t, dz = 0.25 / sd
    assert step.submission is not None
    assert step.submission["seeds"] == list(range(5, 5 + step.num_seeds))


def test_that_many_seeds_reach_eighty_percent() -> None:
    step = answer(evidence(BASE, {BF16: noisy(0.4)})).next_step
    assert step is not None
    assert step.num_seeds is not None
    rng = np.random.default_rng(2)
    from amp_core.verdict.statistics import is_noninferior, paired_interval

    harms = 0.4 * rng.standard_normal((20_000, step.num_seeds))
    assert is_noninferior(paired_interval(harms), 0.25).mean() == pytest.approx(0.8, abs=0.04)


def test_minutes_come_from_measured_durations_and_concurrency() -> None:
    given = evidence(BASE, {BF16: noisy(0.4)}, wall_s=60.0)  # ten runs of 6 s one after the other
    step = answer(given).next_step
    assert step is not None
    assert step.num_seeds is not None
    assert step.minutes == pytest.approx(step.num_seeds * 12.0 / 60.0)
    assert "minutes" in step.sentence
    two_at_once = answer(msgspec.structs.replace(given, wall_s=30.0)).next_step
    assert two_at_once is not None
    assert two_at_once.minutes == pytest.approx(step.minutes / 2)


def test_a_difference_at_the_margin_is_not_worth_more_seeds() -> None:
    step = answer(evidence(BASE, {BF16: noisy(0.3, harm=0.2499)})).next_step
    assert step is not None
    assert step.action is None
    assert "hardly settle" in step.sentence


def test_more_seeds_are_also_asked_for_to_prove_harm() -> None:
    step = answer(evidence(BASE, {BF16: noisy(0.5, harm=0.6)})).next_step
    assert step is not None
    assert step.action == "more_seeds"
    assert step.num_seeds is not None
    assert step.num_seeds <= 20


def test_two_planned_seeds_ask_for_enough() -> None:
    step = answer(evidence(BASE[:1], {BF16: BASE[:1]})).next_step
    assert step is not None
    assert step.num_seeds == 5


def test_the_body_is_the_plan_with_fresh_seeds() -> None:
    given = evidence(
        BASE,
        {BF16: noisy(0.4), FP16: BASE},
        submission={
            "workload": "photo-denoiser",
            "seeds": 5,
            "recipes": ["fp32", "bf16", "fp16"],
            "project": "vision",
            "tags": ["a"],
            "params": {"width": 64},
            "control": True,
        },
    )
    step = answer(given).next_step
    assert step is not None
    body = step.submission
    assert body is not None
    assert [parse_recipe(recipe) for recipe in body["recipes"]] == [BASELINE, BF16]
    assert body["baseline"] == "32-true"
    assert body["params"] == {"width": 64}
    assert body["project"] == "vision"
    assert body["control"] is True
    assert body["steps"] == 150
    assert body["primary"]["margin"] == PSNR.margin
    assert body["name"] == "photo-denoiser (more seeds)"


def test_fresh_seeds_stay_in_range_and_are_never_used_ones() -> None:
    assert fresh_seeds([3, 1, 2], 3) == [4, 5, 6]
    assert fresh_seeds([], 2) == [0, 1]
    assert fresh_seeds([2**31 - 1, 1], 3) == [0, 2, 3]


def test_a_cure_that_the_experiment_itself_proves_is_said() -> None:
    given = evidence(BASE, {FP16: BASE, UNSCALED: [17.8] * 5})
    given = change(given, BASELINE, numerics_samples=numerics({"net.2": 0.0}))
    given = change(given, UNSCALED, numerics_samples=numerics({"net.2": 1.0}))
    step = answer(given, UNSCALED).next_step
    assert step is not None
    assert step.action == "run_cure"
    assert step.sentence.endswith("16-mixed shows it in this experiment.")


def test_safe_recipes_need_no_next_step() -> None:
    given = evidence(BASE, {BF16: BASE}, gain_planned=True, benchmarks=(benchmark(BF16, 0.25, 0.14),))
    assert judge(given).recipes[0].next_step is None


def test_failed_runs_are_retried_before_seeds_are_added() -> None:
    given = change(evidence(BASE, {BF16: BASE}), BF16, 2, state="failed", metric=None, reason={"kind": "lost"})
    step = answer(given).next_step
    assert step is not None
    assert step.action is None
    assert "retry 1 run that did not finish" in step.sentence
