"""The comparison as JSON: strict, complete, and the same when it comes back."""

from __future__ import annotations

import json
import math
import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_evidence import BF16, FP16, LOSS, PSNR, UNSCALED, benchmark, evidence

from amp_core.verdict import as_json, from_json, judge, spell

values = st.one_of(st.floats(-50.0, 50.0), st.sampled_from([math.nan, math.inf, -math.inf]), st.none())
five = st.lists(values, min_size=5, max_size=5)
three = st.lists(st.lists(values, min_size=3, max_size=3), min_size=3, max_size=3)


@settings(max_examples=60, deadline=None)
@given(three, st.sampled_from([PSNR, LOSS]), st.booleans())
def test_any_values_give_a_comparison_that_survives_json(
    runs: list[list[float | None]], primary: object, measured: bool
) -> None:
    one = (benchmark(BF16, 0.25, 0.14),) if measured else ()
    made = evidence(runs[0], {BF16: runs[1], UNSCALED: runs[2]}, primary=primary, benchmarks=one)  # type: ignore[arg-type]
    plain = as_json(judge(made))
    text = json.dumps(plain, allow_nan=False)
    assert json.loads(text) == plain
    again = from_json(json.loads(text))
    assert as_json(again) == plain
    assert len(plain["statements"]) <= 3
    assert plain["headline"]


@settings(max_examples=60, deadline=None)
@given(five, five)
def test_a_value_that_is_not_finite_is_never_safe(baseline: list[float | None], candidate: list[float | None]) -> None:
    result = judge(evidence(baseline, {BF16: candidate})).recipes[0]
    everything = [*baseline, *candidate]
    if any(value is None or not math.isfinite(value) for value in everything):
        assert result.verdict in ("UNSAFE", "INCONCLUSIVE")


def test_the_same_evidence_gives_the_same_words() -> None:
    made = evidence([1.0, 2.0, 3.0], {BF16: [1.1, 2.0, 2.9], FP16: [1.0, 2.0, 3.0]})
    assert as_json(judge(made)) == as_json(judge(made))


def test_numbers_that_json_cannot_say_are_spelled() -> None:
    assert spell({"a": [math.nan, (math.inf, -math.inf)], "b": 1.5}) == {
        "a": ["NaN", ["Infinity", "-Infinity"]],
        "b": 1.5,
    }


def test_a_verdict_needs_neither_torch_nor_scipy_to_be_imported() -> None:
    code = "import amp_core.verdict, sys; print('torch' in sys.modules, 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
