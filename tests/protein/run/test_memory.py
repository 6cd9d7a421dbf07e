"""The memory of a trial: what its processes share counts once."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import wait_until

from protein.ports import Job
from protein.run.memory import family, over_limit
from protein.types import Trial

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
