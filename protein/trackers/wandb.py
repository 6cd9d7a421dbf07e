"""Weights & Biases: a run for each finished trial, in the group of the sweep.

    project    $WANDB_PROJECT, or "protein"
    config     the trial's params by their dotted names, and `trial.NAME` for its texts
    history    `curve/NAME`, over `curve/steps`
    summary    the results under their names

Offline unless $WANDB_MODE says otherwise: its folders are for `wandb sync`, as often and whenever you like, since each
run has the same id each time. Each is written aside and moved into place when it is whole. With WANDB_MODE=online, runs
go to the server of W&B's own environment variables.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protein.trackers import facts
from protein.trackers.staging import put, staged
from protein.trackers.tracker import Tracker, TrialUpdate
from protein.types import SweepRecord, TrialRecord, TrialState

INIT_SECONDS = 30  # for a server to answer
_DEFAULTS = {
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_DISABLE_CODE": "true",
}
_ONLINE = ("online", "run", "async")


def make(folder: Path) -> Tracker:
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    given = os.environ.get("WANDB_DIR")
    return WandbTracker(Path(given) if given else folder, os.environ.get("WANDB_MODE") or "offline")


class WandbTracker:
    """See `protein.trackers.tracker.Tracker`."""

    takes_running = False

    def __init__(self, folder: Path, mode: str) -> None:
        import wandb

        self._wandb: Any = wandb
        self._root = folder.absolute() / "wandb"
        self._online = mode in _ONLINE
        self._project = os.environ.get("WANDB_PROJECT") or "protein"
        server = os.environ.get("WANDB_BASE_URL") or "its server"
        self.destination = f"{server if self._online else self._root}, project {self._project}"
        self.how_to_look = (
            f"open the project {self._project}"
            if self._online
            else f"upload with wandb sync {self._root}/offline-run-*"
        )

    def begin(self, sweep: SweepRecord) -> bool:
        self._sweep = sweep
        return self._online or any(self._root.glob(f"offline-run-*-{facts.key(sweep)[:8]}-*"))

    def write(self, updates: Sequence[TrialUpdate]) -> None:
        for update in updates:
            if self._online:
                self._log(update.trial, self._root.parent, "online")
            else:
                self._write_offline(update.trial)

    def close(self) -> None:
        self._wandb.teardown()

    def _write_offline(self, trial: TrialRecord) -> None:
        began = datetime.fromtimestamp(facts.started_at(trial), UTC)
        target = self._root / f"offline-run-{began:%Y%m%d_%H%M%S}-{self._id(trial)}"
        with staged(self._root) as folder:
            self._log(trial, folder, "offline")
            made = [*folder.glob("wandb/offline-run-*")]
            if len(made) != 1:
                raise OSError(f"W&B has written {len(made)} runs for trial {trial.number}, not 1")
            put(made[0], target)

    def _id(self, trial: TrialRecord) -> str:
        return f"{facts.key(self._sweep)[:8]}-{trial.number}"

    def _log(self, trial: TrialRecord, folder: Path, mode: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        run = self._wandb.init(
            mode=mode,
            dir=str(folder),
            project=self._project,
            group=self._sweep.spec.name,
            name=facts.trial_name(self._sweep, trial),
            id=self._id(trial),
            resume="allow" if mode == "online" else None,
            config=self._config(trial),
            tags=[tag[:64] for tag in facts.tags(self._sweep, trial)],  # the limit is W&B's
            notes=trial.note or None,
            settings=self._wandb.Settings(
                console="off",
                disable_git=True,
                disable_job_creation=True,
                init_timeout=INIT_SECONDS,
                save_code=False,
                silent=True,
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_save_requirements=False,
            ),
        )
        run.define_metric("curve/steps")
        run.define_metric("curve/*", step_metric="curve/steps")
        for position in range(len(trial.curve)):
            point = facts.point(trial, position)
            values = {f"curve/{name}": value for name, value in _named(point.values).items()}
            run.log({"curve/steps": point.steps, **values}, step=position)
        run.summary.update(_named(facts.results(trial)))
        run.finish(exit_code=1 if trial.state is TrialState.FAILED else 0)

    def _config(self, trial: TrialRecord) -> dict[str, Any]:
        texts = {f"trial.{name}": value for name, value in facts.facts(self._sweep, trial).items()}
        return {**facts.parameters(trial), **texts}


def _named(values: Mapping[str, float]) -> dict[str, float | str]:
    """Returns values with W&B's own words for numbers that are none; it would keep NaN as null."""
    words = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
    finite, others = facts.split(values)
    return {**finite, **{name: words[text] for name, text in others.items()}}
