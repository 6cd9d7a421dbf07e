"""Trackers beside a running sweep, and afterwards: starts their processes, and says what a person should know of them.

None of it can fail a sweep: what goes wrong is one line, and the command that catches up.

The process of one tracker is `python -m protein.api.trackers`. It opens $PROTEIN_STORE, and writes what is new. It is
in a session of its own, so Ctrl-C in the terminal does not reach it. While its standard input is open, it looks for
news every few seconds. When that closes, also because the process that started it has died, it writes what is left and
ends. What fails is tried again, at growing intervals. It says what it does on its standard output, one JSON object a
line:

    {"event": "begun", "destination": ..., "how_to_look": ...}
    {"event": "progress", "written": ..., "waiting": ...}      after every batch
    {"event": "failed", "error": ..., "waiting": ...}          it tries again, unless it is to end
    {"event": "ended", "written": ..., "waiting": ...}         its last line
"""

import argparse
import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from protein.api import stores
from protein.errors import ProteinError, UsageError
from protein.names import folder_name
from protein.ports import Listener, SweepStatus
from protein.trackers.exporter import Exporter, Position, Progress, file_name, locked
from protein.trackers.tracker import Tracker, make_tracker
from protein.types import TrialRecord
from protein.view import commands

END_SECONDS = 20.0  # that the end of a sweep waits for its trackers
SILENT_SECONDS = 120.0  # without a sign of life, then `sync` ends a tracker's process
_MODULE = "protein.api.trackers"
MAX_ERROR = 300  # characters
MAX_UNREAD = 10_000  # messages that are kept; later ones are dropped
POLL_SECONDS = 2.0  # between two looks at the store
RETRY_SECONDS = (2.0, 5.0, 15.0, 60.0)  # after the first failure in a row, the second, ...; the last one repeats
NICENESS = 10  # trials and the sweep come first
FOLDER = "_trackers"  # beside the folders of sweeps, whose names begin with a letter or a digit

Message = Mapping[str, Any]


class TrackerProcess:
    """One tracker's process, as seen by the one that starts it: it is told when to end, listened to, and outlived.

    Nothing that it does can block: its output is read by a thread, and its end is waited for with a limit.

    Attributes:
        error: of its last try; "" where it has caught up since.
        has_warned: whether a person was told of the error.
        how_to_look: what a person does to see the result.
        num_written: trials.
    """

    def __init__(self, name: str, store_url: str, sweep: str, *, follow: bool) -> None:
        """Starts it.

        The store's URL may hold a password, so it is no argument, which every user of the machine sees. Without
        `follow`, it writes what is there and ends.

        Raises:
            OSError: it or its log cannot be made.
        """
        self.name, self.log = name, log_file(store_url, sweep, name)
        self.error = self.how_to_look = ""
        self.has_warned = False
        self.num_written = 0
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        words = [f"--sweep={sweep}", "--tracker", name, *(["--follow"] if follow else [])]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, *words],  # -P: modules in the working directory are not ours
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {stores.VARIABLE: store_url},
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """Returns the exit code of a process that has ended; negative: the signal that killed it."""
        return self._process.poll()

    def listen(self) -> list[Message]:
        """Takes over what it has said since the last call, and returns that. Does not wait."""
        found: list[Message] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._messages.get_nowait())
        for message in found:
            event = message["event"]
            if event == "begun":
                self.how_to_look = str(message.get("how_to_look", ""))
            elif event == "failed":
                self.error = str(message.get("error", ""))
            elif event == "progress":
                self.num_written = int(message.get("written", 0))
                if message.get("waiting") == 0:
                    self.error, self.has_warned = "", False
        return found

    def ask_to_end(self) -> None:
        """Tells it that there will be no more news."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def wait(self, seconds: float) -> bool:
        """Waits for its end, and returns whether it has come."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._reader.join(timeout=1.0)  # the last messages; a process that it left behind may hold the pipe
        return True

    def kill(self) -> None:
        """Ends it at once. Safe to call twice."""
        self.ask_to_end()
        with contextlib.suppress(OSError):
            self._process.kill()
        self.wait(5.0)

    def why_ended(self) -> str:
        """Returns the last line of its log, or its exit code where the log is empty."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            if last := next((line.strip()[:300] for line in reversed(lines) if line.strip()), ""):
                return last
        return f"its process ended with code {self.exit_code()}"

    def _read(self, output: IO[str]) -> None:
        with contextlib.suppress(OSError, ValueError), output:
            for line in output:
                message = _parse_message(line)
                if message is not None and self._messages.qsize() < MAX_UNREAD:
                    self._messages.put(message)


def start(names: Sequence[str], store_url: str, sweep: str, *, follow: bool) -> list[TrackerProcess]:
    """Starts a process for each tracker; `names` are from `check_trackers`.

    Raises:
        OSError: a process or its log cannot be made. None is left running.
        UsageError: they would write through a symbolic link.
    """
    refuse_links(folder(store_url))
    started: list[TrackerProcess] = []
    try:
        for name in names:
            process = TrackerProcess(name, store_url, sweep, follow=follow)
            started.append(process)
    except OSError:
        for process in started:
            process.kill()
        raise
    return started


@contextlib.contextmanager
def run_trackers(listener: Listener, names: Sequence[str], *, store: str | None, sweep: str) -> Iterator[Listener]:
    """Runs trackers beside a sweep: give the listener that this yields to the sweep.

    `store` is the user's own word for the store, None for the usual one.
    """
    if not names:
        yield listener
        return
    tracked = Tracked(listener, names, store, sweep)
    try:
        yield tracked
    except KeyboardInterrupt:
        tracked.close(seconds=0.0)
        raise
    except BaseException:
        tracked.close()
        raise
    tracked.close()


class Tracked:
    """A listener that passes everything on, and watches the sweep's trackers meanwhile.

    Each tracker gives at most one warning at a time: a second one comes only after it had caught up.
    """

    def __init__(self, listener: Listener, names: Sequence[str], store: str | None, sweep: str) -> None:
        """Starts the trackers. `store` is the user's own word for the store, None for the usual one."""
        self._listener, self._store, self._sweep = listener, store, sweep
        self._processes: list[TrackerProcess] = []
        try:
            self._processes = start(names, stores.url(store), sweep, follow=True)
        except (OSError, UsageError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self._listener.log(f"no tracker could be started ({reason}); the sweep goes on; {self._catch_up(names)}")

    def update(self, status: SweepStatus) -> None:
        self._listen()
        self._listener.update(status)

    def started(self, trial: TrialRecord) -> None:
        self._listener.started(trial)

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None:
        self._listener.finished(trial, status)

    def log(self, line: str) -> None:
        self._listener.log(line)

    def close(self, seconds: float | None = None) -> None:
        """Gives the trackers some time to catch up, `END_SECONDS`, and ends those that do not. Safe to call twice."""
        seconds = END_SECONDS if seconds is None else seconds
        processes, self._processes = self._processes, []
        for process in processes:
            process.ask_to_end()
        cut_short: list[TrackerProcess] = []
        try:
            _wait_all(processes, seconds)
        finally:  # also where a second Ctrl-C ends the waiting
            for process in processes:
                if process.exit_code() is None:
                    cut_short.append(process)
                    process.kill()
        for process in processes:
            process.listen()
            if process.exit_code() == 0:
                self.log(f"{process.name} has all trials; to see them there, {process.how_to_look}")
                continue
            why = process.error or process.why_ended()
            if process in cut_short:
                meanwhile = f" ({process.error})" if process.error else ""
                why = f"it had not finished {seconds:g} s after the sweep{meanwhile}"
            self.log(f"{process.name} is not up to date: {why}; {self._catch_up([process.name])}")

    def _listen(self) -> None:
        for process in self._processes:
            process.listen()
            if not process.has_warned and (process.error or process.exit_code() is not None):
                self._warn(process)

    def _warn(self, process: TrackerProcess) -> None:
        process.has_warned = True
        why, name = process.error or process.why_ended(), process.name
        self._listener.log(f"{name} is behind: {why}; the sweep goes on; {self._catch_up([name])}")

    def _catch_up(self, names: Sequence[str]) -> str:
        flags = [word for name in names for word in ("--tracker", name)]
        words = commands.command("sync", self._sweep, *flags, *stores.store_words(self._store))
        return f"to catch up afterwards run: {words}"


def sync(
    names: Sequence[str], store_url: str, sweep: str, progress: Callable[[str, int, int], None]
) -> list[TrackerProcess]:
    """Writes everything that is new to each tracker, and waits for it.

    `progress` is called with the tracker's name, the trials written and those that are left.

    Returns:
        The processes, which have ended; `error` of one is "" where it is up to date. One that gives no sign of life for
        `SILENT_SECONDS` is ended.
    """
    found = []
    for name in names:
        [process] = start([name], store_url, sweep, follow=False)
        heard, silent = time.monotonic(), False
        try:
            while not silent:
                ended = process.wait(0.2)
                for message in process.listen():
                    heard = time.monotonic()
                    if message["event"] == "progress":
                        progress(name, int(message.get("written", 0)), int(message.get("waiting", 0)))
                if ended:
                    break
                silent = time.monotonic() - heard > SILENT_SECONDS
        finally:
            process.kill()
        if silent:
            process.error = f"no sign of life for {SILENT_SECONDS:.0f} s"
        elif process.exit_code() != 0 and not process.error:
            process.error = process.why_ended()
        found.append(process)
    return found


def _wait_all(processes: Sequence[TrackerProcess], seconds: float) -> None:
    """Waits until all have ended, or the time is over."""
    until = time.monotonic() + seconds
    for process in processes:
        process.wait(max(until - time.monotonic(), 0.0))


def _send_message(output: int, event: str, **fields: object) -> None:
    """Writes a message to a file descriptor. Where nobody listens any more, it does nothing."""
    with contextlib.suppress(BrokenPipeError):
        os.write(output, (json.dumps({"event": event, **fields}) + "\n").encode())


def _parse_message(line: str) -> Message | None:
    """Returns a message; None for a line that is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None


def _one_line(error: BaseException) -> str:
    """Returns an error in one line: its kind where its text does not say enough."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:MAX_ERROR] if text else type(error).__name__


def folder(store_url: str) -> Path:
    """Returns the folder of a store's trackers: their positions, logs and, where they write files, these."""
    return stores.artifacts_root(store_url) / FOLDER


def refuse_links(place: Path) -> None:
    """Raises `UsageError` where a tracker's files would be written through a symbolic link, which leads elsewhere."""
    for path in (place, *place.glob("*"), *(place / "positions").glob("*")):  # tools make links of their own deeper
        if path.is_symlink():
            raise UsageError(f"{path} is a symbolic link, through which no tracker writes; delete it")


def log_file(store_url: str, sweep: str, tracker: str) -> Path:
    """Returns what a tracker's process and the tool's package print."""
    return folder(store_url) / "positions" / f"{folder_name(sweep)}.{tracker}.log"


def main() -> int:
    """Runs one tracker's process; see `protein.api.trackers` for what it prints."""
    parser = argparse.ArgumentParser()
    for name in ("sweep", "tracker"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--follow", action="store_true", help="go on until standard input closes")
    given = parser.parse_args()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    output = _own_output()
    try:
        place = folder(stores.url(None))
        refuse_links(place)
        with stores.opened(None) as store:
            sweep = stores.find(store, given.sweep)
            tracker = make_tracker(given.tracker, place)
            path = place / "positions" / file_name(sweep.spec.name, given.tracker, tracker.destination)
            with locked(path, f"sweep '{sweep.spec.name}' cannot be written to {given.tracker}"):
                _send_message(output, "begun", destination=tracker.destination, how_to_look=tracker.how_to_look)
                exporter = Exporter(tracker, store, sweep, Position(path, sweep, tracker.destination))
                return _run(exporter, tracker, output, follow=given.follow)
    except ProteinError as error:
        _send_message(output, "failed", error=" ".join(str(error).split()), waiting=-1)
        return error.exit_code
    except Exception as error:  # of the tool's package, when it is imported or set up
        _send_message(output, "failed", error=_one_line(error), waiting=-1)
        raise


def _run(exporter: Exporter, tracker: Tracker, output: int, *, follow: bool) -> int:
    written, failures = 0, 0

    def report(progress: Progress) -> None:
        _send_message(output, "progress", written=written + progress.written, waiting=progress.waiting)

    last = not follow
    while True:  # once more after the end was asked for
        try:
            written += exporter.run(report)
            if failures:  # it has caught up, also where there was nothing to write
                failures = 0
                report(Progress(written=0, waiting=0))
        # The tools raise whatever they like, and nothing of it may end the catching up.
        except Exception as error:
            failures += 1
            _send_message(output, "failed", error=_one_line(error), waiting=exporter.num_waiting)
        if last:
            break
        pause = RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1] if failures else POLL_SECONDS
        last = _has_closed(pause)
    with contextlib.suppress(Exception):
        tracker.close()
    _send_message(output, "ended", written=written, waiting=exporter.num_waiting)
    return 1 if failures else 0


def _has_closed(seconds: float) -> bool:
    """Waits, at most until standard input closes. Returns whether it has."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0] and not os.read(sys.stdin.fileno(), 1024):
            return True
    return False


def _own_output() -> int:
    """Returns a descriptor for our messages alone: what the tools print goes to standard error, the log."""
    output = os.dup(1)
    os.dup2(2, 1)
    return output


if __name__ == "__main__":
    sys.exit(main())
