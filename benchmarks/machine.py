"""The machine that a benchmark ran on, and where its result goes: shared by every benchmark in this folder.

Benchmarks are scripts, `python benchmarks/NAME.py`, so they import this as `machine`.
"""

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protein.trainer.machine.cores import usable_cores

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def processor() -> str:
    """Returns the processor's model name."""
    if platform.system() == "Linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return platform.machine()


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return usable_cores()


def commit() -> str:
    """Returns the short commit, "-dirty" appended where tracked code differs from it.

    Outside a repository it is what COMMIT says: a copy of the files alone may be measured on another machine.
    """
    command = ["git", "describe", "--always", "--abbrev=10", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("COMMIT", "")
    command = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results", ":!docs"]
    dirty = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    return done.stdout.strip() + ("-dirty" if dirty else "")


def describe() -> dict[str, Any]:
    """Returns machine, versions, commit and date, to stand above a table."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "machine": f"{processor()}, {cores()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load": f"load average {os.getloadavg()[0]:.1f}",
    }


def headline() -> str:
    """Returns `describe` as one line."""
    return ", ".join(f"{key} {value}" if key in ("python", "commit") else value for key, value in describe().items())


def write_result(
    name: str, rows: Sequence[Mapping[str, Any]], *, threads: int | Sequence[int] | None = None, **facts: Any
) -> Path:
    """Writes `rows`, under the machine's description and further facts, to benchmarks/results/NAME.json."""
    result = {"name": name, **describe(), "threads": threads, **facts, "rows": [dict(row) for row in rows]}
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path
