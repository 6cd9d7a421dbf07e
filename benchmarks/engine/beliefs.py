"""What a belief about good values is worth when it is right, vague or wrong, at small budgets.

    python benchmarks/engine/beliefs.py --half development --settings "belief_fade=10"
    python benchmarks/engine/beliefs.py                                # the half that is reported

Conditions, on the same task and seed. The beliefs are about half of the numeric parameters that hardly change what a
trial costs, drawn by the seed: most people know such values, and about a large network nobody is wrong cheaply.
Coordinates and spreads are in shares of the parameter's range on its scale. Best values are those of the best config
that a search of the noiseless truth finds (`engine.reference`).

    none     the engine without a belief
    right    centre drawn around the best value with the spread .1, which is also what is said
    vague    the same with .25
    wrong    centre half of the range away from the best value, spread .1

Each family of the held-out half is reported; settings are chosen on the other half alone.
"""

import argparse
import dataclasses
import json
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
from engine.methods import Engine
from engine.paired import differences, measure, show
from engine.reference import Array, Searchable, best_config, reference, searchable
from engine.tasks import make_task
from engine.variants import variant

from protein.errors import UsageError
from protein.space import Categorical, Float, Integer, Space

HALVES = {
    "development": ("ppo", "deceptive", "supervised", "wide", "rl-ppo-cc-acrobot", "rl-ppo-brax-ant"),
    "held-out": (
        *("cliff", "takeoff", "saturating", "noisy", "overfit", "outliers"),
        *("rl-ppo-brax-humanoid", "rl-sac-brax-ant", "rl-dqn-cc-mountain-car"),
    ),
}
SPREADS = {"right": 0.1, "vague": 0.25, "wrong": 0.1}
BUDGETS = {10: 50, 25: 80}  # mean random-trial costs, and the most trials
ABOUT_THE_SAME = 1.3
RESULT = machine.RESULTS / "engine_beliefs.json"


def cheap_to_change(model: Searchable, x: Array) -> list[int]:
    """Returns the numeric parameters whose ends cost about the same, everything else as in x, `d`."""
    found = []
    for i, parameter in enumerate(model.space.parameters):
        if not isinstance(parameter, Categorical) and i != model.space.cost_index:
            ends = np.repeat(x[None, :], 2, axis=0)
            ends[:, i] = 0.0, 1.0
            low, high = model.final(model.space.canonical(ends))[1].tolist()
            if max(low, high) < ABOUT_THE_SAME * min(low, high):
                found.append(i)
    return found


def believing(space: Space, x_best: Array, numeric: list[int], condition: str, seed: int) -> Space:
    """Returns the space with beliefs about half of some parameters, around the best values or far from them."""
    rng = np.random.default_rng([seed, 5])
    chosen = rng.permutation(numeric)[: math.ceil(len(numeric) / 2)]
    shifts, parameters = rng.standard_normal(len(numeric)), list(space.parameters)
    for i, shift in zip(chosen.tolist(), shifts.tolist(), strict=False):
        parameter, best, spread = parameters[i], float(x_best[i]), SPREADS[condition]
        assert isinstance(parameter, Float | Integer)
        away = best + (0.5 if best < 0.5 else -0.5)
        at = away if condition == "wrong" else min(max(best + spread * shift, 0.0), 1.0)
        parameters[i] = dataclasses.replace(parameter, belief=_stated(parameter, at, spread))
    return Space(parameters, cost_parameter=space.cost_parameter, constraints=space.constraints, fixed=space.fixed)


def _stated(parameter: Float | Integer, at: float, spread: float) -> tuple[Any, float]:
    """Returns the belief with this centre and spread in unit coordinates, as a user states it."""
    center = parameter.raw(float(parameter.decode(np.array([at]))[0]))
    low, high = float(parameter.low), float(parameter.high)
    if parameter.scale in ("log", "pow2"):
        return center, math.exp(spread * math.log(high / low))
    if parameter.scale == "logit":
        return center, spread * (math.log(high / (1 - high)) - math.log(low / (1 - low)))
    return center, spread * (high - low)


def run_cell(job: tuple[str, int, str, int]) -> dict[str, Any]:
    """Runs all conditions on one task; `budget` is part of the family's name."""
    name, seed, settings, budget = job
    family = name.rpartition("@")[0]
    task = make_task(family, seed)
    scale, x_best = reference(task), best_config(task)
    numeric = cheap_to_change(searchable(task), x_best)
    row: dict[str, Any] = {"family": name, "seed": seed}
    for condition in ("none", *SPREADS):
        space = task.space if condition == "none" else believing(task.space, x_best, numeric, condition, seed)
        total = budget * scale.mean_cost
        engine = Engine(space, task.start, seed, variant(f"num_continued=0;{settings}"))
        run = play(task, engine, total_seconds=total, cap=BUDGETS[budget], seed=seed)
        found = figures(task, scale, run, total)
        row[condition] = {key: found[key] for key in ("best", "volume", "area", "trials")}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=list(HALVES), default="held-out")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS), choices=list(BUDGETS))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--settings", default="", help="changes, as in belief_fade=5.0;...")
    parser.add_argument("--file", type=Path, default=RESULT)
    arguments = parser.parse_args()
    try:
        variant(arguments.settings)
    except UsageError as error:
        parser.exit(2, f"error: --settings: {error}\n")
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    jobs = [
        (f"{family}@{budget}", seed, arguments.settings, budget)
        for seed in seeds
        for budget in arguments.budgets
        for family in HALVES[arguments.half]
    ]
    rows = measure(run_cell, jobs, arguments.file.with_suffix(".jsonl"), arguments.processes)
    table = []
    for budget in arguments.budgets:
        of_budget = [row for row in rows if row["family"].endswith(f"@{budget}")]
        lines = differences(of_budget, [(condition, "none") for condition in SPREADS])
        table += [{"budget": budget, **line} for line in lines]
        print(f"\nbudget {budget} mean random-trial costs, {len(of_budget)} tasks\n{show(lines)}")
    result = {**machine.describe(), "half": arguments.half, "settings": arguments.settings, "table": table}
    arguments.file.write_text(json.dumps({**result, "cells": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
