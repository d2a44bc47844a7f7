"""Parquet files of an export, by the optional package pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from server.db.errors import StoreError
from server.metrics.codec import Points
from server.transfer.tables import PointsOf, Row

_ROWS_AT_ONCE = 100_000


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise StoreError(
            "Parquet needs the package pyarrow, which is not installed: pip install 'ampboard[parquet]', or take "
            "--format csv or json"
        ) from error
    return pyarrow, pyarrow.parquet


class ParquetSink:
    def __init__(self, folder: Path) -> None:
        self._arrow, self._parquet = _arrow()
        folder.mkdir()
        self._folder = folder
        self._writers: dict[str, Any] = {}
        self._rows: dict[str, list[Row]] = {}
        self._parts: list[PointsOf] = []
        self._num_points = 0

    def row(self, table: str, row: Row) -> None:
        from server.transfer.files import cell

        rows = self._rows.setdefault(table, [])
        rows.append({key: cell(value) for key, value in row.items()})
        if len(rows) >= 1000:
            self._flush_rows(table)

    def points(self, part: PointsOf) -> None:
        self._parts.append(part)
        self._num_points += len(part.points)
        if self._num_points >= _ROWS_AT_ONCE:
            self._flush_points()

    def close(self) -> None:
        for table in self._rows:
            self._flush_rows(table)
        self._flush_points()
        for writer in self._writers.values():
            writer.close()

    def _flush_rows(self, table: str) -> None:
        rows = self._rows[table]
        if rows:
            names = list(rows[0])
            columns = {name: self._arrow.array([row[name] for row in rows], self._arrow.string()) for name in names}
            self._write(table, self._arrow.table(columns))
            rows.clear()

    def _flush_points(self) -> None:
        if not self._parts:
            return
        sizes = [len(part.points) for part in self._parts]

        def repeated(values: list[Any]) -> Any:
            return np.repeat(np.array(values), sizes)

        self._write("points", self._arrow.table({
            "run_id": repeated([part.run_id for part in self._parts]),
            "attempt": repeated([part.attempt for part in self._parts]),
            "sequence": repeated([part.sequence for part in self._parts]),
            "name": self._arrow.array(repeated([part.name for part in self._parts]).tolist(), self._arrow.string()),
            "step": np.concatenate([part.points.steps for part in self._parts]),
            "value": np.concatenate([part.points.values for part in self._parts]),
            "time": np.concatenate([part.points.times for part in self._parts]),
        }))  # fmt: skip
        self._parts, self._num_points = [], 0

    def _write(self, table: str, content: Any) -> None:
        if table not in self._writers:
            path = self._folder / f"{table}.parquet"
            self._writers[table] = self._parquet.ParquetWriter(path, content.schema, compression="zstd")
        self._writers[table].write_table(content)


class ParquetSource:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        _, self._parquet = _arrow()

    def rows(self, table: str) -> Iterator[Row]:
        from server.transfer.files import value_of

        for batch in self._batches(table):
            for row in batch.to_pylist():
                yield {key: value_of(text) for key, text in row.items()}

    def points(self) -> Iterator[PointsOf]:
        for batch in self._batches("points"):
            keys = [batch.column(name).to_pylist() for name in ("run_id", "attempt", "sequence", "name")]
            steps, values, times = (
                batch.column(name).to_numpy(zero_copy_only=False) for name in ("step", "value", "time")
            )
            places = list(zip(*keys, strict=True))
            start = 0
            for stop in range(1, len(places) + 1):
                if stop == len(places) or places[stop] != places[start]:
                    part = slice(start, stop)
                    run_id, attempt, sequence, name = places[start]
                    points = Points(steps=steps[part], values=values[part], times=times[part])
                    yield PointsOf(run_id, attempt, sequence, name, points)
                    start = stop

    def _batches(self, table: str) -> Iterator[Any]:
        path = self._folder / f"{table}.parquet"
        if path.exists():
            with self._parquet.ParquetFile(path) as file:
                yield from file.iter_batches(batch_size=_ROWS_AT_ONCE)
