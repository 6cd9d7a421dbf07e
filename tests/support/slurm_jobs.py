"""Trials for Slurm's backend, and backends that a test closes at its end."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import slurm_cluster
from patience import PATIENCE_SECONDS

from protein.ports import Job
from protein.run.fleet import Fleet
from protein.types import Trial


@pytest.fixture(name="start")
def slurm_backends(slurm: None, tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """Makes backends that are closed after the test."""
    made: list[Fleet] = []

    def make(**changes: Any) -> Fleet:
        made.append(slurm_cluster.backend(tmp_path, slurm_cluster.trainer, **changes))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


def job(folder: Path, number: int = 0, *, max_seconds: float | None = None, **train: object) -> Job:
    params: Any = train
    trial = Trial(id=100 + number, sweep_id=1, number=number, params=params, seed=0, owner="test")
    return Job(
        trial=trial,
        config={"train": {"max_seconds": max_seconds, **train}, "seed": 0},
        directory=folder / f"{number:04d}",
        max_seconds=None,
        max_memory_bytes=None,
    )


def wait_for_slots(backend: Fleet, count: int = 1) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while backend.num_slots() < count:
        assert time.monotonic() < until, "no job of Slurm has become a worker"
        time.sleep(0.05)
