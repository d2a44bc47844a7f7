"""A mark on the summary of the newest attempt that has a series, so that lists filter and sort by an index alone.

Revision 0003, after 0002.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("series", sa.Column("is_newest", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.execute(
        "UPDATE series SET is_newest = false WHERE EXISTS (SELECT 1 FROM series AS newer "
        "WHERE newer.run_id = series.run_id AND newer.name = series.name AND newer.attempt > series.attempt)"
    )
    op.drop_index("ix_series_last", "series")
    op.create_index("ix_series_last", "series", ["name", "is_newest", "finite_last", "run_id"])


def downgrade() -> None:
    op.drop_index("ix_series_last", "series")
    with op.batch_alter_table("series") as table:
        table.drop_column("is_newest")
    op.create_index("ix_series_last", "series", ["name", "finite_last", "run_id", "attempt"])
