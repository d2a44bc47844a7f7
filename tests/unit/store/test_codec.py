"""Packed points come back bit for bit, and small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.metrics.codec import Points, concatenate, pack, unpack

int64 = st.integers(-(2**63), 2**63 - 1)
bits = st.integers(0, 2**64 - 1)  # every float64 there is, each NaN included


@st.composite
def points(draw: st.DrawFn) -> Points:
    size = draw(st.integers(0, 30))
    return Points(
        steps=np.array(draw(st.lists(int64, min_size=size, max_size=size)), np.int64),
        values=np.array(draw(st.lists(bits, min_size=size, max_size=size)), np.uint64).view(np.float64),
        times=np.array(draw(st.lists(bits, min_size=size, max_size=size)), np.uint64).view(np.float64),
    )


def same_bits(left: Points, right: Points) -> bool:
    return all(
        getattr(left, field).tobytes() == getattr(right, field).tobytes() for field in ("steps", "values", "times")
    )


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=20), points(), max_size=5))
def test_every_bit_comes_back(columns: dict[str, Points]) -> None:
    unpacked = unpack(pack(columns))
    assert list(unpacked) == list(columns)
    assert all(same_bits(unpacked[name], columns[name]) for name in columns)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), points(), min_size=1), st.sets(st.sampled_from("abcd")))
def test_only_the_series_asked_for_are_decoded(columns: dict[str, Points], names: set[str]) -> None:
    unpacked = unpack(pack(columns), names)
    assert set(unpacked) == set(columns) & names
    assert all(same_bits(unpacked[name], columns[name]) for name in unpacked)


def test_series_of_one_flush_share_their_steps_and_compress() -> None:
    steps = np.arange(5000, 6000)
    times = 1.7e9 + 0.004 * np.arange(1000)
    rng = np.random.default_rng(0)
    losses = np.exp(-steps / 4000) + 0.01 * rng.standard_normal(1000).astype(np.float32)
    columns = {
        f"series/{number}": Points(steps=steps, values=losses.astype(np.float32).astype(np.float64), times=times)
        for number in range(20)
    }
    assert len(pack(columns)) < 5 * 20_000  # bytes a point, of values born in fp32; raw they are 24


@pytest.mark.parametrize("payload", [b"", b"\x02abc", b"\x01not zstd"])
def test_other_bytes_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"is unknown|is damaged"):
        unpack(payload)


def test_concatenate_keeps_the_order_of_arrival() -> None:
    parts = [Points(steps=np.array([n]), values=np.array([float(n)]), times=np.array([0.0])) for n in (3, 1, 2)]
    assert concatenate(parts).steps.tolist() == [3, 1, 2]
    assert len(concatenate([])) == 0
