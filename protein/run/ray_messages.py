"""What a sweep's process and the process between it and Ray (`ray_driver`) tell each other.

Beside these: to the driver a `protein.ports.Job` to start, from it the events of trials.
"""

import dataclasses
from collections.abc import Mapping

from protein.run.slot import SlotSettings
from protein.types import Machine, Trial, TrialEnd


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one trial takes of a node."""

    cores: float = 1.0
    gpus: float = 0.0
    resources: Mapping[str, float] = dataclasses.field(default_factory=dict)  # custom ones, by name

    def by_name(self) -> dict[str, float]:
        """Returns them with Ray's names for cores and GPUs, without those of which none is needed."""
        found = {"CPU": self.cores, "GPU": self.gpus, **self.resources}
        return {name: amount for name, amount in found.items() if amount > 0}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """The first message to this process."""

    address: str | None  # of the cluster's head; None: the cluster of this machine, or else one is started
    needs: Needs
    slot: SlotSettings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """To this process: end a trial."""

    trial: Trial
    end: TrialEnd
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """From this process, the last message: why it cannot work."""

    message: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """From this process: how many trials can run at once now."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """From this process: what a person should know."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewMachine:
    """From the driver: a node was calibrated that the store does not know."""

    machine: Machine
