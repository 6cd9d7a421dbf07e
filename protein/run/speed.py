"""Costs of several machines in the seconds of one: the reference machine, which is the first one of the store.

    cost in reference seconds = own seconds x speed,    speed = calibration of the reference / own calibration

A machine's calibration is how long fixed work takes there (`protein.trainer.machine_speed`). So the speed is 1 on the
reference machine, and 2 on one that is twice as fast.

A backend reports in reference seconds, and so everything beyond it (curves, costs, budget, front, store) is in them.
Our trainer's clock runs in reference seconds by itself (`--speed`), and its checkpoints hold them. So a run may go on
on another machine. For other programs a backend uses `limits_here` before the start and `in_reference` on what it
reports.

What is measured beside the cost stays in the machine's own seconds: `Result.timings`, and limits on the wall clock.

**When a machine is calibrated.** On a single machine it would be wasted time. It is measured only where costs of
several machines can meet:

- a store in a file that knows no machine: never. Its costs are in seconds of the machine that uses it;
- a store on a server, or trials that run on other nodes: each machine at its first sweep, before its first trial;
- a store that knows machines already: a machine that it does not know, likewise;
- `protein doctor --calibrate`: always.

So a store's reference machine is the first one that ever ran a sweep on it, or the first that was told to calibrate.

**What identifies a machine** is in `IDENTITY`, with a trial's threads and the version of torch. If one of them changes,
it is another machine with a calibration of its own. Stored calibrations never change, because costs were stored by
them. Where a machine has several, the newest counts from then on.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from protein.errors import TrialFailed
from protein.ports import Finished, Job, Store, TrialProgress
from protein.run.machine import processor
from protein.trainer.machine.cores import usable_cores
from protein.types import CONTINUABLE_SECONDS, Machine, Measurement, max_trial_seconds, runs_trainer

CALIBRATION_SECONDS = 10.0
NOTABLE_SPREAD = 0.1  # above it, something else used the machine during the calibration
_CALIBRATION_TIMEOUT_SECONDS = 300.0  # of a whole calibration; a machine that needs longer is of no use for trials
# What tells one machine from another. Anything else among a machine's facts describes its calibration.
IDENTITY = ("host", "processor", "cores", "threads", "device", "gpus", "torch")

Event = TypeVar("Event", TrialProgress, Finished)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A machine's calibration, and how many reference seconds one of its seconds is worth."""

    machine: Machine
    factor: float


def find_calibration(machines: Sequence[Machine], facts: Mapping[str, Any]) -> Machine | None:
    """Returns the newest calibration with these facts, as far as they identify a machine; None: there is none.

    A machine whose processor, cores or version of torch have changed is another machine.
    """
    same = [m for m in machines if all(m.facts.get(key) == facts.get(key) for key in IDENTITY)]
    return max(same, key=lambda machine: machine.measured_at, default=None)


def speed_of(machines: Sequence[Machine], machine: Machine) -> float:
    """Returns how many seconds of the reference machine, the first of `machines`, one second of a machine is worth."""
    return machines[0].calibration_seconds / machine.calibration_seconds


def limits_here(job: Job, factor: float) -> Job:
    """Returns the job with its limits in seconds of the machine that runs it.

    The trainer keeps its limit in reference seconds, because its clock runs in them.
    """
    config = job.config
    limit = None if runs_trainer(config) else max_trial_seconds(config)
    if limit is not None:
        config = {**config, "max_seconds": limit / factor}
    wall = None if job.max_seconds is None else job.max_seconds / min(factor, 1.0)  # start-up is not faster for sure
    return dataclasses.replace(job, config=config, max_seconds=wall)


def in_reference(event: Event, factor: float, behind_seconds: float = 0.0) -> Event:
    """Returns what a backend has measured on its machine in reference seconds.

    Args:
        event: with the machine's own seconds, from the start of the trial's process on.
        factor: the speed of the machine.
        behind_seconds: reference seconds of this trial that lie behind that start (`Job.spent_seconds`).
    """
    if factor == 1.0 and not behind_seconds:
        return event
    if isinstance(event, TrialProgress):
        points = tuple(_point(p, factor, behind_seconds) for p in event.measurements)
        cost = None if event.cost_seconds is None else behind_seconds + factor * event.cost_seconds
        return dataclasses.replace(event, measurements=points, cost_seconds=cost)
    outcome = event.outcome
    metrics = dict(outcome.metrics)
    if CONTINUABLE_SECONDS in metrics:
        metrics[CONTINUABLE_SECONDS] = behind_seconds + factor * metrics[CONTINUABLE_SECONDS]
    cost = behind_seconds + factor * outcome.cost_seconds
    return dataclasses.replace(event, outcome=dataclasses.replace(outcome, cost_seconds=cost, metrics=metrics))


def _point(point: Measurement, factor: float, behind_seconds: float) -> Measurement:
    return dataclasses.replace(point, elapsed_seconds=behind_seconds + factor * point.elapsed_seconds)


def machine_facts(*, threads: int, device: str) -> dict[str, Any]:
    """Returns what identifies this machine, as plain JSON. It takes no torch and no time.

    `threads` are of one trial, and `device` is as in `train.device`.
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


def speed_of_this_machine(
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
    here = machine_facts(threads=threads, device=device)
    machine = find_calibration(known, here)
    if machine is None:
        why = (
            "so that costs of several machines can be compared"
            if known
            else "because other machines may share the store"
        )
        log(f"measuring how fast this machine trains, once, about {CALIBRATION_SECONDS:.0f} s, {why}")
        machine = calibrate(store, here, log=log)
        known = store.machines()
    return Speed(machine=machine, factor=speed_of(known, machine))


def calibrate(store: Store, here: Mapping[str, Any], *, log: Callable[[str], None]) -> Machine:
    """Calibrates this machine and stores the result.

    Raises:
        TrialFailed: the calibration failed.
    """
    machine = measure_speed(here, log=log)
    store.add_machine(machine)
    return machine


def measure_speed(here: Mapping[str, Any], *, log: Callable[[str], None]) -> Machine:
    """Calibrates this machine, in a process of its own, and returns it. Nothing is stored.

    It uses the threads and the device in `here`, the machine's facts.

    Raises:
        TrialFailed: the calibration failed.
    """
    command = [sys.executable, "-P", "-m", "protein.trainer.machine_speed", "--threads", str(here["threads"])]
    command += ["--device", here["device"], "--max-seconds", f"{CALIBRATION_SECONDS:g}"]
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "PYTHONSAFEPATH": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=_CALIBRATION_TIMEOUT_SECONDS, check=False
        )
        lines = done.stdout.splitlines()
        found = json.loads(lines[-1]) if done.returncode == 0 and lines else {}
    except subprocess.TimeoutExpired as error:
        raise TrialFailed(
            f"the calibration of this machine took over {_CALIBRATION_TIMEOUT_SECONDS:.0f} s: is it busy?"
            " protein doctor says more"
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
