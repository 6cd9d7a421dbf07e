"""The tables. Row classes never leave this package. A test checks that the migrations in `migrations/versions` build
the same tables.

    sweeps --< trials --< measurements   (the curve: one row a point, `position` counts from 0 within its trial)
                     \\--< artifacts
                     \\--- annotations  (at most one a trial: tags, a note, whether it is excluded)
    machines  (that have run trials; the first one is the reference for costs)
    agent_calls  (by which agents changed something; a sweep that is removed leaves its calls)

Fields that queries use (state, end, score, cost, times, owner, lease) have columns of their own. Params, space, config,
metrics and timings are JSON text, which keeps their order and every digit. Ids are never reused. The checks repeat in
SQL the checks of `protein.types`, because SQLite would store a NaN as NULL and accept infinity.

A column has the name of the field in `protein.types` that it holds, and `protein.storage.values` matches them by this
name. A field of a trial that is not named here gets a column of its type: it needs no more than its migration.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from protein.columns import FIELDS
from protein.types import Annotation, Direction, Request, SuggestionKind, TrialEnd, TrialState

MAX_NAME_LENGTH = 200  # characters; a unique index of PostgreSQL holds at most about 2,700 bytes
_LARGEST = "1.7976931348623157e308"  # the largest finite double

Id = BigInteger().with_variant(Integer(), "sqlite")  # SQLite: only INTEGER PRIMARY KEY can be AUTOINCREMENT


class Utc(TypeDecorator[datetime]):
    """A moment, always timezone-aware in UTC. SQLite keeps no time zone: there it is stored as UTC without one."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        assert value.tzinfo is not None, "a moment needs a time zone"
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy reads it once)
        str: Text(),
        float: Double(),
        datetime: Utc(),
        dict[str, Any]: JSON(),
    }


def _listed(values: Iterable[StrEnum]) -> str:
    return f"({', '.join(repr(value.value) for value in values)})"


def _finite(column: str, low: str = f"-{_LARGEST}") -> CheckConstraint:
    """NULL passes, as in every SQL check."""
    return CheckConstraint(f"{column} BETWEEN {low} AND {_LARGEST}", name=f"{column}_finite")


_PRUNED_ENDS = _listed(end for end in TrialEnd if end.state is TrialState.PRUNED)
_STATE_OF_END = (
    "CASE WHEN ended_as IS NULL AND state = 'waiting' THEN 'waiting' WHEN ended_as IS NULL THEN 'running'"
    " WHEN ended_as = 'complete' THEN 'complete'"
    f" WHEN ended_as IN {_PRUNED_ENDS} THEN 'pruned' ELSE 'failed' END"
)


class SweepRow(Base):
    __tablename__ = "sweeps"
    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint(f"direction IN {_listed(Direction)}", name="direction_known"),
        _finite("max_cost_seconds", low="0"),
        CheckConstraint(f"requested IN {_listed(Request)}", name="requested_known"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(String(MAX_NAME_LENGTH))
    env: Mapped[str]
    method: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    direction: Mapped[str] = mapped_column(String(16))
    space: Mapped[dict[str, Any]]
    config: Mapped[dict[str, Any]]
    warm_start: Mapped[dict[str, Any]]
    max_cost_seconds: Mapped[float | None]
    created_at: Mapped[datetime]
    requested: Mapped[str] = mapped_column(String(16))
    ended: Mapped[str]
    version: Mapped[str]
    git_commit: Mapped[str]
    machine: Mapped[str]
    config_hash: Mapped[str]


class TrialRow(Base):
    __tablename__ = "trials"
    __table_args__ = (
        UniqueConstraint("sweep_id", "number"),
        CheckConstraint("number >= 0", name="number_counts_from_0"),
        CheckConstraint(f"state IN {_listed(TrialState)}", name="state_known"),
        CheckConstraint(f"ended_as IN {_listed(TrialEnd)}", name="end_known"),
        CheckConstraint(f"kind IN {_listed(SuggestionKind)}", name="kind_known"),
        CheckConstraint(f"state = {_STATE_OF_END}", name="state_goes_with_end"),
        CheckConstraint("(state IN ('running', 'waiting')) = (finished_at IS NULL)", name="finished_has_time"),
        CheckConstraint("state <> 'waiting' OR owner = ''", name="waiting_has_no_owner"),
        CheckConstraint("state <> 'complete' OR score IS NOT NULL", name="complete_has_score"),
        CheckConstraint("state NOT IN ('running', 'waiting', 'failed') OR score IS NULL", name="failed_has_no_score"),
        CheckConstraint("state <> 'failed' OR reason <> ''", name="failed_has_reason"),
        CheckConstraint("steps >= 0", name="steps_not_negative"),
        _finite("score"),
        _finite("cost_seconds", low="0"),
        _finite("lost_seconds", low="0"),
        CheckConstraint("continues >= 0 AND continues < number", name="continues_an_earlier_trial"),
        _finite("continued_seconds", low="0"),
        _finite("suggest_seconds", low="0"),
        # Asked for every second, and mostly empty.
        Index(
            "ix_trials_cancelled",
            "sweep_id",
            sqlite_where=text("cancel_requested"),
            postgresql_where=text("cancel_requested"),
        ),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    sweep_id: Mapped[int] = mapped_column(Id, ForeignKey("sweeps.id"))
    number: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    end: Mapped[str | None] = mapped_column("ended_as", String(16), key="end")  # END is a word of SQL
    params: Mapped[dict[str, Any]]
    seed: Mapped[int] = mapped_column(BigInteger)
    owner: Mapped[str]
    lease_until: Mapped[datetime]
    kind: Mapped[str] = mapped_column(String(16))
    origin: Mapped[str]
    predicted_score: Mapped[float | None]
    predicted_score_low: Mapped[float | None]
    predicted_score_high: Mapped[float | None]
    predicted_cost_seconds: Mapped[float | None]
    predicted_cost_seconds_low: Mapped[float | None]
    predicted_cost_seconds_high: Mapped[float | None]
    continues: Mapped[int | None]
    continued_seconds: Mapped[float]
    suggest_seconds: Mapped[float]
    score: Mapped[float | None]
    cost_seconds: Mapped[float]  # while it runs: of the last measurement
    lost_seconds: Mapped[float]
    cancel_requested: Mapped[bool]
    steps: Mapped[int] = mapped_column(BigInteger)  # while it runs: of the last measurement
    reason: Mapped[str]
    timings: Mapped[dict[str, Any]]
    metrics: Mapped[dict[str, Any]]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    version: Mapped[str]
    git_commit: Mapped[str]
    machine: Mapped[str]
    config_hash: Mapped[str]


def _add_new_fields() -> None:
    types: Mapping[Any, Any] = {int: BigInteger, float: Double, str: Text, bool: Boolean, datetime: Utc, Mapping: JSON}
    known = {*TrialRow.__table__.columns.keys(), *(field.name for field in dataclasses.fields(Annotation))}
    for name, kind in FIELDS.items():
        if name not in known:
            setattr(TrialRow, name, mapped_column(types[kind]()))


_add_new_fields()


class MeasurementRow(Base):
    __tablename__ = "measurements"
    __table_args__ = (
        CheckConstraint("steps >= 0", name="steps_not_negative"),
        _finite("elapsed_seconds", low="0"),
        _finite("score"),
        {"sqlite_with_rowid": False},  # the curve of one trial lies together on disk
    )

    trial_id: Mapped[int] = mapped_column(Id, ForeignKey("trials.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    steps: Mapped[int] = mapped_column(BigInteger)
    elapsed_seconds: Mapped[float]
    score: Mapped[float | None]
    metrics: Mapped[dict[str, Any]]


class ArtifactRow(Base):
    __tablename__ = "artifacts"
    __table_args__ = (Index(None, "trial_id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    trial_id: Mapped[int] = mapped_column(Id, ForeignKey("trials.id"))
    kind: Mapped[str]
    path: Mapped[str]


class AnnotationRow(Base):
    __tablename__ = "annotations"
    __table_args__ = (
        UniqueConstraint("sweep_id", "revision"),
        CheckConstraint("revision >= 1", name="revision_counts_from_1"),
    )

    trial_id: Mapped[int] = mapped_column(Id, ForeignKey("trials.id"), primary_key=True, autoincrement=False)
    sweep_id: Mapped[int] = mapped_column(Id, ForeignKey("sweeps.id"))
    tags: Mapped[list[str]] = mapped_column(JSON())
    note: Mapped[str]
    excluded: Mapped[bool]
    revision: Mapped[int] = mapped_column(BigInteger)  # counts the changes of annotations within the sweep


class MachineRow(Base):
    __tablename__ = "machines"
    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint("calibration_seconds > 0", name="calibration_seconds_positive"),
        _finite("calibration_seconds", low="0"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)  # the lowest is that of the reference
    name: Mapped[str] = mapped_column(String(MAX_NAME_LENGTH))
    facts: Mapped[dict[str, Any]]
    calibration_seconds: Mapped[float]
    measured_at: Mapped[datetime]


class AgentCallRow(Base):
    __tablename__ = "agent_calls"
    __table_args__ = (
        CheckConstraint("number >= 0", name="number_counts_from_0"),
        _finite("max_cost_seconds", low="0"),
    )

    number: Mapped[int] = mapped_column(Id, primary_key=True, autoincrement=False)
    made_at: Mapped[datetime]
    client: Mapped[str]
    tool: Mapped[str]
    arguments: Mapped[dict[str, Any]]
    sweep: Mapped[str]
    sweep_id: Mapped[int | None] = mapped_column(Id)  # no foreign key: what it has spent outlives a sweep
    max_cost_seconds: Mapped[float | None]
    max_trials: Mapped[int | None] = mapped_column(BigInteger)
    workers: Mapped[int]
    owner: Mapped[str]
    outcome: Mapped[str]
