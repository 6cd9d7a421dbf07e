"""How honest the recommendation is under noise, and how good: intervals and regret, on functions of known truth.

    python benchmarks/engine/noise.py --seeds 3                  # fits only; adaptive histories are kept in --histories

Notation
    truth      noiseless scores, in standard deviations of those of random configs (the signal)
    noise      standard deviation of what is added to a measurement, in the same unit
    n          distinct configs that were run, each once
    interval   the central 80 %

Functions: draws of Gaussian processes (`gp`), sums of regression trees of depth 3 (`trees`), both with and without a
cost parameter, and the final scores of the synthetic families, whose landscapes are neither. Configs are chosen at
random, or by the engine in a sweep with the same noise. For each cell, the share of intervals that hold the truth: of
the recommended config, of new random configs (`new`: truth; `next`: a measurement of it). And the regret, the best true
score of what was tried less that of the recommended config, beside the regret of the config that measured best.
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads: one process, one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import numpy as np
from engine.synthetic import make_synthetic
from numpy.typing import NDArray

from protein.engine.gp import single_thread
from protein.engine.history import History
from protein.engine.recommend import contenders
from protein.engine.results import best
from protein.engine.score_model import fit_score_model
from protein.engine.settings import EngineSettings
from protein.space import Float, Parameter, Space
from protein.sweep.methods import make_designer
from protein.types import Budget, Observation, Params, TrialState

Array = NDArray[np.float64]
Truth = Callable[[Array], Array]  # `n x d` unit coordinates -> `n`, NaN where a trial fails

NOISES = (0.0, 0.1, 0.3, 1.0)
SIZES = (12, 25, 50, 100)
DRAWN = ("gp", "gp+cost", "trees", "trees+cost")
FAMILIES = ("ppo", "takeoff", "deceptive", "saturating", "supervised", "wide", "overfit")
NAMES = (*DRAWN, *FAMILIES)
RESULT = machine.RESULTS / "engine_noise.json"
_NUM_NEW = 40
_QUICK = EngineSettings(num_uniform=200, num_local=200, num_rungs=8, num_refinements=16)


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """One drawn function, its truth in standard deviations of random configs; `key` seeds the noise."""

    key: tuple[int, int]
    space: Space
    truth: Truth
    cost: Truth

    def measure(self, x: Array, noise: float, rng: np.random.Generator) -> Observation:
        """Returns one noisy trial of a point, `d`."""
        truth, cost = float(self.truth(x[None, :])[0]), float(self.cost(x[None, :])[0])
        params = self.space.from_unit(x)
        if not np.isfinite(truth):
            return Observation(params=params, state=TrialState.FAILED, score=None, cost_seconds=0.3 * cost)
        score = truth + noise * float(rng.standard_normal())
        return Observation(params=params, state=TrialState.COMPLETE, score=score, cost_seconds=cost)


def make(name: str, seed: int) -> Function:
    """Returns a function by name and seed."""
    key = (NAMES.index(name), seed)
    rng = np.random.default_rng(key)
    if name in FAMILIES:
        task = make_synthetic(name, seed)

        def final(x: Array) -> Array:
            score, _, ok = task.final(x)
            return np.where(ok, score, np.nan)

        return _standardised(key, task.space, final, lambda x: task.final(x)[1])
    d = 6
    parameters: list[Parameter] = [Float(f"x{i}", 0.0, 1.0) for i in range(d)]
    has_cost = name.endswith("+cost")
    if has_cost:
        parameters.append(Float("steps", 1.0, 1000.0, scale="log"))
    space = Space(parameters, cost_parameter="steps" if has_cost else None)
    inner = _gaussian_draw(d, rng) if name.startswith("gp") else _trees(d, rng)

    def truth(x: Array) -> Array:
        value = inner(x[:, :d])
        return value * (0.5 + x[:, d]) + 1.5 * (1.0 - np.exp(-3.0 * x[:, d])) if has_cost else value

    return _standardised(key, space, truth, lambda x: np.exp(6.9 * x[:, d]) if has_cost else np.full(len(x), 10.0))


def _standardised(key: tuple[int, int], space: Space, truth: Truth, cost: Truth) -> Function:
    found = truth(space.sample(2000, np.random.default_rng(1)))
    mean, sd = float(np.nanmean(found)), float(np.nanstd(found))
    return Function(key, space, lambda x: np.asarray((truth(x) - mean) / sd), cost)


def _gaussian_draw(d: int, rng: np.random.Generator) -> Truth:
    """A draw of a Matern-5/2 process by 1,000 random Fourier features; lengthscales log-normal around 0.7."""
    lengthscale = 0.7 * np.exp(0.8 * rng.standard_normal(d))
    chi = np.sqrt(rng.chisquare(5.0, (1000, 1)) / 5.0)  # the spectrum is Student's t of 5 degrees of freedom
    frequency = rng.standard_normal((1000, d)) / chi / lengthscale
    phase, weight = rng.uniform(0.0, 2.0 * np.pi, 1000), rng.standard_normal(1000)
    return lambda x: np.asarray(np.cos(x @ frequency.T + phase) @ weight)


def _trees(d: int, rng: np.random.Generator) -> Truth:
    """A sum of 30 regression trees of depth 3 with random splits, most on the first inputs."""
    share = 0.6 ** np.arange(d)
    features = rng.choice(d, (30, 3), p=share / share.sum())
    cuts, leaves = rng.uniform(0.1, 0.9, (30, 3)), rng.standard_normal((30, 8))

    def truth(x: Array) -> Array:
        leaf = ((x[:, features] > cuts) * np.array([1, 2, 4])).sum(axis=2)
        return np.asarray(leaves[np.arange(30), leaf].sum(axis=1))

    return truth


def at_random(function: Function, noise: float, size: int) -> list[Observation]:
    """Returns trials of random configs."""
    rng = np.random.default_rng([7, *function.key])
    return [function.measure(x, noise, rng) for x in function.space.sample(size, rng)]


def by_sweep(function: Function, noise: float, size: int) -> list[Observation]:
    """Returns the trials of a sweep by the engine."""
    rng = np.random.default_rng([8, *function.key])
    share = 60.0 if function.space.cost_parameter else 2.0 * size  # mean random-trial costs
    total = share * float(np.mean(function.cost(function.space.sample(1000, np.random.default_rng(2)))))
    start = function.space.from_unit(np.full(function.space.num_dims, 0.5))
    designer = make_designer("protein", function.space, start, seed=function.key[1], settings=_QUICK)
    history: list[Observation] = []
    while len(history) < size:
        spent = sum(o.cost_seconds for o in history)
        budget = Budget(remaining_seconds=total - spent, remaining_trials=size - len(history))
        suggestion = designer.suggest(history, [], budget, seed=len(history))
        if suggestion is None:
            break
        x = function.space.to_unit(suggestion.params)
        history.append(function.measure(x, noise, rng))
    return history


def kept(path: Path, name: str, seed: int, noise: float, size: int) -> list[Observation]:
    """Returns the trials of a sweep, from a file where it was run before."""
    file = path / f"{name}-{seed}-{noise:g}-{size}.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = [[dict(o.params), o.state, o.score, o.cost_seconds] for o in by_sweep(make(name, seed), noise, size)]
        file.write_text(json.dumps(rows))
    return [
        Observation(params=params, state=TrialState(state), score=score, cost_seconds=cost)
        for params, state, score, cost in json.loads(file.read_text())
    ]


def judge(function: Function, history: Sequence[Observation], noise: float) -> dict[str, Any]:
    """Returns the figures of one cell: see the head of this file."""
    space = function.space

    def true(params: Sequence[Params]) -> Array:
        return function.truth(space.canonical(space.to_unit_many(list(params))))

    began = time.perf_counter()
    found = contenders(space, history)
    seconds = time.perf_counter() - began
    chosen = best(found)
    assert chosen is not None
    complete = [o for o in history if o.score is not None]
    luckiest = max(complete, key=lambda o: o.score or 0.0)
    top = float(np.max(true([o.params for o in complete])))
    truth, lucky = (float(true([params])[0]) for params in (chosen.params, luckiest.params))
    every = true([one.params for one in found])
    rng = np.random.default_rng([9, *function.key])
    x = space.sample(_NUM_NEW, rng)
    value = function.truth(x)
    x, value = x[np.isfinite(value)], value[np.isfinite(value)]
    measured = value + noise * rng.standard_normal(len(value))
    with single_thread(), np.errstate(all="ignore"):
        model = fit_score_model(space, History.of(space, history, []), EngineSettings(), averaged=True)
        new, following = model.estimates(x, measured=False), model.estimates(x, measured=True)
    return {
        "best": chosen.score.low <= truth <= chosen.score.high,
        "width": chosen.score.high - chosen.score.low,
        "tried": float(np.mean([c.score.low <= t <= c.score.high for c, t in zip(found, every, strict=True)])),
        "new": float(np.mean([e.low <= v <= e.high for e, v in zip(new, value, strict=True)])),
        "next": float(np.mean([e.low <= v <= e.high for e, v in zip(following, measured, strict=True)])),
        "regret": top - truth,
        "regret_measured": top - lucky,
        "noise_found": float(np.sqrt(np.mean(model.noise_at(x)))) * model.scale.sd,
        "seconds": seconds,
    }


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the figures by choice, noise and n, and for each family of functions."""
    columns = ("best", "tried", "new", "next", "width", "regret", "regret_measured", "noise_found", "seconds")
    lines = [f"{'':<28}{'cells':>6}" + "".join(f"{c[-10:]:>11}" for c in columns)]

    def add(label: str, own: Sequence[dict[str, Any]]) -> None:
        if own:
            means = [float(np.mean([row[c] for row in own])) for c in columns]
            lines.append(f"{label:<28}{len(own):>6}" + "".join(f"{m:>11.3f}" for m in means))

    for choice in ("random", "sweep"):
        chosen = [row for row in rows if row["choice"] == choice]
        for noise in NOISES:
            for size in SIZES:
                own = [row for row in chosen if row["noise"] == noise and row["n"] == size]
                add(f"{choice} noise {noise:g} n {size}", own)
        for noise in NOISES:
            add(f"{choice} noise {noise:g}", [row for row in chosen if row["noise"] == noise])
    for name in NAMES:
        add(name, [row for row in rows if row["name"] == name])
    add("all", rows)
    return lines


def main() -> None:
    """Runs the grid, prints the table and keeps the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--choices", nargs="+", default=["random", "sweep"], choices=["random", "sweep"])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--first-seed", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--histories", type=Path, default=machine.RESULTS / "noise_histories")
    parser.add_argument("--file", type=Path, default=RESULT)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.names:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            function = make(name, seed)
            for noise in NOISES:
                for choice in arguments.choices:
                    if choice == "random":
                        history = at_random(function, noise, max(SIZES))
                    else:
                        history = kept(arguments.histories, name, seed, noise, max(SIZES))
                    for n in arguments.sizes:
                        if n > len(history) or sum(o.score is not None for o in history[:n]) < 8:
                            continue
                        cell = {"name": name, "seed": seed, "noise": noise, "choice": choice, "n": n}
                        rows.append(cell | judge(function, history[:n], noise))
    lines = table(rows)
    print("\n".join([machine.headline(), *lines]))
    arguments.file.write_text(
        json.dumps({"header": machine.describe(), "table": lines, "cells": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
