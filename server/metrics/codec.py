"""Points of many series in one compact, exact byte string.

Layout: one format byte, then a zstd frame holding a MessagePack header and the arrays. Steps and the bits of the
times are stored as differences; every array is byte-shuffled (all first bytes, all second bytes, …), which is what
makes float64 compress. Columns of one flush mostly share their steps and times, so each distinct array is stored
once. Nothing is rounded: every bit of a value comes back, NaN payloads included.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

FORMAT = b"\x01"
_LEVEL = 3
_MAX_BYTES = 64 * 1024 * 1024

Array = NDArray[Any]


class Points(msgspec.Struct, frozen=True, kw_only=True):
    """Points of one series in order of arrival: int64 steps, float64 values, float64 unix seconds, all `(N,)`."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    times: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, index: Array) -> Points:
        """The points at an index array or mask."""
        return Points(steps=self.steps[index], values=self.values[index], times=self.times[index])


class _Column(msgspec.Struct, array_like=True):
    name: str
    size: int
    arrays: tuple[int, int, int]  # offsets of steps, values and times in the body


class _Header(msgspec.Struct, array_like=True):
    columns: list[_Column]


EMPTY = Points(steps=np.empty(0, np.int64), values=np.empty(0), times=np.empty(0))
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Header)


def pack(columns: dict[str, Points]) -> bytes:
    """Encode the columns; `unpack` gives back the same bits."""
    body = bytearray()
    offsets: dict[bytes, int] = {}

    def place(array: bytes) -> int:
        if array not in offsets:
            offsets[array] = len(body)
            body.extend(array)
        return offsets[array]

    header = _Header(
        columns=[
            _Column(
                name,
                len(points),
                (
                    place(shuffle(differences(points.steps))),
                    place(shuffle(points.values)),
                    place(shuffle(differences(points.times.view(np.int64)))),
                ),
            )
            for name, points in columns.items()
        ]
    )
    head = _encoder.encode(header)
    content = len(head).to_bytes(4, "little") + head + bytes(body)
    return FORMAT + zstandard.ZstdCompressor(level=_LEVEL).compress(content)


def unpack(payload: bytes, names: Collection[str] | None = None) -> dict[str, Points]:
    """Decode the named columns that are there, or all of them.

    Raises:
        ValueError: for bytes that `pack` did not make.
    """
    if payload[:1] != FORMAT:
        raise ValueError(f"segment format {payload[:1]!r} is unknown: this program reads {FORMAT!r}; upgrade it")
    try:
        content = zstandard.ZstdDecompressor().decompress(payload[1:], max_output_size=_MAX_BYTES)
    except zstandard.ZstdError as error:
        raise ValueError(f"a segment of {len(payload)} bytes is damaged: {error}") from error
    start = 4 + int.from_bytes(content[:4], "little")
    header = _decoder.decode(content[4:start])
    return {
        column.name: _column(content, start, column)
        for column in header.columns
        if names is None or column.name in names
    }


def concatenate(parts: Iterable[Points]) -> Points:
    """The points of all parts, one part after the other."""
    kept = [part for part in parts if len(part)]
    if len(kept) <= 1:
        return kept[0] if kept else EMPTY
    return Points(
        steps=np.concatenate([part.steps for part in kept]),
        values=np.concatenate([part.values for part in kept]),
        times=np.concatenate([part.times for part in kept]),
    )


def _column(content: bytes, start: int, column: _Column) -> Points:
    steps, values, times = (
        unshuffle(content, start + offset, column.size, kind)
        for offset, kind in zip(column.arrays, ("<i8", "<f8", "<i8"), strict=True)
    )
    return Points(
        steps=np.cumsum(steps, dtype=np.int64),
        values=values,
        times=np.cumsum(times, dtype=np.int64).view(np.float64),
    )


def differences(array: NDArray[np.int64]) -> NDArray[np.int64]:
    """First value, then differences modulo 2^64: `numpy.cumsum` undoes it exactly."""
    result = array.copy()
    result[1:] -= array[:-1]
    return result


def shuffle(array: Array) -> bytes:
    """All first bytes, then all second bytes, …, of 8-byte numbers."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False).view(np.uint8).reshape(-1, 8).T.tobytes()


def unshuffle(content: bytes, offset: int, size: int, kind: str) -> Array:
    """Undo `shuffle` for ``size`` numbers of ``kind`` that begin at ``offset``."""
    raw = np.frombuffer(content, np.uint8, count=8 * size, offset=offset)
    return np.ascontiguousarray(raw.reshape(8, size).T).view(kind).reshape(size)
