"""Adds the state `waiting`, seconds that were lost, cancelled trials, why a sweep ended, and the table of machines."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LARGEST = "1.7976931348623157e308"
STATE_OF_END = (
    "CASE WHEN ended_as IS NULL AND state = 'waiting' THEN 'waiting' WHEN ended_as IS NULL THEN 'running'"
    " WHEN ended_as = 'complete' THEN 'complete'"
    " WHEN ended_as IN ('capped', 'out_of_budget', 'stopped_early') THEN 'pruned' ELSE 'failed' END"
)
CHANGED = {
    "state_known": "state IN ('running', 'waiting', 'complete', 'pruned', 'failed')",
    "state_goes_with_end": f"state = {STATE_OF_END}",
    "finished_has_time": "(state IN ('running', 'waiting')) = (finished_at IS NULL)",
    "failed_has_no_score": "state NOT IN ('running', 'waiting', 'failed') OR score IS NULL",
}
NEW = {
    "waiting_has_no_owner": "state <> 'waiting' OR owner = ''",
    "lost_seconds_finite": f"lost_seconds BETWEEN 0 AND {LARGEST}",
}


def upgrade() -> None:
    op.create_table(
        "machines",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("calibration_seconds", sa.Double(), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("calibration_seconds > 0", name=op.f("ck_machines_calibration_seconds_positive")),
        sa.CheckConstraint(
            f"calibration_seconds BETWEEN 0 AND {LARGEST}", name=op.f("ck_machines_calibration_seconds_finite")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_machines")),
        sa.UniqueConstraint("name", name=op.f("uq_machines_name")),
        sqlite_autoincrement=True,
    )
    op.add_column("sweeps", sa.Column("ended", sa.Text(), nullable=True))
    op.execute("UPDATE sweeps SET ended = ''")
    with op.batch_alter_table("sweeps", table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.alter_column("ended", existing_type=sa.Text(), nullable=False)
    op.add_column("trials", sa.Column("lost_seconds", sa.Double(), nullable=True))
    op.add_column("trials", sa.Column("cancel_requested", sa.Boolean(), nullable=True))
    trials = sa.table("trials", sa.column("lost_seconds"), sa.column("cancel_requested", sa.Boolean()))
    op.get_bind().execute(trials.update().values(lost_seconds=0.0, cancel_requested=False))
    with op.batch_alter_table("trials", table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.alter_column("lost_seconds", existing_type=sa.Double(), nullable=False)
        batch.alter_column("cancel_requested", existing_type=sa.Boolean(), nullable=False)
        for name, rule in CHANGED.items():
            batch.drop_constraint(op.f(f"ck_trials_{name}"), type_="check")
            batch.create_check_constraint(op.f(f"ck_trials_{name}"), rule)
        for name, rule in NEW.items():
            batch.create_check_constraint(op.f(f"ck_trials_{name}"), rule)
    op.create_index(
        "ix_trials_cancelled",
        "trials",
        ["sweep_id"],
        sqlite_where=sa.text("cancel_requested"),
        postgresql_where=sa.text("cancel_requested"),
    )
