"""Whole training runs of either kind for tests: started, stopped by a signal, and compared by what they leave."""

import threading
from pathlib import Path
from typing import Any

import torch
from event_log import EventLog

from protein.trainer.events import RunResult
from protein.trainer.kinds import Config
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.run import run


def go(config: Config, directory: Path | None = None, **options: Any) -> tuple[RunResult, EventLog]:
    events = EventLog()
    return run(config, directory=directory, report=events.record, **options), events


def tensors(folder: Path, name: str = checkpoints.FILE_NAME) -> dict[str, torch.Tensor]:
    """Returns what a run's checkpoint holds."""
    return dict(checkpoints.read(folder / name).tensors)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether both hold the same, bit for bit."""
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


class StopAfter(threading.Event):
    """A signal that comes once it has been asked for more than `times` times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times

    def is_set(self) -> bool:
        self._left -= 1
        if self._left < 0:
            self.set()
        return super().is_set()
