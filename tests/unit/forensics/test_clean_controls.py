"""The workloads that ship are sound in mixed precision: neither watch, diagnosis, check nor stress battery objects."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import amp_core
from amp_core.analysis import analysis_of
from amp_core.checking import check
from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.events import Diagnosis, Finished, NonFinite, Report, SkipsRepeat, StressFinding, ZeroGradients
from amp_core.training import train
from amp_core.workload import Workload
from amp_core.workloads.digits_cnn import DigitsCNN
from amp_core.workloads.photo_denoiser import PhotoDenoiser
from amp_core.workloads.stdlib_gpt import StdlibGPT

SMALL: dict[str, Workload] = {
    "digits-cnn": DigitsCNN(width=8, batch_size=32),
    "stdlib-gpt": StdlibGPT(depth=1, width=32, context=16, batch_size=4),
    "photo-denoiser": PhotoDenoiser(width=64, batch_size=128),
}
RECIPES = ("bf16-mixed", "16-mixed")
EVERY = [(name, recipe) for name in SMALL for recipe in RECIPES]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def config_of(name: str, recipe: str, **fields: Any) -> RunConfig:
    ref = WorkloadRef(name=name, path=str(Path(amp_core.__file__)))
    given = {"steps": 6, "eval_every": 0, "numerics_every": 2, "seed": 1, **fields}
    return RunConfig(run_id=1, attempt=1, workload=ref, recipe=parse_recipe(recipe), **given)


@pytest.mark.parametrize(("name", "recipe"), EVERY)
def test_the_watch_of_a_run_finds_nothing(name: str, recipe: str) -> None:
    events = list(train(config_of(name, recipe), SMALL[name]))
    assert isinstance(events[-1], Finished)
    found = [event for event in events if isinstance(event, Diagnosis | NonFinite | SkipsRepeat | ZeroGradients)]
    assert found == []
    comparisons = [event.content for event in events if isinstance(event, Report)]
    assert [content["step"] for content in comparisons] == [1, 6]
    assert all(content["departs"] != "loss" for content in comparisons)


@pytest.mark.parametrize("name", SMALL)
def test_check_finds_nothing(name: str) -> None:
    """That is `diagnose` for each recipe, and the linter on the source."""
    workload = SMALL[name]

    def model() -> torch.nn.Module:
        torch.manual_seed(1)
        return workload.model()

    batches = list(islice(workload.batches("train", 1), 4))
    source = Path(inspect.getfile(type(workload)))
    checked = check(model, batches, workload.loss, RECIPES, optimizer=workload.optimizer, source=source)
    assert checked.diagnoses == dict.fromkeys(RECIPES)
    assert checked.sound


@pytest.mark.parametrize(("name", "recipe"), EVERY)
def test_the_stress_battery_finds_nothing_in_ordinary_batches(name: str, recipe: str) -> None:
    """Cases beyond a format's range are faults of the case; these three hold what training data hold."""
    options = {"start": 1, "cases": ["ordinary", "one_sample", "long_reduction"]}
    config = config_of(name, recipe, kind="stress", options=options)
    events = list(analysis_of("stress")(config, SMALL[name]))
    assert [event for event in events if isinstance(event, StressFinding)] == []
