"""Measures what a busy machine costs: trials take 1 to 3 times as long at random, and the load drifts.

    python benchmarks/engine/busy.py --seeds 3

For each family and seed of the synthetic tasks, at 25 mean random-trial costs and at most 120 trials:

    calm   costs as they are
    told   as busy, and the engine is told in which share of a run's seconds other programs had its cores
    busy   each run's cost, and the seconds of its curve, times 3^u, u uniform in [0, 1], times a drift of the load,
           exp(.35 sin(2 pi (p + phase))), p being the share of the budget that was spent when it began

A busy machine does less work in a second. So the busy budget is larger by the mean factor, 1.88, and buys about the
same runs. Best and area are those of `engine.cells` over the seconds as measured. The volume is that of the runs' calm
costs: a config is not better because it was lucky with the machine.
"""

import argparse
import dataclasses
import math
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
from engine.cells import figures, play
from engine.methods import make_method
from engine.paired import METRICS, differences, measure, show
from engine.protocol import Altered, Task, Watch
from engine.reference import search
from engine.synthetic import FAMILIES, make_synthetic

from protein.types import Measurement, Observation, Params

CALM, BUSY, TOLD = "calm", "busy", "told"
BUDGET = 25.0  # mean random-trial costs
TRIAL_CAP = 120
SLOWEST = 3.0
DRIFT = 0.35
MEAN_FACTOR = (SLOWEST - 1.0) / math.log(SLOWEST) * float(np.i0(DRIFT))


@dataclasses.dataclass(slots=True)
class BusyTask(Altered):
    """A task on a busy machine. It keeps its own clock, so it serves one sweep; its runs are in `calm`, as they are."""

    base: Task
    total_seconds: float
    seed: int
    tells: bool = False
    spent: float = 0.0
    calm: dict[int, Observation] = dataclasses.field(default_factory=dict)  # by number of the run

    @property
    def name(self) -> str:
        return f"busy {self.base.name}"

    def run(self, params: Params, *, seed: int, repeat: int = 0, watch: Watch | None = None) -> Observation:
        """Returns one trial's outcome; see `engine.protocol.Task`."""
        x = self.space.to_unit(params)
        rng = np.random.default_rng([self.seed, 5, repeat, *np.frombuffer(x.tobytes(), dtype=np.uint32).tolist()])
        phase = float(np.random.default_rng([self.seed, 6]).random())
        drift = math.exp(DRIFT * math.sin(2.0 * math.pi * (self.spent / self.total_seconds + phase)))
        factor = SLOWEST ** float(rng.random()) * drift

        def slowed(curve: tuple[Measurement, ...]) -> tuple[Measurement, ...]:
            return tuple(dataclasses.replace(p, elapsed_seconds=factor * p.elapsed_seconds) for p in curve)

        watched: Watch | None = None if watch is None else lambda curve: watch(slowed(curve))
        found = self.base.run(params, seed=seed, repeat=repeat, watch=watched)
        self.calm[len(self.calm)] = found
        cost = factor * found.cost_seconds
        self.spent += cost
        share = max(1.0 - 1.0 / factor, 0.0) if self.tells else None
        return dataclasses.replace(found, cost_seconds=cost, curve=slowed(found.curve), busy_share=share)

    def true_score(self, observation: Observation) -> float:
        return self.base.true_score(observation)


def run_cell(job: tuple[str, int, str, tuple[str, ...]]) -> dict[str, Any]:
    """Runs the engine on one task under some conditions."""
    family, seed, method, conditions = job
    task = make_synthetic(family, seed)
    scale = search(task)
    total = BUDGET * scale.mean_cost
    row: dict[str, Any] = {"family": family, "seed": seed}
    for condition in conditions:
        optimiser = make_method(method, task.space, task.start, seed)
        if condition == CALM:
            run = play(task, optimiser, total_seconds=total, cap=TRIAL_CAP, seed=seed)
            found = figures(task, scale, run, total)
        else:
            busy = BusyTask(task, MEAN_FACTOR * total, seed, tells=condition == TOLD)
            run = play(busy, optimiser, total_seconds=MEAN_FACTOR * total, cap=TRIAL_CAP, seed=seed)
            found = figures(busy, scale, run, MEAN_FACTOR * total)
            run.history = [busy.calm[i] for i in range(len(run.history))]
            found["volume"] = figures(task, scale, run, total)["volume"]
        row[condition] = {key: found[key] for key in (*METRICS, "trials", "pruned")}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=30)
    parser.add_argument("--conditions", nargs="+", default=[BUSY, TOLD], choices=[BUSY, TOLD])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--method", default="protein", help="the engine, with settings as in engine.variants")
    parser.add_argument("--file", type=Path, default=machine.RESULTS / "engine_busy.json")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    conditions = (CALM, *arguments.conditions)
    jobs = [(family, seed, arguments.method, conditions) for seed in seeds for family in arguments.families]
    rows = measure(run_cell, jobs, arguments.file.with_suffix(".jsonl"), arguments.processes)
    lines = differences(rows, [(condition, CALM) for condition in arguments.conditions])
    print(machine.headline())
    print(f"{len(rows)} tasks, {BUDGET:g} mean random-trial costs, at most {TRIAL_CAP} trials")
    print(show(lines))
    print(f"written: {machine.write_result(arguments.file.stem, lines, threads=1)}")


if __name__ == "__main__":
    main()
