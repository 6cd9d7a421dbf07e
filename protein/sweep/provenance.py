"""Where a result comes from: version, commit, machine and a hash of the whole run config."""

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protein.run.machine import processor
from protein.spelling import counted
from protein.types import Provenance

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_DIRTY = "-dirty"  # behind a commit: of a working directory with changes
_TRAINING_CODE = ("envs_c", "trainer")  # folders of this repository that decide what a config scores, and what it costs


def collect(config: Mapping[str, Any]) -> Provenance:
    """Returns the provenance of a run of `config` here and now."""
    return Provenance(
        version=_version(),
        git_commit=_git_commit(),
        machine=_machine(),
        config_hash=config_hash(config),
    )


def config_hash(config: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of the config's canonical JSON (sorted keys, no spaces), in hexadecimal."""
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def changes_since(then: Provenance) -> list[str]:
    """Returns what differs between a result's code and machine and those of here and now, one short sentence each.

    Where git knows the commit of the result, only changes of the environments and the trainer count. Without it, each
    other commit counts.
    """
    here = collect({})
    found = []
    if then.version != here.version:
        found.append(f"it was found with version {then.version}, this is {here.version}")
    if (code := _code_change(then.git_commit, here.git_commit)) is not None:
        found.append(code)
    if _hardware(then.machine) != _hardware(here.machine):
        found.append(f"its cost was measured on another machine ({then.machine})")
    return found


def _code_change(then: str, now: str) -> str | None:
    """Returns how the code differs between two commits; None where it does not, or where one is not known."""
    if not then or not now:
        return None
    old, new = then.removesuffix(_DIRTY), now.removesuffix(_DIRTY)
    if then == now == old:
        return None
    difference = f"since commit {old[:10]}"
    try:
        if not _COMMIT.fullmatch(old):  # from somebody's store: git would take it for an option, such as --output=FILE
            raise FileNotFoundError(f"{old!r} is no commit")
        root = next(folder for folder in map(_root, _folders()) if folder is not None)
        code = [name for name in _TRAINING_CODE if (root / name).is_dir()]
        changed = _git("diff", "--name-only", old, "--", *code, cwd=root).splitlines()
    except (StopIteration, OSError, subprocess.SubprocessError):
        return f"it was found with commit {old[:10]}, this is {new[:10]}" if old != new else None
    if changed:
        environments = sum(name.startswith(_TRAINING_CODE[0]) for name in changed)
        what = "the code of the environments" if environments else "the code of the trainer"
        if 0 < environments < len(changed):
            what += " and of the trainer"
        if not code:  # the repository of the user's own program
            what = "the code"
        return f"{what} changed {difference} ({len(changed)} file{'s' if len(changed) > 1 else ''})"
    if then.endswith(_DIRTY):
        return f"it was found with commit {old[:10]} and changes that were not committed"
    return None


def _hardware(machine: str) -> str:
    """Returns a machine's description without the version of Python, which does not change what training costs."""
    return machine.rpartition(", Python ")[0] or machine


def _folders() -> tuple[Path, Path]:
    """Returns where a repository is looked for: the package's folder, then the working directory."""
    return Path(__file__).parent.parent, Path.cwd()


def _root(folder: Path) -> Path | None:
    try:
        return Path(_git("rev-parse", "--show-toplevel", cwd=folder))
    except (OSError, subprocess.SubprocessError):
        return None


@functools.cache
def _version() -> str:
    return importlib.metadata.version("protein-sweep")


@functools.cache
def _git_commit() -> str:
    """Returns the commit that this package was installed from in place, or of the working directory; "" without one."""
    for folder in _folders():
        try:
            commit = _git("rev-parse", "HEAD", cwd=folder)
            return commit + (_DIRTY if _git("status", "--porcelain", "--untracked-files=no", cwd=folder) else "")
        except (OSError, subprocess.SubprocessError):
            continue
    return ""


def _git(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True, text=True, timeout=10)
    return done.stdout.strip()


@functools.cache
def _machine() -> str:
    parts = (platform.node(), processor(), counted(os.cpu_count() or 1, "core"), platform.system())
    return ", ".join((*parts, f"Python {platform.python_version()}"))
