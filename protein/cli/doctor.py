"""`protein doctor`: whether this machine has what is needed, a line for each thing."""

import dataclasses
import importlib.metadata
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import psutil
from rich.text import Text

from protein import storage
from protein.api import stores
from protein.cli.arguments import Doctor
from protein.cli.output import print_json
from protein.cli.parse import Command
from protein.errors import ProteinError
from protein.trainer.machine.cores import usable_cores
from protein.units import format_size
from protein.view import tables

MIN_PYTHON = (3, 11)
MIN_DISK_BYTES = 1 << 30
MIN_MEMORY_BYTES = 2 << 30
_STYLES = {"ok": "green", "note": "yellow", "broken": "bold red"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was found about one thing. A note is no obstacle; what is broken is."""

    name: str
    state: Literal["ok", "note", "broken"]
    detail: str


def run(command: Command) -> int:
    arguments: Doctor = command.arguments
    store_url = stores.url(arguments.store)
    checks = [
        _python(),
        _package(),
        *_torch(),
        _envs(),
        _gym(),
        _threads(),
        _memory(),
        _compiler(),
        _guarded("store", lambda: _store(store_url)),
        _guarded("disk", lambda: _disk(store_url)),
    ]
    broken = [check.name for check in checks if check.state == "broken"]
    if arguments.json:
        print_json([dataclasses.asdict(check) for check in checks])
    else:
        console = tables.make_console()
        for check in checks:
            line = Text(f"{check.state:<6} ", style=_STYLES[check.state])
            line.append(f"{check.name:<9}{check.detail}", style="default")
            console.print(line, soft_wrap=True)
    return 1 if broken else 0


def _python() -> Check:
    detail = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info < MIN_PYTHON:
        return Check(name="python", state="broken", detail=f"{detail}; 3.11 or newer is needed")
    return Check(name="python", state="ok", detail=detail)


def _package() -> Check:
    try:
        detail = f"protein-sweep {importlib.metadata.version('protein-sweep')}"
    except importlib.metadata.PackageNotFoundError:
        return Check(
            name="package", state="broken", detail="protein-sweep is not installed; run make build or pip install ."
        )
    return Check(name="package", state="ok", detail=detail)


def _torch() -> list[Check]:
    try:
        import torch
    except ImportError as error:
        return [Check(name="torch", state="broken", detail=f"{error}; install torch 2.6 or newer")]
    version = Check(name="torch", state="ok", detail=str(torch.__version__))
    if torch.cuda.is_available():
        device = f"cuda: {torch.cuda.get_device_name()}"
    else:
        device = "mps" if torch.backends.mps.is_available() else "cpu"
    return [version, Check(name="device", state="ok", detail=device)]


def _envs() -> Check:
    try:
        from protein import envs_c
    except ImportError as error:
        return Check(name="envs", state="broken", detail=f"{error}; build them with make build or pip install .")
    return Check(name="envs", state="ok", detail=", ".join(envs_c.names()))


def _gym() -> Check:
    try:
        return Check(name="gym", state="ok", detail=f"gymnasium {importlib.metadata.version('gymnasium')}")
    except importlib.metadata.PackageNotFoundError:
        detail = "gymnasium is not installed; only environments gym:... need it: pip install 'protein-sweep[gymnasium]'"
        return Check(name="gym", state="note", detail=detail)


def _threads() -> Check:
    detail = f"{usable_cores()} usable of {os.cpu_count()}"
    limit = os.environ.get("OMP_NUM_THREADS")
    return Check(name="threads", state="ok", detail=detail + (f", OMP_NUM_THREADS is {limit}" if limit else ""))


def _memory() -> Check:
    free, total = psutil.virtual_memory().available, psutil.virtual_memory().total
    state: Literal["ok", "note"] = "ok" if free >= MIN_MEMORY_BYTES else "note"
    return Check(name="memory", state=state, detail=f"{format_size(free)} free of {format_size(total)}")


def _compiler() -> Check:
    named = (os.environ.get("CXX") or "").split()[:1]
    names = [*named, (sysconfig.get_config_var("CXX") or "c++").split()[0], "c++", "g++", "clang++"]
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        return Check(name="compiler", state="note", detail="none found; only building and --train.compile need one")
    return Check(name="compiler", state="ok", detail=found)


def _store(store_url: str) -> Check:
    path = stores.file(store_url)
    if path is None or path.exists():
        with stores.opened(store_url) as store:
            return Check(name="store", state="ok", detail=f"{_shown(store_url)}: {len(store.list_sweeps())} sweeps")
    # A store of our own beside where it would be: whether locks and shared memory work there shows only by trying.
    with tempfile.TemporaryDirectory(dir=_existing(path.parent), prefix=".protein-doctor-") as folder:
        storage.open_store(f"sqlite:///{Path(folder).absolute()}/probe.db").close()
    return Check(name="store", state="ok", detail=f"{path}: not there yet, can be made")


def _disk(store_url: str) -> Check:
    folder = _existing((stores.file(store_url) or Path("runs/none")).parent)
    free = shutil.disk_usage(folder).free
    detail = f"{format_size(free)} free at {folder.absolute()}"
    if free < MIN_DISK_BYTES:
        return Check(name="disk", state="broken", detail=f"{detail}; {format_size(MIN_DISK_BYTES)} are needed")
    return Check(name="disk", state="ok", detail=detail)


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except (ProteinError, OSError) as error:
        return Check(name=name, state="broken", detail=" ".join(str(error).split()))


def _existing(folder: Path) -> Path:
    """Returns the nearest folder that exists, going up."""
    return next((parent for parent in (folder, *folder.absolute().parents) if parent.is_dir()), Path("/"))


def _shown(store_url: str) -> str:
    """Returns a URL without the password that may be in it."""
    head, at, tail = store_url.rpartition("@")
    return f"{head.partition('://')[0]}://...@{tail}" if at else store_url
