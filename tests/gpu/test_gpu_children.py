"""Runs on a GPU as children: out of memory is told and survived, benchmarks, batch sizes, two GPUs skip together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_workloads import FILE, config_of

from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.events import BenchmarkBlock, BenchmarkMemory, Event, Failed, Finished, Report, StepSkipped, read_frames
from amp_core.launcher import Launcher

pytestmark = pytest.mark.gpu
RANKS = Path(__file__).parents[1] / "unit" / "distributed" / "rank_workloads.py"


def _events(config: RunConfig) -> list[Event]:
    with Launcher(warm=False) as launcher:
        child = launcher.launch(config)
        with child.events as pipe:
            found: list[Event] = [frame.event for frame in read_frames(pipe)]
        child.wait(300)
    return found


def test_out_of_memory_is_told_and_the_device_survives(tmp_path: Path) -> None:
    hoard = WorkloadRef(name="hoard", path=FILE)
    events = _events(config_of("bf16-mixed", workload=hoard, scratch_dir=str(tmp_path)))
    assert next(event for event in events if isinstance(event, Failed)).kind == "out_of_memory"
    events = _events(config_of("bf16-mixed", scratch_dir=str(tmp_path)))
    assert isinstance(events[-1], Finished)


def test_a_benchmark_measures_speed_and_memory(tmp_path: Path) -> None:
    baseline = parse_recipe("fp32")
    events = _events(config_of("bf16-mixed", kind="benchmark", baseline=baseline, scratch_dir=str(tmp_path)))
    assert len([event for event in events if isinstance(event, BenchmarkBlock)]) >= 20
    assert all(event.device_peak_bytes > 0 for event in events if isinstance(event, BenchmarkMemory))


def test_the_largest_batch_under_a_ceiling(tmp_path: Path) -> None:
    options: dict[str, Any] = {"memory_limit_bytes": 2**30, "largest": 2**22, "resolution": 0.5, "steps": 2}
    events = _events(config_of("bf16-mixed", kind="batch-size", options=options, scratch_dir=str(tmp_path)))
    content = [event for event in events if isinstance(event, Report)][-1].content
    assert content["state"] == "found"
    assert content["smallest_too_large"] is not None
    assert all(point["peak_bytes"] <= 2**30 for point in content["points"] if point["fits"])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_skip_together(tmp_path: Path) -> None:
    workload = WorkloadRef(name="one-rank-overflows", path=str(RANKS))
    events = _events(config_of("16-mixed", workload=workload, ranks=2, scratch_dir=str(tmp_path)))
    assert isinstance(events[-1], Finished)
    assert any(isinstance(event, StepSkipped) for event in events)
