"""What a trial's processes use of the machine, and its memory, and what slows the machine down."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import small_sweep
from patience import wait_until

from protein.ports import Finished, Job
from protein.run import usage
from protein.run.trainer import LocalBackend
from protein.run.usage import Meter, busy_seconds, family, over_limit
from protein.types import Trial

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


def trial_of_local_backend(directory: Path, *, speed: float, behaviour: str) -> Finished:
    """Runs the tests' trial in a process of its own."""
    trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
    config = {"train": {"behaviour": behaviour, "max_seconds": 3.0}}
    job = Job(trial=trial, config=config, directory=directory, max_seconds=600.0, max_memory_bytes=None, speed=speed)
    backend = LocalBackend(entry=small_sweep.TRIAL, preload=())
    try:
        backend.start(job)
        while True:
            for event in backend.poll(1.0):
                if isinstance(event, Finished):
                    return event
    finally:
        backend.close()


@LINUX
def test_every_trial_on_this_machine_tells_what_it_used(tmp_path: Path) -> None:
    ended = trial_of_local_backend(tmp_path, speed=1.0, behaviour="spend")
    timings = ended.outcome.timings
    assert {"startup", "wall", "cpu", "waited", "others"} <= set(timings)
    assert 0.0 <= timings["waited"] <= timings["wall"]
    assert ended.outcome.cost_seconds == 3.0, "what the trial says itself"


def test_the_machines_busy_seconds_grow() -> None:
    before = busy_seconds()
    assert before is not None
    while time.process_time() < 0.3:
        pass
    after = busy_seconds()
    assert after is not None
    assert after >= before > 0.0


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def troubles(root: Path) -> list[str]:
    """What the files tell, without what other programs do now."""
    return [trouble for trouble in usage.troubles(root) if "other programs" not in trouble]


def test_nothing_is_said_where_nothing_is_known(tmp_path: Path) -> None:
    assert troubles(tmp_path) == []


def test_a_quota_below_the_cores_is_told(tmp_path: Path) -> None:
    write(tmp_path / "sys/fs/cgroup/cpu.max", "50000 100000\n")
    (line,) = troubles(tmp_path)
    assert line.startswith("a quota leaves this process 0.5 of ")
    assert "--workers 1" in line
    write(tmp_path / "sys/fs/cgroup/cpu.max", f"{100000 * (os.cpu_count() or 1)} 100000\n")
    assert troubles(tmp_path) == []


def test_a_clock_that_is_held_low_is_told(tmp_path: Path) -> None:
    policy = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    for name, text in (
        ("scaling_governor", "schedutil"),
        ("scaling_driver", "acpi-cpufreq"),
        ("scaling_max_freq", "1800000"),
        ("cpuinfo_max_freq", "3600000"),
    ):
        write(policy / name, text)
    assert troubles(tmp_path) == ["the clock rate is limited to 1.8 of 3.6 GHz (scaling_max_freq)"]
    write(policy / "scaling_governor", "powersave")
    assert "governor powersave" in troubles(tmp_path)[0]
    write(policy / "scaling_governor", "performance")
    write(policy / "scaling_max_freq", "3600000")
    assert troubles(tmp_path) == []


def test_heat_is_told_while_it_lasts(tmp_path: Path) -> None:
    write(tmp_path / "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "7")
    write(tmp_path / "sys/class/thermal/thermal_zone0/temp", "97000")
    assert troubles(tmp_path) == ["the processor is at 97 degrees and was slowed down by heat 7 times since the start"]
    write(tmp_path / "sys/class/thermal/thermal_zone0/temp", "45000")
    assert troubles(tmp_path) == []


def test_pressure_on_memory_is_told(tmp_path: Path) -> None:
    pressure = "some avg10=0.00 avg60=%s avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    write(tmp_path / "proc/pressure/memory", pressure % "12.5")
    (line,) = troubles(tmp_path)
    assert line.startswith("programs waited for memory in 12 % of the last minute")
    write(tmp_path / "proc/pressure/memory", pressure % "1.0")
    assert troubles(tmp_path) == []


@LINUX
def test_other_programs_are_noticed() -> None:
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        assert any(line.startswith("other programs use ") for line in usage.troubles())
    finally:
        for process in spinning:
            process.kill()
            process.communicate()


MIB = 2**20
# Holds 120 MiB, which its four forks share with it.
PARENT = """
import os, sys, time
data = b"x" * (120 << 20)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(120)
        os._exit(0)
open(sys.argv[1], "w").close()
time.sleep(120)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system does not tell what is shared")
def test_what_forks_share_counts_once(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", PARENT, str(tmp_path / "ready")], start_new_session=True)
    try:
        wait_until((tmp_path / "ready").exists)
        time.sleep(0.2)
        members = family(process.pid)
        assert len(members) == 5 and sum(one.memory_info().rss for one in members) > 500 * MIB
        trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="me")

        def job(limit: int) -> Job:
            return Job(trial=trial, config={}, directory=tmp_path, max_seconds=None, max_memory_bytes=limit)

        assert over_limit(job(300 * MIB), lambda: members, lambda pids: 0) is None
        words = over_limit(job(100 * MIB), lambda: members, lambda pids: 0)
        assert words is not None and words.startswith("killed at 0.1 GiB of memory")
    finally:
        os.killpg(process.pid, 9)
        process.wait()
