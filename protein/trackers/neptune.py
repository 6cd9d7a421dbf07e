"""Neptune: a run for each finished trial, laid out for its runs table, side by side, and parallel coordinates.

    sys/name, sys/tags, sys/group_tags    "pong 17"; sweep, environment, how it ended, your own tags; the sweep
    parameters/train/learning_rate        the trial's params, one field each: a dot becomes a folder
    results/score, results/cost_seconds   numbers, one field each: columns of the table, axes of parallel coordinates
    curve/score, curve/loss               series by steps
    trial/end, trial/origin, ...          texts
    nonfinite/...                         numbers that are no numbers, as texts: Neptune drops them

Offline unless Neptune's own environment variables name a server ($NEPTUNE_API_TOKEN and $NEPTUNE_PROJECT) or a mode
($NEPTUNE_MODE): the hosted service ended in March 2026. The offline folders are for `neptune sync`. The mode is always
given: Neptune's own default would wait for the server that is gone.
"""

import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protein.errors import UsageError
from protein.trackers import facts
from protein.trackers.staging import put, staged
from protein.trackers.tracker import Tracker, TrialUpdate
from protein.types import SweepRecord, TrialRecord, TrialState

REQUEST_SECONDS = 20  # of Neptune's client, for a server to answer
STOP_SECONDS = 60.0  # for a server to take what was written
DATA_VARIABLE = "NEPTUNE_DATA_DIRECTORY"
MAX_POINTS = 1000  # given to a series at once
_ONLINE = ("async", "sync")


def make(folder: Path) -> Tracker:
    os.environ.setdefault("NEPTUNE_REQUEST_TIMEOUT", str(REQUEST_SECONDS))
    os.environ.setdefault("NEPTUNE_RETRIES_TIMEOUT_ENV", str(REQUEST_SECONDS))
    given = os.environ.get(DATA_VARIABLE)
    return NeptuneTracker(Path(given) if given else folder / ".neptune", _mode())


def _mode() -> str:
    """Returns the mode of the environment variable; else "async" where they name a server, "offline" where not."""
    given = os.environ.get("NEPTUNE_MODE")
    if given in (*_ONLINE, "offline"):
        return given
    if given:
        raise UsageError(
            f"NEPTUNE_MODE is '{given}', but a tracker needs offline, async or sync; set it to one of these"
        )
    has_server = os.environ.get("NEPTUNE_API_TOKEN") and os.environ.get("NEPTUNE_PROJECT")
    return "async" if has_server else "offline"


class NeptuneTracker:
    """See `protein.trackers.tracker.Tracker`."""

    takes_running = False

    def __init__(self, data: Path, mode: str) -> None:
        import neptune

        logging.getLogger("neptune").setLevel(logging.ERROR)
        self._neptune: Any = neptune
        self._data, self._mode = data.absolute(), mode
        project = os.environ.get("NEPTUNE_PROJECT") or "its project"
        self.destination = f"project {project}" if mode in _ONLINE else str(self._data)
        self.how_to_look = (
            f"open {project}"
            if mode in _ONLINE
            else f"upload with neptune sync --path {self._data.parent} --project WORKSPACE/PROJECT --offline-only"
        )

    def begin(self, sweep: SweepRecord) -> bool:
        self._sweep = sweep
        marks = self._data / "sweeps"  # Neptune's own folders do not tell whose they are
        mark = marks / facts.key(sweep)
        if mark.exists():
            return True
        marks.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return False

    def write(self, updates: Sequence[TrialUpdate]) -> None:
        for update in updates:
            if self._mode in _ONLINE:
                self._write_online(update.trial)
            else:
                self._write_offline(update.trial)

    def close(self) -> None:
        pass

    def _write_online(self, trial: TrialRecord) -> None:
        with _data_directory(self._data):
            self._log(trial, self._mode)

    def _write_offline(self, trial: TrialRecord) -> None:
        name = uuid.uuid5(uuid.NAMESPACE_OID, facts.trial_key(self._sweep, trial))  # the same each time
        with staged(self._data) as folder, _data_directory(folder):
            self._log(trial, "offline")
            made = [*folder.glob("offline/run__*")]
            if len(made) != 1:
                raise OSError(f"Neptune has written {len(made)} runs for trial {trial.number}, not 1")
            put(made[0], self._data / "offline" / f"run__{name}")

    def _log(self, trial: TrialRecord, mode: str) -> None:
        run = self._neptune.init_run(
            mode=mode,
            name=facts.trial_name(self._sweep, trial),
            custom_run_id=facts.trial_key(self._sweep, trial),  # a server goes on with the run that has it
            tags=facts.tags(self._sweep, trial),
            description=trial.note or None,
            source_files=[],
            capture_stdout=False,
            capture_stderr=False,
            capture_hardware_metrics=False,
            capture_traceback=False,
            git_ref=False,
        )
        try:
            run["sys/group_tags"].add([self._sweep.spec.name])
            results, nonfinite = facts.split(facts.results(trial))
            for name, value in {
                **_under("parameters", facts.parameters(trial)),
                **_under("results", results),
                **_under("trial", facts.facts(self._sweep, trial)),
                **_under("nonfinite", nonfinite),
                "trial/number": trial.number,
                "trial/started_at": trial.started_at,
                "sys/failed": trial.state is TrialState.FAILED,
            }.items():
                run[name] = value
            if trial.finished_at is not None:
                run["trial/finished_at"] = trial.finished_at
            self._log_curve(run, trial)
        finally:
            run.stop(seconds=STOP_SECONDS)

    def _log_curve(self, run: Any, trial: TrialRecord) -> None:
        """A series is strictly increasing in its steps, so of points with the same steps the last one counts."""
        series: dict[str, dict[int, tuple[float, float]]] = {}
        strange: dict[str, list[str]] = {}
        for position in range(len(trial.curve)):
            point = facts.point(trial, position)
            finite, nonfinite = facts.split(point.values)
            for name, value in finite.items():
                series.setdefault(name, {})[point.steps] = (value, point.at)
            for name, text in nonfinite.items():
                strange.setdefault(name, []).append(f"{point.steps}: {text}")
        paths = _paths({name: f"curve/{name}" for name in series})
        for name, points in series.items():
            steps = sorted(points)
            for first in range(0, len(steps), MAX_POINTS):
                some = steps[first : first + MAX_POINTS]
                run[paths[name]].extend(
                    [points[step][0] for step in some], steps=some, timestamps=[points[step][1] for step in some]
                )
        paths = _paths({name: f"nonfinite/curve/{name}" for name in strange})
        for name, texts in strange.items():
            run[paths[name]] = ", ".join(texts)


def _under(folder: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields by their path; a name with dots is a path of its own."""
    paths = _paths({name: f"{folder}/{name.replace('.', '/')}" for name in values})
    return {paths[name]: value for name, value in values.items()}


def _paths(texts: Mapping[str, str]) -> dict[str, str]:
    """Returns paths by the same keys; of a field that would be a folder of others, too, one inside of that folder."""
    found = {key: _path(text) for key, text in texts.items()}
    folders = {path[:i] for path in found.values() for i, character in enumerate(path) if character == "/"}
    return {key: f"{path}/value" if path in folders else path for key, path in found.items()}


def _path(text: str) -> str:
    """Returns a path without empty parts, which Neptune refuses."""
    return "/".join(part for part in text.split("/") if part.strip())


@contextmanager
def _data_directory(folder: Path) -> Iterator[None]:
    """Neptune reads where it writes from the environment, whenever a run begins."""
    before = os.environ.get(DATA_VARIABLE)
    os.environ[DATA_VARIABLE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[DATA_VARIABLE]
        else:
            os.environ[DATA_VARIABLE] = before
