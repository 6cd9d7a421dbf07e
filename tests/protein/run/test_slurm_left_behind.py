"""Jobs that a killed controller left, without a Slurm; with one: `test_slurm.py`."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from protein.run import lease, slurm_commands, slurm_left_behind
from protein.run.slurm_messages import ALIVE, DEAD_SECONDS

ELSEWHERE = "another-host:4711:8123.45@5f0c21ab-1a363c15-4026531836"


@pytest.fixture
def cancelled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(slurm_commands, "attempt", lambda *words: calls.append(words))
    return calls


def controller(artifacts: Path, owner: str, *, silent_seconds: float = 0.0) -> Path:
    """Makes the folder of a controller that has submitted two jobs."""
    folder = artifacts / f"{slurm_left_behind.FOLDER}0"
    folder.mkdir()
    (folder / ALIVE).write_text("7")
    long_ago = time.time() - silent_seconds
    os.utime(folder / ALIVE, (long_ago, long_ago))
    (folder / slurm_left_behind.OWNER).write_text(owner)
    for number in ("11", "12"):
        slurm_left_behind.note_job(folder, number)
    return folder


def a_process_that_has_ended() -> str:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        return lease.owner_of(process.pid)


def test_jobs_of_a_controller_that_was_killed_here_are_ended_at_once(
    cancelled: list[tuple[str, ...]], tmp_path: Path
) -> None:
    folder = controller(tmp_path, a_process_that_has_ended())
    assert slurm_left_behind.end(tmp_path) == ["11", "12"]
    assert cancelled == [("scancel", "11", "12")]
    assert not folder.exists(), "that ends workers that run"


@pytest.mark.parametrize(("silent_seconds", "ends"), [(0.5 * DEAD_SECONDS, False), (2 * DEAD_SECONDS, True)])
def test_a_controller_elsewhere_has_ended_when_it_has_been_silent_for_long(
    cancelled: list[tuple[str, ...]], tmp_path: Path, silent_seconds: float, ends: bool
) -> None:
    folder = controller(tmp_path, ELSEWHERE, silent_seconds=silent_seconds)
    assert slurm_left_behind.end(tmp_path) == (["11", "12"] if ends else [])
    assert bool(cancelled) == ends == (not folder.exists())
    assert [path.name for path in tmp_path.iterdir()] == ([] if ends else [folder.name])


def test_jobs_of_a_living_controller_stay(cancelled: list[tuple[str, ...]], tmp_path: Path) -> None:
    """It may be another sweep of the same name, in another store. A stopped process shows no life, and lives."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        folder = controller(tmp_path, lease.owner_of(process.pid), silent_seconds=2 * DEAD_SECONDS)
        assert slurm_left_behind.end(tmp_path) == []
    assert not cancelled and folder.exists()
