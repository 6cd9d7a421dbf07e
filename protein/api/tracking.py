"""The process of one tracker: `python -m protein.api.tracking`. It opens $PROTEIN_STORE, and writes what is new.

Started by `protein.api.trackers`, which holds the other end of its standard input. While that is open it looks for news
every few seconds; then it writes what is left and ends. What fails is tried again, at growing intervals.
"""

import argparse
import contextlib
import os
import select
import sys
import time
from pathlib import Path

from protein.api import stores
from protein.errors import ProteinError, UsageError
from protein.names import folder_name
from protein.trackers import messages, registry
from protein.trackers.exporter import Exporter, Progress
from protein.trackers.position import Position, file_name, locked
from protein.trackers.tracker import Tracker

POLL_SECONDS = 2.0  # between two looks at the store
RETRY_SECONDS = (2.0, 5.0, 15.0, 60.0)  # after the first failure in a row, the second, ...; the last one repeats
NICENESS = 10  # trials and the sweep come first
FOLDER = "_trackers"  # beside the folders of sweeps, whose names begin with a letter or a digit


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
    """Runs one tracker's process; see `protein.trackers.messages` for what it prints."""
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
            tracker = registry.make(given.tracker, place)
            path = place / "positions" / file_name(sweep.spec.name, given.tracker, tracker.destination)
            with locked(path, f"sweep '{sweep.spec.name}' cannot be written to {given.tracker}"):
                messages.send(output, "begun", destination=tracker.destination, how_to_look=tracker.how_to_look)
                exporter = Exporter(tracker, store, sweep, Position(path, sweep, tracker.destination))
                return _run(exporter, tracker, output, follow=given.follow)
    except ProteinError as error:
        messages.send(output, "failed", error=" ".join(str(error).split()), waiting=-1)
        return error.exit_code
    except Exception as error:  # of the tool's package, when it is imported or set up
        messages.send(output, "failed", error=messages.one_line(error), waiting=-1)
        raise


def _run(exporter: Exporter, tracker: Tracker, output: int, *, follow: bool) -> int:
    written, failures = 0, 0

    def report(progress: Progress) -> None:
        messages.send(output, "progress", written=written + progress.written, waiting=progress.waiting)

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
            messages.send(output, "failed", error=messages.one_line(error), waiting=exporter.num_waiting)
        if last:
            break
        pause = RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1] if failures else POLL_SECONDS
        last = _has_closed(pause)
    with contextlib.suppress(Exception):
        tracker.close()
    messages.send(output, "ended", written=written, waiting=exporter.num_waiting)
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
