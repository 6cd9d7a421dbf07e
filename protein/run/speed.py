"""Costs of several machines in the seconds of one: the reference machine, which is the first one of the store.

    cost in reference seconds = own seconds x speed,    speed = calibration of the reference / own calibration

A machine's calibration is how long fixed work takes there (`protein.trainer.calibration`). So the speed is 1 on the
reference machine, and 2 on one that is twice as fast.

A backend reports in reference seconds, and so everything beyond it (curves, costs, budget, front, store) is in them.
Our trainer's clock runs in reference seconds by itself (`--speed`), and its checkpoints hold them. So a run may go on
on another machine. For other programs a backend uses `own_limits` before the start and `in_reference` on what it
reports.

What is measured beside the cost stays in the machine's own seconds: `Result.timings`, and limits on the wall clock.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from protein.ports import Finished, Job, TrialProgress
from protein.run.job import max_seconds, runs_trainer
from protein.types import CONTINUABLE_SECONDS, Machine, Measurement

# What tells one machine from another. Anything else among a machine's facts describes its calibration.
IDENTITY = ("host", "processor", "cores", "threads", "device", "gpus", "torch")

Event = TypeVar("Event", TrialProgress, Finished)


def find(machines: Sequence[Machine], facts: Mapping[str, Any]) -> Machine | None:
    """Returns the newest calibration with these facts, as far as they identify a machine; None: there is none.

    A machine whose processor, cores or version of torch have changed is another machine.
    """
    same = [m for m in machines if all(m.facts.get(key) == facts.get(key) for key in IDENTITY)]
    return max(same, key=lambda machine: machine.measured_at, default=None)


def speed(machines: Sequence[Machine], machine: Machine) -> float:
    """Returns how many seconds of the reference machine, the first of `machines`, one second of a machine is worth."""
    return machines[0].calibration_seconds / machine.calibration_seconds


def own_limits(job: Job, factor: float) -> Job:
    """Returns the job with its limits in seconds of the machine that runs it.

    The trainer keeps its limit in reference seconds, because its clock runs in them.

    Args:
        job: as the loop gives it.
        factor: the speed of the machine.
    """
    config = job.config
    limit = None if runs_trainer(config) else max_seconds(config)
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
