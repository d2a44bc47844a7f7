"""The packed columns of chunks and axes: exact, and cheap to read in part.

An axis holds what series that were logged together share: steps, times, and which points came with which segment. A
chunk's payload holds its values only. Arrays are byte-shuffled and compressed like those of segments; steps that
advance evenly are two numbers. Previews and counts are raw, so that those of a thousand chunks are read as one array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from server.metrics.codec import Points, differences, shuffle, unshuffle
from server.metrics.downsample import kept_points

NUM_BINS = 16  # of a preview: coarser than any chart that reads previews, finer than a chunk
_LEVEL = 3
_POINT = np.dtype([("step", "<i8"), ("value", "<f8"), ("time", "<f8")])
_COUNTS = np.dtype([("step", "<i8"), ("nan", "<i8"), ("pos_inf", "<i8"), ("neg_inf", "<i8")])

Counts = NDArray[np.void]  # records of _COUNTS: the first step of a bin, and how many of each kind it has


class AxisColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Steps and times of the points, `(N,)`, and the sequence that each came with."""

    steps: NDArray[np.int64]
    times: NDArray[np.float64]
    sequences: NDArray[np.int64]

    def key(self) -> bytes:
        """Equal for equal axes, bit by bit."""
        return self.steps.tobytes() + self.times.tobytes() + self.sequences.tobytes()


class _Header(msgspec.Struct, array_like=True):
    size: int
    runs: int
    even: tuple[int, int] | None  # first step and stride


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Header)


def pack_axis(axis: AxisColumns) -> bytes:
    """Encode an axis; `unpack_axis` gives back the same bits."""
    size = len(axis.steps)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(axis.sequences)) + 1))
    even = _even(axis.steps)
    head = _encoder.encode(_Header(size, len(starts), even))
    body = [
        b"" if even is not None else shuffle(differences(axis.steps)),
        shuffle(differences(axis.times.view(np.int64))),
        shuffle(differences(axis.sequences[starts])),
        shuffle(differences(starts.astype(np.int64))),
    ]
    return _compress(len(head).to_bytes(2, "little") + head + b"".join(body))


def unpack_axis(payload: bytes) -> AxisColumns:
    """Raises `ValueError` for bytes that `pack_axis` did not make."""
    content = _decompress(payload)
    place = 2 + int.from_bytes(content[:2], "little")
    header = _decoder.decode(content[2:place])

    def take(size: int) -> NDArray[np.int64]:
        nonlocal place
        array = np.cumsum(unshuffle(content, place, size, "<i8"), dtype=np.int64)
        place += 8 * size
        return array

    steps = take(header.size) if header.even is None else _progression(header.even, header.size)
    times = take(header.size).view(np.float64)
    sequences, starts = take(header.runs), take(header.runs)
    counts = np.diff(np.append(starts, header.size))
    return AxisColumns(steps=steps, times=times, sequences=np.repeat(sequences, counts))


def pack_values(values: NDArray[np.float64]) -> bytes:
    """Encode values; `unpack_values` gives back the same bits."""
    return _compress(shuffle(values))


def unpack_values(payload: bytes) -> NDArray[np.float64]:
    """Raises `ValueError` for bytes that `pack_values` did not make."""
    content = _decompress(payload)
    values: NDArray[np.float64] = unshuffle(content, 0, len(content) // 8, "<f8")
    return values


def preview_of(points: Points) -> tuple[int, bytes, bytes]:
    """Shift, kept points and non-finite counts of about `NUM_BINS` bins over points sorted by step."""
    span = int(points.steps[-1]) - int(points.steps[0])
    shift = max(0, span.bit_length() - NUM_BINS.bit_length() + 1)
    kept = kept_points(points, shift)
    records = np.empty(len(kept), _POINT)
    records["step"], records["value"], records["time"] = kept.steps, kept.values, kept.times
    return shift, records.tobytes(), count_non_finite(points, shift).tobytes()


def read_previews(previews: Sequence[bytes]) -> list[Points]:
    """The kept points of every preview."""
    records = np.frombuffer(b"".join(previews), _POINT)
    steps, values, times = (np.ascontiguousarray(records[name]) for name in ("step", "value", "time"))
    ends = np.cumsum([len(preview) // _POINT.itemsize for preview in previews]).tolist()
    return [
        Points(steps=steps[low:high], values=values[low:high], times=times[low:high])
        for low, high in zip([0, *ends], ends, strict=False)
    ]


def count_non_finite(points: Points, shift: int) -> Counts:
    """NaN and infinities by bin of 2^``shift`` steps; bins without any are left out."""
    is_finite = np.isfinite(points.values)
    if is_finite.all():
        return np.empty(0, _COUNTS)
    odd = points.take(~is_finite)
    records = np.empty(len(odd), _COUNTS)
    records["step"] = odd.steps
    records["nan"] = np.isnan(odd.values)
    records["pos_inf"] = np.isposinf(odd.values)
    records["neg_inf"] = np.isneginf(odd.values)
    return add_counts([records], shift)


def read_counts(stored: Sequence[bytes]) -> Counts:
    """The counts that chunks hold, one after the other."""
    counts: Counts = np.frombuffer(b"".join(stored), _COUNTS)
    return counts


def add_counts(parts: Sequence[Counts], shift: int) -> Counts:
    """Counts of narrower bins summed into bins of 2^``shift`` steps, by step."""
    records = np.concatenate(parts)
    bins, where = np.unique((records["step"] >> shift) << shift, return_inverse=True)
    total = np.zeros(len(bins), _COUNTS)
    total["step"] = bins
    for kind in ("nan", "pos_inf", "neg_inf"):
        np.add.at(total[kind], where, records[kind])
    return total


def _even(steps: NDArray[np.int64]) -> tuple[int, int] | None:
    """First step and stride of an arithmetic progression that fits int64, else None."""
    first, last = int(steps[0]), int(steps[-1])
    stride = int(steps[1]) - first if len(steps) > 1 else 1
    if not 0 < stride < 2**32 or first + stride * (len(steps) - 1) != last:
        return None
    return (first, stride) if np.array_equal(steps, _progression((first, stride), len(steps))) else None


def _progression(even: tuple[int, int], size: int) -> NDArray[np.int64]:
    first, stride = even
    return np.arange(size, dtype=np.int64) * stride + first


def _compress(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(content)


def _decompress(payload: bytes) -> Any:
    try:
        return zstandard.ZstdDecompressor().decompress(payload)
    except zstandard.ZstdError as error:
        raise ValueError(f"a chunk of {len(payload)} bytes is damaged: {error}") from error
