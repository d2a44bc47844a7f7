"""Alert rules on trends, and the alerts they gave.

Revision 0009, after 0008.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_time = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "alert_rules",
        sa.Column("id", _id, nullable=False),
        sa.Column("owner_id", _id, nullable=False),
        sa.Column("workload", sa.String(80), nullable=False),
        sa.Column("measure", sa.String(16), nullable=False),
        sa.Column("recipe", sa.String(80), nullable=True),
        sa.Column("worse_by", sa.Double(), nullable=False),
        sa.Column("created_at", _time, nullable=False),
        sa.Column("checked_at", _time, nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name="fk_alert_rules_owner_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_alert_rules"),
    )
    op.create_index("ix_alert_rules_owner_id", "alert_rules", ["owner_id"])
    op.create_index("ix_alert_rules_workload", "alert_rules", ["workload"])
    op.create_table(
        "alerts",
        sa.Column("id", _id, nullable=False),
        sa.Column("rule_id", _id, nullable=False),
        sa.Column("experiment_id", _id, nullable=False),
        sa.Column("recipe", sa.String(80), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("reference", sa.Double(), nullable=False),
        sa.Column("at", _time, nullable=False),
        sa.Column("seen_at", _time, nullable=True),
        sa.ForeignKeyConstraint(["rule_id"], ["alert_rules.id"], name="fk_alerts_rule_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name="fk_alerts_experiment_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_alerts"),
        sa.UniqueConstraint("rule_id", "experiment_id", "recipe", name="uq_alerts_once"),
    )
    op.create_index("ix_alerts_experiment_id", "alerts", ["experiment_id"])
    op.create_index("ix_alerts_at", "alerts", ["at"])


def downgrade() -> None:
    op.drop_table("alerts")
    op.drop_table("alert_rules")
