"""Adds `prior`: the source sweep of a warm start (renamed to `warm_start` in 0003)."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # No default stays behind: PostgreSQL cannot compare one of type JSON, as the test of the schema does.
    op.add_column("sweeps", sa.Column("prior", sa.JSON(), nullable=True))
    op.execute("UPDATE sweeps SET prior = '{}'")
    with op.batch_alter_table("sweeps", table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.alter_column("prior", existing_type=sa.JSON(), nullable=False)
