"""Measures the scale of the real tasks and writes `real_reference.json`; run it again on another machine.

    python benchmarks/engine/measure_real.py             # about ten minutes of one core
    python benchmarks/engine/measure_real.py real-mlp    # one family, the others stay

For each family, in three steps. First random configs, on the splits of ten seeds in turn. Their median test score is 0
of the scale, and their mean cost is the unit of budgets (failures count with their cost). Then rounds of mutants of the
best by validation score, within each of eight cost levels. Then the best of every level, on further seeds that were not
used before. Their mean test scores and mean costs are the ideal front. The highest is 1 of the scale, because nothing
better is known.
"""

import argparse
import json
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
from engine.real import FAMILIES, RealTask, make_real
from engine.reference import REAL_TABLE

from protein.engine.pareto import hypervolume
from protein.types import Observation, Params

_NUM_SEEDS = 10
_NUM_LEVELS = 8
_KEEP = 2  # finalists of each level
_NUM_FINAL_SEEDS = 4


def measure(family: str, num_random: int, num_search: int) -> dict[str, Any]:
    """Returns the fields of a family's `Reference`, and how they were measured."""
    tasks = [make_real(family, seed) for seed in range(_NUM_SEEDS)]
    space = tasks[0].space
    rng = np.random.default_rng(12345)
    runs: list[tuple[Params, Observation, float]] = []

    def try_all(configs: list[Params]) -> None:
        for params in configs:
            task = tasks[len(runs) % _NUM_SEEDS]
            observation = task.run(params, seed=len(runs))
            runs.append((params, observation, _truth(task, observation)))

    try_all([dict(p) for p in space.from_unit_many(space.sample(num_random, rng))])
    random_cost = np.array([o.cost_seconds for _, o, _ in runs])
    median = float(np.median([t for _, o, t in runs if o.score is not None]))
    levels = np.geomspace(np.quantile(random_cost, 0.02), random_cost.max(), _NUM_LEVELS)
    for share in np.linspace(1.0, 0.3, 5):
        parents = [p for level in levels for p in _best(runs, level, _KEEP)]
        base = space.to_unit_many([parents[i] for i in rng.integers(0, len(parents), num_search // 5)])
        moved = base + 0.2 * share * rng.standard_normal(base.shape) * (rng.random(base.shape) < 0.5)
        try_all([space.snap(p) for p in space.from_unit_many(np.clip(moved, 0.0, 1.0))])
    finalists = {json.dumps(p): p for level in levels for p in _best(runs, level, _KEEP)}
    front = []
    for params in finalists.values():
        truths, costs = [], []
        for seed in range(_NUM_SEEDS, _NUM_SEEDS + _NUM_FINAL_SEEDS):
            task = make_real(family, seed)
            observation = task.run(params, seed=seed)
            truths.append(_truth(task, observation))
            costs.append(observation.cost_seconds)
        if np.isfinite(truths).all():
            front.append((float(np.mean(truths)), float(np.mean(costs)), params))
    score, cost = np.array([f[0] for f in front]), np.array([f[1] for f in front])
    best, max_cost = float(np.max(score)), float(np.max(random_cost))
    ideal = hypervolume((score - median) / (best - median), cost, reference_score=0.0, reference_cost=max_cost)
    return {
        "median": median,
        "best": best,
        "mean_cost": float(np.mean(random_cost)),
        "max_cost": max_cost,
        "ideal_volume": ideal,
        "failed": float(np.mean([o.score is None for _, o, _ in runs[:num_random]])),
        "configs": {"random": num_random, "search": len(runs) - num_random, "finalists": len(finalists)},
        "front": [{"score": s, "cost_seconds": c, "params": p} for s, c, p in sorted(front, key=lambda f: f[1])],
    }


def _best(runs: list[tuple[Params, Observation, float]], level: float, count: int) -> list[Params]:
    """The params of the highest validation scores at cost up to a level."""
    allowed = [(o.score, i) for i, (_, o, _) in enumerate(runs) if o.score is not None and o.cost_seconds <= level]
    return [runs[i][0] for _, i in sorted(allowed, reverse=True)[:count]]


def _truth(task: RealTask, observation: Observation) -> float:
    return np.nan if observation.score is None else task.true_score(observation)


def main() -> None:
    """Measures the families that are named and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(FAMILIES), help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--random", type=int, default=300)
    parser.add_argument("--search", type=int, default=200)
    arguments = parser.parse_args()
    for family in arguments.families:
        measured = measure(family, arguments.random, arguments.search)
        table = json.loads(REAL_TABLE.read_text()) if REAL_TABLE.exists() else {}
        table[family] = {"measured": machine.describe(), **measured}
        REAL_TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
        print(family, {k: round(v, 4) for k, v in measured.items() if isinstance(v, float)}, flush=True)


if __name__ == "__main__":
    main()
