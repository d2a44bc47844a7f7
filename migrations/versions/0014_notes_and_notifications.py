"""Notes on everything, and notifications with each person's choices.

Revision 0014, after 0013. Nobody had notes or notifications before.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_time = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "notes",
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("key", sa.String(80), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(none_as_null=True), nullable=False, server_default="[]"),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("editor_id", _id, nullable=False),
        sa.Column("at", _time, nullable=False),
        sa.ForeignKeyConstraint(["editor_id"], ["users.id"], name="fk_notes_editor_id"),
        sa.PrimaryKeyConstraint("kind", "key", name="pk_notes"),
    )
    op.create_table(
        "notification_choices",
        sa.Column("user_id", _id, nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("scope", sa.String(8), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_notification_choices_user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "event", name="pk_notification_choices"),
    )
    op.create_table(
        "notifications",
        sa.Column("id", _id, nullable=False),
        sa.Column("user_id", _id, nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("subject", sa.String(80), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("page", sa.String(200), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("at", _time, nullable=False),
        sa.Column("read_at", _time),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_notifications_user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_notifications"),
    )
    op.create_index("ix_notifications_unread", "notifications", ["user_id", "read_at"])


def downgrade() -> None:
    op.drop_table("notifications")
    op.drop_table("notification_choices")
    op.drop_table("notes")
