"""What the scheduler decides by: devices and needs of runs, usage of users, limits of projects, labels of workers.

Revision 0005, after 0004.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_RUN_COLUMNS = ("device", "num_devices", "needs", "max_time_s", "expected_s", "pause_requested_at")
_WORKER_COLUMNS = ("labels", "draining", "clock_skew_s", "problem")


def upgrade() -> None:
    op.add_column("runs", sa.Column("device", sa.String(16), nullable=False, server_default="cpu"))
    op.add_column("runs", sa.Column("num_devices", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("runs", sa.Column("needs", sa.String(400), nullable=False, server_default=""))
    op.add_column("runs", sa.Column("max_time_s", sa.Double(), nullable=True))
    op.add_column("runs", sa.Column("expected_s", sa.Double(), nullable=True))
    op.add_column("runs", sa.Column("pause_requested_at", sa.DateTime(timezone=True), nullable=True))
    if op.get_bind().dialect.name == "postgresql":
        device, limit = "config->>'device'", "CAST(config->>'max_time_s' AS DOUBLE PRECISION)"
    else:
        device, limit = "json_extract(config, '$.device')", "json_extract(config, '$.max_time_s')"
    op.execute(f"UPDATE runs SET device = coalesce({device}, 'cpu'), max_time_s = {limit}")  # noqa: S608 - constants
    op.add_column("attempts", sa.Column("devices", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("attempts", sa.Column("charged_at", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE attempts SET charged_at = ended_at")  # earlier time is nobody's debt
    op.create_index(
        "ix_attempts_uncharged", "attempts", ["run_id"],
        sqlite_where=sa.text("charged_at IS NULL"), postgresql_where=sa.text("charged_at IS NULL"),
    )  # fmt: skip
    op.add_column("projects", sa.Column("max_running", sa.Integer(), nullable=True))
    op.add_column("workers", sa.Column("labels", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("workers", sa.Column("draining", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("workers", sa.Column("clock_skew_s", sa.Double(), nullable=True))
    op.add_column("workers", sa.Column("problem", sa.Text(), nullable=True))
    op.create_table(
        "usage",
        sa.Column("user_id", _id, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("device_s", sa.Double(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_usage_user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "kind", name="pk_usage"),
    )
    op.create_table(
        "device_readings",
        sa.Column("worker_id", _id, nullable=False),
        sa.Column("device", sa.String(40), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("values", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name="fk_device_readings_worker_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("worker_id", "device", "at", name="pk_device_readings"),
    )


def downgrade() -> None:
    op.drop_table("device_readings")
    op.drop_table("usage")
    op.drop_index("ix_attempts_uncharged", "attempts")
    for table, columns in (
        ("workers", _WORKER_COLUMNS),
        ("projects", ("max_running",)),
        ("attempts", ("devices", "charged_at")),
        ("runs", _RUN_COLUMNS),
    ):
        with op.batch_alter_table(table) as batch:
            for column in columns:
                batch.drop_column(column)
