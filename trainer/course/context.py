"""What a run of either kind is given beside its config: the machine, the other processes, whom it reports to."""

import dataclasses
import threading
from pathlib import Path

import torch

from ..events import EventSink
from ..machine.distributed import World
from ..machine.precision import Arithmetic
from ..machine.stopwatch import Stopwatch


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Made by `protein.trainer.run.run`, which explains `directory`, `report`, `stop`, `stopwatch` and `speed`.

    Attributes:
        device: of the training.
        threads: for PyTorch and for environments, of this process.
        arithmetic: the settings of PyTorch that the run has changed for its time.
        directory: where checkpoints go; None: none is written.
        report: receives each event.
        stop: set by a signal.
        stopwatch: where the time of training is booked.
        world: the processes that train together.
        speed: seconds of the run's clock for one second of this machine.
    """

    device: torch.device
    threads: int
    arithmetic: Arithmetic
    directory: Path | None
    report: EventSink
    stop: threading.Event
    stopwatch: Stopwatch
    world: World
    speed: float
