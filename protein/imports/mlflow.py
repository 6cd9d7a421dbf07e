"""An experiment of MLflow: a tracking server's URL, its SQLite file, or the folder `mlruns` of an older MLflow.

Params are the runs' params, the score is a metric's last value, and its history is the learning curve. The cost is the
time between a run's start and its end, or a metric in seconds. Runs that others call their parent are left out where
they lack the score.
"""

import os
import urllib.parse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protein.errors import UsageError
from protein.imports.runs import (
    EQUAL_COST,
    Imported,
    Run,
    Source,
    choose,
    existing,
    known_cost,
    listed,
    numbers,
    parameters,
    require_direction,
    result,
    tables_of,
    text_value,
)
from protein.spelling import nearest
from protein.types import Direction, Measurement, TrialEnd, is_score
from protein.urls import without_password

PAGE = 1000  # runs that are asked for at once
MAX_POINTS = 2000  # of a run's curve, spread evenly
_ENDS = {"FINISHED": TrialEnd.COMPLETE, "FAILED": TrialEnd.FAILED, "KILLED": TrialEnd.INTERRUPTED}
_OURS = "protein.trial_key"  # a tag of runs that were written from here, see `protein.trackers.mlflow`
_OUR_COST = "run_seconds"  # of those: of the whole run, where trials have continued each other
_PARENT, _COMMIT = "mlflow.parentRunId", "mlflow.source.git.commit"


def is_one(place: Path) -> bool:
    """Whether a file is a database of MLflow's, or a folder its `mlruns`."""
    if place.is_dir():
        return any(place.glob("*/meta.yaml"))
    return {"experiments", "runs"} <= (tables_of(place) or set())


def read(source: Source) -> Imported:
    """Returns the experiment's finished runs.

    Raises:
        UsageError: MLflow is not installed; the place cannot be read; the experiment, the score or the direction has to
            be named.
    """
    uri = _uri(source.place)
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise UsageError(
            f"to read an experiment, mlflow is needed ({error}); run pip install 'protein-sweep[mlflow]'"
        ) from error
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault(
        "MLFLOW_ALLOW_FILE_STORE", "true"
    )  # it would refuse to read a folder, so that none is written
    shown = without_password(uri)
    try:
        _require_database(uri)
        client = MlflowClient(uri)
        experiments = {one.name: one.experiment_id for one in client.search_experiments()}
        used = [name for name, key in experiments.items() if client.search_runs([key], max_results=1)]
        name = choose("--experiment", source.experiment, used)
        runs = _all_runs(client, experiments[name])
        return _imported(client, runs, f"{shown}, experiment '{name}'", name, source)
    except UsageError:
        raise
    except Exception as error:  # of MLflow, and for a database of SQLAlchemy and its drivers
        raise UsageError(f"{shown} cannot be read as MLflow's: {' '.join(str(error).split())[:200]}") from error


def _uri(place: str) -> str:
    """Returns the URI for MLflow.

    Raises:
        UsageError: a file has no tables of MLflow, or a folder no experiment; it would make them there.
    """
    plain = urllib.parse.unquote(place.removeprefix("file://")) if place.startswith("file:///") else place
    if "://" in plain and not plain.startswith("sqlite:///"):
        return place
    if (folder := Path(plain).expanduser()).is_dir():
        if not is_one(folder):
            raise UsageError(f"{place} is no folder of MLflow: it holds no experiment; give another, such as mlruns")
        return folder.resolve().as_uri()
    path = existing(plain.removeprefix("sqlite:///"), "MLflow's SQLite file, its folder, or the URL of its server")
    if not is_one(path):
        raise UsageError(f"{place} is no database of MLflow: it has no table of runs; give another")
    return f"sqlite:///{path.resolve()}"


def _require_database(uri: str) -> None:
    """Connects to the database where the URI names one. MLflow would try for minutes before it says that it cannot."""
    if uri.startswith(("http:", "https:", "file:", "sqlite:", "databricks")):
        return
    from sqlalchemy import create_engine

    engine = create_engine(uri)
    try:
        engine.connect().close()
    finally:
        engine.dispose()


def _all_runs(client: Any, experiment: str) -> list[Any]:
    found: list[Any] = []
    token = None
    while True:
        page = client.search_runs(
            [experiment], max_results=PAGE, order_by=["attributes.start_time ASC"], page_token=token
        )
        found += page
        token = page.token
        if not token:
            return found


def _imported(client: Any, runs: Sequence[Any], where: str, name: str, source: Source) -> Imported:
    names = {key for run in runs for key in run.data.metrics}
    known = sorted(names, key=lambda name: (name.startswith("curve/"), name))  # those of curves last: there are many
    if source.score is None and len(known) != 1:
        raise UsageError(f"--score METRIC is needed, one of: {listed(known)}")
    score = known[0] if source.score is None else source.score
    written_here = all(_OURS in run.data.tags for run in runs if score in run.data.metrics)
    cost = source.cost or (_OUR_COST if written_here else None)
    history = f"curve/{score}" if written_here else score
    if score not in known:
        raise UsageError(f"--score '{score}' is no metric of {where}{nearest(score, known)}")
    direction = require_direction(source.direction or _direction(runs), score)
    if source.cost not in (None, EQUAL_COST, *known):
        raise UsageError(f"--cost '{source.cost}' is no metric of {where}{nearest(str(source.cost), known)}")
    parents = {run.data.tags.get(_PARENT) for run in runs}
    ours = [
        run for run in runs if (score in run.data.metrics or run.info.run_id not in parents) and not _is_excluded(run)
    ]
    finished = [run for run in ours if run.info.status in _ENDS]
    return Imported(
        tool="mlflow",
        where=where,
        identity=where,
        experiment=name,
        env=_env(runs) or name,
        score=score,
        direction=direction,
        runs=[_run(client, run, score, history, cost) for run in finished],
        num_unfinished=len(ours) - len(finished),
    )


def _env(runs: Sequence[Any]) -> str | None:
    """Returns the environment where a tag says it, as those that were written from here do."""
    said = {run.data.tags.get("protein.env") for run in runs} - {None}
    return str(said.pop()) if len(said) == 1 else None


def _direction(runs: Sequence[Any]) -> Direction | None:
    """Returns the direction where a tag says it, as those that were written from here do."""
    said = {run.data.tags.get("protein.direction") for run in runs} - {None}
    return Direction(said.pop()) if len(said) == 1 and said <= set(Direction) else None


def _run(client: Any, run: Any, score: str, curve: str, cost: str | None) -> Run:
    info, data = run.info, run.data
    value = data.metrics.get(score)
    history = _history(client, info, curve)
    end, measured, reason = result(_end(run), None if value is None else float(value), info.status.lower())
    seconds = 1.0 if cost == EQUAL_COST else data.metrics.get(cost) if cost else _duration(info)
    if cost == _OUR_COST and seconds is None:  # written before that was
        seconds = data.metrics.get("cost_seconds")
    values = {key: text_value(text) for key, text in data.params.items()}
    return Run(
        key=info.run_id,
        params=parameters(values),
        end=end,
        score=measured,
        cost_seconds=known_cost(seconds),
        steps=max((point.steps for point in history), default=_steps(run)),
        reason="" if end is TrialEnd.COMPLETE else data.tags.get("protein.reason") or reason,
        metrics=numbers(data.metrics),
        curve=history,
        began=datetime.fromtimestamp(info.start_time / 1000, UTC).isoformat(sep=" ", timespec="seconds"),
        git_commit=data.tags.get(_COMMIT, ""),
    )


def _end(run: Any) -> TrialEnd:
    """Returns how a run has ended. MLflow has no word for one that was stopped: one of ours says it in a tag."""
    said = run.data.tags.get("protein.end")
    return TrialEnd(said) if _OURS in run.data.tags and said in set(TrialEnd) else _ENDS[run.info.status]


def _is_excluded(run: Any) -> bool:
    """Whether a person did not trust the trial of ours that a run was written from."""
    return _OURS in run.data.tags and run.data.tags.get("protein.excluded") == "true"


def _steps(run: Any) -> int:
    """Returns the steps of a run of ours that has no curve; 0 for any other."""
    return int(run.data.metrics.get("steps", 0)) if _OURS in run.data.tags else 0


def _duration(info: Any) -> float | None:
    return None if info.end_time is None else max(info.end_time - info.start_time, 0) / 1000


def _history(client: Any, info: Any, score: str) -> tuple[Measurement, ...]:
    points = sorted(client.get_metric_history(info.run_id, score), key=lambda point: (point.step, point.timestamp))
    stride = max(1, -(-len(points) // MAX_POINTS))
    kept = [point for i, point in enumerate(points) if i % stride == 0 or i == len(points) - 1]
    if len(kept) < 2:  # a single value is the score itself, and no curve
        return ()
    found: list[Measurement] = []
    for point in kept:
        seconds = max(point.timestamp - info.start_time, 0) / 1000
        seconds = max(seconds, found[-1].elapsed_seconds if found else 0.0)  # clocks may differ
        number = float(point.value) if is_score(point.value) else None
        found.append(Measurement(steps=max(int(point.step), 0), elapsed_seconds=seconds, score=number))
    return tuple(found)
