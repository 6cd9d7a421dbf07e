"""Processes that the program starts itself: what they report, and that they end together, whatever happens."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from event_log import EventLog
from patience import PATIENCE_SECONDS

from protein.trainer.config import RunConfig
from protein.trainer.errors import ConfigError, LostProcessError, OutOfMemoryError
from protein.trainer.events import Event, killed_by
from protein.trainer.launch import check_launch, launch
from protein.trainer.machine import checkpoint as checkpoints

pytestmark = pytest.mark.usefixtures("warm")

ROOT = Path(__file__).parents[2]
SMALL: dict[str, dict[str, Any]] = {
    "env": {"num_envs": 16, "frame_skip": 16},
    "policy": {"hidden_size": 8},
    "train": {"total_timesteps": 2048, "threads": 2, "device": "cpu", "horizon": 32, "minibatch_size": 128},
    "eval": {"episodes": 2, "num_envs": 2},
}


def small(**sections: dict[str, Any]) -> RunConfig:
    return RunConfig.from_dict({name: values | sections.get(name, {}) for name, values in SMALL.items()})


def ranks_of(parent: int) -> dict[int, psutil.Process]:
    """Returns a process's children that are ranks; it may have others."""
    children = {child: child.environ() for child in psutil.Process(parent).children()}
    return {int(names["RANK"]): child for child, names in children.items() if "RANK" in names}


@pytest.mark.usefixtures("cold")  # the ranks are found by their variables
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_ends_all_with_one_reason(rank: int) -> None:
    events = EventLog()
    ranks: dict[int, psutil.Process] = {}

    def report(event: Event) -> None:
        events.record(event)
        if event["event"] == "start":
            ranks.update(ranks_of(os.getpid()))
            ranks[rank].kill()

    with pytest.raises(LostProcessError, match=rf"^process {rank} of 2 was killed by SIGKILL \(out of memory\?\)"):
        launch(small(train={"total_timesteps": 10**9}), 2, directory=None, report=report)
    assert [(event["event"], event.get("reason")) for event in events] == [("start", None), ("failed", "process")]
    assert len(ranks) == 2 and not any(process.is_running() for process in ranks.values())


def test_a_death_is_named_by_its_signal() -> None:
    assert killed_by(-signal.SIGTERM) == "killed by SIGTERM"
    assert killed_by(-signal.SIGKILL) == "killed by SIGKILL (out of memory?)"
    assert killed_by(-40) == "killed by signal 40"  # a real-time signal has no name
    assert killed_by(0) == killed_by(3) == ""


def test_a_rank_that_fails_says_why_through_the_first(capfd: pytest.CaptureFixture[str]) -> None:
    events = EventLog()
    unmeasured = {"normalize_observations": "off", "reward_scaling": "off"}  # no random play before the first step
    config = small(
        env={"name": "python:tests.support.failing_rank:Failing"}, train={"total_timesteps": 10**6, **unmeasured}
    )
    with pytest.raises(OutOfMemoryError, match=r"^process 1 of 2: out of memory: lower env\.num_envs"):
        launch(config, 2, directory=None, report=events.record)
    assert [(event["event"], event.get("reason")) for event in events] == [("start", None), ("failed", "memory")]
    assert events[-1]["steps"] > 0
    assert capfd.readouterr().err == "", "the caller says it, once"


@pytest.mark.usefixtures("cold")
def test_ranks_import_nothing_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("random", "logging", "queue", "numpy", "torch"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the user file was imported')\n")
    monkeypatch.chdir(tmp_path)
    events = EventLog()
    launch(small(train={"total_timesteps": 2_000}), 2, directory=None, report=events.record)
    assert events[-1]["event"] == "result"


def test_a_signal_ends_all_in_order_with_one_checkpoint(tmp_path: Path) -> None:
    """Through the command line, and to the one process whose number a user knows."""
    file = tmp_path / "config.json"
    # A run's measurements are a fiftieth of it apart, and at most ten seconds.
    file.write_text(json.dumps(small(train={"total_timesteps": 2_000_000}).to_dict()))
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "protein.trainer",
            "--config",
            str(file),
            "--directory",
            str(tmp_path / "run"),
            "--nproc",
            "2",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]  # it trains
        ranks = ranks_of(process.pid)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    events = [json.loads(line) for line in lines + out.splitlines()]
    assert (process.returncode, err) == (130, "")
    assert events[0]["event"] == "start" and events[-1]["event"] == "interrupted"
    saved = checkpoints.read(tmp_path / "run" / checkpoints.FILE_NAME)
    assert saved.steps == events[-1]["steps"] > 0
    assert not any(process.is_running() for process in ranks.values())


@pytest.mark.usefixtures("cold")
def test_ctrl_c_before_the_ranks_have_loaded_ends_all_in_order(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a terminal it reaches the ranks, too, before they can listen to it."""
    stop, events, start = threading.Event(), EventLog(), subprocess.Popen

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        process = start(*args, **kwargs)
        process.send_signal(signal.SIGINT)
        stop.set()
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    result = launch(small(train={"total_timesteps": 10**9}), 2, directory=None, report=events.record, stop=stop)
    assert result.interrupted and result.steps == 0
    assert capfd.readouterr().err == ""


def test_launches_that_cannot_be_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    check_launch(1, watched=True)
    check_launch(4, watched=False)
    with pytest.raises(ConfigError, match="--nproc must be between 1 and 1024, got 0"):
        check_launch(0, watched=False)
    with pytest.raises(ConfigError, match="can watch only one process: use them without --nproc and torchrun"):
        check_launch(2, watched=True)
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "0"), ("MASTER_ADDR", "localhost")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="--nproc 2 under torchrun would start processes twice"):
        check_launch(2, watched=False)
