"""MLflow: a parent run for the sweep, a child run for each trial. Through its client, which needs no active run.

    experiment      $MLFLOW_EXPERIMENT_NAME, or "protein ENV"
    params          the trial's params
    metrics         results under their names (`score`, `cost_seconds`); points of the curve as `curve/NAME`, by steps
    tags            `protein.NAME` for texts; `protein.nonfinite.NAME` for numbers that are no numbers, which MLflow's
                    stores change or refuse

It writes to $MLFLOW_TRACKING_URI, or to a SQLite file. MLflow 3 no longer accepts its file store (`./mlruns`).

Nothing is written twice: a run is found again by its tag, a param keeps its first value, and MLflow keeps a metric's
point once where name, time, step and value are the same.
"""

import contextlib
import os
import re
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from protein.trackers import facts
from protein.trackers.tracker import Tracker, TrialUpdate
from protein.types import SweepRecord, TrialEnd, TrialRecord, TrialState
from protein.urls import without_password

# In one request. MLflow's limits are 100 params, 100 tags, 1,000 metrics, and 1,000 of all together.
MAX_PARAMS, MAX_TAGS, MAX_METRICS = 100, 100, 800
MAX_NAME = 250  # characters
MAX_PARAM_VALUE = 6000
MAX_TAG_VALUE = 5000
THREADS = 8  # that talk to a server; a SQLite file has one writer
REQUEST_SECONDS = 20  # a server that takes longer counts as down; what failed is tried again later
_SWEEP, _TRIAL, _PARENT = "protein.sweep_key", "protein.trial_key", "mlflow.parentRunId"
_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(REQUEST_SECONDS),
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # To print a finished run's address, the client would ask the server for the whole run: a fourth request a trial.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def make(folder: Path) -> Tracker:
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    return MlflowTracker(folder)


class MlflowTracker:
    """See `protein.trackers.tracker.Tracker`."""

    takes_running = True

    def __init__(self, folder: Path) -> None:
        from mlflow import MlflowClient

        given = os.environ.get("MLFLOW_TRACKING_URI")
        self._folder = folder
        self._uri = given or f"sqlite:///{folder.absolute() / 'mlflow.db'}"
        self._artifacts = None if given else (folder.absolute() / "mlartifacts").as_uri()
        self._is_server = self._uri.startswith(("http:", "https:"))
        self.destination = without_password(self._uri)
        look = (
            f"open {self.destination}" if self._is_server else f"run mlflow ui --backend-store-uri {self.destination}"
        )
        self.how_to_look = look
        folder.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(self._uri)
        if not given:
            self._use_write_ahead_log(folder.absolute() / "mlflow.db")
        self._runs: dict[int, str] = {}  # run ids by trial number
        self._ended: set[int] = set()  # trials whose run has been ended by this process

    def _use_write_ahead_log(self, path: Path) -> None:
        """Each small write then takes about half the time, and MLflow's page can read meanwhile. The file keeps it."""
        self._client.search_experiments(max_results=1)  # makes the file
        with contextlib.closing(sqlite3.connect(path, timeout=REQUEST_SECONDS)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")

    def begin(self, sweep: SweepRecord) -> bool:
        self._sweep = sweep
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _name(f"protein {sweep.spec.env}")
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            experiment = self._client.get_experiment(
                self._client.create_experiment(name, artifact_location=self._artifacts)
            )
        self._experiment, self._location = str(experiment.experiment_id), str(experiment.artifact_location)
        found = self._find(_SWEEP, facts.key(sweep))
        if found is not None:
            self._parent = found
            self._client.update_run(self._parent, status="RUNNING")
            return True
        tags = {_SWEEP: facts.key(sweep), "protein.sweep": sweep.spec.name, "protein.method": sweep.spec.method}
        tags |= {"protein.direction": str(sweep.spec.direction), "protein.seed": str(sweep.spec.seed)}
        run = self._client.create_run(
            self._experiment,
            start_time=_milliseconds(sweep.created_at.timestamp()),
            run_name=sweep.spec.name,
            tags=tags,
        )
        self._parent = str(run.info.run_id)
        return False

    def write(self, updates: Sequence[TrialUpdate]) -> None:
        if not self._is_server:
            for update in updates:
                self._write(update)
            return
        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(self._write, updates):
                pass

    def close(self) -> None:
        if hasattr(self, "_parent"):
            self._client.set_terminated(self._parent, "FINISHED")

    def _write(self, update: TrialUpdate) -> None:
        from mlflow.entities import Metric, Param, RunTag

        trial = update.trial
        run, fresh = self._run(update)
        params = self._params(trial).items() if fresh or update.is_unsure else ()
        tags = self._further_tags(trial) if fresh else self._tags(trial)
        self._log(
            run,
            [Metric(*metric) for metric in self._metrics(trial, update.num_written)],
            [Param(name, value) for name, value in params],
            [RunTag(name, value) for name, value in tags.items()],
        )
        if trial.state.finished and trial.number not in self._ended:
            self._client.set_terminated(run, _status(trial), _milliseconds(facts.ended_at(trial)))
            self._ended.add(trial.number)

    def _run(self, update: TrialUpdate) -> tuple[str, bool]:
        """Returns the id of a trial's run, and whether it was made now."""
        trial = update.trial
        key = facts.trial_key(self._sweep, trial)
        if not update.is_new and trial.number not in self._runs and (found := self._find(_TRIAL, key)) is not None:
            self._runs[trial.number] = found
        if trial.number in self._runs:
            return self._runs[trial.number], False
        run = self._client.create_run(
            self._experiment,
            start_time=_milliseconds(facts.started_at(trial)),
            run_name=facts.trial_name(self._sweep, trial),
            tags={_TRIAL: key, _PARENT: self._parent, **self._first_tags(trial)},
        )
        self._runs[trial.number] = str(run.info.run_id)
        return self._runs[trial.number], True

    def _first_tags(self, trial: TrialRecord) -> dict[str, str]:
        """Returns the tags with which a run is made: as many as one request may hold, beside the two that name it."""
        return dict(list(self._tags(trial).items())[: MAX_TAGS - 2])

    def _further_tags(self, trial: TrialRecord) -> dict[str, str]:
        """Returns the tags that a run which was made with the first ones lacks."""
        return dict(list(self._tags(trial).items())[MAX_TAGS - 2 :])

    def _find(self, tag: str, value: str) -> str | None:
        found = self._client.search_runs([self._experiment], f"tags.`{tag}` = '{value}'", max_results=1)
        return str(found[0].info.run_id) if found else None

    def _log(self, run: str, metrics: Sequence[Any], params: Sequence[Any], tags: Sequence[Any]) -> None:
        """Writes in as few requests as the limits allow."""
        left: tuple[list[Any], list[Any], list[Any]] = ([*metrics], [*params], [*tags])
        while any(left):
            first = [some[:limit] for some, limit in zip(left, (MAX_METRICS, MAX_PARAMS, MAX_TAGS), strict=True)]
            self._client.log_batch(run, metrics=first[0], params=first[1], tags=first[2], synchronous=True)
            for some, sent in zip(left, first, strict=True):
                del some[: len(sent)]

    def _metrics(self, trial: TrialRecord, num_written: int) -> list[tuple[str, float, int, int]]:
        """Returns the finite metrics that are new: name, value, time, step."""
        found: list[tuple[str, float, int, int]] = []
        for position in range(num_written, len(trial.curve)):
            point = facts.point(trial, position)
            for name, value in facts.split(point.values)[0].items():
                found.append((_name(f"curve/{name}"), value, _milliseconds(point.at), point.steps))
        if trial.state.finished:
            ended = _milliseconds(facts.ended_at(trial))
            for name, value in facts.split(facts.results(trial))[0].items():
                found.append((_name(name), value, ended, trial.steps))
        return found

    @staticmethod
    def _params(trial: TrialRecord) -> dict[str, str]:
        return {_name(name): str(value)[:MAX_PARAM_VALUE] for name, value in facts.parameters(trial).items()}

    def _tags(self, trial: TrialRecord) -> dict[str, str]:
        found = {f"protein.{name}": value for name, value in facts.facts(self._sweep, trial).items()}
        # Also empty ones: they overwrite what stood there before.
        found |= {
            "protein.tags": ", ".join(trial.tags),
            "protein.note": trial.note,
            "protein.excluded": str(trial.excluded).lower(),
        }
        nonfinite = {**facts.split(facts.results(trial))[1], **_nonfinite_points(trial)}
        found |= {f"protein.nonfinite.{name}": value for name, value in nonfinite.items()}
        return {_name(name): value[:MAX_TAG_VALUE] for name, value in found.items()}


def _status(trial: TrialRecord) -> str:
    if trial.end is TrialEnd.INTERRUPTED:
        return "KILLED"
    return "FAILED" if trial.state is TrialState.FAILED else "FINISHED"


def _nonfinite_points(trial: TrialRecord) -> dict[str, str]:
    """Returns the points of a curve that are no numbers, by their metric's name, as in "300: nan, 400: inf"."""
    found: dict[str, list[str]] = {}
    for position in range(len(trial.curve)):
        point = facts.point(trial, position)
        for name, value in facts.split(point.values)[1].items():
            found.setdefault(f"curve/{name}", []).append(f"{point.steps}: {value}")
    return {name: ", ".join(values) for name, values in found.items()}


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _name(text: str) -> str:
    """Returns a name that MLflow accepts: letters, digits and _ - . : / and spaces, and no path with a detour."""
    name = re.sub(r"[^/\w.\- :]", "_", text)[:MAX_NAME].strip("/. ")
    return "/".join(part for part in name.split("/") if part not in ("", ".", "..")) or "_"
