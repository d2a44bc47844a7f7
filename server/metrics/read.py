"""Reading series: what there is, and a window of it, exact or thinned with every extreme kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from server.db.json_values import spell
from server.metrics.chunk_codec import Counts, add_counts, count_non_finite
from server.metrics.codec import EMPTY, Points
from server.metrics.downsample import MIN_POINTS, downsample
from server.metrics.points import Loaded, load_points
from server.metrics.summaries import summaries_of, summary_json

DEFAULT_MAX_POINTS = 1000

__all__ = ["DEFAULT_MAX_POINTS", "MIN_POINTS", "Window", "columns_json", "series_names", "window", "windows"]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The points of one series in a window of steps, and what was done to them.

    ``exact``: every stored point is there. ``binned``: of ``num_stored`` points, ``num_points`` were kept, with the
    first, last, lowest, highest and each kind of non-finite value of every ``bin_width`` steps; ``counts`` says how
    many NaN and infinities the bins hold that have any.
    """

    run_id: int
    name: str
    kind: Literal["exact", "binned"]
    num_stored: int
    bin_width: int | None
    points: Points
    counts: Counts | None

    @property
    def num_points(self) -> int:
        return len(self.points)

    def to_json(self) -> dict[str, Any]:
        """The window as REST gives it; see `server.metrics.schemas.SeriesWindow`."""
        return {**self.header(), **columns_json(self.points)}

    def header(self) -> dict[str, Any]:
        """All of it but the points."""
        return {
            "run_id": self.run_id,
            "name": self.name,
            "kind": self.kind,
            "num_points": self.num_points,
            "num_stored": self.num_stored,
            "bin_width": self.bin_width,
            "non_finite": self.non_finite(),
        }

    def non_finite(self) -> dict[str, list[int]] | None:
        """How many NaN and infinities each bin that has any holds; None when every point is there to be seen."""
        if self.counts is None:
            return None
        return {
            "steps": self.counts["step"].tolist(),
            "nan": self.counts["nan"].tolist(),
            "pos_inf": self.counts["pos_inf"].tolist(),
            "neg_inf": self.counts["neg_inf"].tolist(),
        }


def series_names(session: Session, run_id: int) -> list[dict[str, Any]]:
    """The summary of every series of a run, by name, from the newest attempt that has it."""
    return [summary_json(row) for row in summaries_of(session, [run_id]).get(run_id, {}).values()]


def window(
    session: Session,
    run_id: int,
    name: str,
    start: int | None = None,
    end: int | None = None,
    max_points: int = DEFAULT_MAX_POINTS,
) -> Window:
    """The series between two steps, both included, in at most ``max_points`` points; empty when there is none."""
    loaded = load_points(session, [run_id], [name], start=start, end=end, max_points=max_points)
    found = loaded.get(run_id, {}).get(name)
    return _nothing(run_id, name) if found is None else _window(run_id, name, found, max_points)


def windows(
    session: Session,
    run_ids: Sequence[int],
    names: Collection[str],
    *,
    max_points: int = DEFAULT_MAX_POINTS,
    start: int | None = None,
    end: int | None = None,
    after: Mapping[int, int] | None = None,
) -> dict[int, dict[str, Window]]:
    """Windows of several series of several runs, by run and name; ``after`` asks of a run only later steps."""
    loaded = load_points(session, run_ids, names, start=start, end=end, after=after, max_points=max_points)
    return {
        run_id: {name: _window(run_id, name, by_name[name], max_points) for name in sorted(by_name)}
        for run_id, by_name in loaded.items()
    }


def columns_json(points: Points) -> dict[str, list[Any]]:
    """Steps, values and times as JSON lists, non-finite numbers by their names."""
    return {
        "steps": points.steps.tolist(),
        "values": _spelled(points.values),
        "times": _spelled(points.times),
    }


def _window(run_id: int, name: str, loaded: Loaded, max_points: int) -> Window:
    kept, bin_width = downsample(loaded.points, max_points, loaded.num_stored)
    counts = None
    if bin_width is not None:
        shift = bin_width.bit_length() - 1
        seen = loaded.points if loaded.is_exact.all() else loaded.points.take(loaded.is_exact)
        counts = add_counts([loaded.counts, count_non_finite(seen, shift)], shift)
    return Window(
        run_id=run_id,
        name=name,
        kind="exact" if bin_width is None else "binned",
        num_stored=loaded.num_stored,
        bin_width=bin_width,
        points=kept,
        counts=counts,
    )


def _nothing(run_id: int, name: str) -> Window:
    return Window(run_id=run_id, name=name, kind="exact", num_stored=0, bin_width=None, points=EMPTY, counts=None)


def _spelled(values: NDArray[np.float64]) -> list[Any]:
    result: list[Any] = values.tolist()
    for index in np.flatnonzero(~np.isfinite(values)):
        result[index] = spell(result[index])
    return result
