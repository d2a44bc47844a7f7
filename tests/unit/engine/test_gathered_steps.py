"""Numbers of several steps brought over at once: rows, series, and what counts as ordinary."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from amp_core.scaler import StepOutcome
from amp_core.telemetry.recorder import Recorder, StepRecord


def record(step: int, loss: float, norms: list[float] | None, found_inf: float | None = None) -> StepRecord:
    outcome = None
    if found_inf is not None:
        outcome = StepOutcome(torch.tensor(found_inf), torch.tensor(8.0), torch.tensor(4.0 if found_inf else 8.0))
    held = None if norms is None else [torch.tensor(norm) for norm in norms]
    return StepRecord(step, 10.0 + step, torch.tensor(loss), held, outcome, 16, 0.5, 2.0)


def series(recorder: Recorder) -> dict[str, dict[int, float]]:
    segment = recorder.segment()
    assert segment is not None
    return {
        column.name: dict(
            zip(np.frombuffer(column.steps, "<i8").tolist(), np.frombuffer(column.values, "<f8").tolist(), strict=True)
        )
        for column in segment.columns
    }


def test_rows_and_series_say_the_same() -> None:
    recorder = Recorder()
    for each in (record(1, 1.5, [3.0, 4.0], 0.0), record(2, 2.5, None, 1.0), record(3, 3.5, [0.0, 2.0], 0.0)):
        recorder.note(each)
    rows = list(recorder.gather())
    assert [(row.step, row.loss, row.norms) for row in rows] == [(1, 1.5, [3, 4]), (2, 2.5, []), (3, 3.5, [0, 2])]
    assert [(row.skipped, row.scale_before, row.scale_after) for row in rows] == [
        (False, 8.0, 8.0),
        (True, 8.0, 4.0),
        (False, 8.0, 8.0),
    ]
    found = series(recorder)
    assert found["train/loss"] == {1: 1.5, 2: 2.5, 3: 3.5}
    assert found["grad/norm"] == {1: 5.0, 3: 2.0}
    assert found["amp/skipped"] == {1: 0.0, 2: 1.0, 3: 0.0}
    assert found["amp/loss_scale"] == {1: 8.0, 2: 8.0, 3: 8.0}
    assert found["perf/samples_per_s"] == {1: 8.0, 2: 8.0, 3: 8.0}
    assert not list(recorder.gather()), "each step is brought over once"


def test_norms_may_come_as_one_tensor() -> None:
    recorder = Recorder()
    recorder.note(record(1, 1.0, None)._replace(norms=torch.tensor([3.0, 4.0])))
    recorder.note(record(2, 1.0, [6.0, 8.0]))
    recorder.gather()
    assert series(recorder)["grad/norm"] == {1: 5.0, 2: 10.0}


@pytest.mark.parametrize(
    ("bad", "ordinary"),
    [
        (record(2, 1.0, [1.0, 1e30]), True),
        (record(2, 1.0, None), True),
        (record(2, 1.0, [1.0, 1.0], 0.0), True),
        (record(2, math.nan, [1.0, 1.0]), False),
        (record(2, -math.inf, [1.0, 1.0]), False),
        (record(2, 1.0, [math.inf, 1.0]), False),
        (record(2, 1.0, [1.0, math.nan]), False),
        (record(2, 1.0, [1.0, 1.0], 1.0), False),
    ],
)
def test_one_bad_step_makes_steps_extraordinary(bad: StepRecord, ordinary: bool) -> None:
    recorder = Recorder()
    recorder.note(record(1, math.inf if bad.loss == -math.inf else 1.0, [1.0, 1.0]))
    recorder.note(bad)
    assert recorder.gather().are_ordinary is ordinary


def test_no_steps_are_not_ordinary() -> None:
    assert not Recorder().gather().are_ordinary
