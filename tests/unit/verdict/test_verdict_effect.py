"""A recipe that did not take effect keeps its comparison from being plainly SAFE, and is said."""

from __future__ import annotations

from verdict_evidence import BF16, FP32, answer, change, codes, evidence

from amp_core.events import EffectivePrecision

BASE = [24.1, 24.4, 24.2, 24.3, 24.25]
CLOSE = [24.11, 24.39, 24.2, 24.31, 24.24]


def proof(took_effect: bool | None, asked: str = "bfloat16") -> EffectivePrecision:
    return EffectivePrecision(
        step=2, asked=asked, took_effect=took_effect, sentence=f"{asked} was asked for, and so on.",
        flops={"float32": 97, "bfloat16": 3}, kept_flops={}, seconds={}, operations=[], casts=[], flags={}, fused={},
    )  # fmt: skip


def test_a_recipe_without_effect_is_a_caution() -> None:
    given = change(evidence(BASE, {BF16: CLOSE}), BF16, effective=(proof(False),))
    result = answer(given, BF16)
    assert result.verdict == "SAFE WITH CAUTION"
    (finding,) = result.findings
    assert (finding.kind, finding.severity, finding.step) == ("no_effect", "caution", 2)
    assert finding.seeds == [0, 1, 2, 3, 4]
    assert finding.sentence.startswith("The recipe did not take effect")
    assert finding.evidence["flops"] == {"float32": 97, "bfloat16": 3}


def test_one_seed_is_enough_and_named() -> None:
    given = change(evidence(BASE, {BF16: CLOSE}), BF16, 3, effective=(proof(False),))
    assert answer(given, BF16).findings[0].seeds == [3]


def test_a_baseline_that_is_not_fp32_is_a_caution_too() -> None:
    given = change(evidence(BASE, {BF16: CLOSE}), FP32, effective=(proof(False, "float32"),))
    result = answer(given, BF16)
    assert result.verdict == "SAFE WITH CAUTION"
    assert result.findings[0].kind == "baseline_no_effect"
    assert "baseline_no_effect" in codes(result)


def test_taking_effect_or_not_knowing_is_no_finding() -> None:
    for known in (True, None):
        given = change(evidence(BASE, {BF16: CLOSE}), BF16, effective=(proof(known),))
        assert answer(given, BF16).verdict == "SAFE"


def test_the_newest_proof_counts() -> None:
    given = change(evidence(BASE, {BF16: CLOSE}), BF16, effective=(proof(False), proof(True)))
    assert answer(given, BF16).verdict == "SAFE"
