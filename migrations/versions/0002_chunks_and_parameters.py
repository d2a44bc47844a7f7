"""Chunks that segments are folded into, parameters as rows, and how long a project keeps its experiments.

Revision 0002, after 0001. Segments that are there stay; the server folds them when it next runs. Parameters of the
runs that are there become rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_RUNS_AT_ONCE = 500


def upgrade() -> None:
    _create_chunks()
    _create_parameters()
    op.add_column("projects", sa.Column("retention_days", sa.Integer(), nullable=True))
    op.create_index("ix_series_last", "series", ["name", "finite_last", "run_id", "attempt"])
    op.execute(
        "INSERT INTO folds (run_id, attempt, sequence, num_segments, num_points) "
        "SELECT run_id, attempt, 0, COUNT(*), SUM(num_points) FROM segments GROUP BY run_id, attempt"
    )
    _fill_parameters(op.get_bind())


def downgrade() -> None:
    op.drop_index("ix_series_last", "series")
    with op.batch_alter_table("projects") as table:
        table.drop_column("retention_days")
    for name in ("run_parameters", "chunks", "axes", "folds"):
        op.drop_table(name)


def _create_chunks() -> None:
    op.create_table(
        "folds",
        sa.Column("run_id", Id, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("num_segments", sa.Integer(), nullable=False),
        sa.Column("num_points", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_folds_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_folds")),
    )
    op.create_table(
        "axes",
        sa.Column("id", Id, nullable=False),
        sa.Column("run_id", Id, nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_axes_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_axes")),
    )
    op.create_index("ix_axes_run_id", "axes", ["run_id"])
    op.create_table(
        "chunks",
        sa.Column("id", Id, nullable=False),
        sa.Column("run_id", Id, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("axis_id", Id, nullable=False),
        sa.Column("first_sequence", sa.Integer(), nullable=False),
        sa.Column("last_sequence", sa.Integer(), nullable=False),
        sa.Column("num_points", sa.Integer(), nullable=False),
        sa.Column("min_step", sa.BigInteger(), nullable=False),
        sa.Column("max_step", sa.BigInteger(), nullable=False),
        sa.Column("preview_shift", sa.Integer(), nullable=False),
        sa.Column("preview", sa.LargeBinary(), nullable=False),
        sa.Column("non_finite", sa.LargeBinary(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["axis_id"], ["axes.id"], name=op.f("fk_chunks_axis_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_chunks_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chunks")),
    )
    op.create_index("ix_chunks_axis_id", "chunks", ["axis_id"])
    op.create_index("ix_chunks_series", "chunks", ["run_id", "name", "attempt", "number"], unique=True)
    op.create_index("ix_chunks_sequence", "chunks", ["run_id", "attempt", "last_sequence"])
    op.create_index("ix_chunks_open", "chunks", ["run_id", "attempt", "num_points"])


def _create_parameters() -> None:
    op.create_table(
        "run_parameters",
        sa.Column("run_id", Id, nullable=False),
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("text", sa.String(length=400), nullable=False),
        sa.Column("number", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_parameters_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "name", name=op.f("pk_run_parameters")),
    )
    op.create_index("ix_run_parameters_number", "run_parameters", ["name", "number", "run_id"])
    op.create_index("ix_run_parameters_text", "run_parameters", ["name", "text", "run_id"])


def _fill_parameters(connection: sa.Connection) -> None:
    runs = sa.table("runs", sa.column("id", Id), sa.column("config", sa.JSON()))
    rows = sa.table(
        "run_parameters", sa.column("run_id", Id), sa.column("name"), sa.column("text"), sa.column("number", sa.Float())
    )
    last = 0
    while True:
        query = sa.select(runs.c.id, runs.c.config).where(runs.c.id > last).order_by(runs.c.id).limit(_RUNS_AT_ONCE)
        page = connection.execute(query).all()
        if not page:
            return
        new = [row for run_id, config in page for row in _rows(run_id, config)]
        if new:
            connection.execute(rows.insert(), new)
        last = page[-1][0]


def _rows(run_id: int, config: Any) -> Iterator[dict[str, Any]]:
    workload = config.get("workload") if isinstance(config, dict) else None
    given = workload.get("params") if isinstance(workload, dict) else None
    for name, value in (given if isinstance(given, dict) else {}).items():
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        number = float(value) if is_number and abs(value) < 1e300 else None
        yield {"run_id": run_id, "name": name[:120], "text": text[:400], "number": number}
