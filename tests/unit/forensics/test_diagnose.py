"""A planted fault of each kind is found, named and mended; sound trainings stay without a finding."""

from __future__ import annotations

import math

import pytest
import torch
from faulty_models import PLANTED, SOUND, Planted, classified, cross_entropy, seeded
from torch import nn

from amp_core.config import parse_recipe
from amp_core.forensics import Diagnosis, diagnose


def found_in(planted: Planted) -> Diagnosis | None:
    torch.set_num_threads(1)
    return diagnose(
        planted.model,
        planted.batches,
        planted.loss,
        planted.recipe,
        optimizer=planted.optimizer,
        eval_batches=planted.eval_batches,
        accumulate=planted.accumulate,
    )


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_fault_is_found_named_and_mended(planted: Planted) -> None:
    found = found_in(planted)
    assert found is not None
    assert found.module == planted.module
    assert found.kind in planted.kinds
    assert found.caused_by == planted.cause
    assert found.verified
    assert found.recipe is not None
    parse_recipe(found.recipe)  # what is proposed can be submitted


@pytest.mark.parametrize("sound", SOUND, ids=lambda sound: sound.name)
def test_a_sound_training_stays_without_a_finding(sound: Planted) -> None:
    assert found_in(sound) is None


def test_the_bundled_digits_stay_without_a_finding() -> None:
    from amp_core.workloads.digits_cnn import DigitsCNN

    workload = DigitsCNN(width=8)
    batches = list(workload.batches("train", 1))
    for recipe in ("bf16-mixed", "16-mixed"):
        assert diagnose(seeded(workload.model), batches, workload.loss, recipe, optimizer=workload.optimizer) is None


def test_a_fault_that_fp32_shows_too_is_not_the_recipes() -> None:
    class Exploding(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * math.inf

    torch.manual_seed(0)
    assert diagnose(seeded(lambda: Exploding(8, 3)), classified(4), cross_entropy, "16-mixed") is None


def test_the_overflow_names_value_step_and_batch() -> None:
    class Squares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.inner(x)
            return h * h

    batches = classified(6)
    batches[4] = (batches[4][0] * 1000, batches[4][1])  # one batch out of six
    found = diagnose(seeded(lambda: nn.Sequential(Squares())), batches, cross_entropy, "16-mixed")
    assert found is not None
    assert (found.module, found.op, found.phase, found.step, found.batch) == ("0", "mul", "forward", 5, 4)
    assert found.max_abs is not None
    assert found.max_abs > 65504
    assert "float16" in found.sentence
