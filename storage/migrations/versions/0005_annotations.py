"""Adds annotations of trials (tags, a note, exclusion), and what is requested of a sweep (run, pause or stop)."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "annotations",
        sa.Column("trial_id", ID, autoincrement=False, nullable=False),
        sa.Column("sweep_id", ID, nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("excluded", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("revision >= 1", name=op.f("ck_annotations_revision_counts_from_1")),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_annotations_sweep_id")),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_annotations_trial_id")),
        sa.PrimaryKeyConstraint("trial_id", name=op.f("pk_annotations")),
        sa.UniqueConstraint("sweep_id", "revision", name=op.f("uq_annotations_sweep_id_revision")),
    )
    op.add_column("sweeps", sa.Column("requested", sa.String(length=16), nullable=True))
    op.execute("UPDATE sweeps SET requested = 'run'")
    with op.batch_alter_table("sweeps", table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.alter_column("requested", existing_type=sa.String(length=16), nullable=False)
        batch.create_check_constraint(op.f("ck_sweeps_requested_known"), "requested IN ('run', 'pause', 'stop')")
