"""Measures what a warm start from source sweeps is worth, and what misleading ones cost.

    python benchmarks/engine/warm.py --seeds 6 --processes 2

For each family and seed of the synthetic tasks, at 25 mean-random-trial costs and at most 120 trials:

    cold       the engine alone
    related    with 40 trials of a sweep of a relative: each coordinate but the cost parameter's and the categorical
               ones is moved by N(0, 0.07), so the optimum lies elsewhere and costs depend on the params a little
               differently; costs are 1.5 times as high, scores are in other units, the noise is other noise
    unrelated  with 40 trials of a sweep of the same family's problem of another seed: another optimum, other weights
    store      with five source sweeps, 40 trials each: unrelated ones of four other seeds, and last the related one
    misleading with five source sweeps, 40 trials each: all of them unrelated, of five other seeds

Runs and figures are those of `engine.cells`. Differences to cold are paired over (family, seed),
with 90 % bootstrap intervals. Each finished cell is kept in a JSON-lines file beside the result: stop and go on at any
time.
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads: one process, one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import numpy as np
from engine.cells import Run, figures, play
from engine.methods import Engine
from engine.protocol import Altered, Task, Watch
from engine.reference import search
from engine.synthetic import FAMILIES, make_synthetic
from engine.synthetic_task import SyntheticTask
from engine.variants import variant

from protein.engine.settings import EngineSettings
from protein.errors import UsageError
from protein.space import Categorical
from protein.types import Observation, Params

KINDS = ("related", "unrelated", "store", "misleading")
METRICS = ("best", "volume", "area")
BUDGET = 25.0  # mean random-trial costs
TRIAL_CAP = 120
NUM_SOURCE = 40
NUM_SOURCES = 5
SHIFT = 0.07
COST_FACTOR = 1.5
UNITS = (-3.0, 40.0)  # offset and factor of a relative's scores


@dataclasses.dataclass(frozen=True)
class Relative(Altered):
    """A task like `base`, with moved coordinates and other units. Its runs have no curves, so they are not stopped
    early."""

    base: SyntheticTask
    delta: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"relative of {self.base.name}"

    def run(self, params: Params, *, seed: int, repeat: int = 0, watch: Watch | None = None) -> Observation:
        found = self.base.run(self._moved(params), seed=seed, repeat=repeat)
        return dataclasses.replace(
            found,
            params=params,
            score=None if found.score is None else UNITS[0] + UNITS[1] * found.score,
            cost_seconds=COST_FACTOR * found.cost_seconds,
            curve=(),
        )

    def true_score(self, observation: Observation) -> float:
        moved = dataclasses.replace(observation, params=self._moved(observation.params))
        return UNITS[0] + UNITS[1] * self.base.true_score(moved)

    def _moved(self, params: Params) -> Params:
        u = np.clip(self.space.to_unit(params) + np.array(self.delta), 0.0, 1.0)
        return self.space.snap(self.space.from_unit(u))


def relative(task: SyntheticTask, seed: int) -> Relative:
    delta = np.random.default_rng([seed, 77]).normal(0.0, SHIFT, task.space.num_dims)
    for i, parameter in enumerate(task.space.parameters):
        if i == task.space.cost_index or isinstance(parameter, Categorical):
            delta[i] = 0.0
    return Relative(task, tuple(delta.tolist()))


def run_cell(job: tuple[str, int, EngineSettings, Sequence[str]]) -> dict[str, Any]:
    """Runs cold and the kinds of warm start on one task."""
    family, seed, settings, kinds = job
    task = make_synthetic(family, seed)
    scale = search(task)
    total = BUDGET * scale.mean_cost

    def spend(on: Task, seconds: float, cap: int, seed: int, sources: Sequence[Sequence[Observation]] = ()) -> Run:
        engine = Engine(on.space, on.start, seed, settings, sources)
        return play(on, engine, total_seconds=seconds, cap=cap, seed=seed)

    near = spend(relative(task, seed), COST_FACTOR * total, NUM_SOURCE, seed + 500).history
    num_far = NUM_SOURCES if {"store", "misleading"} & set(kinds) else 1
    far = [
        spend(make_synthetic(family, seed + 1000 * (i + 1)), total, NUM_SOURCE, seed + 500).history
        for i in range(num_far)
    ]
    sources = {"related": [near], "unrelated": far[:1], "store": [*far[:-1], near], "misleading": far}
    row: dict[str, Any] = {"family": family, "seed": seed}
    for name in ("cold", *kinds):
        found = figures(task, scale, spend(task, total, TRIAL_CAP, seed, sources.get(name, ())), total)
        row[name] = {key: found[key] for key in (*METRICS, "trials")}
    return row


def summary(rows: Sequence[dict[str, Any]], kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Returns one line for each kind of warm start and figure: means, paired difference, interval, worst family."""
    lines = []
    for kind in kinds:
        for metric in METRICS:
            cold = np.array([row["cold"][metric] for row in rows])
            warm = np.array([row[kind][metric] for row in rows])
            gap = warm - cold
            drawn = gap[np.random.default_rng(0).integers(0, len(gap), (4000, len(gap)))].mean(axis=1)
            low, high = np.quantile(drawn, [0.05, 0.95])
            families = {
                family: (
                    float(np.mean([r[kind][metric] - r["cold"][metric] for r in rows if r["family"] == family])),
                    float(np.mean([r["cold"][metric] for r in rows if r["family"] == family])),
                )
                for family in dict.fromkeys(row["family"] for row in rows)
            }
            worst = min(families, key=lambda family: families[family][0])
            lines.append(
                {
                    "source": kind,
                    "figure": metric,
                    "cold": round(float(cold.mean()), 4),
                    "warm": round(float(warm.mean()), 4),
                    "difference": round(float(gap.mean()), 4),
                    "interval_90": [round(float(low), 4), round(float(high), 4)],
                    "relative": round(float(gap.mean() / cold.mean()), 4),
                    "worst_family": worst,
                    "worst_difference": round(families[worst][0], 4),
                    "worst_cold": round(families[worst][1], 4),
                }
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--settings", default="", help="changes, as in source_front_levels=(0.3,);...")
    parser.add_argument("--file", type=Path, default=machine.RESULTS / "engine_warm.json")
    arguments = parser.parse_args()
    try:
        settings = variant(arguments.settings)
    except UsageError as error:
        parser.exit(2, f"error: --settings: {error}\n")
    cells = arguments.file.with_suffix(".jsonl")
    rows = [json.loads(line) for line in cells.read_text().splitlines()] if cells.exists() else []
    done = {(row["family"], row["seed"]) for row in rows}
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    jobs = [
        (family, seed, settings, arguments.kinds)
        for seed in seeds
        for family in arguments.families
        if (family, seed) not in done
    ]
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool, cells.open("a") as file:
        for row in pool.imap_unordered(run_cell, jobs, chunksize=1):
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    lines = summary(rows, arguments.kinds)
    print(machine.headline())
    print(
        f"{len(rows)} cells, {BUDGET:g} mean random-trial costs, at most {TRIAL_CAP} trials,"
        f" {NUM_SOURCE} trials of each source sweep\n"
    )
    for line in lines:
        low, high = line["interval_90"]
        print(
            f"{line['source']:<10} {line['figure']:<7} cold {line['cold']:.3f}  warm {line['warm']:.3f}"
            f"  {line['difference']:+.3f} [{low:+.3f}, {high:+.3f}]  {line['relative']:+.1%}"
            f"  worst: {line['worst_family']} {line['worst_difference']:+.3f} of {line['worst_cold']:.3f}"
        )
    result = {**machine.describe(), "budget": BUDGET, "cap": TRIAL_CAP, "source_trials": NUM_SOURCE, "table": lines}
    arguments.file.write_text(json.dumps({**result, "cells": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
