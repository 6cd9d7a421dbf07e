"""The protocol of a tracker, what it is given, and the trackers by name: which package each needs.

`tests/contracts/test_trackers.py` holds every tracker to the protocol.
"""

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from protein.errors import UsageError
from protein.spelling import nearest
from protein.types import SweepRecord, TrialRecord

# Each is a module beside this one, with `make(folder)`, a package to be installed, and an extra of ours, by this name.
TRACKERS = ("mlflow", "neptune", "wandb", "tensorboard", "trackio")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrialUpdate:
    """A trial of which something is new.

    Attributes:
        trial: the whole trial, with its whole curve. Scores are as the user knows them.
        num_written: how many points of its curve were written before; 0 for a new trial.
        is_new: nothing of it was written before.
        is_unsure: a write of this trial was cut short, so any part of it may be there. `num_written` is then 0.
    """

    trial: TrialRecord
    num_written: int = 0
    is_new: bool = True
    is_unsure: bool = False


class Tracker(Protocol):
    """Writes the trials of one sweep to one place.

    Any method may raise any exception: the tools raise many. The caller tries again later. Then it gives the same
    trials with `is_unsure`, and the tracker must not write a point twice: it replaces what is there, or skips it.

    Attributes:
        takes_running: whether it can be given trials that still run; otherwise it gets each trial once, when that has
            finished, and again where people have changed its annotations.
        destination: where it writes. What has been written is remembered by this.
        how_to_look: what a person does to see the result, in a sentence.
    """

    takes_running: bool
    destination: str
    how_to_look: str

    def begin(self, sweep: SweepRecord) -> bool:
        """Prepares to write. Returns whether the destination holds something of this sweep already.

        Where it says no, everything is written again: the destination may have been deleted.
        """
        ...

    def write(self, updates: Sequence[TrialUpdate]) -> None:
        """Writes what is new. When it returns, the destination has it."""
        ...

    def close(self) -> None:
        """Ends the sweep's part, so that it does not look as if it still ran. May be called after a failed write."""
        ...


def check_trackers(names: Iterable[str], flag: str = "--tracker") -> tuple[str, ...]:
    """Returns the names of trackers, each once and in order.

    Raises:
        UsageError: a name is unknown, or the tracker's package is not installed.
    """
    found: list[str] = []
    for name in names:
        if name not in TRACKERS:
            raise UsageError(f"{flag} '{name}' is no tracker{nearest(name, TRACKERS)}")
        if importlib.util.find_spec(name) is None:
            raise UsageError(
                f"{flag} {name} needs the package {name}, which is not installed; run"
                f" pip install 'protein-sweep[{name}]'"
            )
        if name not in found:
            found.append(name)
    return tuple(found)


def make_tracker(name: str, folder: Path) -> Tracker:
    """Returns a tracker, and imports its package, which may take seconds.

    Args:
        name: one that `check_trackers` has passed.
        folder: where it writes unless the tool's own environment variables say otherwise; it may not exist yet.
    """
    factory: Callable[[Path], Tracker] = importlib.import_module(f"protein.trackers.{name}").make
    return factory(folder)
