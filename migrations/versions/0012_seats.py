"""Runs on several hosts: how many, and a seat for each of an attempt.

Revision 0012, after 0011.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_time = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("runs", sa.Column("num_hosts", sa.Integer(), nullable=False, server_default="1"))
    op.create_table(
        "seats",
        sa.Column("run_id", _id, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("node", sa.Integer(), nullable=False),
        sa.Column("worker_id", _id, nullable=False),
        sa.Column("machine", sa.String(200), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("devices", sa.JSON(), nullable=False, server_default="[]"),
        sa.Column("endpoint", sa.String(300), nullable=False),
        sa.Column("reserved_at", _time, nullable=False),
        sa.Column("taken_at", _time),
        sa.Column("ended_at", _time),
        sa.Column("lease_expires_at", _time, nullable=False),
        sa.Column("outcome", sa.String(16)),
        sa.Column("reason", sa.JSON()),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("log", sa.Text(), nullable=False, server_default=""),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_seats_run_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name="fk_seats_worker_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "node", name="pk_seats"),
    )
    still_open = sa.text("state <> 'ended'")
    op.create_index("ix_seats_open", "seats", ["worker_id"], sqlite_where=still_open, postgresql_where=still_open)


def downgrade() -> None:
    op.drop_index("ix_seats_open", table_name="seats")
    op.drop_table("seats")
    op.drop_column("runs", "num_hosts")
