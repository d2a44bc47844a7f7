"""Two gloo ranks against one process with the same global batch: equal traces, one decision, one scale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_scenarios import FORKED_AT, SCENARIOS, config_of, told

from amp_core.config import Recipe
from amp_core.distributed.sharding import shard
from amp_core.errors import RecipeError, WorkloadError
from amp_core.loader import load
from amp_core.recipe_rules import check_strategy
from amp_core.training import train

Told = dict[str, Any]
TOLERANCE = {"32-true": 2e-5, "bf16-mixed": 2e-2, "16-mixed": 4e-3, "bf16-true": 6e-2}
ALIKE = [name for name in SCENARIOS if "resumed" not in name and "forked" not in name]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Told]]:
    """What each of two ranks said, by scenario."""
    out = tmp_path_factory.mktemp("ranks")
    driver = Path(__file__).with_name("ranks_driver.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*torchrun, str(driver), str(out)], capture_output=True, text=True, check=False, timeout=240, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((out / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """The same scenarios by the engine's loop in one process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seen = {}
    for name in ALIKE:
        fields = {key: value for key, value in SCENARIOS[name].items() if key != "strategy"}
        config = config_of(**fields, ranks=1, folder=tmp_path_factory.getbasetemp() / name)
        seen[name] = told(train(config, load(config.workload)))
    torch.set_num_threads(threads)
    return seen


@pytest.mark.parametrize("name", ALIKE)
def test_two_ranks_train_as_one_process(name: str, ranks: list[dict[str, Told]], alone: dict[str, Told]) -> None:
    recipe = SCENARIOS[name]["recipe"]
    precision = recipe if isinstance(recipe, str) else recipe["precision"]
    tolerance = 2e-2 if "reduced" in name else TOLERANCE[precision]
    one, first = alone[name], ranks[0][name]
    for series in ("train/loss", "grad/norm"):
        assert first["series"][series] == pytest.approx(one["series"][series], rel=tolerance, abs=1e-6, nan_ok=True)
    assert first["finished"]["steps"] == one["finished"]["steps"]
    assert first["finished"]["samples"] == one["finished"]["samples"]
    assert first["num_parameters"] == one["num_parameters"]
    assert first["evaluated"] == one["evaluated"]
    metrics = one["finished"]["metrics"]
    assert first["finished"]["metrics"] == pytest.approx(metrics, rel=max(tolerance, 1e-4))
    assert first["skipped"] == one["skipped"]
    assert first["series"].keys() >= {"train/loss", "grad/norm", "perf/step_time_s", "perf/samples_per_s"}


@pytest.mark.parametrize("name", [name for name in SCENARIOS if "overflow" in name or "hysteresis" in name])
def test_an_overflow_on_one_rank_skips_on_both_with_equal_scales(name: str, ranks: list[dict[str, Told]]) -> None:
    first, second = (rank[name] for rank in ranks)
    assert [step for step, _, _ in first["skipped"]] == [2, 5, 8, 11, 14]
    assert second["skipped"] == first["skipped"]
    assert second["series"]["amp/loss_scale"] == first["series"]["amp/loss_scale"]
    assert second["series"]["amp/skipped"] == first["series"]["amp/skipped"]
    assert second["finished"]["metrics"] == first["finished"]["metrics"], "the weights of both ranks are the same"


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_told_of_the_whole_run_is_the_same_on_every_rank(name: str, ranks: list[dict[str, Told]]) -> None:
    first, second = (rank[name] for rank in ranks)
    assert list(map(repr, second["series"]["train/loss"])) == list(map(repr, first["series"]["train/loss"]))
    assert second["finished"] == first["finished"]
    assert first["ranks"]["size"] == 2


def test_a_reduction_in_less_precision_shows(ranks: list[dict[str, Told]]) -> None:
    exact, reduced = (ranks[0][name]["series"]["train/loss"] for name in ("ddp fp32", "ddp reduced in bf16"))
    assert exact[0] == reduced[0]
    assert exact[-1] != reduced[-1]


@pytest.mark.parametrize("name", [name for name in SCENARIOS if "resumed" in name])
def test_a_resumed_run_equals_an_undisturbed_one(name: str, ranks: list[dict[str, Told]]) -> None:
    for rank in ranks:
        calm, resumed = rank[f"{name}, undisturbed"], rank[name]
        assert resumed["resumed_step"] == 12, resumed["not_resumed"]
        assert resumed["series"]["train/loss"] == calm["series"]["train/loss"][12:]
        assert resumed["finished"] == calm["finished"]


@pytest.mark.parametrize("name", [name for name in SCENARIOS if "forked" in name])
def test_a_fork_goes_on_as_its_run_would(name: str, ranks: list[dict[str, Told]]) -> None:
    for rank in ranks:
        whole, fork = rank[f"{name}, undisturbed"], rank[name]
        assert fork["series"]["train/loss"] == whole["series"]["train/loss"][FORKED_AT:]
        assert fork["finished"]["metrics"] == whole["finished"]["metrics"]
        other, control = (rank[f"{name}, {which}"]["series"]["train/loss"] for which in ("another seed", "control"))
        assert other[0] != fork["series"]["train/loss"][0]
        assert control != fork["series"]["train/loss"]
        assert control == pytest.approx(fork["series"]["train/loss"], rel=1e-3)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("num_samples", [5, 8, 13])
def test_shards_are_the_batch(size: int, num_samples: int) -> None:
    x = torch.arange(num_samples * 2).reshape(num_samples, 2)
    batch = {"x": x, "pair": (x[:, 0], "a name"), "weight": torch.tensor(3.0)}
    parts = [shard(batch, rank, size) for rank in range(size)]
    assert torch.equal(torch.cat([part["x"] for part in parts]), x)
    assert torch.equal(torch.cat([part["pair"][0] for part in parts]), x[:, 0])
    assert all(part["pair"][1] == "a name" and part["weight"] == 3.0 for part in parts)
    sizes = [len(part["x"]) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_too_small_a_batch_is_refused() -> None:
    with pytest.raises(WorkloadError, match="a batch of 2 samples has none for 1 of 3 ranks"):
        shard(torch.ones(2, 3), 0, 3)


def test_what_shards_cannot_do_is_refused() -> None:
    check_strategy(Recipe(name="r", precision="bf16-mixed"), "fsdp")
    check_strategy(Recipe(name="r", precision="bf16-true", ema_decay=0.9), "ddp")
    for recipe in (
        Recipe(name="r", precision="32-true", ema_decay=0.9),
        Recipe(name="r", precision="32-true", compile=True),
        Recipe(name="r", precision="bf16-true"),
    ):
        with pytest.raises(RecipeError, match="choose"):
            check_strategy(recipe, "fsdp")
