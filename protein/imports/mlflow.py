"""An experiment of MLflow: a tracking server's URL, its SQLite file, or the folder `mlruns` of an older MLflow.

Params are the runs' params, the score is a metric's last value, and its history is the learning curve. The cost is the
time between a run's start and its end, or a metric in seconds. Runs that others call their parent are left out where
they lack the score.
"""

import itertools
import os
import urllib.parse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protein.errors import UsageError
from protein.imports.runs import (
    Imported,
    Run,
    Source,
    choose,
    curve,
    existing,
    needed,
    parameters,
    reading,
    tables_of,
    text_value,
)
from protein.types import Direction, Measurement, TrialEnd
from protein.urls import without_password

PAGE = 1000  # runs that are asked for at once
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
    """Returns the experiment's finished runs."""
    uri = _uri(source.place)
    mlflow = needed("mlflow", "'protein-sweep[mlflow]'")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # lest it refuse to read a folder
    shown = without_password(uri)
    with reading(f"{shown} cannot be read as MLflow's", "give another"):
        _require_database(uri)
        client = mlflow.MlflowClient(uri)
        experiments = {one.name: one.experiment_id for one in client.search_experiments()}
        used = [name for name, key in experiments.items() if client.search_runs([key], max_results=1)]
        name = choose("--experiment", source.experiment, used)
        runs = _all_runs(client, experiments[name])
        return _imported(client, runs, f"{shown}, experiment '{name}'", name, source)


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
    order, found, token = ["attributes.start_time ASC"], list[Any](), None
    while token is None or token:
        page = client.search_runs([experiment], max_results=PAGE, order_by=order, page_token=token)
        found += page
        token = page.token or ""
    return found


def _imported(client: Any, runs: Sequence[Any], where: str, name: str, source: Source) -> Imported:
    names = {key for run in runs for key in run.data.metrics}
    known = sorted(names, key=lambda name: (name.startswith("curve/"), name))  # those of curves last: there are many
    score = source.score_of(known)
    written_here = all(_OURS in run.data.tags for run in runs if score in run.data.metrics)
    own = _said(runs, "direction")
    direction = source.direction_of(score, Direction(own) if own in set(Direction) else None)
    source.require_cost(known)
    parents = {run.data.tags.get(_PARENT) for run in runs}
    ours = [
        run for run in runs if (score in run.data.metrics or run.info.run_id not in parents) and not _is_excluded(run)
    ]
    finished = [run for run in ours if run.info.status in _ENDS]
    return Imported(
        where=where,
        identity=where,
        experiment=name,
        env=_said(runs, "env"),
        score=score,
        direction=direction,
        runs=[_run(client, run, score, source, written_here) for run in finished],
        num_unfinished=len(ours) - len(finished),
    )


def _said(runs: Sequence[Any], what: str) -> str:
    """Returns what a tag of ours says of all runs that have it; "" where none has, or they differ."""
    said = {run.data.tags.get(f"protein.{what}") for run in runs} - {None}
    return str(said.pop()) if len(said) == 1 else ""


def _run(client: Any, run: Any, score: str, source: Source, written_here: bool) -> Run:
    info, data, end = run.info, run.data, _end(run)
    history = _history(client, info, f"curve/{score}" if written_here else score)
    seconds = _duration(info)
    if written_here:  # before there was the first, the second was
        seconds = data.metrics.get(_OUR_COST, data.metrics.get("cost_seconds"))
    return Run(
        key=info.run_id,
        params=parameters({key: text_value(text) for key, text in data.params.items()}),
        end=end,
        score=data.metrics.get(score),
        cost_seconds=source.seconds(seconds, data.metrics),
        steps=history[-1].steps if history else _steps(run),
        reason="" if end is TrialEnd.COMPLETE else data.tags.get("protein.reason") or info.status.lower(),
        metrics=data.metrics,
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
    seconds = ((point.timestamp - info.start_time) / 1000 for point in points)
    clock = itertools.accumulate(seconds, max, initial=0.0)  # never back: clocks may differ
    found = curve(
        (point.step, at, point.value) for point, at in zip(points, itertools.islice(clock, 1, None), strict=True)
    )
    return found if len(found) > 1 else ()  # a single value is the score itself
