"""Speed against TF32 beside that against FP32: from measured blocks of both, and silent where one is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from verdict_evidence import BF16, FP16, answer, benchmark, blocks, evidence

from amp_core.config import parse_recipe
from amp_core.verdict import as_json, from_json, judge
from amp_core.verdict.comparison import Gain
from amp_core.verdict.statistics import bootstrap_ratio, bootstrap_ratio_of_ratios
from server.comparisons.schemas import GainOut
from server.pages.colours import STYLES
from server.pages.verdicts import cards

BASE = [24.1, 24.4, 24.2, 24.3, 24.25]
TF32 = parse_recipe("tf32")


def gains(tf32: Any = None, *, with_tf32: bool = True) -> tuple[Gain, Gain | None]:
    """What is said of bf16, at 2.5 times FP32's speed, and of tf32 with the given benchmark or one at 1.6 times."""
    candidates = {BF16: BASE, **({TF32: BASE} if with_tf32 else {})}
    held = [benchmark(BF16, 0.25, 0.10), *([tf32 or benchmark(TF32, 0.40, 0.25)] if with_tf32 else [])]
    given = evidence(BASE, candidates, gain_planned=True, device="cuda", benchmarks=tuple(held))
    return answer(given).gain, answer(given, TF32).gain if with_tf32 else None


def test_speed_against_tf32_is_the_ratio_of_both_against_fp32() -> None:
    bf16, tf32 = gains()
    assert tf32 is not None
    assert bf16.speed is not None
    assert tf32.speed is not None
    assert bf16.against_tf32 is not None
    against = bf16.against_tf32
    assert against.recipe == "tf32"
    assert against.ratio == pytest.approx(2.5 / 1.6, rel=0.03)
    assert against.ratio == pytest.approx(bf16.speed.ratio / tf32.speed.ratio)
    assert against.interval[0] < against.ratio < against.interval[1]
    assert "Against tf32: 1.6× its speed (1." in bf16.sentence
    assert bf16.sentence.startswith("About 2.5× faster on this GPU")
    assert tf32.against_tf32 is None, "not against itself"
    assert "Against" not in tf32.sentence


def test_a_device_that_was_slower_meanwhile_changes_nothing() -> None:
    """Twice as slow in the whole benchmark of tf32: FP32 beside it was as well."""
    usual, slow = gains()[0], gains(benchmark(TF32, 0.80, 0.50))[0]
    assert usual.against_tf32 is not None
    assert slow.against_tf32 is not None
    assert slow.against_tf32.ratio == pytest.approx(usual.against_tf32.ratio)


def test_as_fast_as_tf32_is_not_called_faster() -> None:
    gain = gains(benchmark(TF32, 0.25, 0.10))[0]
    assert "Against tf32: 1.00× its speed" in gain.sentence
    assert gain.sentence.count("faster") == 1, "than FP32"


@pytest.mark.parametrize(
    "tf32",
    [
        benchmark(TF32, 0.4, 0.25, state="failed"),
        benchmark(TF32, 0.4, 0.25, state="running"),
        benchmark(TF32, 0.4, 0.25, blocks=blocks(0.4, 0.25, num=9)),
        benchmark(TF32, 0.4, 0.25, blocks=()),
    ],
)
def test_without_a_whole_benchmark_of_tf32_nothing_is_said(tf32: Any) -> None:
    gain = gains(tf32)[0]
    assert gain.against_tf32 is None
    assert "tf32" not in gain.sentence
    assert gain.speed is not None


def test_without_tf32_nothing_is_said() -> None:
    assert gains(with_tf32=False)[0].against_tf32 is None


def test_an_emulated_recipe_has_no_speed_against_tf32_either() -> None:
    held = (benchmark(FP16, 0.25, 0.14, numerics="emulated"), benchmark(TF32, 0.4, 0.25))
    given = evidence(BASE, {FP16: BASE, TF32: BASE}, gain_planned=True, device="cuda", benchmarks=held)
    assert answer(given, FP16).gain.against_tf32 is None


def test_it_is_kept_and_read_back() -> None:
    held = (benchmark(BF16, 0.25, 0.10), benchmark(TF32, 0.40, 0.25))
    comparison = judge(evidence(BASE, {BF16: BASE, TF32: BASE}, gain_planned=True, device="cuda", benchmarks=held))
    data = as_json(comparison)
    assert from_json(data) == comparison
    for recipe in data["recipes"]:
        del recipe["gain"]["against_tf32"]  # as comparisons of before it was measured are stored
    assert from_json(data).recipes[0].gain.against_tf32 is None


def test_the_interval_of_a_ratio_of_ratios_holds_what_is_true() -> None:
    """Throughputs with 3 % noise, 200 times: 95 % intervals over ten blocks hold the true ratio in most."""
    draw = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        fp32, bf16, again, tf32 = (draw.normal(speed, 0.03 * speed, 10) for speed in (100.0, 250.0, 100.0, 160.0))
        _, low, high = bootstrap_ratio_of_ratios((fp32, bf16), (again, tf32))
        held += low <= 250 / 160 <= high
    assert 0.88 <= held / 200 <= 1.0
    one = np.full(10, 5.0)
    assert bootstrap_ratio_of_ratios((one, 3 * one), (one, 2 * one)) == (1.5, 1.5, 1.5)
    assert bootstrap_ratio(one, 3 * one) == (3.0, 3.0, 3.0)


def test_rest_and_the_scorecard_have_it() -> None:
    held = (benchmark(BF16, 0.25, 0.10), benchmark(TF32, 0.40, 0.25))
    given = evidence(BASE, {BF16: BASE, TF32: BASE}, gain_planned=True, device="cuda", benchmarks=held)
    told = as_json(judge(given))
    bf16, tf32 = (GainOut.model_validate(recipe["gain"]) for recipe in told["recipes"])
    assert bf16.against_tf32 is not None
    assert bf16.against_tf32.recipe == "tf32"
    assert tf32.against_tf32 is None
    styles = {recipe["recipe"]: STYLES["fp32"] for recipe in told["recipes"]}
    rows = [row["speed"] for row in cards(told, styles)]
    assert "; 1.56× tf32 [1.47, 1.66]" in rows[0]["detail"]
    assert "tf32" not in rows[1]["detail"]
