"""What a trial's processes use: in sum, and as a curve that its watcher writes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from backend_trials import job

from protein.run import usage
from protein.run.usage import Curve, Meter, read_curve
from protein.types import USAGE_FILE

WORK = """
import os, sys
os.sched_setaffinity(0, {%d})
for line in sys.stdin:
    for _ in range(5_000_000): pass
    print(flush=True)
"""
LINUX = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux counts it")


def work(process: "subprocess.Popen[str]") -> None:
    """Lets it work, and waits until it has."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    process.stdout.readline()


@LINUX
def test_what_is_used_counts_from_the_first_mark_to_the_last() -> None:
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, "-c", WORK % core]
    trial = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    neighbour = subprocess.Popen(
        [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
    )
    try:
        meter = Meter(trial.pid)
        work(trial)
        assert not meter.marked
        assert meter.timings() == {}
        meter.mark()
        assert meter.timings() == {}, "nothing lies between one mark and itself"
        work(trial)
        meter.mark()
        used = meter.timings()
        assert set(used) == {"wall", "cpu", "waited", "others"}
        assert 0.0 < used["cpu"] <= used["wall"] * 1.1
        assert 0.0 < used["waited"] < used["wall"]
        assert used["others"] > 0.0
    finally:
        neighbour.kill()
        neighbour.communicate()
        trial.kill()
        trial.communicate()
    meter.mark()
    assert meter.timings() == used, "a process that has ended tells nothing new"


def test_the_curve_of_a_trial_is_written_as_it_runs_and_goes_on_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "can_measure", lambda: True)
    this = job(tmp_path, 3)
    file = this.directory / USAGE_FILE
    assert read_curve(file) == {}, "nothing was written yet"
    now = time.monotonic()
    curve = Curve(this, os.getpid(), now)
    curve.look(lambda pids: 7)
    assert not file.exists(), "it is too young"
    for age in (10.0, 20.0):
        curve = Curve(this, os.getpid(), now - age)
        curve.look(lambda pids: 7 if os.getpid() in pids else 0)
        curve.look(lambda pids: 7)  # too soon for another line
    found = read_curve(file)
    assert set(found) == set(usage.CURVE)
    assert found["seconds"] == pytest.approx([10.0, 20.0], abs=2.0)
    assert all(cores > 0 for cores in found["cores"])
    assert all(memory > 1 << 20 for memory in found["memory_bytes"])
    assert found["gpu_memory_bytes"] == [7, 7]


@pytest.mark.parametrize(
    "text",
    ["", "seconds", "seconds,cores,memory_bytes,gpu_memory_bytes\n1,2", "\0", "a,b\n1,2\n", "\N{SNOWMAN}\n,,,,,,\n"],
)
def test_a_curve_that_is_no_curve_has_no_columns(tmp_path: Path, text: str) -> None:
    (tmp_path / USAGE_FILE).write_text(text)
    assert read_curve(tmp_path / USAGE_FILE) == {}
    assert read_curve(tmp_path) == {}


def test_nothing_is_written_through_a_link_and_the_trial_goes_on(tmp_path: Path) -> None:
    this = job(tmp_path, 3)
    this.directory.mkdir()
    (this.directory / USAGE_FILE).symlink_to(tmp_path / "other.csv")
    Curve(this, os.getpid(), time.monotonic() - 5).look(lambda pids: 0)
    assert not (tmp_path / "other.csv").exists()


def test_processes_that_are_gone_have_no_line(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    this = job(tmp_path, 3)
    Curve(this, process.pid, time.monotonic() - 5).look(lambda pids: 0)
    assert not (this.directory / USAGE_FILE).exists()
