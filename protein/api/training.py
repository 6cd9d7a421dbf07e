"""One training run of `protein train`: its folder, its files, and the training itself."""

import dataclasses
import itertools
import json
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from protein.config.resolve import file_name
from protein.errors import UsageError, remedy
from protein.trainer.config import RunConfig
from protein.trainer.events import Event, EventSink, JsonLines, RunResult
from protein.trainer.launch import launch

if TYPE_CHECKING:  # these load torch, which takes seconds
    from protein.trainer.machine.profile import Profile
    from protein.trainer.machine.stopwatch import Stopwatch

RUNS = Path("runs") / "train"
MEASUREMENTS = "measurements.jsonl"
CONFIG_FILE = "config.json"  # can be given back to --config


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A finished training run. Without a stopwatch where several processes trained, with a profile if asked for."""

    result: RunResult
    profile: "Profile | None"
    stopwatch: "Stopwatch | None"


def require_device(name: str) -> None:
    """Raises `trainer.errors.ConfigError` where the device does not exist; `auto` and `cpu` always do."""
    if name not in ("auto", "cpu"):
        from protein.trainer.machine.precision import resolve_device  # torch takes seconds to import

        resolve_device(name)


def new_directory(config: RunConfig) -> Path:
    """Makes a new folder, `runs/train/<env>-<date>`, and writes the config into it.

    Raises:
        UsageError: it cannot be written.
    """
    stem = f"{file_name(config.env.name)}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        for number in itertools.count(1):
            path = RUNS / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            (path / CONFIG_FILE).write_text(json.dumps(config.to_dict(), indent=1) + "\n")
            return path
    except OSError as error:
        reason = error.strerror or error
        also = remedy(error)
        raise UsageError(
            f"{RUNS} cannot be written ({reason}); work in another folder{f' or {also}' if also else ''}"
        ) from error
    raise AssertionError("unreachable")


def train(
    config: RunConfig,
    *,
    directory: Path,
    report: EventSink,
    stop: threading.Event,
    num_processes: int = 1,
    exact_times: bool = False,
    trace: bool = False,
) -> Trained:
    """Trains until the config's end, or until `stop` is set.

    Args:
        config: the run.
        directory: where its checkpoints go.
        report: is called with each event.
        stop: ends the run in order.
        num_processes: that train together.
        exact_times: wait for the device at each step, so that times are exact; slower on a GPU.
        trace: keep the last intervals for `Stopwatch.write_trace`.
    """
    if num_processes > 1:
        result = launch(config, num_processes, directory=directory, report=report, stop=stop)
        return Trained(result=result, profile=None, stopwatch=None)
    # Imported here because torch takes seconds: mistakes are reported before.
    from protein.trainer.machine.precision import resolve_device
    from protein.trainer.machine.profile import Profiler
    from protein.trainer.machine.stopwatch import Stopwatch
    from protein.trainer.run import run

    stopwatch = Stopwatch(resolve_device(config.train.device), exact=exact_times, trace=trace)
    profiler = Profiler(stopwatch, report)
    result = run(config, directory=directory, report=profiler, stop=stop, stopwatch=stopwatch)
    return Trained(result=result, profile=profiler.profile() if exact_times else None, stopwatch=stopwatch)


class Recorder:
    """Passes a run's events on, and writes them to a file beside its checkpoint, one JSON object per line.

    An event that cannot be written, as on a full disk, does not end the training: `error` holds what went wrong.
    """

    def __init__(self, path: Path, report: EventSink) -> None:
        self.error: OSError | None = None
        self._report = report
        self._stream = path.open("w", encoding="utf-8")
        self._write = JsonLines(self._stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        try:
            self._stream.close()
        except OSError as error:
            self.error = error

    def __call__(self, event: Event) -> None:
        if self.error is None:
            try:
                self._write(event)
            except OSError as error:
                self.error = error
        self._report(event)
