"""The benchmark: blocks by turns, memory alone, failures told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests_child import ZOO, Watched, is_alive, wait_until

import amp_core
from amp_core.config import WorkloadRef, parse_recipe
from amp_core.events import BenchmarkBlock, BenchmarkMemory, Finished, Started

Watch = Callable[..., Watched]
PHOTO = Path(amp_core.__file__).parent / "workloads" / "photo_denoiser.py"


def test_arms_take_turns_in_both_modes_and_memory_is_measured(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = WorkloadRef(name="photo-denoiser", path=str(PHOTO), params={"width": 64, "batch_size": 256})
    fields = {"kind": "benchmark", "baseline": parse_recipe("fp32"), "recipe": parse_recipe("bf16")}
    ended = watch("photo-denoiser", workload=workload, **fields).end()
    assert ended.exit_code == 0, ended.log
    assert isinstance(ended.frames[0].event, Started)
    assert ended.frames[0].event.environment["recipe"]["precision"] == "bf16-mixed"
    assert ended.frames[0].event.environment["baseline_recipe"]["precision"] == "32-true"
    blocks = ended.all(BenchmarkBlock)
    for mode in ("compute", "loader"):
        of_mode = [block for block in blocks if block.mode == mode]
        assert [block.arm[0] for block in of_mode] == list("bccb" * 5)
        assert [block.block for block in of_mode] == [number for number in range(1, 11) for _ in range(2)]
    assert all(block.seconds > 0 and block.samples == block.steps * 256 for block in blocks)
    baseline, candidate = ended.all(BenchmarkMemory)
    assert (baseline.arm, candidate.arm) == ("baseline", "candidate")
    # 4 hidden tensors of 256 × 64 in bf16 instead of fp32, but also bf16 copies of the weights
    assert baseline.saved_for_backward_bytes > 0
    assert candidate.saved_for_backward_bytes > 0
    weights = 4 * 4 * ended.frames[0].event.num_parameters  # weight, gradient and two moments
    assert baseline.process_growth_bytes > weights
    assert baseline.process_growth_bytes < weights + 64 * 2**20
    finished = ended.all(Finished)[0]
    assert finished.steps == sum(block.steps for block in blocks)
    assert finished.samples == sum(block.samples for block in blocks)


@pytest.mark.parametrize(
    ("name", "fields", "kind", "message"),
    [
        ("raises", {}, "exception", "baseline arm: ValueError: the fifth batch is bad"),
        ("segfaults", {}, "exception", "the baseline arm of the benchmark was killed by SIGSEGV"),
        ("exits-at-once", {}, "exception", "the baseline arm of the benchmark ended with exit code 7"),
        ("nonsense", {}, "workload", "defines no workload 'nonsense'"),
        ("tiny", {"recipe": parse_recipe("fp16")}, "recipe", "is emulated on cpu"),
        ("tiny", {"baseline": None}, "recipe", "give the run configuration a baseline"),
    ],
)
def test_a_failing_arm_fails_the_benchmark(
    watch: Watch, name: str, fields: dict[str, object], kind: str, message: str
) -> None:
    given = {"kind": "benchmark", "baseline": parse_recipe("fp32"), "recipe": parse_recipe("bf16"), **fields}
    ended = watch(name, workload=WorkloadRef(name=name, path=str(ZOO)), **given).end()
    assert ended.exit_code == 1
    assert ended.failed.kind == kind
    assert message in ended.failed.message


def test_the_arms_die_with_the_benchmark(watch: Watch) -> None:
    fields = {"kind": "benchmark", "baseline": parse_recipe("fp32"), "recipe": parse_recipe("bf16")}
    running = watch("loops-forever", **fields)
    running.wait_for_log(b"looping")
    arms = children_of(running.child.pid)
    assert arms
    running.child.kill()
    running.end(5)
    wait_until(lambda: not any(is_alive(arm) for arm in arms), 5)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
