"""What a sweep and its workers in Slurm jobs tell each other. Beside these: a `protein.ports.Job`, and events."""

import dataclasses

from protein.sweep.backends.slot import Facts, SlotSettings
from protein.types import Trial, TrialEnd

TO_WORKER, FROM_WORKER, ALIVE = "to-worker", "from-worker", "alive"  # files in a worker's folder; `ALIVE` is above it
ALIVE_SECONDS = 5.0  # how often either side shows that it lives
DEAD_SECONDS = 120.0  # after which a silent side is taken for dead


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
    """From a worker, its first message."""

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
