"""Archived and deleted marks of experiments and runs, tags of runs, and saved views of the lists.

Revision 0004, after 0003.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("experiments", "runs"):
        op.add_column(table, sa.Column("archived_at", sa.DateTime(timezone=True), nullable=True))
        op.add_column(table, sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True))
        op.create_index(f"ix_{table}_deleted_at", table, ["deleted_at"])
    op.add_column("runs", sa.Column("tags", sa.JSON(), nullable=False, server_default="[]"))
    op.create_table(
        "views",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("owner_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("page", sa.String(16), nullable=False),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name="fk_views_owner_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_views"),
        sa.UniqueConstraint("owner_id", "page", "name", name="uq_views_name"),
    )


def downgrade() -> None:
    op.drop_table("views")
    for table in ("experiments", "runs"):
        op.drop_index(f"ix_{table}_deleted_at", table)
        with op.batch_alter_table(table) as batch:
            batch.drop_column("deleted_at")
            batch.drop_column("archived_at")
    with op.batch_alter_table("runs") as batch:
        batch.drop_column("tags")
