"""Adds the table of calls by which agents changed something."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LARGEST = "1.7976931348623157e308"


def upgrade() -> None:
    op.create_table(
        "agent_calls",
        sa.Column("number", ID, autoincrement=False, nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("sweep", sa.Text(), nullable=False),
        sa.Column("sweep_id", ID, nullable=True),
        sa.Column("max_cost_seconds", sa.Double(), nullable=True),
        sa.Column("max_trials", sa.BigInteger(), nullable=True),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.CheckConstraint("number >= 0", name=op.f("ck_agent_calls_number_counts_from_0")),
        sa.CheckConstraint(
            f"max_cost_seconds BETWEEN 0 AND {LARGEST}", name=op.f("ck_agent_calls_max_cost_seconds_finite")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_agent_calls")),
    )
