"""Is it worth it here? Speed from alternating blocks, memory from a process per arm; nothing for what is emulated."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from amp_core.events import BenchmarkBlock, BenchmarkMemory
from amp_core.verdict import sentences
from amp_core.verdict.comparison import Gain, Memory, Speed
from amp_core.verdict.conditions import emulated_formats
from amp_core.verdict.evidence import BenchmarkEvidence, ExperimentEvidence
from amp_core.verdict.statistics import Floats, bootstrap_ratio

MIN_BLOCKS = 10
NOTICEABLE = 0.05  # a ratio within 5 % of 1 is the same speed in practice
SETTLED = 0.10  # an interval that leaves 10 % around 1 is too wide to call two speeds the same

WHY = (
    "Two standing processes, baseline and candidate, ran timed blocks in the order A B B A on one device, warm-up "
    "apart. The ratio is the candidate's median throughput over the baseline's; its interval is a 95 % percentile "
    "bootstrap over blocks (4,000 draws, fixed seed). Memory was measured in a process of its own for each arm."
)


def gain_of(evidence: ExperimentEvidence, recipe: str, numerics: str | None, lost_fraction: float) -> Gain:
    """The gain of one recipe over the baseline on the device of this experiment."""
    here = sentences.device_text(evidence.device)
    benchmark = evidence.benchmark_of(recipe)
    if numerics == "emulated" or (benchmark is not None and benchmark.numerics == "emulated"):
        own = [one for one in evidence.candidates if one.name == recipe]
        return Gain(measured=False, sentence=f"Not measured here: {emulated_formats(own)} is emulated on {here}.")
    if benchmark is None:
        text = (
            "no benchmark was planned" if not evidence.gain_planned else "its benchmark is not planned for this recipe"
        )
        return Gain(measured=False, sentence=f"Not measured: {text}.")
    if not benchmark.is_final:
        return Gain(measured=False, sentence="Not measured yet: the benchmark has not ended.")
    if benchmark.state != "completed":
        return Gain(measured=False, sentence=_unmeasured_sentence(benchmark))
    speed = _speed(benchmark.blocks, "compute", recipe, lost_fraction)
    with_loader = _speed(benchmark.blocks, "loader", recipe, lost_fraction)
    memory = memory_of(benchmark.memory)
    if speed is None and memory is None:
        return Gain(measured=False, sentence=f"Not measured: the benchmark gave fewer than {MIN_BLOCKS} blocks an arm.")
    return Gain(
        measured=True,
        sentence=" ".join([*_speed_sentences(speed, with_loader, here), *_memory_sentences(memory)]),
        faster=is_faster(speed) if speed is not None and not is_unknown(speed) else None,
        speed=speed,
        speed_with_loader=with_loader,
        memory=memory,
        why=WHY,
    )


def _unmeasured_sentence(benchmark: BenchmarkEvidence) -> str:
    if benchmark.state == "cancelled":
        return "Not measured: the benchmark was cancelled."
    message = str((benchmark.reason or {}).get("message", "")).strip().splitlines()
    return f"Not measured: the benchmark failed{': ' + message[0][:200].rstrip('.') if message else ''}."


def throughputs(blocks: Sequence[BenchmarkBlock], mode: str, arm: str) -> Floats:
    """Samples per second of each block of one arm and mode."""
    return np.array(
        [
            block.samples / block.seconds
            for block in blocks
            if block.mode == mode and block.arm == arm and block.seconds > 0
        ]
    )


def _speed(blocks: Sequence[BenchmarkBlock], mode: str, recipe: str, lost_fraction: float) -> Speed | None:
    baseline, candidate = throughputs(blocks, mode, "baseline"), throughputs(blocks, mode, "candidate")
    num_blocks = min(baseline.size, candidate.size)
    if num_blocks < MIN_BLOCKS or np.median(baseline) <= 0.0 or np.median(candidate) <= 0.0:
        return None
    ratio, low, high = bootstrap_ratio(baseline, candidate, seed=zlib.crc32(f"{mode}/{recipe}".encode()))
    return Speed(
        ratio=ratio,
        interval=(low, high),
        unskipped_ratio=ratio * (1.0 - lost_fraction),
        num_blocks=int(num_blocks),
        mode=mode,
        baseline_samples_per_s=float(np.median(baseline)),
        candidate_samples_per_s=float(np.median(candidate)),
    )


def is_faster(speed: Speed) -> bool:
    return speed.interval[0] > 1.0 and speed.ratio >= 1.0 + NOTICEABLE


def is_slower(speed: Speed) -> bool:
    return speed.interval[1] < 1.0 and speed.ratio <= 1.0 - NOTICEABLE


def is_unknown(speed: Speed) -> bool:
    """Whether it may as well be noticeably faster as not: no word for it is right."""
    return not is_faster(speed) and not is_slower(speed) and speed.interval[1] > 1.0 + SETTLED


def _speed_sentences(speed: Speed | None, with_loader: Speed | None, here: str) -> list[str]:
    if speed is None:
        return [f"Speed not measured: the benchmark gave fewer than {MIN_BLOCKS} blocks an arm."]
    low, high = speed.interval
    if is_faster(speed):
        text = f"About {times(speed.ratio)} faster on {here} ({low:.2f} to {high:.2f})."
    elif is_slower(speed):
        text = f"Not faster on {here}: {speed.ratio:.2f}× the baseline's speed ({low:.2f} to {high:.2f}), so slower."
    elif is_unknown(speed):
        text = f"Speed is not known on {here}: {low:.2f}× to {high:.2f}×."
    elif low < 1.0 - SETTLED:
        text = f"Not faster on {here}: {low:.2f}× to {high:.2f}× the baseline's speed."
    else:
        text = f"Not faster on {here}: about the same speed ({speed.ratio:.2f}×, {low:.2f} to {high:.2f})."
    if with_loader is None or is_faster(with_loader) == is_faster(speed):
        return [text]
    if is_unknown(with_loader):
        low, high = with_loader.interval
        return [text, f"With the data loader it is not known: {low:.2f}× to {high:.2f}×."]
    if is_faster(speed):
        return [text, f"With the data loader it is not: {with_loader.ratio:.2f}×, so loading is what takes the time."]
    return [text, f"With the data loader it is about {times(with_loader.ratio)} faster."]


def times(ratio: float) -> str:
    """``1.8×``; two decimals where one would say 1.0 or 1.1."""
    return f"{ratio:.2f}×" if ratio < 1.15 else f"{ratio:.1f}×"


def memory_of(measured: Sequence[BenchmarkMemory]) -> Memory | None:
    by_arm = {one.arm: one for one in measured}
    baseline, candidate = by_arm.get("baseline"), by_arm.get("candidate")
    if baseline is None or candidate is None:
        return None
    return Memory(
        saved_for_backward_ratio=_ratio(candidate.saved_for_backward_bytes, baseline.saved_for_backward_bytes),
        process_growth_ratio=_ratio(candidate.process_growth_bytes, baseline.process_growth_bytes),
        device_peak_ratio=_ratio(candidate.device_peak_bytes, baseline.device_peak_bytes),
        baseline_saved_for_backward_bytes=baseline.saved_for_backward_bytes,
        candidate_saved_for_backward_bytes=candidate.saved_for_backward_bytes,
        baseline_process_growth_bytes=baseline.process_growth_bytes,
        candidate_process_growth_bytes=candidate.process_growth_bytes,
        baseline_device_peak_bytes=baseline.device_peak_bytes,
        candidate_device_peak_bytes=candidate.device_peak_bytes,
    )


def _ratio(candidate: int, baseline: int) -> float | None:
    return candidate / baseline if candidate > 0 and baseline > 0 else None


def _memory_sentences(memory: Memory | None) -> list[str]:
    if memory is None:
        return ["Memory not measured."]
    ratio, what = memory.device_peak_ratio, "peak device memory"
    if ratio is None:
        ratio, what = memory.saved_for_backward_ratio, "the activation memory kept for backward"
    if ratio is None:
        return []
    if ratio <= 1.0 - NOTICEABLE:
        return [f"It needs {ratio:.2f}× {what}."]
    if ratio >= 1.0 + NOTICEABLE:
        return [f"It needs more memory: {times(ratio)} {what}."]
    return [f"It saves no memory ({ratio:.2f}× {what})."]
