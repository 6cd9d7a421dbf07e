"""Adds `continues` and `continued_seconds`: the trial whose run a trial goes on with, and what that run had cost."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

LARGEST = "1.7976931348623157e308"
KNOWN_KINDS = (
    "('initial_config', 'initial_design', 'warm_start', 'search', 'continuation', 'reevaluation', 'random', 'fallback')"
)


def upgrade() -> None:
    op.add_column("trials", sa.Column("continues", sa.Integer(), nullable=True))
    op.add_column("trials", sa.Column("continued_seconds", sa.Double(), nullable=True))
    trials = sa.table("trials", sa.column("continued_seconds"))
    op.get_bind().execute(trials.update().values(continued_seconds=0.0))
    with op.batch_alter_table("trials", table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.alter_column("continued_seconds", existing_type=sa.Double(), nullable=False)
        batch.drop_constraint(op.f("ck_trials_kind_known"), type_="check")
        batch.create_check_constraint(op.f("ck_trials_kind_known"), f"kind IN {KNOWN_KINDS}")
        batch.create_check_constraint(
            op.f("ck_trials_continues_an_earlier_trial"), "continues >= 0 AND continues < number"
        )
        batch.create_check_constraint(
            op.f("ck_trials_continued_seconds_finite"), f"continued_seconds BETWEEN 0 AND {LARGEST}"
        )
