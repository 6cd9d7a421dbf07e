"""Adds the kind `by_hand`, of trials that a person has queued."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KNOWN_KINDS = (
    "('initial_config', 'initial_design', 'warm_start', 'search', 'continuation', 'reevaluation', 'random', 'fallback',"
    " 'by_hand')"
)


def upgrade() -> None:
    with op.batch_alter_table("trials", table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.drop_constraint(op.f("ck_trials_kind_known"), type_="check")
        batch.create_check_constraint(op.f("ck_trials_kind_known"), f"kind IN {KNOWN_KINDS}")
