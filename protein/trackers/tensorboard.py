"""TensorBoard: a folder of event files for each trial, with its params and results for the page HPARAMS.

    FOLDER/tensorboard/SWEEP/0017/events.out.tfevents.*

Points of the curve are scalars `curve/NAME` by steps. The results `score`, `cost_seconds` and others are scalars at the
trial's last step. Texts are on the page TEXT. It needs the package tensorboard alone, neither TensorFlow nor torch.

A folder is begun anew where a write was cut short, or where a finished trial's annotations have changed.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from protein.errors import UsageError
from protein.names import folder_name
from protein.trackers import facts
from protein.trackers.tracker import Tracker, TrialUpdate
from protein.types import SweepRecord, TrialEnd, TrialRecord, TrialState

VARIABLE = "TENSORBOARD_LOGDIR"  # where to write instead
_MARK = ".protein_sweep"  # holds the key of the sweep whose folder it is


def make(folder: Path) -> Tracker:
    given = os.environ.get(VARIABLE)
    return TensorboardTracker(Path(given) if given else folder / "tensorboard")


class TensorboardTracker:
    """See `protein.trackers.tracker.Tracker`."""

    takes_running = True

    def __init__(self, folder: Path) -> None:
        self._root = folder.absolute()
        self.destination = str(self._root)
        self.how_to_look = f"run tensorboard --logdir {self._root}"

    def begin(self, sweep: SweepRecord) -> bool:
        self._sweep = sweep
        self._folder = self._root / folder_name(sweep.spec.name)
        mark, key = self._folder / _MARK, facts.key(sweep)
        _refuse_link(self._folder)
        _refuse_link(mark)
        if mark.is_file() and mark.read_text() == key:
            return True
        if mark.is_file():  # of another sweep of this name, which its store no longer has
            shutil.rmtree(self._folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        mark.write_text(key)
        return False

    def write(self, updates: Sequence[TrialUpdate]) -> None:
        for update in updates:
            self._write(update)

    def close(self) -> None:
        pass

    def _write(self, update: TrialUpdate) -> None:
        trial = update.trial
        folder = self._folder / f"{trial.number:04d}"
        _refuse_link(folder)
        first = update.num_written
        repeats = first == len(trial.curve) and trial.state.finished  # ended without a further point, or annotated
        if update.is_unsure or (not update.is_new and (first == 0 or repeats)):
            shutil.rmtree(folder, ignore_errors=True)  # an event cannot be taken back
            first = 0
        folder.mkdir(parents=True, exist_ok=True)
        _write_events(folder, self._events(trial, first))

    def _events(self, trial: TrialRecord, first: int) -> Iterator[Any]:
        from tensorboard.plugins.hparams import api_pb2, summary_v2

        if first == 0:
            params = facts.parameters(trial)
            name = f"{trial.number:04d}"
            yield _event(summary_v2.hparams_pb(params, trial_id=name, start_time_secs=facts.started_at(trial)), trial)
        for position in range(first, len(trial.curve)):
            point = facts.point(trial, position)
            values = {f"curve/{name}": value for name, value in point.values.items()}
            yield _event(_scalars(values), trial, steps=point.steps, at=point.at)
        if trial.state.finished:
            ended = facts.ended_at(trial)
            yield _event(_scalars(facts.results(trial)), trial, steps=trial.steps, at=ended)
            texts = {**facts.facts(self._sweep, trial), "tags": ", ".join(facts.tags(self._sweep, trial))}
            yield _event(_texts(texts), trial, steps=trial.steps, at=ended)
            status = api_pb2.STATUS_FAILURE if trial.state is TrialState.FAILED else api_pb2.STATUS_SUCCESS
            if trial.end is TrialEnd.INTERRUPTED:
                status = api_pb2.STATUS_UNKNOWN
            yield _event(_session_end(status, ended), trial, steps=trial.steps, at=ended)


def _refuse_link(path: Path) -> None:
    """Raises `UsageError` where nothing is written, because it would land elsewhere."""
    if path.is_symlink():
        raise UsageError(f"{path} is a symbolic link, through which no events are written; delete it")


def _write_events(folder: Path, events: Iterator[Any]) -> None:
    """Appends events to a new file of the folder; TensorBoard reads all of its files. On disk when it returns."""
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder), flush_secs=3600)
    try:
        for event in events:
            writer.add_event(event)
    finally:
        writer.close()


def _event(summary: Any, trial: TrialRecord, *, steps: int = 0, at: float | None = None) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event

    return Event(wall_time=facts.started_at(trial) if at is None else at, step=steps, summary=summary)


def _scalars(values: Mapping[str, float]) -> Any:
    """TensorBoard keeps NaN and infinities as they are, and shows them as such."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=name, simple_value=float(value)) for name, value in values.items()])


def _texts(texts: Mapping[str, str]) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.plugins.text import metadata

    values = []
    for name, text in texts.items():
        tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode("utf-8", "replace")])
        plugin = metadata.create_summary_metadata(display_name="", description="")
        values.append(Summary.Value(tag=f"facts/{name}", metadata=plugin, tensor=tensor))
    return Summary(value=values)


def _session_end(status: Any, at: float) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    content = plugin_data_pb2.HParamsPluginData(
        session_end_info=plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=at)
    )
    return Summary(
        value=[
            Summary.Value(
                tag=metadata.SESSION_END_INFO_TAG,
                metadata=metadata.create_summary_metadata(content),
                tensor=metadata.NULL_TENSOR,
            )
        ]
    )
