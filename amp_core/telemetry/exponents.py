"""Exponent histograms: what every format and every power-of-two scale would do to recorded tensors, counted exactly.

No torch: engine, server and command line share this reader. Use::

    for module, histogram in read(event_payload).items():
        histogram.shares("fp16", k=16).underflow          # at loss scale 2**16

A `Histogram` counts elements by the exponent of their magnitude in FP32 and, within an exponent, by `EDGES` of the
mantissa: the places where the rounding of some format changes its mind. With them the counts below equal those of real
casts of the FP32 product ``x * 2**k``, for -126 <= k <= 127, although no element is kept.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

MIN_EXPONENT = -149  # of the smallest FP32 subnormal
MAX_EXPONENT = 127
NUM_EXPONENTS = MAX_EXPONENT - MIN_EXPONENT + 1
MIN_SCALE_POWER, MAX_SCALE_POWER = -126, 127  # scales that are themselves normal FP32 numbers
FIRST_ROW = 1  # row 0 of the counts holds zeros; then one row for each exponent; the last row infinities and NaN
NUM_ROWS = FIRST_ROW + NUM_EXPONENTS + 1
KINDS = ("activations", "gradients", "weights")

# Mantissas (23 bits, after normalising) at which a class begins; class 0 holds 0, the powers of two themselves.
_AFTER_POWER = 1  # above half of the smallest subnormal: rounds up (at exactly half, ties to even give zero)
_AFTER_POWER_BF16 = 129  # the same for bf16, whose smallest values are rounded by FP32 before they are rounded to bf16
_E5M2_NORMAL = 0x600000
_E4M3_OVER = 0x680001  # above 464 = 448 + half a step; 464 itself is a tie and goes down to 448
_E4M3_NORMAL = _E5M2_OVER = 0x700000
_BF16_NORMAL = 0x7EFFFF  # one below 2 - 2**-7: FP32's own rounding lifts it
_BF16_OVER = 0x7F8000
_FP16_NORMAL = 0x7FE000
_FP16_OVER = 0x7FF000
EDGES = (
    _AFTER_POWER,
    _AFTER_POWER_BF16,
    _E5M2_NORMAL,
    _E4M3_OVER,
    _E4M3_NORMAL,
    _BF16_NORMAL,
    _BF16_OVER,
    _FP16_NORMAL,
    _FP16_OVER,
)
NUM_CLASSES = len(EDGES) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A floating-point format: exponents of its smallest subnormal, smallest normal and largest value, and its edges.

    ``flushed_below``, ``normal_from`` and ``over_from`` are mantissas: within the one exponent where the answer is not
    the same for all, elements below the first become zero, from the second on they round up into the normal range,
    and from the third on they leave the range. ``saturates``: what leaves it becomes the largest value, as e4m3 does.
    """

    name: str
    min_subnormal: int
    min_normal: int
    max_exponent: int
    flushed_below: int
    normal_from: int
    over_from: int
    saturates: bool = False


FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format(
            name="fp16",
            min_subnormal=-24,
            min_normal=-14,
            max_exponent=15,
            flushed_below=_AFTER_POWER,
            normal_from=_FP16_NORMAL,
            over_from=_FP16_OVER,
        ),
        Format(
            name="bf16",
            min_subnormal=-133,
            min_normal=-126,
            max_exponent=127,
            flushed_below=_AFTER_POWER_BF16,
            normal_from=_BF16_NORMAL,
            over_from=_BF16_OVER,
        ),
        Format(
            name="e4m3",
            min_subnormal=-9,
            min_normal=-6,
            max_exponent=8,
            flushed_below=_AFTER_POWER,
            normal_from=_E4M3_NORMAL,
            over_from=_E4M3_OVER,
            saturates=True,
        ),
        Format(
            name="e5m2",
            min_subnormal=-16,
            min_normal=-14,
            max_exponent=15,
            flushed_below=_AFTER_POWER,
            normal_from=_E5M2_NORMAL,
            over_from=_E5M2_OVER,
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What a cast does to the finite nonzero elements: counts, and shares of those elements (0 if there are none).

    Underflow: becomes zero. Subnormal: nonzero below the format's normal range, with fewer bits. Overflow: becomes an
    infinity, or the largest value in a format that saturates.
    """

    num_finite: int
    num_underflow: int
    num_subnormal: int
    num_overflow: int

    @property
    def underflow(self) -> float:
        return self._share(self.num_underflow)

    @property
    def subnormal(self) -> float:
        return self._share(self.num_subnormal)

    @property
    def overflow(self) -> float:
        return self._share(self.num_overflow)

    def _share(self, count: int) -> float:
        return count / self.num_finite if self.num_finite else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Counts `(NUM_ROWS, NUM_CLASSES)`: zeros in row 0, then exponents upwards, then infinities (class 0) and NaN."""

    table: Counts

    @property
    def zeros(self) -> int:
        return int(self.table[0].sum())

    @property
    def infinite(self) -> int:
        return int(self.table[-1, 0])

    @property
    def nan(self) -> int:
        return int(self.table[-1, 1:].sum())

    @property
    def num_elements(self) -> int:
        return int(self.table.sum())

    @property
    def finite(self) -> Counts:
        """Counts of finite nonzero elements, `(NUM_EXPONENTS, NUM_CLASSES)`."""
        return self.table[FIRST_ROW:-1]

    def by_exponent(self) -> tuple[list[int], list[int]]:
        """Exponents from the smallest to the largest that occurs, without gaps, and their counts; else two empties."""
        counts = self.finite.sum(axis=1)
        (present,) = np.nonzero(counts)
        if not len(present):
            return [], []
        first, last = int(present[0]), int(present[-1])
        return list(range(MIN_EXPONENT + first, MIN_EXPONENT + last + 1)), counts[first : last + 1].tolist()

    def shares(self, name: str, k: int = 0) -> Shares:
        """What casting ``x * 2**k`` to the format of that name does. Raises `ValueError` for an unknown one or such k.

        For gradients k is log2 of a loss scale; for e4m3 and e5m2 it is that of a per-tensor scale.
        """
        if name not in FORMATS:
            raise ValueError(f"format {name!r} is unknown: choose one of {', '.join(FORMATS)}")
        if not MIN_SCALE_POWER <= k <= MAX_SCALE_POWER:
            raise ValueError(f"scale 2**{k} is no normal FP32 number: choose k from {MIN_SCALE_POWER} to 127")
        of = FORMATS[name]
        flushed = self._num_below(of.min_subnormal - 1 - k, of.flushed_below)
        below_normal = self._num_below(of.min_normal - 1 - k, of.normal_from)
        total = int(self.finite.sum())
        return Shares(
            num_finite=total,
            num_underflow=flushed,
            num_subnormal=below_normal - flushed,
            num_overflow=total - self._num_below(of.max_exponent - k, of.over_from),
        )

    def _num_below(self, exponent: int, edge: int) -> int:
        """Finite nonzero elements below ``2**exponent * (1 + edge / 2**23)``."""
        row = exponent - MIN_EXPONENT
        if row < 0:
            return 0
        if row >= NUM_EXPONENTS:
            return int(self.finite.sum())
        return int(self.finite[:row].sum() + self.finite[row, : EDGES.index(edge) + 1].sum())


def empty() -> Histogram:
    """A histogram of nothing."""
    return Histogram(np.zeros((NUM_ROWS, NUM_CLASSES), dtype=np.int64))


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """The histogram of all elements together."""
    total = empty()
    for histogram in histograms:
        np.add(total.table, histogram.table, out=total.table)
    return total


def pack(histograms: Sequence[Histogram]) -> str:
    """Base64 of the zlib stream of: for each histogram the number of its nonzero counts, then for each of those, in
    row-major order, its distance from the one before (from -1 at first) and the count; all as LEB128 varints.
    """
    out = bytearray()
    for histogram in histograms:
        flat = histogram.table.reshape(-1)
        (places,) = np.nonzero(flat)
        _put(out, len(places))
        before = -1
        for place, count in zip(places.tolist(), flat[places].tolist(), strict=True):
            _put(out, place - before)
            _put(out, count)
            before = place
    return base64.b64encode(zlib.compress(bytes(out), 6)).decode("ascii")


def unpack(packed: str) -> list[Histogram]:
    """The inverse of `pack`. Raises `ValueError` for text that is none of it."""
    try:
        numbers = _numbers(zlib.decompress(base64.b64decode(packed, validate=True)))
        histograms = []
        for length in numbers:
            flat = np.zeros(NUM_ROWS * NUM_CLASSES, dtype=np.int64)
            place = -1
            for _ in range(length):
                place += next(numbers)
                flat[place] = next(numbers)
            histograms.append(Histogram(flat.reshape(NUM_ROWS, NUM_CLASSES)))
    except (binascii.Error, zlib.error, RuntimeError, StopIteration, IndexError, OverflowError) as error:
        raise ValueError(f"{packed[:40]!r}… are no packed exponent histograms: {error}") from error
    return histograms


def read(payload: Mapping[str, Any]) -> dict[str, Histogram]:
    """The histograms of an `amp_core.events.ExponentHistograms` payload by module, in forward order.

    Raises `ValueError` for counts that are not readable.
    """
    histograms = unpack(payload["counts"])
    if len(histograms) != len(payload["modules"]):
        raise ValueError(f"{len(histograms)} histograms for {len(payload['modules'])} modules: the event is damaged")
    return dict(zip(payload["modules"], histograms, strict=True))


def _put(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _numbers(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0
