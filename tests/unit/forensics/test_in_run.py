"""A run diagnoses its own faults after the last step, and costs nothing while it is healthy."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.events import Artifact, Diagnosis, Event, Finished, Report
from amp_core.forensics import in_run
from amp_core.forensics.last_good import LastGood
from amp_core.loader import load
from amp_core.training import train

SOURCE = Path(__file__).parent / "faulty_workload.py"
FP16: dict[str, Any] = {"precision": "16-mixed", "scaler": {"kind": "dynamic", "init_scale": 256.0}}
UNSCALED: dict[str, Any] = {"precision": "16-mixed", "scaler": {"kind": "none"}}


def events_of(fault: str, recipe: str | dict[str, Any], steps: int = 20, diagnose_s: float = 60.0) -> list[Event]:
    torch.set_num_threads(1)
    ref = WorkloadRef(name="faulty", path=str(SOURCE), params={"fault": fault})
    config = RunConfig(
        run_id=1, attempt=1, workload=ref, recipe=parse_recipe(recipe), steps=steps, eval_every=0, diagnose_s=diagnose_s
    )
    return list(train(config, load(ref)))


def diagnoses(events: list[Event]) -> list[Diagnosis]:
    return [event for event in events if isinstance(event, Diagnosis)]


def faults(events: list[Event]) -> list[Diagnosis]:
    return [found for found in diagnoses(events) if found.severity == "fault"]


def unpacked(events: list[Event], folder: Path) -> Path:
    """The repro bundle of a run, unpacked."""
    content = next(e.content for e in events if isinstance(e, Artifact) and e.name.startswith("repro-"))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(folder)
    return folder


def reproduced(folder: Path) -> subprocess.CompletedProcess[str]:
    """The script in an interpreter that sees neither this tree nor its environment."""
    command = [sys.executable, "-I", "reproduce.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_an_overflowing_batch_is_traced_to_its_operation_and_reproduced(tmp_path: Path) -> None:
    events = events_of("huge-batch", FP16)
    (found,) = faults(events)
    assert (found.module, found.phase, found.kind, found.caused_by) == ("first", "forward", "overflow", "data")
    assert (found.step, found.batch, found.scale) == (8, 7, 256.0)
    assert found.max_abs is not None
    assert found.max_abs > 65504
    assert found.verified
    assert found.recipe is not None
    parse_recipe(found.recipe)
    outcomes = {(replay.numbers, replay.scale): replay.finite for replay in found.replays}
    assert outcomes["fp32", 1.0]
    assert outcomes["fp64", 1.0]
    assert not any(finite for (numbers, _), finite in outcomes.items() if numbers == "recipe")
    assert isinstance(events[-1], Finished)
    folder = unpacked(events, tmp_path)
    assert torch.load(folder / "state.pt", weights_only=True)["first.weight"].shape == (32, 8)
    assert json.loads((folder / "recipe.json").read_text())["precision"] == "16-mixed"
    run = reproduced(folder)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "REPRODUCED: overflow in first" in run.stdout


def test_the_script_says_so_when_the_fault_does_not_come_back(tmp_path: Path) -> None:
    folder = unpacked(events_of("huge-batch", FP16), tmp_path)
    calls = torch.load(folder / "operation.pt", weights_only=True)
    harmless = [{**call, "args": [a * 0 if isinstance(a, torch.Tensor) else a for a in call["args"]]} for call in calls]
    torch.save(harmless, folder / "operation.pt")
    (folder / "batch.pt").unlink()
    run = reproduced(folder)
    assert run.returncode == 1
    assert "NOT REPRODUCED" in run.stdout


def test_a_fault_that_fp32_shares_has_no_recipe_as_its_fix() -> None:
    (found,) = faults(events_of("own", "bf16-mixed", steps=6))
    assert (found.step, found.recipe) == (1, None)
    assert "FP32 shows the same fault" in found.fix


def test_a_single_skip_with_which_the_scale_settles_is_a_note() -> None:
    recipe = {"precision": "16-mixed", "scaler": {"kind": "dynamic", "init_scale": 2.0**24}}
    found = diagnoses(events_of("none", recipe))
    assert [one.severity for one in found] == ["note"]
    assert (found[0].symptom, found[0].caused_by, found[0].phase) == ("skipped_step", "scale", "backward")
    assert found[0].recipe is None


def test_vanished_gradients_are_diagnosed_and_loss_scaling_is_the_cure() -> None:
    (found,) = faults(events_of("tiny", UNSCALED))
    assert (found.kind, found.phase, found.caused_by) == ("underflow", "backward", "scale")
    assert found.verified
    assert found.recipe is not None
    assert found.recipe["scaler"]["kind"] == "dynamic"


def test_a_refused_constant_is_diagnosed_before_the_run_fails() -> None:
    (found,) = faults(_until_error("mask", FP16))
    assert (found.kind, found.symptom, found.module) == ("dtype_error", "error", None)


def _until_error(fault: str, recipe: dict[str, Any]) -> list[Event]:
    ref = WorkloadRef(name="faulty", path=str(SOURCE), params={"fault": fault})
    config = RunConfig(run_id=1, attempt=1, workload=ref, recipe=parse_recipe(recipe), steps=4, eval_every=0)
    seen: list[Event] = []
    try:
        for event in train(config, load(ref)):
            seen.append(event)
    except RuntimeError:
        return seen
    raise AssertionError("the run was to fail")


def test_a_loss_that_is_silently_wrong_is_found_at_the_end() -> None:
    events = events_of("offset", "bf16-mixed")
    first, report = [event for event in events if isinstance(event, Report)]
    assert first.content["step"] == 1 < report.content["step"]
    assert report.content["departs"] == "loss"
    (found,) = faults(events)
    assert found.symptom == "quality"
    assert found.recipe is not None


@pytest.mark.parametrize("recipe", ["32-true", "bf16-mixed", FP16, "bf16-true"])
def test_a_sound_run_has_no_finding(recipe: str | dict[str, Any]) -> None:
    assert diagnoses(events_of("none", recipe)) == []


def test_a_healthy_run_never_enters_forensics_before_its_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_args: object) -> None:
        raise AssertionError("forensics during a healthy run")

    for name in ("find_scene", "diagnose_scene", "layer_report"):
        monkeypatch.setattr(in_run, name, forbidden)
    monkeypatch.setattr(LastGood, "consider", lambda *_: None)
    events = events_of("none", "32-true")
    assert isinstance(events[-1], Finished)


def test_no_time_for_diagnoses_means_none() -> None:
    events = events_of("huge-batch", FP16, diagnose_s=0.0)
    assert diagnoses(events) == []
    assert isinstance(events[-1], Finished)


def test_states_are_copied_rarely_and_in_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from amp_core.forensics import last_good

    clock = iter(range(0, 100000, 3))
    monkeypatch.setattr(last_good.time, "monotonic", lambda: float(next(clock)))
    ref = WorkloadRef(name="faulty", path=str(SOURCE))
    config = RunConfig(run_id=1, attempt=1, workload=ref, recipe=parse_recipe(FP16), steps=4)
    from amp_core.precision import precision_for
    from amp_core.setup import build_step
    from amp_core.training_data import TrainingData

    step = build_step(load(ref), config.recipe, precision_for(config.recipe, torch.device("cpu")), 0, 4)
    kept = LastGood(config)
    data = TrainingData(load(ref), 0)
    next(data)
    taken = []
    for number in range(1, 3000):
        before = len(kept.states), kept.states[-1].number if kept.states else 0
        kept.consider(number, step, data)
        if (len(kept.states), kept.states[-1].number if kept.states else 0) != before:
            taken.append(number)
    assert len(kept.states) == last_good.KEPT
    assert len(taken) * 3 <= 3000 * 3 * last_good.SHARE_OF_TIME + 3 * 3  # seconds of copies in seconds of training
    monkeypatch.setattr(last_good, "MAX_BYTES", 10)
    small = LastGood(config)
    for number in range(1, 100):
        small.consider(number, step, data)
    assert small.states == []
