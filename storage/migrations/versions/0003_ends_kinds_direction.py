"""Adds columns for a trial's end, its kind of suggestion and a sweep's direction; renames `prior` to `warm_start`.

Earlier versions kept these only as texts: `reason`, `origin`, and `own.direction` in the config of a sweep over a
function. The new columns are filled from those texts.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# What the text of a reason begins with, for each state; the first that fits counts.
PRUNED_ENDS = (
    ("stopped early", "stopped_early"),
    ("stopped at the end of the sweep's budget", "out_of_budget"),
    ("", "capped"),
)
FUNCTION_ENDS = (
    ("mistake in the training function", "mistake"),
    ("the score is ", "diverged"),
    ("ValueError: the score became ", "diverged"),
    ("", "user_error"),
)
TRAINER_ENDS = (
    ("diverged", "diverged"),
    ("reported no finite score", "diverged"),
    ("memory: ", "out_of_memory"),
    ("killed at ", "out_of_memory"),  # at so many GiB, over its limit
    ("killed after ", "hung"),  # after so many seconds, its limit or without a sign of life
    ("killed by ", "crashed"),
    ("exited with code ", "crashed"),
    ("process ", "crashed"),
    ("process: ", "crashed"),
    ("disk: ", "disk"),
)
KINDS = (
    ("your own config", "initial_config"),
    ("re-evaluation of ", "reevaluation"),
    ("random point, the models failed", "fallback"),
    ("random", "random"),
    ("optuna random", "random"),
    ("initial design ", "initial_design"),
    ("from the prior sweep's front", "warm_start"),
    ("", "search"),
)
FALLBACKS = (", random", ", random to fit the budget")  # what an origin ends with that names another kind first

STATE_OF_END = (
    "CASE WHEN ended_as IS NULL THEN 'running' WHEN ended_as = 'complete' THEN 'complete'"
    " WHEN ended_as IN ('capped', 'out_of_budget', 'stopped_early') THEN 'pruned' ELSE 'failed' END"
)
ENDS = (
    "('complete', 'capped', 'out_of_budget', 'stopped_early', 'interrupted', 'mistake', 'user_error', 'diverged',"
    " 'out_of_memory', 'hung', 'disk', 'crashed', 'failed')"
)
KNOWN_KINDS = "('initial_config', 'initial_design', 'warm_start', 'search', 'reevaluation', 'random', 'fallback')"
BATCH = 1000  # rows that are filled at once


def upgrade() -> None:
    op.add_column("sweeps", sa.Column("direction", sa.String(length=16), nullable=True))
    op.add_column("trials", sa.Column("ended_as", sa.String(length=16), nullable=True))
    op.add_column("trials", sa.Column("kind", sa.String(length=16), nullable=True))
    sweeps = sa.table("sweeps", sa.column("id"), sa.column("env"), sa.column("config", sa.JSON), sa.column("direction"))
    columns = ("id", "sweep_id", "state", "reason", "origin", "ended_as", "kind")
    trials = sa.table("trials", *(sa.column(name) for name in columns))
    connection = op.get_bind()
    env_kinds: dict[int, str] = {}
    for sweep in connection.execute(sa.select(sweeps.c.id, sweeps.c.env, sweeps.c.config)).all():
        env_kinds[sweep.id] = kind_of_env(sweep.env, sweep.config)
        direction = sweep.config.get("own", {}).get("direction") or "maximize"
        connection.execute(sweeps.update().where(sweeps.c.id == sweep.id).values(direction=direction))
    change = trials.update().where(trials.c.id == sa.bindparam("key"))
    change = change.values(ended_as=sa.bindparam("end"), kind=sa.bindparam("what"))
    stored = sa.select(trials.c.id, trials.c.sweep_id, trials.c.state, trials.c.reason, trials.c.origin)
    rows = connection.execute(stored).all()
    for first in range(0, len(rows), BATCH):
        filled = [
            {"key": row.id, "end": end_of(row.state, row.reason, env_kinds[row.sweep_id]), "what": kind_of(row.origin)}
            for row in rows[first : first + BATCH]
        ]
        connection.execute(change, filled)
    with op.batch_alter_table("sweeps", table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.alter_column("prior", new_column_name="warm_start", existing_type=sa.JSON(), existing_nullable=False)
        batch.alter_column("direction", existing_type=sa.String(length=16), nullable=False)
        batch.create_check_constraint(op.f("ck_sweeps_direction_known"), "direction IN ('maximize', 'minimize')")
    with op.batch_alter_table("trials", table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.alter_column("kind", existing_type=sa.String(length=16), nullable=False)
        batch.create_check_constraint(op.f("ck_trials_end_known"), f"ended_as IN {ENDS}")
        batch.create_check_constraint(op.f("ck_trials_kind_known"), f"kind IN {KNOWN_KINDS}")
        batch.create_check_constraint(op.f("ck_trials_state_goes_with_end"), f"state = {STATE_OF_END}")


def kind_of_env(env: str, config: Mapping[str, Any]) -> str:
    """Returns whose code a sweep's trials ran: "function", "user" (the user's environment) or "ours"."""
    if "train" not in config:
        return "function"
    return "user" if ":" in env else "ours"


def end_of(state: str, reason: str, env_kind: str) -> str | None:
    """Returns how a trial ended, from what earlier versions wrote."""
    if state == "running":
        return None
    if state == "complete":
        return "complete"
    if state == "pruned":
        return next(end for beginning, end in PRUNED_ENDS if reason.startswith(beginning))
    if reason == "interrupted":
        return "interrupted"
    if env_kind == "function":
        return next(end for beginning, end in FUNCTION_ENDS if reason.startswith(beginning))
    other = "user_error" if env_kind == "user" and reason.startswith("error: ") else "failed"
    return next((end for beginning, end in TRAINER_ENDS if reason.startswith(beginning)), other)


def kind_of(origin: str) -> str:
    """Returns the kind of a suggestion, from the text of its origin."""
    if origin.endswith(FALLBACKS):
        return "fallback"
    return next(kind for beginning, kind in KINDS if origin.startswith(beginning))
