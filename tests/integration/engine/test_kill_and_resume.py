"""Kill -9 at random steps, across workloads and recipes: a resumed run is bitwise the undisturbed one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amp_core.workloads
from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.events import Checkpointed, Evaluated, Event, Finished, Segment, Started, StepSkipped, read_frames
from amp_core.launcher import Launcher

OWN = Path(__file__).with_name("killed_workloads.py")
BUNDLED = Path(amp_core.workloads.__file__).parent
STEPS, NUM_KILLS = 60, 20
SCALER = {"init_scale": 2.0**22, "growth_interval": 9}
SMALL_GPT = {"width": 16, "depth": 1, "context": 16, "batch_size": 4, "dropout": 0.1}
CASES: list[tuple[str, Path, dict[str, Any], dict[str, Any]]] = [
    ("paused", OWN, {}, {"precision": "32-true", "accumulate": 2}),
    ("paused", OWN, {}, {"precision": "16-mixed", "scaler": {**SCALER, "hysteresis": 2}}),
    (
        "paused-schedule",
        OWN,
        {},
        {"precision": "16-mixed", "fp16_compute": "native", "scaler": SCALER, "ema_decay": 0.9},
    ),
    ("paused-schedule", OWN, {}, {"precision": "bf16-true", "clip_norm": 0.1}),
    ("digits-cnn", BUNDLED / "digits_cnn.py", {"width": 4, "batch_size": 16}, {"precision": "bf16-mixed"}),
    ("stdlib-gpt", BUNDLED / "stdlib_gpt.py", SMALL_GPT, {"precision": "16-mixed", "scaler": SCALER}),
]
Trace = dict[str, dict[int, float]]


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher(warm=True) as warm:
        yield warm


def config_of(case: int, folder: Path, **fields: Any) -> RunConfig:
    name, path, params, recipe = CASES[case]
    given = {"seed": 5, "steps": STEPS, "eval_every": 20, "num_threads": 1, "flush_interval_s": 0.0, **fields}
    return RunConfig(
        run_id=1, attempt=1, workload=WorkloadRef(name=name, path=str(path), params=params),
        recipe=parse_recipe(recipe), scratch_dir=str(folder / "scratch"), checkpoint_dir=str(folder / "checkpoints"),
        checkpoint_every_steps=4, numerics_every=10, **given,
    )  # fmt: skip


def run(launcher: Launcher, config: RunConfig, kill_at: int | None = None) -> list[Event]:
    """What a child says; with ``kill_at`` it is killed as soon as it has said anything of that step."""
    child = launcher.launch(config)
    events: list[Event] = []
    with child.events, child.log:
        for frame in read_frames(child.events):
            events.append(frame.event)
            if kill_at is not None and last_step([frame.event]) >= kill_at:
                child.kill()
                break
    child.wait(60)
    child.kill()
    return events


def trace_of(events: list[Event]) -> Trace:
    found: Trace = {}
    for event in events:
        for column in event.columns if isinstance(event, Segment) else ():
            if not column.name.startswith(("perf/", "memory/process")):
                steps, values = np.frombuffer(column.steps, "<i8"), np.frombuffer(column.values, "<f8")
                found.setdefault(column.name, {}).update(zip(steps.tolist(), values.tolist(), strict=True))
    return found


def last_step(events: list[Event]) -> int:
    return max((step for points in trace_of(events).values() for step in points), default=0)


def facts(events: list[Event]) -> dict[tuple[str, int], str]:
    return {(type(e).__name__, e.step): repr(e) for e in events if isinstance(e, Evaluated | StepSkipped)}


@pytest.mark.timeout(900)
def test_killed_at_random_steps_and_resumed(launcher: Launcher, tmp_path: Path) -> None:
    draw = random.Random(20)
    whole = [run(launcher, config_of(case, tmp_path / f"whole-{case}")) for case in range(len(CASES))]
    num_resumed = 0
    for kill in range(NUM_KILLS):
        case, kill_at = kill % len(CASES), draw.randint(2, STEPS - 2)
        folder = tmp_path / f"kill-{kill}"
        first = run(launcher, config_of(case, folder), kill_at)
        known = [event.path for event in first if isinstance(event, Checkpointed)]
        second = run(launcher, config_of(case, folder, resume_from=tuple(reversed(known))))
        started = second[0]
        assert isinstance(started, Started)
        assert not started.not_resumed, (kill, kill_at)
        assert started.resumed_step == (4 * len(known) if known else 0)
        num_resumed += bool(started.resumed_step)
        merged = trace_of(first)
        for name, points in trace_of(second).items():
            merged.setdefault(name, {}).update(points)
        np.testing.assert_equal(
            {name: dict(sorted(points.items())) for name, points in merged.items()},
            {name: dict(sorted(points.items())) for name, points in trace_of(whole[case]).items()},
        )
        assert facts(first) | facts(second) == facts(whole[case])
        ends = [event for event in (whole[case][-1], second[-1]) if isinstance(event, Finished)]
        assert len(ends) == 2
        assert ends[0].metrics == ends[1].metrics
        assert ends[0].skipped_steps == ends[1].skipped_steps
    assert num_resumed >= NUM_KILLS - 3
