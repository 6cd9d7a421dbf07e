"""How long a program was kept from running, by others and by quotas."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protein.trainer.machine.cores import quota_cores, thread_times, throttled_seconds, waited_for_others

LINUX = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux counts it")
SPIN = "import os, time; os.sched_setaffinity(0, {%d}); print(flush=True)\nwhile True: pass"
WORK = """
import os, sys
from protein.trainer.machine.cores import thread_times
os.sched_setaffinity(0, {%d})
before = thread_times(os.getpid())
for _ in range(20_000_000): pass
after = thread_times(os.getpid())
print(max(after[thread][1] - before[thread][1] for thread in before))
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_longest_wait_of_a_thread_counts() -> None:
    before = {(1, 1): (1.0, 1.0), (1, 2): (0.0, 5.0)}
    after = {(1, 1): (2.0, 4.0), (1, 2): (0.0, 6.0), (2, 2): (0.0, 2.0)}
    assert waited_for_others(before, after, 0.0, 5.0) == 3.0


def test_a_thread_that_only_gives_its_core_away_does_not_count_beyond_what_the_busiest_leaves() -> None:
    assert waited_for_others({(1, 1): (1.0, 0.0)}, {(1, 1): (9.0, 9.0), (1, 2): (0.1, 24.0)}, 0.0, 25.0) == 17.0
    assert waited_for_others({}, {(1, 1): (30.0, 0.0), (1, 2): (0.1, 24.0)}, 0.0, 25.0) == 0.0


def test_what_a_quota_took_is_not_the_others() -> None:
    after = {(1, 1): (1.0, 3.0), (1, 2): (1.0, 1.0)}
    assert waited_for_others({}, after, 1.0, 9.0) == pytest.approx(2.25)  # of 4 s of waiting others caused 3
    assert waited_for_others({}, after, 8.0, 9.0) == 0.0


def test_nothing_is_known_where_nothing_is_counted() -> None:
    assert waited_for_others({}, {}, 1.0, 1.0) == 0.0
    assert thread_times(2**30) == {}


@LINUX
def test_a_thread_that_shares_its_core_waits() -> None:
    core = min(os.sched_getaffinity(0))
    neighbour = subprocess.Popen([sys.executable, "-c", SPIN % core], stdout=subprocess.PIPE)
    try:
        assert neighbour.stdout is not None
        neighbour.stdout.readline()
        done = subprocess.run([sys.executable, "-c", WORK % core], capture_output=True, text=True, check=True)
    finally:
        neighbour.kill()
        neighbour.communicate()
    assert float(done.stdout) > 0.02


def test_the_tightest_quota_of_all_groups_counts(tmp_path: Path) -> None:
    groups = tmp_path / "sys/fs/cgroup"
    assert quota_cores(tmp_path) is None
    write(tmp_path / "proc/self/cgroup", "0::/lab/job 7\n")
    write(groups / "cpu.max", "max 100000\n")
    write(groups / "lab/cpu.max", "150000 100000\n")
    write(groups / "lab/job 7/cpu.max", "400000 100000\n")
    write(groups / "lab/cpu.stat", "usage_usec 9\nnr_throttled 3\nthrottled_usec 2500000\n")
    assert quota_cores(tmp_path) == 1.5
    assert throttled_seconds(tmp_path) == 2.5


def test_quotas_of_the_first_version_count(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup/cpu/job"
    write(tmp_path / "proc/self/cgroup", "9:memory:/other\n2:cpu,cpuacct:/job\n1:name=systemd:/\n")
    write(group / "cpu.cfs_quota_us", "50000\n")
    write(group / "cpu.cfs_period_us", "100000\n")
    write(group / "cpu.stat", "nr_periods 4\nthrottled_time 1500000000\n")
    write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    assert quota_cores(tmp_path) == 0.5
    assert throttled_seconds(tmp_path) == 1.5


def test_a_group_outside_of_what_is_mounted_is_not_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/../../elsewhere\ngarbage\n")
    write(tmp_path / "sys/fs/cgroup/cpu.max", "garbage\n")
    assert quota_cores(tmp_path) is None
    assert throttled_seconds(tmp_path) == 0.0
