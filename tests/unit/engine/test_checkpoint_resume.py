"""A run that dies and is taken up from a checkpoint says what an undisturbed run says, to the last bit."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plain_loops import Images, Scheduled, TwoOptimizers
from small_workloads import DropoutNet, config_of, events_of, series_of
from torch import Tensor, nn

from amp_core import Workload
from amp_core.checkpoints import Checkpoints, load, load_first
from amp_core.errors import NotResumable
from amp_core.events import (
    Checkpointed,
    Evaluated,
    Event,
    Finished,
    NoCheckpoint,
    NonFinite,
    Numerics,
    Started,
    StepSkipped,
)
from amp_core.training import train
from amp_core.workload import Split

STEPS = 40
NATIVE = {"precision": "16-mixed", "fp16_compute": "native", "scaler": {"init_scale": 2.0**22, "growth_interval": 4}}
# By steps alone: a machine that stands still for half a minute would write a checkpoint more, or warn of no diagnosis.
UNHURRIED = {"checkpoint_every_s": 1e9, "diagnose_s": 1e6}
TOLD = (Evaluated, StepSkipped, NonFinite, Numerics)


class AllGenerators(DropoutNet):
    """The loss draws from Python's and NumPy's global generators, and the model keeps a buffer outside its state."""

    def model(self) -> nn.Module:
        model = super().model()
        model.register_buffer("calls", torch.zeros(()), persistent=False)
        return model

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        if model.training:
            model.calls += 1
        return super().loss(model, batch) * (1 + random.random() + np.random.rand() + model.calls / 100)


CASES: dict[str, tuple[type[Workload], dict[str, Any]]] = {
    "32-true": (DropoutNet, {"precision": "32-true"}),
    "bf16-mixed, accumulation": (DropoutNet, {"precision": "bf16-mixed", "accumulate": 3}),
    "16-mixed with skips": (DropoutNet, NATIVE),
    "16-mixed, hysteresis": (DropoutNet, {**NATIVE, "scaler": {"init_scale": 2.0**22, "hysteresis": 2}}),
    "16-mixed emulated": (DropoutNet, {"precision": "16-mixed"}),
    "16-true": (DropoutNet, {"precision": "16-true"}),
    "bf16-true, two optimizers": (TwoOptimizers, {"precision": "bf16-true"}),
    "schedule, average, clipping": (Scheduled, {**NATIVE, "ema_decay": 0.9, "clip_norm": 0.1}),
    "images": (Images, {"precision": "bf16-mixed", "channels_last": True, "gradient_checkpointing": ["0"]}),
    "every generator": (AllGenerators, {"precision": "32-true"}),
}


def run(case: str, folder: Path, *, die_at: int | None = None, **fields: Any) -> list[Event]:
    """The events of a run; with ``die_at`` up to and without the first event after that step."""
    kind, recipe = CASES[case]
    config = config_of(
        recipe, steps=STEPS, eval_every=10, numerics_every=8, checkpoint_every_steps=7, **UNHURRIED, **fields
    )
    events: list[Event] = []
    generator = train(config, kind(), Checkpoints(folder, keep=2))
    for event in generator:
        if die_at is not None and isinstance(event, Checkpointed) and event.step >= die_at:
            events.append(event)
            break
        events.append(event)
    generator.close()
    return events


def told(events: list[Event], after: int = 0) -> list[Event]:
    """By step. The order in a run depends on the clock: a skip is told when steps are gathered, at a flush or before
    one, and numerics at their step.
    """
    kept = [event for event in events if isinstance(event, TOLD) and event.step > after]
    return sorted(kept, key=lambda event: (event.step, type(event).__name__))


def timeless(series: dict[str, dict[int, float]], after: int = 0) -> dict[str, dict[int, float]]:
    """Every series whose values are no measurements of time or of this process."""
    kept = {name: points for name, points in series.items() if not name.startswith(("perf/", "memory/process"))}
    late = {name: {step: value for step, value in points.items() if step > after} for name, points in kept.items()}
    return {name: points for name, points in late.items() if points}


@pytest.mark.parametrize("case", CASES)
def test_resumed_is_undisturbed(case: str, tmp_path: Path) -> None:
    whole = run(case, tmp_path / "whole")
    first = run(case, tmp_path / "broken", die_at=16)
    (made,) = events_of(first, Checkpointed)[-1:]
    assert made.step == 21
    second = run(case, tmp_path / "broken", resume_from=(made.path,))
    started = second[0]
    assert isinstance(started, Started)
    assert (started.resumed_step, started.not_resumed) == (21, "")
    np.testing.assert_equal(timeless(series_of(second)), timeless(series_of(whole), after=21))
    assert repr(told(second)) == repr(told(whole, after=21))
    before, after = whole[-1], second[-1]
    assert isinstance(before, Finished)
    assert isinstance(after, Finished)
    for name in ("steps", "skipped_steps", "samples", "lost_samples", "metrics", "stopped"):
        np.testing.assert_equal(getattr(after, name), getattr(before, name))


def test_flushes_change_when_something_is_told_and_not_what(tmp_path: Path) -> None:
    case = "schedule, average, clipping"
    often = run(case, tmp_path / "often", flush_interval_s=0.0)
    never = run(case, tmp_path / "never", flush_interval_s=1e9)
    orders = [[event.step for event in events if isinstance(event, TOLD)] for events in (often, never)]
    assert orders[0] != orders[1], "else nothing is tested here"
    np.testing.assert_equal(timeless(series_of(often)), timeless(series_of(never)))
    assert repr(told(often)) == repr(told(never))


def test_everything_up_to_a_checkpoint_is_said_before_it(tmp_path: Path) -> None:
    events = run("16-mixed with skips", tmp_path, die_at=14)
    assert list(series_of(events)["train/loss"]) == list(range(1, 15))
    assert isinstance(events[-1], Checkpointed)


def test_checkpoints_change_nothing(tmp_path: Path) -> None:
    config = config_of(NATIVE, steps=STEPS, eval_every=10, numerics_every=8)
    without = timeless(series_of(train(config, DropoutNet())))
    np.testing.assert_equal(timeless(series_of(run("16-mixed with skips", tmp_path))), without)


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    run("32-true", tmp_path)
    steps = sorted(int(path.name.split("-")[1]) for path in tmp_path.iterdir())
    assert steps == [28, 35]


def test_a_damaged_file_is_passed_over(tmp_path: Path) -> None:
    first = run("32-true", tmp_path, die_at=21)
    older, newer = events_of(first, Checkpointed)[-2:]
    content = bytearray(Path(newer.path).read_bytes())
    content[len(content) // 2] ^= 1
    Path(newer.path).write_bytes(content)
    second = run("32-true", tmp_path, resume_from=(newer.path, older.path))
    assert second[0].resumed_step == 14
    assert "is damaged" in second[0].not_resumed


def test_a_file_that_is_gone_starts_from_the_first_step(tmp_path: Path) -> None:
    gone = str(tmp_path / f"step-0000000007-{'0' * 32}.pt")
    events = run("32-true", tmp_path, resume_from=(gone,))
    assert events[0].resumed_step == 0
    assert "cannot be read: No such file" in events[0].not_resumed
    assert list(series_of(events)["train/loss"]) == list(range(1, STEPS + 1))


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    (made,) = events_of(run("32-true", tmp_path, die_at=7), Checkpointed)
    events = run("bf16-mixed, accumulation", tmp_path / "other", resume_from=(made.path,))
    assert events[0].resumed_step == 0
    assert "another workload, recipe, seed or length" in events[0].not_resumed


class Unrepeatable(DropoutNet):
    """Its batches come from the global generator."""

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(7):
            x = torch.randn(16, 8)
            yield x, x[:, :4]


def test_data_that_do_not_depend_on_the_seed_alone_are_reported(tmp_path: Path) -> None:
    CASES["unrepeatable"] = (Unrepeatable, {"precision": "32-true"})
    try:
        (made,) = events_of(run("unrepeatable", tmp_path, die_at=7), Checkpointed)[-1:]
        events = run("unrepeatable", tmp_path, resume_from=(made.path,))
    finally:
        del CASES["unrepeatable"]
    assert events[0].resumed_step == 0
    assert "must depend on the seed alone" in events[0].not_resumed


def test_nothing_but_whole_files_under_their_names(tmp_path: Path) -> None:
    """A write that fails leaves the checkpoints before it and no other file."""
    checkpoints = Checkpoints(tmp_path, keep=3)
    written = checkpoints.save(3, {"value": torch.arange(4)})
    with pytest.raises((RuntimeError, AttributeError, TypeError)):
        checkpoints.save(4, {"value": lambda: None})
    assert list(tmp_path.iterdir()) == [written.path]
    assert load(written.path)["value"].tolist() == [0, 1, 2, 3]
    assert load_first(["nonsense", str(written.path)])[1] == [
        "nonsense is no checkpoint: its name must be step-<step>-<checksum>.pt"
    ]


def test_code_is_never_loaded(tmp_path: Path) -> None:
    with pytest.raises(NotResumable, match="cannot be loaded as plain data"):
        Checkpoints(tmp_path, keep=1).save(1, {"value": Path("anything")})
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_by_the_middle_of_a_file_is_told_as_such(tmp_path: Path) -> None:
    """The writer of torch makes a RuntimeError of it; a run would end for that."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    checkpoints = Checkpoints(tmp_path, keep=2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))
    try:
        checkpoints.save(1, {"model": torch.ones(16)})
        checkpoints.save(2, {"model": torch.ones(1024)})
        with pytest.raises(OSError, match="too large"):
            checkpoints.save(3, {"model": torch.ones(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(list(tmp_path.iterdir())) == 2, "those before stay, nothing half-written does"


def test_a_full_disk_does_not_end_the_run(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    events = run("32-true", blocked / "folder")
    assert {event.final for event in events_of(events, NoCheckpoint)} == {False}
    assert isinstance(events[-1], Finished)
