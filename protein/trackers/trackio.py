"""Trackio: a run for each trial in its local database, in the group of the sweep.

    project    $TRACKIO_PROJECT, or "protein"
    config     the trial's params, and its texts
    metrics    `curve/NAME` by steps; the results under their names with the last point

It writes to $TRACKIO_DIR, or to a folder beside the store. Trackio's own `log` hands points to a thread that drops what
it cannot write. So they go through its storage, which keeps a point once by its id, and raises.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protein.trackers import facts
from protein.trackers.tracker import Tracker, TrialUpdate
from protein.types import SweepRecord, TrialRecord


def make(folder: Path) -> Tracker:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TRACKIO_DIR", str((folder / "trackio").absolute()))  # read when it is imported
    return TrackioTracker(Path(os.environ["TRACKIO_DIR"]))


class TrackioTracker:
    """See `protein.trackers.tracker.Tracker`."""

    takes_running = True

    def __init__(self, folder: Path) -> None:
        from trackio.sqlite_storage import SQLiteStorage

        self._storage = SQLiteStorage
        self._project = os.environ.get("TRACKIO_PROJECT") or "protein"
        self.destination = f"{folder}, project {self._project}"
        self.how_to_look = f"run TRACKIO_DIR={folder} trackio show --project {self._project}"
        folder.mkdir(parents=True, exist_ok=True)

    def begin(self, sweep: SweepRecord) -> bool:
        self._sweep = sweep
        mine = f"{facts.key(sweep)[:8]}-"
        return any(str(record["id"]).startswith(mine) for record in self._storage.get_run_records(self._project))

    def write(self, updates: Sequence[TrialUpdate]) -> None:
        for update in updates:
            self._write(update)

    def close(self) -> None:
        pass

    def _write(self, update: TrialUpdate) -> None:
        trial = update.trial
        key = f"{facts.key(self._sweep)[:8]}-{trial.number}"
        # Each entry: its id, metrics, steps and time. One that is there already is skipped by its id.
        entries: list[tuple[str, dict[str, Any], int, float]] = []
        for position in range(update.num_written, len(trial.curve)):
            point = facts.point(trial, position)
            values = {f"curve/{name}": value for name, value in point.values.items()}
            entries.append((f"{key}-{position}", values, point.steps, point.at))
        if trial.state.finished:
            entries.append((f"{key}-end", dict(facts.results(trial)), trial.steps, facts.ended_at(trial)))
        elif not entries and update.is_new:
            entries.append((f"{key}-start", {"number": trial.number}, 0, facts.started_at(trial)))
        if entries:
            ids, metrics, steps, times = zip(*entries, strict=True)
            self._storage.bulk_log(
                project=self._project,
                run=facts.trial_name(self._sweep, trial),
                run_id=key,
                metrics_list=list(metrics),
                steps=list(steps),
                timestamps=[datetime.fromtimestamp(at, UTC).isoformat() for at in times],
                config=self._config(trial),
                log_ids=list(ids),
            )

    def _config(self, trial: TrialRecord) -> dict[str, Any]:
        texts = {f"trial.{name}": value for name, value in facts.facts(self._sweep, trial).items()}
        # The two names with an underscore are Trackio's own: the group, and when the run was made.
        created = datetime.fromtimestamp(facts.started_at(trial), UTC).isoformat()
        tags = ", ".join(facts.tags(self._sweep, trial))
        return {**facts.parameters(trial), **texts, "tags": tags, "_Group": self._sweep.spec.name, "_Created": created}
