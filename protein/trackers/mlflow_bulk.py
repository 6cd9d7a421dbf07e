"""Many finished trials at once into MLflow's SQLite file, in one transaction.

MLflow's client makes a run in three steps, each a transaction of its own with some ten queries: about 20 ms of CPU, and
ten thousand trials take minutes. This inserts the same rows by MLflow's own table classes. It is used for new finished
trials alone, into the file that the tracker has made itself, and only where the tables have the columns that are known
here: with any other version of MLflow the client does it. `tests/contracts/test_trackers.py` reads both back by the
client.
"""

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The columns that MLflow 3.17 has in the tables that are written.
_COLUMNS: Mapping[str, frozenset[str]] = {
    "SqlRun": frozenset(("run_uuid", "name", "experiment_id", "user_id", "status", "start_time", "end_time"))
    | frozenset(("deleted_time", "lifecycle_stage", "artifact_uri", "source_type", "source_name", "source_version"))
    | frozenset(("entry_point_name",)),
    "SqlTag": frozenset(("key", "value", "run_uuid")),
    "SqlParam": frozenset(("key", "value", "run_uuid")),
    "SqlMetric": frozenset(("key", "value", "timestamp", "step", "is_nan", "run_uuid")),
    "SqlLatestMetric": frozenset(("key", "value", "timestamp", "step", "is_nan", "run_uuid")),
}
_RUN_NAME = "mlflow.runName"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A finished run. Times are in milliseconds since 1970; a metric is (name, value, time, step), finite."""

    name: str
    status: str
    start_time: int
    end_time: int
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Sequence[tuple[str, float, int, int]]


def fits() -> bool:
    """Whether MLflow's tables are those that are known here."""
    try:
        from mlflow.store.tracking.dbmodels import models
    except ImportError:
        return False
    tables = {name: getattr(models, name, None) for name in _COLUMNS}
    return all(
        table is not None and {column.name for column in table.__table__.columns} == _COLUMNS[name]
        for name, table in tables.items()
    )


def insert(path: Path, experiment_id: str, artifacts: str, runs: Sequence[NewRun]) -> list[str]:
    """Inserts runs, all or none, and returns their ids.

    Args:
        path: of the SQLite file; MLflow has made its tables.
        experiment_id: of the experiment.
        artifacts: the experiment's artifact location, a URI.
        runs: the new runs.
    """
    import sqlalchemy
    from mlflow.store.tracking.dbmodels import models

    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _COLUMNS}
    ids = []
    for run in runs:
        key = uuid.uuid4().hex
        ids.append(key)
        rows["SqlRun"].append(
            {
                "run_uuid": key,
                "name": run.name,
                "source_type": "UNKNOWN",
                "source_name": "",
                "entry_point_name": "",
                "user_id": "unknown",
                "status": run.status,
                "start_time": run.start_time,
                "end_time": run.end_time,
                "deleted_time": None,
                "source_version": "",
                "lifecycle_stage": "active",
                "artifact_uri": f"{artifacts}/{key}/artifacts",
                "experiment_id": int(experiment_id),
            }
        )
        tags = {**run.tags, _RUN_NAME: run.name}
        rows["SqlTag"] += [{"key": name, "value": value, "run_uuid": key} for name, value in tags.items()]
        rows["SqlParam"] += [{"key": name, "value": value, "run_uuid": key} for name, value in run.params.items()]
        latest: dict[str, tuple[int, int, float]] = {}
        for name, value, at, step in dict.fromkeys(run.metrics):
            rows["SqlMetric"].append(_metric(key, name, value, at, step))
            latest[name] = max(latest.get(name, (step, at, value)), (step, at, value))
        rows["SqlLatestMetric"] += [_metric(key, name, value, at, step) for name, (step, at, value) in latest.items()]
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})
    try:
        with engine.begin() as connection:
            for name, some in rows.items():
                if some:
                    connection.execute(sqlalchemy.insert(getattr(models, name)), some)
    finally:
        engine.dispose()
    return ids


def _metric(run: str, name: str, value: float, at: int, step: int) -> dict[str, Any]:
    return {"key": name, "value": value, "timestamp": at, "step": step, "is_nan": False, "run_uuid": run}
