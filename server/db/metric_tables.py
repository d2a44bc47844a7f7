"""Tables of the metric store. `server.metrics` alone reads and writes their packed columns."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Float, ForeignKey, Index, Integer, String, true
from sqlalchemy.orm import Mapped, mapped_column

from server.db.base import Base, Id


class Segment(Base):
    """The points of one flush, packed by `server.metrics.codec`; (run, attempt, sequence) makes a replay harmless."""

    __tablename__ = "segments"
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, primary_key=True)
    num_points: Mapped[int] = mapped_column(Integer)
    min_step: Mapped[int] = mapped_column(BigInteger)  # over all its series: a zoom reads only the rows it needs
    max_step: Mapped[int] = mapped_column(BigInteger)
    payload: Mapped[bytes]
    __table_args__ = (Index("ix_segments_steps", "run_id", "min_step", "max_step"),)


class Series(Base):
    """Summary of one series of one attempt. ``last_value`` is a packed float64: it may be NaN or infinite.

    ``finite_*`` are SQL numbers for filters and sorting: extremes and sum over the finite values, and the last value
    when it is finite.
    """

    __tablename__ = "series"
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    num_points: Mapped[int] = mapped_column(BigInteger)
    first_step: Mapped[int] = mapped_column(BigInteger)
    last_step: Mapped[int] = mapped_column(BigInteger)
    last_value: Mapped[bytes]  # struct "<d"
    finite_last: Mapped[float | None]
    finite_min: Mapped[float | None]
    finite_max: Mapped[float | None]
    finite_sum: Mapped[float] = mapped_column(default=0.0)
    num_nan: Mapped[int] = mapped_column(BigInteger, default=0)
    num_pos_inf: Mapped[int] = mapped_column(BigInteger, default=0)
    num_neg_inf: Mapped[int] = mapped_column(BigInteger, default=0)
    first_non_finite_step: Mapped[int | None] = mapped_column(BigInteger)
    is_newest: Mapped[bool] = mapped_column(Boolean, default=True, server_default=true())  # of those that have it
    __table_args__ = (Index("ix_series_last", "name", "is_newest", "finite_last", "run_id"),)


class Fold(Base):
    """How far the segments of an attempt have been folded into chunks, and what waits to be.

    Every segment up to ``sequence`` lies in chunks and its row is gone; a replay of one is known by that.
    """

    __tablename__ = "folds"
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, default=0)
    num_segments: Mapped[int] = mapped_column(Integer, default=0)  # rows of segments that are not folded yet
    num_points: Mapped[int] = mapped_column(BigInteger, default=0)  # points in them


class Axis(Base):
    """Sequences, steps and times of a chunk, shared by the series that were logged together."""

    __tablename__ = "axes"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    payload: Mapped[bytes]


class Chunk(Base):
    """Some thousand points of one series of one attempt, in order of arrival, with what an overview needs beside them.

    ``preview`` holds the points that bins of 2^``preview_shift`` steps keep (see `server.metrics.downsample`), and
    ``non_finite`` the bins with NaN or infinities and their counts; both are raw arrays. The values are in ``payload``.
    """

    __tablename__ = "chunks"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(200))
    attempt: Mapped[int] = mapped_column(Integer)
    number: Mapped[int] = mapped_column(Integer)
    axis_id: Mapped[int] = mapped_column(ForeignKey("axes.id", ondelete="CASCADE"), index=True)
    first_sequence: Mapped[int] = mapped_column(Integer)
    last_sequence: Mapped[int] = mapped_column(Integer)
    num_points: Mapped[int] = mapped_column(Integer)
    min_step: Mapped[int] = mapped_column(BigInteger)
    max_step: Mapped[int] = mapped_column(BigInteger)
    preview_shift: Mapped[int] = mapped_column(Integer)
    preview: Mapped[bytes]
    non_finite: Mapped[bytes]
    payload: Mapped[bytes]
    __table_args__ = (
        Index("ix_chunks_series", "run_id", "name", "attempt", "number", unique=True),
        Index("ix_chunks_sequence", "run_id", "attempt", "last_sequence"),
        Index("ix_chunks_open", "run_id", "attempt", "num_points"),  # all but the last of a series are full
    )


class RunParameter(Base):
    """One parameter of a run's workload as a row, so that the run table filters by it with an index."""

    __tablename__ = "run_parameters"
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(120), primary_key=True)
    text: Mapped[str] = mapped_column(String(400))  # as JSON spells it, strings without their quotes
    number: Mapped[float | None] = mapped_column(Float)
    __table_args__ = (
        Index("ix_run_parameters_number", "name", "number", "run_id"),
        Index("ix_run_parameters_text", "name", "text", "run_id"),
    )
