"""What people read: whole sentences, findings first, no method words in the first line."""

from __future__ import annotations

import math
import re

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
    UNSCALED,
    benchmark,
    change,
    evidence,
    numerics,
    skips,
    zero_gradients,
)

from amp_core.verdict import Comparison, Primary, judge, sentences

BASE = [24.1, 24.4, 24.2, 24.3, 24.25]
METHOD_WORDS = ("inferiority", "bootstrap", "abba", "paired t", "holm", "p =", "quantile", "interval")


def minus(harms: list[float]) -> list[float]:
    return [base - harm for base, harm in zip(BASE, harms, strict=True)]


def demo() -> Comparison:
    given = evidence(
        BASE,
        {
            BF16: minus([0.05, 0.1, -0.04, 0.02, 0.08]),
            FP16: minus([0.03, -0.1, 0.05, 0.02, 0.01]),
            UNSCALED: [17.8] * 5,
        },
        control=minus([0.02, -0.03, 0.04, 0.01, -0.02]),
        gain_planned=True,
        benchmarks=(benchmark(BF16, 0.25, 0.14),),
    )
    given = change(given, FP32, numerics_samples=numerics({"net.2": 0.0}))
    probe = zero_gradients({"net.2": 0.995}, {"net.2": 0.02})
    return judge(change(given, UNSCALED, numerics_samples=numerics({"net.2": 0.995}), zero_gradients=(probe,)))


def test_the_demo_answers_in_one_line_and_three_statements() -> None:
    comparison = demo()
    assert comparison.headline == (
        "bf16-mixed and 16-mixed are as good as 32-true (PSNR at most 0.09 dB lower); "
        "bf16-mixed is about 1.8× faster on this CPU."
    )
    assert comparison.statements[0] == (
        "16-mixed, no scaler: more than 99 % of the gradients of net.2 became zero; scaled by 65,536 they return."
    )
    assert comparison.statements[1].startswith("16-mixed, no scaler: PSNR is 6.45 dB lower than with 32-true")
    assert comparison.statements[2].startswith("bf16-mixed: about 1.8× faster on this CPU")
    assert any("emulated" in caveat for caveat in comparison.caveats)
    assert any("not exercised" in caveat for caveat in comparison.caveats)
    assert comparison.conditions["growth_exercised"] is False


def test_headlines_of_other_endings() -> None:
    one = judge(evidence(BASE, {BF16: [17.8] * 5}))
    assert one.headline == "bf16-mixed is not as good as 32-true: PSNR is 6.45 dB lower on average."
    two = judge(evidence(BASE, {BF16: [17.8] * 5, FP16: [20.0] * 5}))
    assert two.headline == "None of the 2 recipes is as good as 32-true: PSNR of the best is 4.25 dB lower on average."
    broken = judge(evidence(BASE, {BF16: [24.1, math.nan, 24.2, 24.3, 24.25]}))
    assert broken.headline.startswith("bf16-mixed is not safe to use. The primary metric is not finite (seed 1)")
    careful = change(evidence(BASE, {FP16: BASE}), FP16, skips=skips([60, 70]), skipped_steps=2, lost_samples=200)
    assert judge(careful).headline == (
        "16-mixed is as good as 32-true (PSNR at worst less than 0.01 dB lower), with caution."
    )
    alone = judge(evidence(BASE, {}))
    assert alone.headline == "Only 32-true was planned: there is nothing to compare."
    crashed = evidence(BASE, {FP16: BASE})
    crashed = change(
        crashed, FP16, state="failed", metric=None, reason={"kind": "exception", "message": "RuntimeError: no kernel."}
    )
    assert judge(crashed).headline == (
        "Not settled for 16-mixed. 5 of 5 runs failed, while the baseline's of the same seed finished: RuntimeError: "
        "no kernel. Mend and retry 5 runs that did not finish."
    )


harms = st.lists(st.one_of(st.floats(-2.0, 2.0), st.sampled_from([math.nan, math.inf, 0.0])), min_size=5, max_size=5)


@settings(max_examples=80, deadline=None)
@given(harms, harms, st.sampled_from([PSNR, LOSS, ACCURACY]), st.booleans(), st.booleans())
def test_every_sentence_is_one(
    first: list[float], second: list[float], primary: Primary, controlled: bool, ended: bool
) -> None:
    made = evidence(
        BASE, {BF16: minus(first), UNSCALED: minus(second)}, primary=primary, control=BASE if controlled else None
    )
    if not ended:
        made = change(made, BF16, 3, state="running", metric=None)
    comparison = judge(made)
    said = [comparison.headline, *comparison.statements, *comparison.caveats, comparison.why]
    for recipe in comparison.recipes:
        said += [recipe.sentence, recipe.gain.sentence, recipe.why]
        said += [reason.sentence for reason in recipe.reasons] + [finding.sentence for finding in recipe.findings]
        said += [recipe.next_step.sentence] if recipe.next_step else []
    for sentence in said:
        assert sentence.endswith("."), sentence
        assert not re.search(r"\bNone\b(?! of)|\bnan\b|\binf\b|  |\.\.|\( |-0\.0+ ", sentence), sentence
    for first_line in (comparison.headline, *(recipe.sentence for recipe in comparison.recipes)):
        assert not any(word in first_line.lower() for word in METHOD_WORDS), first_line


@pytest.mark.parametrize(
    ("primary", "harm", "expected"),
    [
        (PSNR, 0.021, "0.02 dB lower"),
        (PSNR, -0.021, "0.02 dB higher"),
        (PSNR, 0.0, "the same"),
        (PSNR, 0.001, "less than 0.01 dB lower"),
        (ACCURACY, 0.0041, "0.41 percentage points lower"),
        (LOSS, 0.0123, "1.2 % higher"),
        (Primary(metric="loss", higher_is_better=False, margin=0.0003), 0.00012, "0.00012 higher"),
        (
            Primary(metric="top1_accuracy", higher_is_better=True, margin=0.5, unit="%"),
            0.4,
            "0.40 percentage points lower",
        ),
    ],
)
def test_differences_in_words(primary: Primary, harm: float, expected: str) -> None:
    assert sentences.shift(primary, harm) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "100 %"),
        (0.9999, "more than 99.9 %"),
        (0.995, "more than 99 %"),
        (0.9, "90 %"),
        (0.012, "1.2 %"),
        (0.0, "0 %"),
    ],
)
def test_shares_are_all_only_when_they_are_all(value: float, expected: str) -> None:
    assert sentences.percent(value) == expected


def test_lists_and_durations() -> None:
    assert sentences.recipe_listing(["bf16-mixed", "16-mixed"]) == "bf16-mixed and 16-mixed"
    assert sentences.recipe_listing(["a", "16-mixed, no scaler", "b"]) == "a; 16-mixed, no scaler; and b"
    assert sentences.minutes_text(0.4) == "under a minute"
    assert sentences.minutes_text(1.2) == "about 1 minute"
    assert sentences.minutes_text(9.4) == "about 9 minutes"
    assert sentences.minutes_text(200.0) == "about 3.3 hours"
    assert sentences.signed_interval(PSNR, -0.04, 0.08) == "−0.08 to +0.04 dB"
    assert sentences.signed(LOSS, 0.0) == "0.0 %"
