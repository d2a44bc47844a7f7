"""Reports: Markdown with charts, all versions kept.

Revision 0010, after 0009.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_time = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "reports",
        sa.Column("id", _id, nullable=False),
        sa.Column("project_id", _id, nullable=False),
        sa.Column("title", sa.String(200), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("owner_id", _id, nullable=False),
        sa.Column("created_at", _time, nullable=False),
        sa.Column("updated_at", _time, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_reports_project_id"),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name="fk_reports_owner_id"),
        sa.PrimaryKeyConstraint("id", name="pk_reports"),
    )
    for column in ("project_id", "owner_id", "updated_at"):
        op.create_index(f"ix_reports_{column}", "reports", [column])
    op.create_table(
        "report_versions",
        sa.Column("report_id", _id, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(200), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("editor_id", _id, nullable=False),
        sa.Column("at", _time, nullable=False),
        sa.ForeignKeyConstraint(["report_id"], ["reports.id"], name="fk_report_versions_report_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["editor_id"], ["users.id"], name="fk_report_versions_editor_id"),
        sa.PrimaryKeyConstraint("report_id", "version", name="pk_report_versions"),
    )


def downgrade() -> None:
    op.drop_table("report_versions")
    op.drop_table("reports")
