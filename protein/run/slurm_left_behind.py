"""Jobs that a controller left when it was killed. The same command again ends them before it submits its own.

A worker that has lost its controller goes on for `DEAD_SECONDS`, and a job in the queue does not even know. Meanwhile
the resumed sweep would run the same trials in other jobs, in the same folders. So each controller keeps its name and
the numbers of its jobs in its folder of messages, and the next one looks whether that has ended.
"""

import contextlib
import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from protein.run import lease, slurm_commands
from protein.run.slurm_messages import ALIVE, DEAD_SECONDS

FOLDER = ".slurm-"  # what the names of controllers' folders begin with
OWNER, JOBS = "owner", "jobs"  # files there
_NUMBER = re.compile(r"[0-9]+")  # of a job


def sign(folder: Path) -> None:
    """Says in a controller's folder that this process is the controller."""
    (folder / OWNER).write_text(lease.current_owner())


def note_job(folder: Path, number: str) -> None:
    """Keeps the number of a job that was submitted."""
    with (folder / JOBS).open("a") as jobs:
        print(number, file=jobs)


def end(artifacts: Path) -> Sequence[str]:
    """Ends the jobs of controllers that have ended, and removes their folders, which ends the workers, too.

    Args:
        artifacts: the folder of the sweep's artifacts.

    Returns:
        The numbers of the jobs.
    """
    ended: list[str] = []
    for folder in sorted(artifacts.glob(f"{FOLDER}*")):
        with contextlib.suppress(OSError):
            if _has_ended(folder):
                jobs = folder / JOBS
                numbers = jobs.read_text().split() if jobs.exists() else []
                ended += [number for number in numbers if _NUMBER.fullmatch(number)]  # else it might be an option
                shutil.rmtree(folder, ignore_errors=True)
    if ended:
        slurm_commands.attempt("scancel", *ended)
    return ended


def _has_ended(folder: Path) -> bool:
    """Whether a controller has: it was a process of this machine and is gone, or has shown no life for too long."""
    owner = folder / OWNER
    if owner.exists() and (name := owner.read_text()):
        if lease.dead_owners([name]):
            return True
        if lease.living_owners([name]) or name == lease.current_owner():
            return False
    # Both times are by the clock of the file system. Those of other machines may be off.
    now = folder.parent / f".now-{secrets.token_hex(8)}"
    now.touch()
    try:
        age = now.stat().st_mtime - (folder / ALIVE).stat().st_mtime
    finally:
        now.unlink()
    return age > DEAD_SECONDS
