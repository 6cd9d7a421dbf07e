"""Sweeps, trials, measurements and artifacts.

The first revision.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("env", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("space", sa.JSON(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("max_cost_seconds", sa.Double(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("git_commit", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("config_hash", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "max_cost_seconds BETWEEN 0 AND 1.7976931348623157e308", name=op.f("ck_sweeps_max_cost_seconds_finite")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweeps")),
        sa.UniqueConstraint("name", name=op.f("uq_sweeps_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "trials",
        sa.Column("id", ID, nullable=False),
        sa.Column("sweep_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("predicted_score", sa.Double(), nullable=True),
        sa.Column("predicted_score_low", sa.Double(), nullable=True),
        sa.Column("predicted_score_high", sa.Double(), nullable=True),
        sa.Column("predicted_cost_seconds", sa.Double(), nullable=True),
        sa.Column("predicted_cost_seconds_low", sa.Double(), nullable=True),
        sa.Column("predicted_cost_seconds_high", sa.Double(), nullable=True),
        sa.Column("suggest_seconds", sa.Double(), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("cost_seconds", sa.Double(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("timings", sa.JSON(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("git_commit", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("config_hash", sa.Text(), nullable=False),
        sa.CheckConstraint("(state = 'running') = (finished_at IS NULL)", name=op.f("ck_trials_finished_has_time")),
        sa.CheckConstraint("state <> 'complete' OR score IS NOT NULL", name=op.f("ck_trials_complete_has_score")),
        sa.CheckConstraint("state <> 'failed' OR reason <> ''", name=op.f("ck_trials_failed_has_reason")),
        sa.CheckConstraint("state IN ('running', 'complete', 'pruned', 'failed')", name=op.f("ck_trials_state_known")),
        sa.CheckConstraint(
            "state NOT IN ('running', 'failed') OR score IS NULL", name=op.f("ck_trials_failed_has_no_score")
        ),
        sa.CheckConstraint(
            "cost_seconds BETWEEN 0 AND 1.7976931348623157e308", name=op.f("ck_trials_cost_seconds_finite")
        ),
        sa.CheckConstraint("number >= 0", name=op.f("ck_trials_number_counts_from_0")),
        sa.CheckConstraint(
            "score BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308", name=op.f("ck_trials_score_finite")
        ),
        sa.CheckConstraint("steps >= 0", name=op.f("ck_trials_steps_not_negative")),
        sa.CheckConstraint(
            "suggest_seconds BETWEEN 0 AND 1.7976931348623157e308", name=op.f("ck_trials_suggest_seconds_finite")
        ),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_trials_sweep_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trials")),
        sa.UniqueConstraint("sweep_id", "number", name=op.f("uq_trials_sweep_id_number")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "artifacts",
        sa.Column("id", ID, nullable=False),
        sa.Column("trial_id", ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_artifacts_trial_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_artifacts_trial_id"), "artifacts", ["trial_id"])

    op.create_table(
        "measurements",
        sa.Column("trial_id", ID, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("elapsed_seconds", sa.Double(), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.CheckConstraint(
            "elapsed_seconds BETWEEN 0 AND 1.7976931348623157e308", name=op.f("ck_measurements_elapsed_seconds_finite")
        ),
        sa.CheckConstraint(
            "score BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308",
            name=op.f("ck_measurements_score_finite"),
        ),
        sa.CheckConstraint("steps >= 0", name=op.f("ck_measurements_steps_not_negative")),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_measurements_trial_id")),
        sa.PrimaryKeyConstraint("trial_id", "position", name=op.f("pk_measurements")),
        sqlite_with_rowid=False,
    )
