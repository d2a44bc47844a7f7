"""The first tables: people, projects, workloads, experiments, runs and everything a run leaves behind.

Revision 0001; written out in full, because a migration must not change when the tables of today do.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_people()
    _create_workers_and_workloads()
    _create_experiments_and_runs()
    _create_records()


def downgrade() -> None:
    for table in (
        "series",
        "segments",
        "logs",
        "events",
        "attempts",
        "artifacts",
        "runs",
        "tokens",
        "sign_in_links",
        "sessions",
        "experiments",
        "audit",
        "workloads",
        "workers",
        "users",
        "projects",
    ):
        op.drop_table(table)


def _create_people() -> None:
    op.create_table(
        "projects",
        sa.Column("id", Id, nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
    )
    op.create_table(
        "users",
        sa.Column("id", Id, nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
    )
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_sessions_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_sessions")),
    )
    op.create_index(op.f("ix_sessions_user_id"), "sessions", ["user_id"], unique=False)
    op.create_table(
        "sign_in_links",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_sign_in_links_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_sign_in_links")),
    )
    op.create_index(op.f("ix_sign_in_links_user_id"), "sign_in_links", ["user_id"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", Id, nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_tokens_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_tokens_token_hash")),
    )
    op.create_index(op.f("ix_tokens_user_id"), "tokens", ["user_id"], unique=False)
    op.create_table(
        "audit",
        sa.Column("id", Id, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("user_id", Id, nullable=True),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("subject", sa.String(length=120), nullable=False),
        sa.Column("detail", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_audit_user_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_at"), "audit", ["at"], unique=False)


def _create_workers_and_workloads() -> None:
    op.create_table(
        "workers",
        sa.Column("id", Id, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(length=40), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("devices", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
        sa.UniqueConstraint("name", name=op.f("uq_workers_name")),
    )
    op.create_table(
        "workloads",
        sa.Column("id", Id, nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("source_hash", sa.String(length=64), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("description", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workloads")),
        sa.UniqueConstraint("name", "source_hash", name="uq_workloads_version"),
    )
    op.create_index(op.f("ix_workloads_name"), "workloads", ["name"], unique=False)


def _create_experiments_and_runs() -> None:
    op.create_table(
        "experiments",
        sa.Column("id", Id, nullable=False),
        sa.Column("project_id", Id, nullable=False),
        sa.Column("workload_id", Id, nullable=False),
        sa.Column("owner_id", Id, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("plan", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("tags", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("comparison", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("judged_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_experiments_owner_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_experiments_project_id")),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_experiments_workload_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiments")),
    )
    op.create_index(op.f("ix_experiments_created_at"), "experiments", ["created_at"], unique=False)
    op.create_index(op.f("ix_experiments_owner_id"), "experiments", ["owner_id"], unique=False)
    op.create_index(op.f("ix_experiments_project_id"), "experiments", ["project_id"], unique=False)
    op.create_index(op.f("ix_experiments_state"), "experiments", ["state"], unique=False)
    op.create_index(op.f("ix_experiments_workload_id"), "experiments", ["workload_id"], unique=False)
    op.create_table(
        "runs",
        sa.Column("id", Id, nullable=False),
        sa.Column("experiment_id", Id, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("recipe_name", sa.String(length=80), nullable=False),
        sa.Column("recipe", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("config", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("numerics", sa.String(length=16), nullable=True),
        sa.Column("environment", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("worker_id", Id, nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_runs_experiment_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_runs_worker_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_experiment_id"), "runs", ["experiment_id"], unique=False)
    op.create_index("ix_runs_queue", "runs", ["state", "priority", "created_at"], unique=False)
    op.create_table(
        "attempts",
        sa.Column("run_id", Id, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("worker_name", sa.String(length=200), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_attempts_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_attempts")),
    )


def _create_records() -> None:
    op.create_table(
        "segments",
        sa.Column("run_id", Id, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("num_points", sa.Integer(), nullable=False),
        sa.Column("min_step", sa.BigInteger(), nullable=False),
        sa.Column("max_step", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_segments_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "sequence", name=op.f("pk_segments")),
    )
    op.create_index("ix_segments_steps", "segments", ["run_id", "min_step", "max_step"], unique=False)
    op.create_table(
        "series",
        sa.Column("run_id", Id, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("num_points", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("last_value", sa.LargeBinary(), nullable=False),
        sa.Column("finite_last", sa.Double(), nullable=True),
        sa.Column("finite_min", sa.Double(), nullable=True),
        sa.Column("finite_max", sa.Double(), nullable=True),
        sa.Column("finite_sum", sa.Double(), nullable=False),
        sa.Column("num_nan", sa.BigInteger(), nullable=False),
        sa.Column("num_pos_inf", sa.BigInteger(), nullable=False),
        sa.Column("num_neg_inf", sa.BigInteger(), nullable=False),
        sa.Column("first_non_finite_step", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_series_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "name", name=op.f("pk_series")),
    )
    op.create_table(
        "events",
        sa.Column("run_id", Id, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("payload", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_events_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "sequence", name=op.f("pk_events")),
    )
    op.create_index("ix_events_kind", "events", ["run_id", "kind"], unique=False)
    op.create_table(
        "logs",
        sa.Column("run_id", Id, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_logs_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "position", name=op.f("pk_logs")),
    )
    op.create_table(
        "artifacts",
        sa.Column("id", Id, nullable=False),
        sa.Column("run_id", Id, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("media_type", sa.String(length=80), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_artifacts_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sa.UniqueConstraint("run_id", "attempt", "name", name="uq_artifacts_name"),
    )
    op.create_index(op.f("ix_artifacts_run_id"), "artifacts", ["run_id"], unique=False)
