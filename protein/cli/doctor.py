"""`protein doctor`: checks whether this machine has everything that is needed, and prints one line for each check.

`protein envs` lists the environments that there are.

Minimum versions are read from the installed package's metadata, which comes from `pyproject.toml`.
"""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import psutil
from rich.text import Text

from protein import files, storage
from protein.api import stores
from protein.cli.arguments import DoctorArguments
from protein.cli.output import print_json
from protein.cli.parse import Command
from protein.errors import ProteinError, UsageError
from protein.run import speed
from protein.run.machine import troubles
from protein.spelling import counted
from protein.trackers.tracker import TRACKERS
from protein.trainer.machine.cores import usable_cores
from protein.units import format_size
from protein.urls import hidden
from protein.view import tables

PACKAGE = "protein-sweep"
MIN_DISK_BYTES = 1 << 30
MIN_MEMORY_BYTES = 2 << 30
_STYLES = {"ok": "green", "note": "yellow", "broken": "bold red"}


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. With a note everything works; what is broken must be fixed."""

    name: str
    state: Literal["ok", "note", "broken"]
    detail: str


def run(command: Command) -> int:
    arguments: DoctorArguments = command.arguments
    store_url = stores.url(arguments.store)
    if arguments.workers < 1:
        raise UsageError(f"--workers {arguments.workers} is below the limit of 1; use 1 or more")
    console = tables.make_console()
    here = speed.machine_facts(threads=max(1, usable_cores() // arguments.workers), device=arguments.device)
    if arguments.calibrate:
        with stores.opened(arguments.store, create=True) as store:
            say = _silent if arguments.json else console.print
            say(f"measuring how fast this machine trains, about {speed.CALIBRATION_SECONDS:.0f} s")
            speed.calibrate(store, here, log=say)
    checks = [
        _python(),
        _package(),
        *_torch(here["threads"]),
        _envs(),
        _gym(),
        _threads(),
        _memory(),
        _compiler(),
        _extras(),
        *_trackers(),
        *_machine(),
        _guarded("store", lambda: _store(store_url)),
        _guarded("disk", lambda: _disk(store_url)),
        *_speeds(store_url, here),
    ]
    broken = [check.name for check in checks if check.state == "broken"]
    if arguments.json:
        print_json([dataclasses.asdict(check) for check in checks])
    else:
        for check in checks:
            line = Text(f"{check.state:<6} ", style=_STYLES[check.state])
            line.append(f"{check.name:<9}{check.detail}", style="default")
            console.print(line, soft_wrap=True)
    return 1 if broken else 0


def _python() -> Check:
    return _least("python", platform.python_version(), least_version("python"), f" at {sys.executable}")


def _package() -> Check:
    try:
        detail = f"{PACKAGE} {importlib.metadata.version(PACKAGE)}"
    except importlib.metadata.PackageNotFoundError:
        return Check("package", "broken", f"{PACKAGE} is not installed; run make build or pip install .")
    return Check("package", "ok", detail)


def _torch(threads: int) -> list[Check]:
    needed = least_version("torch")
    try:
        import torch
    except ImportError as error:
        return [Check("torch", "broken", f"{error}; install torch {needed} or newer")]
    if torch.cuda.is_available():
        device = f"cuda: {torch.cuda.get_device_name()}"
    else:
        device = "mps" if torch.backends.mps.is_available() else "cpu"
    return [_least("torch", str(torch.__version__), needed), Check("device", "ok", device), *_faster_device(threads)]


def _faster_device(threads: int) -> list[Check]:
    """Says from which network on a GPU is faster than the CPU; nothing, and at once, where there is none."""
    from protein.trainer.machine.precision import found_devices

    if len(found_devices()) == 1:
        return []
    from protein.trainer.ppo.device import crossing

    try:
        found = crossing(threads)
    except Exception as error:  # a driver may raise anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return [Check("device", "note", f"the devices could not be compared, one failed while it was timed: {reason}")]
    return [Check("device", "ok", found)] if found else []


def _requirements() -> list[str]:
    """Returns what the package requires; nothing where it is not installed, which the check `package` reports."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.requires(PACKAGE) or []
    return []


def least_version(name: str) -> str:
    """Returns the minimum version of Python or of a dependency that the package requires; "" where it names none."""
    try:
        if name == "python":
            requirements = [f"python{importlib.metadata.metadata(PACKAGE)['Requires-Python'] or ''}"]
        else:
            requirements = _requirements()
    except importlib.metadata.PackageNotFoundError:
        return ""  # the check `package` reports it
    found = (re.match(rf"{re.escape(name)}[^;]*>=\s*([\d.]+)", requirement) for requirement in requirements)
    return next((match[1] for match in found if match), "")


def _least(name: str, version: str, needed: str, where: str = "") -> Check:
    """Returns the check of a version against the minimum."""
    if _numbers(version) < _numbers(needed):
        return Check(name, "broken", f"{version}{where}; {needed} or newer is needed")
    return Check(name, "ok", version + where)


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the leading numbers of a version: `2.9.0+cpu` -> (2, 9, 0)."""
    leading = re.match(r"[\d.]*", version)
    return tuple(int(part) for part in (leading[0] if leading else "").split(".") if part)


def _envs() -> Check:
    try:
        from protein import envs_c
    except ImportError as error:
        return Check("envs", "broken", str(error))
    return Check("envs", "ok", ", ".join(envs_c.names()))


def _gym() -> Check:
    try:
        found = _least("gym", importlib.metadata.version("gymnasium"), least_version("gymnasium"))
    except importlib.metadata.PackageNotFoundError:
        detail = "gymnasium is not installed; only environments gym:... need it: pip install 'protein-sweep[gymnasium]'"
        return Check("gym", "note", detail)
    # Nothing else needs it, so an old version is only a note.
    return dataclasses.replace(
        found, state="note" if found.state == "broken" else "ok", detail=f"gymnasium {found.detail}"
    )


def _threads() -> Check:
    detail = f"{usable_cores()} usable of {os.cpu_count()}"
    limit = os.environ.get("OMP_NUM_THREADS")
    return Check("threads", "ok", detail + (f", OMP_NUM_THREADS is {limit}" if limit else ""))


def _memory() -> Check:
    free, total = psutil.virtual_memory().available, psutil.virtual_memory().total
    state: Literal["ok", "note"] = "ok" if free >= MIN_MEMORY_BYTES else "note"
    return Check("memory", state, f"{format_size(free)} free of {format_size(total)}")


def _compiler() -> Check:
    named = (os.environ.get("CXX") or "").split()[:1]
    names = [*named, (sysconfig.get_config_var("CXX") or "c++").split()[0], "c++", "g++", "clang++"]
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        return Check("compiler", "note", "none found; only building and --train.compile need one")
    return Check("compiler", "ok", found)


def _extras() -> Check:
    """Says which extras this Python, or an installed package, does not fit. What is not installed says nothing."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    here, faults = platform.python_version(), []
    for line in _requirements():
        requirement = Requirement(line)
        extra = re.search(r"extra == ['\"]([\w-]+)", line)
        if extra is None or requirement.name == PACKAGE:
            continue
        assert requirement.marker is not None
        if not requirement.marker.evaluate({"extra": extra[1]}):  # it names a Python or a system
            faults.append(f"Python {here} does not fit the extra '{extra[1]}': {line.partition(';')[2].strip()}")
            continue
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found = f"{requirement.name} {importlib.metadata.version(requirement.name)}"
            said = importlib.metadata.metadata(requirement.name)
            # What is missing is a KeyError where the package `importlib_metadata` has been imported.
            pythons = SpecifierSet(said["Requires-Python"] if "Requires-Python" in said else "")  # noqa: SIM401 (no get)
            if not pythons.contains(here, prereleases=True):
                least = [one for one in pythons if one.operator in (">=", ">", "==", "~=")]
                old = "new" if all(one.contains(here, prereleases=True) for one in least) else "old"
                faults.append(f"Python {here} is too {old} for {found} of the extra '{extra[1]}': it needs {pythons}")
            elif not requirement.specifier.contains(found.partition(" ")[2], prereleases=True):
                faults.append(f"{found} does not fit the extra '{extra[1]}', which needs {requirement.specifier}")
    if faults:
        return Check(name="extras", state="note", detail="; ".join(dict.fromkeys(faults)))
    return Check(name="extras", state="ok", detail=f"all packages of theirs that are installed fit Python {here}")


def _trackers() -> list[Check]:
    """Says which packages of trackers are there. None is imported, which would take seconds."""
    there = [name for name in TRACKERS if importlib.util.find_spec(name) is not None]
    missing = [name for name in TRACKERS if name not in there]
    detail = f"--tracker can be {', '.join(there)}" if there else "no package of a tracker is installed"
    if missing:
        detail += (
            f"; pip install 'protein-sweep[{missing[0]}]' adds {missing[0]}, and so on for {', '.join(missing[1:])}"
        )
        detail = detail.removesuffix(", and so on for ")
    return [Check("trackers", "ok", detail)]


def _machine() -> list[Check]:
    """Says what slows this machine down."""
    found = troubles()
    if not found:
        return [Check("machine", "ok", "nothing is known to slow trials down now")]
    return [Check("machine", "note", trouble) for trouble in found]


def _speeds(store_url: str, here: Mapping[str, Any]) -> list[Check]:
    """Lists the store's calibrations, the reference machine first; a store without any has no such line."""
    path = stores.file(store_url)
    if path is not None and not path.exists():
        return []
    try:
        with stores.opened(store_url) as store:
            machines = store.machines()
    except ProteinError:
        return []  # the check `store` says why
    own = speed.find_calibration(machines, here)
    checks = []
    for machine in machines:
        facts, factor = machine.facts, speed.speed_of(machines, machine)
        words = "the reference machine" if machine is machines[0] else f"{factor:.2f} times as fast as the reference"
        detail = (
            f"{facts.get('host', machine.name)}, {facts.get('processor', 'unknown processor')},"
            f" {facts.get('threads', '?')} threads a trial, {facts.get('device', '?')}: {words}"
            f" ({machine.calibration_seconds:.3f} s, spread {100 * facts.get('spread', 0.0):.0f} %,"
            f" {machine.measured_at:%Y-%m-%d})"
        )
        checks.append(Check("speed", "ok", detail + (", this machine" if machine is own else "")))
    if machines and own is None:
        detail = (
            "this machine, as it is now, is not calibrated: its next sweep does that, or protein doctor --calibrate"
        )
        checks.append(Check("speed", "note", detail))
    return checks


def _silent(*_: object) -> None:
    """Says nothing: the output is JSON."""


def _store(store_url: str) -> Check:
    path = stores.file(store_url)
    if path is None or path.exists():
        with stores.opened(store_url) as store:
            number = len(store.list_sweeps())
            detail = f"{hidden(store_url)}: {counted(number, 'sweep')}"
        if path is not None and not all(os.access(place, os.W_OK) for place in (path, path.resolve().parent)):
            detail += "; it can only be read here: to sweep, get permission to write it and its folder, or name another"
            return Check("store", "note", f"{detail} with --store")
        return Check("store", "ok", detail)
    # Whether locks and shared memory work there can only be tried, so a store is made in a temporary folder beside it.
    with tempfile.TemporaryDirectory(dir=files.nearest(path.parent), prefix=".protein-doctor-") as folder:
        storage.open_store(f"sqlite:///{Path(folder).absolute()}/probe.db").close()
    return Check("store", "ok", f"{path}: does not exist yet, can be made")


def _disk(store_url: str) -> Check:
    folder = files.nearest((stores.file(store_url) or Path("runs/none")).parent)
    free = shutil.disk_usage(folder).free
    detail = f"{format_size(free)} free at {folder.absolute()}"
    if free < MIN_DISK_BYTES:
        return Check("disk", "broken", f"{detail}; {format_size(MIN_DISK_BYTES)} are needed")
    return Check("disk", "ok", detail)


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except (ProteinError, OSError) as error:
        return Check(name, "broken", " ".join(str(error).split()))


def run_envs(command: Command) -> int:
    from protein import envs_c

    specs = [envs_c.spec(name) for name in envs_c.names()]
    if command.arguments.json:
        print_json([dataclasses.asdict(spec) for spec in specs])
        return 0
    console = tables.make_console()
    console.print(tables.envs(specs, console.width))
    console.print(
        "\nalso gym:ID, any environment of Gymnasium, Atari's among them, pettingzoo:MODULE, a parallel one of"
        " PettingZoo, procgen:GAME, one of Procgen's, and python:MODULE:NAME, one of your own: docs/environments.md\n"
        "text/python is no environment: with it, protein train and sweep make a language model of the source text of"
        " Python's standard library",
        soft_wrap=True,
    )
    return 0
