"""What a sweep and its workers in Slurm jobs tell each other. Beside these: a `protein.ports.Job`, and events."""

import dataclasses
import time

from protein.run.slot import Facts, SlotSettings
from protein.types import Trial, TrialEnd

TO_WORKER, FROM_WORKER, ALIVE = "to-worker", "from-worker", "alive"  # files in a worker's folder; `ALIVE` is above it
ALIVE_SECONDS = 5.0  # how often either side shows that it lives
DEAD_SECONDS = 120.0  # after which a silent side is taken for dead


class Silence:
    """How long the other side has been silent, in time in which this side could hear it.

    A shared file system may hang for minutes, and a process may be stopped. Then this side is deaf, and the other one
    may be well: between two looks at most `ALIVE_SECONDS` count.
    """

    def __init__(self) -> None:
        self._seconds, self._looked_at = 0.0, time.monotonic()

    def look(self, *, heard: bool) -> None:
        """Takes note of another look, and whether there was a sign of life."""
        now = time.monotonic()
        self._seconds = 0.0 if heard else self._seconds + min(now - self._looked_at, ALIVE_SECONDS)
        self._looked_at = now

    @property
    def is_death(self) -> bool:
        """Whether it has lasted for `DEAD_SECONDS`."""
        return self._seconds > DEAD_SECONDS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """To a worker, its first message."""

    slot: SlotSettings
    cores: int  # of one trial


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """To a worker: end the trial."""

    trial: Trial
    end: TrialEnd
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """To a worker: end."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """From a worker: it can take trials."""

    facts: Facts
    seconds_left: float | None  # of its allocation; None: no limit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """From a worker: it lives."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """From a worker: what a person should know."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """From a worker: it takes no more trials, because its allocation ends."""
