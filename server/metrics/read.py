"""Reading series: what there is, and a window of it, exact or thinned with every extreme kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from server.db.json_values import spell
from server.metrics.codec import EMPTY, Points
from server.metrics.downsample import MIN_POINTS, downsample
from server.metrics.points import load_points
from server.metrics.summaries import summaries_of, summary_json

DEFAULT_MAX_POINTS = 1000

__all__ = ["DEFAULT_MAX_POINTS", "MIN_POINTS", "Window", "columns_json", "series_names", "window", "windows"]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The points of one series in a window of steps, and what was done to them.

    ``exact``: every stored point is there. ``binned``: of ``num_stored`` points, ``num_points`` were kept, with the
    first, last, lowest, highest and each kind of non-finite value of every ``bin_width`` steps.
    """

    run_id: int
    name: str
    kind: Literal["exact", "binned"]
    num_stored: int
    bin_width: int | None
    points: Points

    @property
    def num_points(self) -> int:
        return len(self.points)

    def to_json(self) -> dict[str, Any]:
        """The window as REST gives it; see `server.metrics.schemas.SeriesWindow`."""
        return {
            "run_id": self.run_id,
            "name": self.name,
            "kind": self.kind,
            "num_points": self.num_points,
            "num_stored": self.num_stored,
            "bin_width": self.bin_width,
            **columns_json(self.points),
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
    loaded = load_points(session, [run_id], [name], start=start, end=end)
    return _window(run_id, name, loaded.get(run_id, {}).get(name, EMPTY), max_points)


def windows(
    session: Session,
    run_ids: Sequence[int],
    names: Collection[str],
    *,
    max_points: int = DEFAULT_MAX_POINTS,
    after: Mapping[int, int] | None = None,
) -> dict[int, dict[str, Window]]:
    """Windows of several series of several runs, by run and name; ``after`` asks of a run only later steps."""
    loaded = load_points(session, run_ids, names, after=after)
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


def _window(run_id: int, name: str, points: Points, max_points: int) -> Window:
    kept, bin_width = downsample(points, max_points)
    return Window(
        run_id=run_id,
        name=name,
        kind="exact" if bin_width is None else "binned",
        num_stored=len(points),
        bin_width=bin_width,
        points=kept,
    )


def _spelled(values: NDArray[np.float64]) -> list[Any]:
    result: list[Any] = values.tolist()
    for index in np.flatnonzero(~np.isfinite(values)):
        result[index] = spell(result[index])
    return result
