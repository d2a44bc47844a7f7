"""Exponent histograms against real casts: every format, every power-of-two scale, count for count."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from amp_core.telemetry.exponent_counts import exponent_counts, grouped_counts, histograms
from amp_core.telemetry.exponents import (
    EDGES,
    FORMATS,
    MAX_SCALE_POWER,
    MIN_SCALE_POWER,
    Histogram,
    merged,
    pack,
    read,
    unpack,
)

DTYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}


def histogram_of(tensor: Tensor) -> Histogram:
    return histograms([exponent_counts(tensor)])[0]


def by_casting(tensor: Tensor, name: str, k: int) -> tuple[int, int, int]:
    """Underflows, subnormals and overflows among finite nonzero elements, by the cast itself."""
    values = tensor[torch.isfinite(tensor) & (tensor != 0)]
    product = values * 2.0**k
    cast = product.to(DTYPES[name]).float()
    over = torch.isinf(cast)
    if name == "e4m3":  # no infinity: what would have been rounded to more than 448, were there more exponents
        wide = torch.ldexp(torch.ldexp(product.double(), torch.tensor(-5)).round(), torch.tensor(5))  # step 32 there
        over = wide.abs() > 448
    tiny = torch.finfo(DTYPES[name]).smallest_normal
    return int((cast == 0).sum()), int(((cast != 0) & (cast.abs() < tiny)).sum()), int(over.sum())


def counted(histogram: Histogram, name: str, k: int) -> tuple[int, int, int]:
    shares = histogram.shares(name, k)
    return shares.num_underflow, shares.num_subnormal, shares.num_overflow


def random_bits(seed: int) -> Tensor:
    """All exponents alike, signs and mantissas at random, with many at the edges; NaN, infinities and zeros too."""
    generator = np.random.default_rng(seed)
    exponents = generator.integers(0, 256, size=20_000)
    mantissas = generator.integers(0, 1 << 23, size=20_000)
    near = np.asarray([0, *EDGES])[generator.integers(0, len(EDGES) + 1, size=20_000)]
    near = np.clip(near + generator.integers(-2, 3, size=20_000), 0, (1 << 23) - 1)
    mantissas = np.where(generator.random(20_000) < 0.5, near, mantissas)
    signs = generator.integers(0, 2, size=20_000)
    bits = (signs << 31 | exponents << 23 | mantissas).astype(np.uint32)
    return torch.from_numpy(
        np.concatenate([bits, [0, 1 << 31, 1, 2, 3, 4095, 4096]]).astype(np.uint32).view(np.float32)
    )


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_scale_counts_as_casts_do(name: str) -> None:
    tensor = random_bits(seed=len(name) + FORMATS[name].max_exponent)
    histogram = histogram_of(tensor)
    for k in range(MIN_SCALE_POWER, MAX_SCALE_POWER + 1):
        assert counted(histogram, name, k) == by_casting(tensor, name, k), f"scale 2**{k}"


FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True)


@settings(deadline=None)
@given(
    st.lists(FLOATS, min_size=1, max_size=40),
    st.integers(MIN_SCALE_POWER, MAX_SCALE_POWER),
    st.sampled_from(list(FORMATS)),
)
def test_any_values_at_any_scale(values: list[float], k: int, name: str) -> None:
    tensor = torch.tensor(values, dtype=torch.float32)
    histogram = histogram_of(tensor)
    assert counted(histogram, name, k) == by_casting(tensor, name, k)
    assert histogram.zeros == int((tensor == 0).sum())
    assert histogram.infinite == int(torch.isinf(tensor).sum())
    assert histogram.nan == int(torch.isnan(tensor).sum())
    assert histogram.num_elements == len(values)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.0**-25, (1, 0, 0)),
        (2.0**-25 * 1.0001, (0, 1, 0)),
        (2.0**-14 - 2.0**-25, (0, 0, 0)),  # a tie that rounds up to the smallest normal number
        (65519.0, (0, 0, 0)),
        (65520.0, (0, 0, 1)),
    ],
)
def test_rounding_edges_of_fp16(value: float, expected: tuple[int, int, int]) -> None:
    assert counted(histogram_of(torch.tensor([value, -value])), "fp16", 0) == tuple(2 * one for one in expected)
    assert counted(histogram_of(torch.tensor([value / 65536])), "fp16", 16) == expected


def test_saturation_of_e4m3_and_range_of_bf16() -> None:
    histogram = histogram_of(torch.tensor([448.0, 464.0, 464.1, 1e30, 3.4e38]))
    assert histogram.shares("e4m3").num_overflow == 3
    assert histogram.shares("bf16").num_overflow == 1
    assert histogram.shares("bf16").overflow == 0.2
    assert histogram.shares("bf16", -1).num_overflow == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float64])
def test_other_types_are_read_as_the_numbers_they_hold(dtype: torch.dtype) -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert (histogram_of(values).table == histogram_of(values.float()).table).all()


def test_strides_and_emptiness() -> None:
    values = torch.randn(6, 8)
    assert (histogram_of(values.t()[::2]).table == histogram_of(values.t()[::2].contiguous()).table).all()
    nothing = histogram_of(torch.empty(0))
    assert nothing.num_elements == 0
    assert nothing.by_exponent() == ([], [])
    assert nothing.shares("fp16").underflow == 0.0


def test_merging_is_counting_together() -> None:
    one, two = torch.randn(500) * 1e-6, random_bits(3)
    assert (merged([histogram_of(one), histogram_of(two)]).table == histogram_of(torch.cat([one, two])).table).all()


def test_groups_count_as_their_tensors_do() -> None:
    groups = [
        [random_bits(1)[:90], torch.zeros(3)],
        [torch.randn(30_000)],
        [torch.empty(0)],
        [random_bits(2)[:9], torch.ones(4)],
    ]
    for found, group in zip(histograms(grouped_counts(groups)), groups, strict=True):
        assert (found.table == histogram_of(torch.cat(group)).table).all()
    assert grouped_counts([]) == []
    assert (histograms(grouped_counts(groups[:1]))[0].table == histogram_of(torch.cat(groups[0])).table).all()


def test_bins_have_no_gaps() -> None:
    assert histogram_of(torch.tensor([0.0, 1.5, -8.0, 9.0])).by_exponent() == ([0, 1, 2, 3], [1, 0, 0, 2])


def test_packing_keeps_every_count() -> None:
    histograms_ = [histogram_of(random_bits(1)), histogram_of(torch.empty(0)), histogram_of(torch.zeros(300_000))]
    again = unpack(pack(histograms_))
    assert [(a.table == b.table).all() for a, b in zip(again, histograms_, strict=True)] == [True] * 3
    payload = {"modules": ["a", "b", "c"], "counts": pack(histograms_)}
    assert list(read(payload)) == ["a", "b", "c"]


def test_a_usual_module_takes_few_bytes() -> None:
    gradient = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)) * 1e-4
    assert len(pack([histogram_of(gradient)])) < 400


@pytest.mark.parametrize("text", ["", "no base64!", "AAAA", pack([histogram_of(torch.ones(3))])[:-8]])
def test_damaged_counts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no packed exponent histograms"):
        unpack(text)


def test_wrong_questions_are_refused() -> None:
    histogram = histogram_of(torch.ones(2))
    with pytest.raises(ValueError, match="choose one of fp16, bf16, e4m3, e5m2"):
        histogram.shares("fp4")
    with pytest.raises(ValueError, match=r"2\*\*128"):
        histogram.shares("fp16", 128)
    with pytest.raises(ValueError, match="1 histograms for 2 modules"):
        read({"modules": ["a", "b"], "counts": pack([histogram])})


def test_the_reader_needs_no_torch() -> None:
    code = "import amp_core.telemetry.exponents, sys; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
