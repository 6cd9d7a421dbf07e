"""Measures what several workers cost: 4, 16 and 64 at once against one, at equal total cost.

    python benchmarks/engine/workers.py --seeds 3

Workers are simulated. A trial ends when it has cost what it costs, in simulated time; a free worker asks for the next
trial at once, with the trials that run then, and with what the rule of `protein.engine.budget` leaves of the budget.
The conditions are those of a sweep as shipped: 25 mean random-trial costs for all trials together, a quarter at most
for one trial, early stopping at each point of a curve. Figures are those of `engine.cells`, over the total cost, the
incumbent being the trial that measured best for both methods. `busy` is the share of the workers' time in which they
trained, `speedup` how much sooner than one worker they have spent as much. A trial that would overrun the budget is not
counted.

`eager` is the engine without the rule that makes a fifth trial wait. Up to four workers, it is the same.
"""

import argparse
import dataclasses
import heapq
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads: one process, one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import numpy as np
from engine.cells import Run, figures
from engine.paired import METRICS, differences, measure, show
from engine.protocol import Task
from engine.reference import search
from engine.synthetic import FAMILIES, make_synthetic
from engine.variants import variant

from protein.engine.budget import RunningCost, budget_left
from protein.ports import Designer
from protein.sweep.methods import make_designer
from protein.types import Observation, Suggestion, TrialEnd

WORKERS = (1, 4, 16, 64)
METHODS = {"protein": "", "eager": "running_share=1.0", "random": ""}  # and the engine's settings
CONDITIONS = [(method, k) for method in METHODS for k in WORKERS if method != "eager" or k > 4]
BUDGET = 25.0  # mean random-trial costs
MAX_TRIALS = 600  # no sweep gets there; an end for one whose trials cost nothing
COST_CAP = 0.25  # of the budget, for one trial


@dataclasses.dataclass(slots=True)
class _Running:
    suggestion: Suggestion
    whole: Observation  # what it would give if nothing ended it
    began: float
    limit: float
    point: int = 0  # of its curve, reached so far


class Simulation:
    """One sweep on simulated workers."""

    def __init__(self, task: Task, designer: Designer, *, workers: int, total_seconds: float, seed: int) -> None:
        self._task, self._designer, self._workers, self._total, self._seed = (
            task,
            designer,
            workers,
            total_seconds,
            seed,
        )
        self._now, self._events, self._running = 0.0, list[tuple[float, int]](), dict[int, _Running]()
        self._started, self._asked = 0, list[frozenset[Any]]()
        self.run = Run()

    def play(self) -> float:
        """Runs the sweep to its end and returns the share of the workers' time in which they trained."""
        busy = 0.0
        self._fill()
        while self._events:
            self._now, number = heapq.heappop(self._events)
            ended = self._advance(number)
            if ended is None:
                continue
            busy += self._now - self._running.pop(number).began
            spent = sum(o.cost_seconds for o in self.run.history)
            if spent + ended.cost_seconds <= self._total * (1.0 + 1e-9):
                self.run.history.append(ended)
                self.run.think_seconds.append(0.0)
                self.run.advice.append(None)
            self._fill()
        return busy / (self._workers * self._now)

    def _fill(self) -> None:
        while len(self._running) < self._workers and self._started < MAX_TRIALS:
            running = list(self._running.values())
            left = budget_left(
                self._total, [o.cost_seconds for o in self.run.history], [self._expected(trial) for trial in running]
            )
            budget = dataclasses.replace(
                left,
                max_trial_seconds=COST_CAP * self._total,
                can_wait=True,
                num_free=self._workers - len(running),
            )
            if budget.spent:
                return
            params = [trial.suggestion.params for trial in running]
            suggestion = self._designer.suggest(self.run.history, params, budget, self._trial_seed(self._started))
            if suggestion is None:
                return
            key = frozenset(suggestion.params.items())
            whole = self._task.run(suggestion.params, seed=self._seed, repeat=self._asked.count(key))
            self._asked.append(key)
            self._running[self._started] = _Running(suggestion, whole, self._now, budget.next_trial_seconds)
            self._schedule(self._started)
            self._started += 1

    def _expected(self, trial: _Running) -> RunningCost:
        predicted = trial.suggestion.predicted_cost_seconds
        return RunningCost(
            predicted_seconds=None if predicted is None else predicted.value,
            max_trial_seconds=trial.limit,
            spent_seconds=self._now - trial.began,
        )

    def _schedule(self, number: int) -> None:
        trial = self._running[number]
        last = trial.point >= len(trial.whole.curve) - 1
        after = trial.whole.cost_seconds if last else trial.whole.curve[trial.point].elapsed_seconds
        heapq.heappush(self._events, (trial.began + after, number))

    def _advance(self, number: int) -> Observation | None:
        """Returns how the trial ended at the point that it has reached; None: it goes on."""
        trial = self._running[number]
        if trial.point >= len(trial.whole.curve) - 1:
            return trial.whole
        trial.point += 1
        curve = trial.whole.curve[: trial.point]
        end = None
        if curve[-1].elapsed_seconds > trial.limit:
            end = TrialEnd.CAPPED
        elif self._designer.should_stop(self.run.history, trial.suggestion.params, curve, self._trial_seed(number)):
            end = TrialEnd.STOPPED_EARLY
        if end is None:
            self._schedule(number)
            return None
        return dataclasses.replace(
            trial.whole,
            state=end.state,
            end=end,
            score=curve[-1].score,
            cost_seconds=curve[-1].elapsed_seconds,
            curve=curve,
            reason="",
        )

    def _trial_seed(self, number: int) -> int:
        return int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])


def run_cell(job: tuple[str, int]) -> dict[str, Any]:
    """Runs every method with every number of workers on one task."""
    family, seed = job
    task = make_synthetic(family, seed)
    scale = search(task)
    total = BUDGET * scale.mean_cost
    row: dict[str, Any] = {"family": family, "seed": seed}
    for method, workers in CONDITIONS:
        name, settings = "random" if method == "random" else "protein", variant(METHODS[method])
        designer = make_designer(name, task.space, task.start, seed=seed, settings=settings)
        simulation = Simulation(task, designer, workers=workers, total_seconds=total, seed=seed)
        busy = simulation.play()
        found = figures(task, scale, simulation.run, total)
        row[f"{method} {workers}"] = {key: found[key] for key in (*METRICS, "trials", "spent", "pruned")} | {
            "busy": round(busy, 3),
            "speedup": round(busy * workers, 2),
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=30)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--file", type=Path, default=machine.RESULTS / "engine_workers.json")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    jobs = [(family, seed) for seed in seeds for family in arguments.families]
    rows = measure(run_cell, jobs, arguments.file.with_suffix(".jsonl"), arguments.processes)
    pairs = [(f"{method} {k}", f"{'random' if method == 'random' else 'protein'} 1") for method, k in CONDITIONS]
    pairs += [(f"protein {k}", f"random {k}") for k in WORKERS]
    lines = differences(rows, pairs)
    print(machine.headline())
    print(f"{len(rows)} tasks, {BUDGET:g} mean random-trial costs for all trials; differences are paired")
    print(show(lines))
    for condition in (f"{method} {k}" for method, k in CONDITIONS):
        means = {
            key: np.mean([row[condition][key] for row in rows])
            for key in ("trials", "spent", "pruned", "busy", "speedup")
        }
        print(f"{condition:<16}" + "".join(f"{key} {value:.2f}  " for key, value in means.items()))
        lines.append({"condition": condition, **{key: round(float(value), 3) for key, value in means.items()}})
    print(f"written: {machine.write_result(arguments.file.stem, lines, threads=1)}")


if __name__ == "__main__":
    main()
