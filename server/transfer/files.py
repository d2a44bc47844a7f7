"""Files of an export. JSON is one file of lines; CSV and Parquet are a folder with a file per table.

Every cell that is no text, number or null is JSON text. Points are one row each, but a line each segment and series in
JSON. Numbers keep every bit but the payload of a NaN.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np

from server.db.errors import StoreError
from server.metrics.codec import Points
from server.metrics.read import columns_json
from server.transfer.tables import TABLES, PointsOf, Row

FORMATS = ("json", "csv", "parquet")
POINT_COLUMNS = ("run_id", "attempt", "sequence", "name", "step", "value", "time")
_POINTS_AT_ONCE = 200_000


class Sink(Protocol):
    """Takes the tables of an export, in order, then the points."""

    def row(self, table: str, row: Row) -> None: ...
    def points(self, part: PointsOf) -> None: ...
    def close(self) -> None: ...


class Source(Protocol):
    """Gives back what a sink took."""

    def rows(self, table: str) -> Iterator[Row]: ...
    def points(self) -> Iterator[PointsOf]: ...


class JsonSink:
    def __init__(self, path: Path) -> None:
        self._file = path.open("x", encoding="utf-8")

    def row(self, table: str, row: Row) -> None:
        self._line({"table": table, "row": row})

    def points(self, part: PointsOf) -> None:
        place = {"run_id": part.run_id, "attempt": part.attempt, "sequence": part.sequence, "name": part.name}
        self._line({"table": "points", "row": {**place, **columns_json(part.points)}})

    def close(self) -> None:
        self._file.close()

    def _line(self, content: Row) -> None:
        self._file.write(json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")


class JsonSource:
    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self, table: str) -> Iterator[Row]:
        with self._path.open(encoding="utf-8") as file:
            for line in file:
                content = json.loads(line)
                if content["table"] == table:
                    yield content["row"]

    def points(self) -> Iterator[PointsOf]:
        for row in self.rows("points"):
            yield PointsOf(
                row["run_id"], row["attempt"], row["sequence"], row["name"],
                _points(row["steps"], row["values"], row["times"]),
            )  # fmt: skip


class CsvSink:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._stack = ExitStack()
        self._writers: dict[str, Any] = {}

    def row(self, table: str, row: Row) -> None:
        self._writer(table, list(row)).writerow([cell(value) for value in row.values()])

    def points(self, part: PointsOf) -> None:
        writer = self._writer("points", list(POINT_COLUMNS))
        place = (part.run_id, part.attempt, part.sequence, part.name)
        points = part.points
        columns = zip(points.steps.tolist(), points.values.tolist(), points.times.tolist(), strict=True)
        writer.writerows([*place, step, repr(value), repr(at)] for step, value, at in columns)

    def close(self) -> None:
        self._stack.close()

    def _writer(self, table: str, columns: list[str]) -> Any:
        if table not in self._writers:
            path = self._folder / f"{table}.csv"
            file: IO[str] = self._stack.enter_context(path.open("x", encoding="utf-8", newline=""))
            self._writers[table] = csv.writer(file)
            self._writers[table].writerow(columns)
        return self._writers[table]


class CsvSource:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        csv.field_size_limit(2**31 - 1)

    def rows(self, table: str) -> Iterator[Row]:
        for row in self._lines(table):
            yield {key: value_of(text) for key, text in row.items()}

    def points(self) -> Iterator[PointsOf]:
        return _regrouped(
            _PointRow(
                int(row["run_id"]), int(row["attempt"]), int(row["sequence"]), row["name"], int(row["step"]),
                float(row["value"]), float(row["time"]),
            )
            for row in self._lines("points")
        )  # fmt: skip

    def _lines(self, table: str) -> Iterator[dict[str, str]]:
        path = self._folder / f"{table}.csv"
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                yield from csv.DictReader(file)


def cell(value: Any) -> str:
    """A value as a cell of a table of text: JSON, from which `value_of` gives it back."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def value_of(text: str) -> Any:
    """The value of a cell."""
    return json.loads(text)


class _PointRow(NamedTuple):
    run_id: int
    attempt: int
    sequence: int
    name: str
    step: int
    value: float
    time: float


def _regrouped(rows: Iterator[_PointRow]) -> Iterator[PointsOf]:
    """Rows of points that follow each other in one segment and series as one part."""
    for place, same in groupby(rows, key=lambda row: row[:4]):
        run_id, attempt, sequence, name = place
        steps, values, times = zip(*(row[4:] for row in same), strict=True)
        yield PointsOf(run_id, attempt, sequence, name, _points(steps, values, times))


def _points(steps: Sequence[int], values: Sequence[Any], times: Sequence[Any]) -> Points:
    return Points(
        steps=np.array(steps, np.int64),
        values=np.array([float(value) for value in values], np.float64),
        times=np.array([float(value) for value in times], np.float64),
    )


def sink_for(form: str, path: Path) -> Sink:
    """Where an export of this form goes. Raises `StoreError` when it is there already."""
    if path.exists():
        raise StoreError(f"{path} is there already: name a file or folder that is not")
    if form == "parquet":
        from server.transfer.parquet import ParquetSink

        return ParquetSink(path)
    return JsonSink(path) if form == "json" else CsvSink(path)


def source_of(path: Path) -> Source:
    """An export by what it looks like. Raises `StoreError` for anything else."""
    if path.is_file():
        return JsonSource(path)
    if any((path / f"{table}.csv").exists() for table in TABLES):
        return CsvSource(path)
    if any((path / f"{table}.parquet").exists() for table in TABLES):
        from server.transfer.parquet import ParquetSource

        return ParquetSource(path)
    raise StoreError(f"{path} is no export: name the file or folder that 'ampboard export' wrote")
