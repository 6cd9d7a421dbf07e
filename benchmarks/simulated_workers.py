"""Many workers at once: how busy they are, and what a sweep loses against one worker at equal total cost.

    python benchmarks/simulated_workers.py --seeds 2

The loop and the store (a SQLite file) are those of a real sweep. The backend is simulated: a trial lasts as long as it
costs, on a clock that jumps from event to event, so a sweep of an hour takes minutes. The tasks are drawn by
`engine.synthetic`, and their costs are changed: a random config costs 10 s on average, and the central 95 % of configs
differ by a factor of 30.

Columns
    busy        share of the workers' time in which they train, until the last trial starts; `whole`: until it ends
    thinking    the same as `busy`, if the engine's own time counted: seconds here of suggestions stand on the clock
    best        truth of the config that is recommended; 0 the median random config, 1 the best known
    volume      hypervolume of what was run, over the ideal one
    lost        of each, what is less than with one worker by the same method

Methods: the engine (`protein`), with other `running_share`s, Optuna's TPE and random search.
"""

import argparse
import dataclasses
import heapq
import json
import math
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads: one process, one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import machine
import numpy as np
from engine.cells import Run, figures
from engine.paired import measure
from engine.reference import search
from engine.synthetic import FAMILIES, make_synthetic
from engine.synthetic_task import SyntheticTask, Truth
from engine.variants import variant
from numpy.typing import NDArray

from protein.ports import Finished, Job, SweepStatus, TrialProgress
from protein.storage import open_store
from protein.sweep import provenance
from protein.sweep.loop import LoopSettings, run_sweep
from protein.sweep.methods import make_designer
from protein.types import Measurement, Observation, Outcome, SweepSpec, Trial, TrialEnd, TrialRecord, TrialState

WORKERS = (1, 4, 16, 64)
METHODS = {  # and the engine's settings
    "protein": "",
    "share 0.5": "running_share=0.5",
    "share 1.0": "running_share=1.0",
    "optuna:tpe": "",
    "random": "",
}
MEAN_SECONDS = 10.0
SPREAD = 30.0
_NUM_RANDOM = 2000

Array = NDArray[np.float64]


def with_spread(task: SyntheticTask, seed: int) -> SyntheticTask:
    """Returns a task with costs of `MEAN_SECONDS` on average and a spread of `SPREAD`; their order stays."""
    points = task.space.sample(_NUM_RANDOM, np.random.default_rng(seed))
    costs = task.truth(points).cost
    low, high = np.quantile(costs, [0.025, 0.975])
    exponent = math.log(SPREAD) / math.log(high / low)
    factor = MEAN_SECONDS / float(np.mean(costs**exponent))

    def truth(u: Array) -> Truth:
        plain = task.truth(u)
        return dataclasses.replace(plain, cost=factor * plain.cost**exponent)

    return dataclasses.replace(task, truth=truth)


@dataclasses.dataclass(slots=True)
class _Running:
    job: Job
    whole: Observation  # what it gives if nothing ends it
    began: float
    point: int = 0  # of its curve, reached so far
    ended: bool = False


class SimulatedBackend:
    """A backend (see `protein.ports.Backend`) whose trials take no time but on its own clock, `now`."""

    def __init__(self, task: SyntheticTask, seed: int, *, thinking: bool) -> None:
        self.now = 0.0
        self.busy_seconds = 0.0  # of all workers
        self.busy_at_last_start = 0.0
        self.last_start = 0.0
        self.history: list[Observation] = []
        self._task, self._seed, self._thinking = task, seed, thinking
        self._running: dict[int, _Running] = {}
        self._events: list[tuple[float, int]] = []
        self._finished: list[Finished] = []
        self._asked: list[frozenset[Any]] = []
        self._polled = time.perf_counter()

    def num_slots(self) -> int | None:
        return None

    def start(self, job: Job) -> None:
        self._think()
        params = job.trial.params
        key = frozenset(params.items())
        whole = self._task.run(params, seed=self._seed, repeat=self._asked.count(key))
        self._asked.append(key)
        self._running[job.trial.number] = _Running(job, whole, self.now)
        self.last_start, self.busy_at_last_start = self.now, self.busy_seconds
        self._schedule(job.trial.number)

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        self._think()
        while self._events and not self._finished:
            at, number = heapq.heappop(self._events)
            trial = self._running.get(number)
            if trial is None or trial.ended:
                continue
            self._advance(max(at, self.now))
            event = self._next(trial)
            self._polled = time.perf_counter()
            return [event]
        found, self._finished = self._finished, []
        self._polled = time.perf_counter()
        return list(found)

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        running = self._running.get(trial.number)
        if running is not None and not running.ended:
            curve = running.whole.curve[: running.point]
            score = curve[-1].score if curve and end.state is TrialState.PRUNED else None
            self._finished.append(self._end(running, end, reason, score, curve, self.now - running.began))

    def close(self) -> None: ...

    def _think(self) -> None:
        """Lets the time pass that the loop has taken since the last poll."""
        if self._thinking:
            self._advance(self.now + time.perf_counter() - self._polled)
            self._polled = time.perf_counter()

    def _advance(self, now: float) -> None:
        for trial in self._running.values():
            trains_until = min(now, trial.began + trial.whole.cost_seconds)
            self.busy_seconds += max(trains_until - max(self.now, trial.began), 0.0)
        self.now = now

    def _schedule(self, number: int) -> None:
        trial = self._running[number]
        last = trial.point >= len(trial.whole.curve) - 1
        after = trial.whole.cost_seconds if last else trial.whole.curve[trial.point].elapsed_seconds
        heapq.heappush(self._events, (trial.began + after, number))

    def _next(self, trial: _Running) -> TrialProgress | Finished:
        if trial.point >= len(trial.whole.curve) - 1:
            whole = trial.whole
            end = TrialEnd.COMPLETE if whole.state is TrialState.COMPLETE else TrialEnd.DIVERGED
            return self._end(trial, end, whole.reason, whole.score, whole.curve, whole.cost_seconds)
        trial.point += 1
        curve = trial.whole.curve[: trial.point]
        limit = trial.job.config["max_seconds"]
        if limit is not None and curve[-1].elapsed_seconds >= limit:
            end = trial.job.at_limit
            return self._end(trial, end, end.text, curve[-1].score, curve, curve[-1].elapsed_seconds)
        self._schedule(trial.job.trial.number)
        return TrialProgress(trial=trial.job.trial, measurements=curve[-1:])

    def _end(
        self,
        trial: _Running,
        end: TrialEnd,
        reason: str,
        score: float | None,
        curve: tuple[Measurement, ...],
        cost_seconds: float,
    ) -> Finished:
        trial.ended = True
        del self._running[trial.job.trial.number]
        steps = curve[-1].steps if curve else 0
        self.history.append(
            dataclasses.replace(
                trial.whole,
                state=end.state,
                end=end,
                score=score,
                cost_seconds=cost_seconds,
                curve=curve,
                reason=reason,
            )
        )
        outcome = Outcome(end=end, score=score, cost_seconds=cost_seconds, steps=steps, reason=reason)
        return Finished(trial=trial.job.trial, outcome=outcome)


class _Nobody:
    """A listener that does nothing."""

    def update(self, status: SweepStatus) -> None: ...

    def started(self, trial: TrialRecord) -> None: ...

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None: ...

    def log(self, line: str) -> None: ...


def simulate(
    task: SyntheticTask, method: str, *, workers: int, total_seconds: float, seed: int, thinking: bool = False
) -> tuple[SimulatedBackend, SweepStatus]:
    """Runs one sweep by the real loop, with a real store."""
    name = "protein" if method.startswith("share") else method
    backend = SimulatedBackend(task, seed, thinking=thinking)
    config: dict[str, Any] = {"own": {"start": dict(task.start)}}
    spec = SweepSpec(
        name="simulated",
        env=task.name,
        method=name,
        seed=seed,
        space=task.space.to_dict(),
        config=config,
        provenance=provenance.collect(config),
    )
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/store.db")
        try:
            status = run_sweep(
                store.create_sweep(spec, total_seconds),
                designer=make_designer(name, task.space, task.start, seed=seed, settings=variant(METHODS[method])),
                store=store,
                backend=backend,
                settings=LoopSettings(directory=Path(folder), workers=workers, max_cost_seconds=total_seconds),
                listener=_Nobody(),
                stop=threading.Event(),
            )
            kept = store.trials(status.sweep.id)
        finally:
            store.close()
    in_order = sorted(one.cost_seconds for one in backend.history)
    assert sorted(one.cost_seconds for one in kept) == in_order, "the store has other trials than ran"
    return backend, status


def run_cell(job: tuple[str, int]) -> dict[str, Any]:
    """Runs every condition on one task."""
    family, seed = job
    task = with_spread(make_synthetic(family, seed), seed)
    scale = search(task)
    row: dict[str, Any] = {"family": family, "seed": seed}
    for method, workers in _conditions:
        total = _mean_trials * MEAN_SECONDS
        began = time.perf_counter()
        backend, status = simulate(task, method, workers=workers, total_seconds=total, seed=seed, thinking=_thinking)
        run = Run(backend.history, [0.0] * len(backend.history), [None] * len(backend.history))
        found = figures(task, scale, run, total)
        row[f"{method} {workers}"] = {
            key: found[key] for key in ("best", "recommended", "volume", "area", "trials")
        } | {
            "busy": round(backend.busy_at_last_start / max(workers * backend.last_start, 1e-9), 4),
            "whole": round(backend.busy_seconds / (workers * backend.now), 4),
            "hours": round(backend.now / 3600, 4),
            "engine_seconds": round(status.engine_seconds, 1),
            "seconds": round(time.perf_counter() - began, 1),
        }
        print(f"{family:<12}{seed:4} {method:<11}{workers:3}  {json.dumps(row[f'{method} {workers}'])}", flush=True)
    return row


_conditions: list[tuple[str, int]] = []
_mean_trials = 0.0
_thinking = False


def summary(rows: list[dict[str, Any]], conditions: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """Returns a line for each condition: means over the tasks, and what is lost against one worker."""
    lines = []
    for method, workers in conditions:
        base = f"{'protein' if method.startswith('share') else method} 1"
        cells = [row[f"{method} {workers}"] for row in rows]
        line: dict[str, Any] = {"method": method, "workers": workers}
        for key in ("busy", "whole", "best", "volume", "trials", "hours", "engine_seconds"):
            line[key] = round(float(np.mean([cell[key] for cell in cells])), 3)
        if all(base in row for row in rows):
            for key in ("best", "volume"):
                line[f"{key}_lost"] = round(
                    float(np.mean([r[base][key] - r[f"{method} {workers}"][key] for r in rows])), 3
                )
        lines.append(line)
    return lines


def main() -> None:
    global _conditions, _mean_trials, _thinking
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", default=["ppo", "deceptive", "saturating"], choices=FAMILIES)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=30, help="from 30 on: development")
    parser.add_argument("--mean-trials", type=float, default=256.0, help="the budget, in trials of 10 s")
    parser.add_argument("--workers", nargs="+", type=int, default=list(WORKERS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--thinking", action="store_true", help="the engine's own time stands on the clock")
    parser.add_argument("--name", default="simulated_workers", help="of the result")
    arguments = parser.parse_args()
    few = [method for method in arguments.methods if method.startswith("share")]
    _conditions = [(m, k) for m in arguments.methods for k in arguments.workers if k > 4 or m not in few]
    _mean_trials, _thinking = arguments.mean_trials, arguments.thinking
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    jobs = [(family, seed) for seed in seeds for family in arguments.families]
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(run_cell, jobs, Path(folder) / "cells.jsonl", 1)
    lines = summary(rows, _conditions)
    print(machine.headline())
    print("  ".join(f"{key:>10}" for key in lines[0]) + "   best_lost volume_lost")
    for line in lines:
        print("  ".join(f"{value!s:>10}" for value in line.values()))
    facts = {"mean_trials": _mean_trials, "spread": SPREAD, "thinking": _thinking, "seeds": list(seeds)}
    path = machine.write_result(arguments.name, lines, threads=1, families=arguments.families, cells=rows, **facts)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
