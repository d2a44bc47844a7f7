"""The search for the largest batch: exact against a plain scan, and in few attempts; batches of any size by joining."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import amp_core
from amp_core.analyses import check_analysis, parse_options
from amp_core.analysis.batch_size import search
from amp_core.analysis.sized_batches import batches_of, joined, workload_for
from amp_core.config import WorkloadRef, parse_recipe
from amp_core.errors import AnalysisError
from amp_core.workload import Workload


def _drive(first: int, largest: int, resolution: float, room: int) -> tuple[int | None, int | None, list[int]]:
    asked: list[int] = []
    sizes = search(first, largest, resolution)
    try:
        size = next(sizes)
        while True:
            asked.append(size)
            size = sizes.send(size <= room)
    except StopIteration as end:
        return (*end.value, asked)


@given(st.integers(1, 5000), st.integers(1, 100_000), st.integers(0, 120_000))
def test_the_largest_that_fits_is_found(first: int, largest: int, room: int) -> None:
    good, bad, asked = _drive(first, largest, 0.0, room)
    assert good == (min(room, largest) or None)
    assert bad == (room + 1 if room < largest else None)
    assert len(asked) == len(set(asked)), "no size is tried twice"
    assert len(asked) <= 2 * math.log2(max(largest, 2)) + 4
    assert all(1 <= size <= largest for size in asked)


@given(st.integers(1, 100_000))
def test_a_resolution_ends_it_earlier(room: int) -> None:
    good, bad, asked = _drive(64, 65536, 0.1, room)
    assert good is not None
    assert bad is None or bad - good <= max(1, int(0.1 * good))
    assert bad is None or good <= room < bad
    assert len(asked) <= 16


class Pairs(Workload):
    """Batches of four, with a mask per sample and a constant per batch."""

    def batches(self, split: Any, seed: int) -> Iterator[dict[str, torch.Tensor]]:
        for number in range(5):
            x = torch.arange(4 * number, 4 * number + 4)
            yield {"x": x, "table": torch.ones(7), "pair": (x.float(), x[:, None])}  # type: ignore[dict-item]

    def model(self) -> torch.nn.Module:
        return torch.nn.Identity()


@pytest.mark.parametrize("size", [1, 3, 4, 6, 20, 47])
def test_batches_are_joined_sample_by_sample(size: int) -> None:
    first, second = batches_of(Pairs(), 0, size, 2)
    assert first["x"].tolist() == [index % 20 for index in range(size)]
    assert first["pair"][1].shape == (size, 1)
    assert first["table"].shape == (7,)
    assert second["x"].shape == (size,)


def test_batches_of_several_shapes_are_repeated() -> None:
    class Padded(Pairs):
        def batches(self, split: Any, seed: int) -> Iterator[torch.Tensor]:
            yield from (torch.ones(2, 5), torch.ones(2, 6))

    (batch,) = batches_of(Padded(), 0, 5, 1)
    assert batch.shape == (5, 5)
    assert joined([(torch.ones(2), torch.tensor(3.0))] * 2, 3)[1].item() == 3.0


def test_a_parameter_named_batch_size_is_used_where_it_allows() -> None:
    path = str(Path(amp_core.__file__).parent / "workloads" / "photo_denoiser.py")
    ref = WorkloadRef(name="photo-denoiser", path=path)
    declared = {parameter.name: parameter for parameter in workload_for(ref, 1).parameters()}["batch_size"]
    assert workload_for(ref, 96).values()["batch_size"] == 96
    assert declared.maximum is not None
    assert workload_for(ref, int(declared.maximum) + 1).values()["batch_size"] == declared.default


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": 0}, "first=0 must be at least 1"),
        ({"memory_limit_bytes": 0}, "memory_limit_bytes=0"),
        ({"resolution": -1}, "resolution"),
        ({"colour": 1}, "colour"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        parse_options("batch-size", options)


def test_emulated_recipes_have_no_answer() -> None:
    with pytest.raises(AnalysisError, match="emulated on this device"):
        check_analysis("batch-size", parse_recipe("fp16"), "cpu")
    check_analysis("batch-size", parse_recipe("bf16"), "cpu")
    check_analysis("sensitivity", parse_recipe("fp16"), "cpu")
