"""The gain: what is measured, what is said of it, and what is never claimed."""

from __future__ import annotations

import msgspec
import pytest
from verdict_evidence import BF16, FP16, PSNR, answer, benchmark, blocks, change, evidence, memory, skips

from amp_core.events import BenchmarkBlock, BenchmarkMemory
from amp_core.verdict import judge
from amp_core.verdict.comparison import RecipeComparison

BASE = [24.1, 24.4, 24.2, 24.3, 24.25]


def measured(baseline: float, candidate: float, **given: object) -> RecipeComparison:
    one = benchmark(BF16, baseline, candidate, **given)
    return answer(evidence(BASE, {BF16: BASE}, gain_planned=True, benchmarks=(one,)))


def test_a_faster_recipe_says_how_much_with_an_interval() -> None:
    gain = measured(0.25, 0.14).gain
    assert gain.measured
    assert gain.faster is True
    assert gain.speed is not None
    assert gain.speed.ratio == pytest.approx(0.25 / 0.14, rel=0.03)
    assert gain.speed.interval[0] <= gain.speed.ratio <= gain.speed.interval[1]
    assert gain.speed.num_blocks == 12
    assert gain.speed_with_loader is not None
    assert gain.sentence.startswith("About 1.8× faster on this CPU (1.")
    assert "It needs 0.68× the activation memory" in gain.sentence
    assert "A B B A" in gain.why
    assert "ABBA" not in gain.sentence
    assert "bootstrap" not in gain.sentence


@pytest.mark.parametrize("seconds", [0.14, 0.101, 0.0995])
def test_a_recipe_that_is_not_faster_is_never_called_good_news(seconds: float) -> None:
    one = benchmark(BF16, 0.1, seconds)
    comparison = judge(evidence(BASE, {BF16: BASE}, gain_planned=True, benchmarks=(one,)))
    gain = comparison.recipes[0].gain
    assert gain.faster is False
    assert gain.sentence.startswith("Not faster on this CPU")
    assert "not faster on this CPU" in comparison.headline
    for text in (comparison.headline, *comparison.statements):
        assert "faster" not in text.replace("not faster", "").replace("Not faster", "")


def test_a_gain_that_the_data_loader_eats_is_said() -> None:
    both = blocks(0.25, 0.14) + blocks(0.25, 0.25, mode="loader")
    assert "With the data loader it is not" in measured(0.25, 0.14, blocks=both).gain.sentence


def test_memory_that_grows_is_said() -> None:
    gain = measured(0.25, 0.14, memory=memory(8_000_000, 45_000_000)).gain
    assert "It needs more memory: 5.6× the activation memory" in gain.sentence
    assert gain.memory is not None
    assert gain.memory.device_peak_ratio is None


def test_on_a_gpu_the_peak_of_the_device_is_what_counts() -> None:
    peaks = tuple(
        BenchmarkMemory(arm=arm, process_growth_bytes=10, device_peak_bytes=size, saved_for_backward_bytes=5)
        for arm, size in (("baseline", 1000), ("candidate", 600))
    )
    given = evidence(BASE, {BF16: BASE}, gain_planned=True, device="cuda")
    one = benchmark(BF16, 0.25, 0.14, memory=peaks)
    gain = answer(msgspec.structs.replace(given, benchmarks=(one,))).gain
    assert gain.sentence.startswith("About 1.8× faster on this GPU")
    assert "0.60× peak device memory" in gain.sentence


def test_emulated_recipes_have_no_figures_even_if_someone_measured() -> None:
    one = benchmark(FP16, 0.25, 0.14, numerics="emulated")
    gain = answer(evidence(BASE, {FP16: BASE}, gain_planned=True, benchmarks=(one,)), FP16).gain
    assert gain.sentence == "Not measured here: fp16 is emulated on this CPU."
    assert (gain.measured, gain.speed, gain.speed_with_loader, gain.memory, gain.faster) == (
        False,
        None,
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"blocks": blocks(0.25, 0.14, num=9), "memory": ()}, "fewer than 10 blocks"),
        ({"state": "failed", "reason": {"kind": "time_limit", "message": "It took too long."}}, "It took too long."),
        ({"state": "cancelled"}, "was cancelled"),
        ({"state": "running"}, "Not measured yet"),
    ],
)
def test_what_was_not_measured_says_why(changes: dict[str, object], words: str) -> None:
    gain = measured(0.25, 0.14, **changes).gain
    assert not gain.measured
    assert words in gain.sentence


def test_without_a_planned_benchmark() -> None:
    assert answer(evidence(BASE, {BF16: BASE})).gain.sentence == "Not measured: no benchmark was planned."


def test_skipped_samples_do_not_count_as_speed() -> None:
    given = evidence(BASE, {BF16: BASE}, gain_planned=True, benchmarks=(benchmark(BF16, 0.25, 0.14),))
    gain = answer(change(given, BF16, skips=skips([70, 80, 90]), skipped_steps=3, lost_samples=300)).gain
    assert gain.speed is not None
    assert gain.speed.unskipped_ratio == pytest.approx(gain.speed.ratio * 0.98)


def test_the_gain_never_moves_the_verdict() -> None:
    assert measured(0.1, 10.0).verdict == "SAFE"
    assert PSNR.margin == 0.25


def with_spread(factors: list[float], *, mode: str = "compute") -> tuple[BenchmarkBlock, ...]:
    """Twelve blocks an arm; the candidate's take these factors of the baseline's time, in turn."""
    made = blocks(0.25, 0.25, mode=mode)
    return tuple(
        one if one.arm == "baseline" else msgspec.structs.replace(one, seconds=0.25 * factors[one.block % len(factors)])
        for one in made
    )


def test_a_speed_that_may_be_either_is_not_known_and_no_headline_says_not_faster() -> None:
    one = benchmark(BF16, 0.25, 0.25, blocks=with_spread([0.15, 3.0]))
    comparison = judge(evidence(BASE, {BF16: BASE}, gain_planned=True, benchmarks=(one,)))
    gain = comparison.recipes[0].gain
    assert gain.speed is not None
    low, high = gain.speed.interval
    assert low < 0.5
    assert high > 2.0
    assert gain.sentence.startswith(f"Speed is not known on this CPU: {low:.2f}× to {high:.2f}×.")
    assert gain.faster is None
    assert comparison.headline.endswith("; its speed on this CPU is not known.")
    assert "not faster" not in " ".join([comparison.headline, *comparison.statements]).lower()


def test_a_loader_whose_speed_is_not_known_is_not_blamed() -> None:
    both = blocks(0.25, 0.14) + with_spread([0.15, 3.0], mode="loader")
    sentence = measured(0.25, 0.14, blocks=both).gain.sentence
    assert "With the data loader it is not known: 0." in sentence
    assert "loading is what takes the time" not in sentence
