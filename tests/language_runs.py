"""Runs of language models of a fraction of a second: two layers of width 32, a known text of three thousand bytes."""

import threading
from pathlib import Path
from typing import Any

import torch
from event_log import EventLog
from language_data import write_bytes_corpus

from protein.trainer.events import RunResult
from protein.trainer.language.config import LanguageConfig
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.run import run

LENGTH, ROWS = 16, 8
STEP = LENGTH * ROWS  # tokens of a step of the optimiser


def write_corpus(folder: Path) -> Path:
    """Writes texts of several lengths that a network can learn; an epoch has 23 steps and some rows."""
    lines = [f"{'abcdefgh'[n % 8] * 3} is {n % 7} times {'xyz'[n % 3]}\n".encode() for n in range(180)]
    documents = [b"".join(lines[n : n + 1 + n % 5]) for n in range(0, 180, 5)]
    return write_bytes_corpus(folder, documents, documents[::-4])


def small(data: Path, steps: int = 6, **sections: dict[str, Any]) -> LanguageConfig:
    nested: dict[str, dict[str, Any]] = {
        "data": {"path": str(data)},
        "model": {"num_layers": 2, "width_ratio": 16.0, "head_size": 16, "sequence_length": LENGTH},
        "train": {
            "total_tokens": STEP * steps,
            "batch_tokens": STEP,
            "threads": 1,
            "micro_batch": 4,
            "precision": "fp32",  # `auto` depends on the machine
        },
        "eval": {"tokens": 320, "curve_tokens": 160, "sample_tokens": 20},
    }
    for name, values in sections.items():
        nested[name] = nested[name] | values
    return LanguageConfig.from_dict(nested)


def go(config: LanguageConfig, directory: Path | None = None, **options: Any) -> tuple[RunResult, EventLog]:
    events = EventLog()
    return run(config, directory=directory, report=events.record, **options), events


def tensors(folder: Path, name: str = checkpoints.FILE_NAME) -> dict[str, torch.Tensor]:
    return dict(checkpoints.read(folder / name).tensors)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


class StopAfter(threading.Event):
    """A signal that comes when it is asked for the `times`-th time."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times

    def is_set(self) -> bool:
        self._left -= 1
        if self._left < 0:
            self.set()
        return super().is_set()
