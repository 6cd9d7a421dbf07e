"""The folder of one run of `protein train`, and what is read from it to go on: its config, measurements, checkpoint.

One process at a time trains in a folder. It holds a lock on the run's config file. The system takes the lock back when
the process ends, in whatever way.
"""

import contextlib
import dataclasses
import fcntl
import itertools
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from protein import files
from protein.config.resolve import file_name
from protein.errors import UsageError, remedy
from protein.sweep import resuming
from protein.trainer import kinds
from protein.trainer.errors import TrainerError
from protein.trainer.events import Event, EventSink, JsonLines, read_line

RUNS = Path("runs") / "train"
MEASUREMENTS = "measurements.jsonl"
CONFIG_FILE = "config.json"  # can be given back to --config


@contextlib.contextmanager
def run_directory(config: kinds.Config, before: "Interrupted | None") -> Iterator[Path]:
    """Yields the folder of a run: that of the interrupted run `before`, if it has one, else a new one.

    A new folder goes again where the run fails before its training begins.

    Raises:
        UsageError: it cannot be written; or another process trains in it.
    """
    if before is not None and before.directory is not None:
        with _locked(before.directory):
            yield before.directory
        return
    with files.no_new_folder(RUNS):
        directory = new_directory(config)
        try:
            with _locked(directory):
                yield directory
        except BaseException:
            if not _has_begun(directory):
                shutil.rmtree(directory, ignore_errors=True)
            raise


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Holds the lock of a run's folder. Raises `UsageError` where another process holds it."""
    with contextlib.ExitStack() as stack:
        try:
            fcntl.flock(stack.enter_context((directory / CONFIG_FILE).open()), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{directory}: another process trains this run now; wait for its end, or end it") from None
        except OSError:
            pass  # a file system without locks
        yield


def _has_begun(directory: Path) -> bool:
    return (directory / resuming.TRAINERS_FILE).exists() or _has_event(directory, "start")


def _has_event(directory: Path, kind: str) -> bool:
    """Whether a run's file of measurements has an event of this kind."""
    try:
        with (directory / MEASUREMENTS).open(encoding="utf-8") as lines:
            return any(read_line(line)["event"] == kind for line in lines)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def new_directory(config: kinds.Config) -> Path:
    """Makes a new folder, `runs/train/<env>-<date>`, and writes the config into it.

    Raises:
        UsageError: it cannot be written.
    """
    stem = f"{file_name(config.subject)}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        for number in itertools.count(1):
            path = RUNS / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            files.replace_file(path / CONFIG_FILE, (json.dumps(config.to_dict(), indent=1) + "\n").encode())
            return path
    except OSError as error:
        reason = error.strerror or error
        also = remedy(error)
        raise UsageError(
            f"{RUNS} cannot be written ({reason}); work in another folder{f' or {also}' if also else ''}"
        ) from error
    raise AssertionError("unreachable")


class Recorder:
    """Passes a run's events on, and writes them to a file beside its checkpoint, one JSON object per line.

    An event that cannot be written, as on a full disk, does not end the training: `error` holds what went wrong.
    """

    def __init__(self, path: Path, report: EventSink, *, resumed_steps: int | None = None) -> None:
        """Opens the file.

        Args:
            path: of the file.
            report: is called with each event.
            resumed_steps: where an interrupted run goes on: the events up to there stay. None: the run is new.
        """
        self.error: OSError | None = None
        self._report = report
        self._stream: TextIO | None = None
        try:
            if resumed_steps is not None:
                _keep_events(path, resumed_steps)
            self._stream = path.open("w" if resumed_steps is None else "a", encoding="utf-8")
            self._write = JsonLines(self._stream)
        except OSError as error:
            self.error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        try:
            if self._stream is not None:
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """A run that can be resumed. `directory` is its folder; None where the checkpoint lies elsewhere, as a copy.

    `unmeasured`: it has not ended with a score, so even where all steps are made the evaluation is to be made yet.
    """

    checkpoint: Path
    directory: Path | None
    config: Mapping[str, Any]  # of the run, nested
    steps: int
    elapsed_seconds: float
    unmeasured: bool = False


def interrupted_run(given: Path) -> Interrupted:
    """Returns an interrupted run from its folder or its checkpoint.

    Raises:
        UsageError: there is none, or its checkpoint is damaged.
    """
    checkpoint = given / resuming.TRAINERS_FILE if given.is_dir() else given
    if not checkpoint.is_file():
        what = "holds no checkpoint, so nothing can be resumed from it" if given.is_dir() else "does not exist"
        raise UsageError(f"--resume {given} {what}; give the folder of a run in {RUNS}, or its checkpoint")
    run = resuming.checkpoint_header(checkpoint)
    try:
        if run is None:
            raise ValueError
        folder = checkpoint.parent
        directory = folder if (folder / CONFIG_FILE).is_file() else None
        return Interrupted(
            checkpoint=checkpoint,
            directory=directory,
            unmeasured=directory is not None and not _has_event(directory, "result"),
            config=kinds.read(run["config"]).to_dict(),
            steps=int(run["steps"]),
            elapsed_seconds=float(run["elapsed_seconds"]),
        )
    except (KeyError, TypeError, ValueError, TrainerError) as error:
        raise UsageError(
            f"--resume {given}: {checkpoint.name} is damaged or no checkpoint of this program; give another run"
        ) from error


def _keep_events(path: Path, steps: int) -> None:
    """Drops from a run's file the events beyond `steps`, which come again, and those of its end."""
    kept = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # the last line may be half a line
                event = read_line(line)
                if event["event"] == "start" or (event["event"] == "measurement" and event["steps"] <= steps):
                    kept.append(line + "\n")
    files.replace_file(path, "".join(kept).encode())
