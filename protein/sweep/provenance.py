"""Where a result comes from: version, commit, machine and a hash of the whole run config."""

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protein.types import Provenance


def collect(config: Mapping[str, Any]) -> Provenance:
    """Returns the provenance of a run of `config` here and now."""
    return Provenance(
        version=importlib.metadata.version("protein-sweep"),
        git_commit=_git_commit(),
        machine=_machine(),
        config_hash=config_hash(config),
    )


def config_hash(config: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of the config's canonical JSON (sorted keys, no spaces), in hexadecimal."""
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


@functools.cache
def _git_commit() -> str:
    """Returns the commit that this package was installed from in place, or of the working directory; "" without one."""
    for folder in (Path(__file__).parent.parent, Path.cwd()):
        try:
            commit = _git("rev-parse", "HEAD", cwd=folder)
            return commit + ("-dirty" if _git("status", "--porcelain", "--untracked-files=no", cwd=folder) else "")
        except (OSError, subprocess.SubprocessError):
            continue
    return ""


def _git(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True, text=True, timeout=10)
    return done.stdout.strip()


@functools.cache
def _machine() -> str:
    parts = (platform.node(), _processor(), f"{os.cpu_count()} cores", platform.system())
    return ", ".join((*parts, f"Python {platform.python_version()}"))


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
