"""The calibration of this machine: when a sweep needs one, how it is measured, and what is kept of it.

**When.** On a single machine it would be wasted time. It is measured only where costs of several machines can meet:

- a store in a file that knows no machine: never. Its costs are in seconds of the machine that uses it;
- a store on a server, or trials that run on other nodes: each machine at its first sweep, before its first trial;
- a store that knows machines already: a machine that it does not know, likewise;
- `protein doctor --calibrate`: always.

So a store's reference machine is the first one that ever ran a sweep on it, or the first that was told to calibrate.

**What identifies a machine** is in `protein.run.speed.IDENTITY`, with a trial's threads and the version of torch.
If one of them changes, it is another machine with a calibration of its own. Stored calibrations never change,
because costs were stored by them. Where a machine has several, the newest counts from then on.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protein.errors import TrialFailed
from protein.ports import Store
from protein.run import speed
from protein.run.machine_state import processor
from protein.trainer.machine.cores import usable_cores
from protein.types import Machine

MAX_SECONDS = 10.0
NOTABLE_SPREAD = 0.1  # above it, something else used the machine during the calibration
_TIMEOUT_SECONDS = 300.0  # of a whole calibration; a machine that needs longer is of no use for trials


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A machine's calibration, and how many reference seconds one of its seconds is worth."""

    machine: Machine
    factor: float


def facts(*, threads: int, device: str) -> dict[str, Any]:
    """Returns what identifies this machine, as plain JSON. It takes no torch and no time.

    Args:
        threads: of one trial.
        device: of the trials, as in `train.device`.
    """
    return {
        "host": platform.node(),
        "processor": processor(),
        "cores": usable_cores(),
        "threads": threads,
        "device": device,
        "gpus": [] if device == "cpu" else _gpu_names(),
        "torch": importlib.metadata.version("torch"),
    }


def of_this_machine(
    store: Store, *, threads: int, device: str, shared: bool, log: Callable[[str], None]
) -> Speed | None:
    """Returns this machine's speed for a sweep that starts here; it calibrates the machine where that is needed.

    Args:
        store: where the calibrations are kept.
        threads: of one trial.
        device: of the trials, as in `train.device`.
        shared: whether other machines may use the store, or run trials of it: see the head of this file.
        log: called with lines for people.

    Raises:
        TrialFailed: the calibration failed.
    """
    known = store.machines()
    if not known and not shared:
        return None
    here = facts(threads=threads, device=device)
    machine = speed.find(known, here)
    if machine is None:
        why = (
            "so that costs of several machines can be compared"
            if known
            else "because other machines may share the store"
        )
        log(f"measuring how fast this machine trains, once, about {MAX_SECONDS:.0f} s, {why}")
        machine = add(store, here, log=log)
        known = store.machines()
    return Speed(machine=machine, factor=speed.speed(known, machine))


def add(store: Store, here: Mapping[str, Any], *, log: Callable[[str], None]) -> Machine:
    """Calibrates this machine and stores the result.

    Args:
        store: where it is kept.
        here: `facts` of this machine.
        log: called with lines for people.

    Raises:
        TrialFailed: the calibration failed.
    """
    machine = measure(here, log=log)
    store.add_machine(machine)
    return machine


def measure(here: Mapping[str, Any], *, log: Callable[[str], None]) -> Machine:
    """Calibrates this machine, in a process of its own, and returns it. Nothing is stored.

    Args:
        here: `facts` of this machine; the calibration uses its threads and its device.
        log: called with lines for people.

    Raises:
        TrialFailed: the calibration failed.
    """
    command = [sys.executable, "-m", "protein.trainer.calibration", "--threads", str(here["threads"])]
    command += ["--device", here["device"], "--max-seconds", f"{MAX_SECONDS:g}"]
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "PYTHONSAFEPATH": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=_TIMEOUT_SECONDS, check=False
        )
        lines = done.stdout.splitlines()
        found = json.loads(lines[-1]) if done.returncode == 0 and lines else {}
    except subprocess.TimeoutExpired as error:
        raise TrialFailed(
            f"the calibration of this machine took over {_TIMEOUT_SECONDS:.0f} s: is it busy? protein doctor says more"
        ) from error
    except (OSError, ValueError) as error:
        raise TrialFailed(f"the calibration of this machine failed: {error}") from error
    if "seconds" not in found:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise TrialFailed(f"the calibration of this machine failed: {last.removeprefix('error: ')}")
    spread, seconds = found["spread"], found["seconds"]
    if spread > NOTABLE_SPREAD:
        log(
            f"the calibration is uncertain: its rounds differ by {100 * spread:.0f} %, so something else uses this"
            " machine; protein doctor --calibrate repeats it"
        )
    now = datetime.now(UTC)
    kept = {name: found[name] for name in ("spread", "rounds", "parts")}
    return Machine(
        name=f"{here['host']} {_digest(here, now)}",
        facts={**here, **kept},
        calibration_seconds=seconds,
        measured_at=now,
    )


def _digest(here: Mapping[str, Any], now: datetime) -> str:
    """Returns some letters that tell this calibration from any other one of the same host."""
    text = json.dumps([dict(here), now.isoformat()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _gpu_names() -> list[str]:
    """Returns the names of the NVIDIA GPUs of this machine, by the driver's own files."""
    names = []
    for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        model = [line for line in information.read_text().splitlines() if line.startswith("Model:")]
        names += [line.partition(":")[2].strip() for line in model]
    return names
