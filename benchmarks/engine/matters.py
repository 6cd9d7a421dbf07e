"""What matters against the truth: functions whose shares are known, after 30 and 100 trials of a search.

    python benchmarks/engine/matters.py      # about five minutes; writes benchmarks/results/engine_matters.json

A third of a sweep's trials are random, the others move some coordinates of one of the best four, as a search does.
Scores have noise of a tenth of the function's spread. Every function has five parameters more, which do nothing.

Truth, from the function itself on the score model's scale
    near     variance along each parameter through the configs that the model rates best, of the sum
    whole    total Sobol index over the whole space

Figures
    rank     rank correlation (Spearman) of the shares with a truth, over the parameters: `near`, `whole`
    held     share of the parameters whose truth lies in the 80 % interval; `width`, its mean width
    wrong    verdicts against the truth near the best: "matters" below 5 %, or "hardly" from 5 % on;  sure: verdicts
             that are not "maybe"
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads: one process, one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from protein.analysis.importance import importances
from protein.analysis.matters import matters
from protein.analysis.model_maps import SweepModel
from protein.engine.results import MATTERS
from protein.space import Float, Space
from protein.types import Observation, TrialState

Array = NDArray[np.float64]
NUM_NOTHING, NOISE, ROWS, POINTS = 5, 0.1, 2000, 25


def additive(x: Array) -> Array:
    return np.asarray(x @ np.array([4.0, 3.0, 2.0, 1.0]))


def valley(x: Array) -> Array:
    return np.asarray(-9.0 * (x[:, 0] - 0.3) ** 2 - 5.0 * (x[:, 1] - x[:, 2]) ** 2 - np.abs(x[:, 3] - 0.7))


def ishigami(x: Array) -> Array:
    a, b, c = ((x - 0.5) * 2.0 * math.pi).T
    return np.asarray(np.sin(a) + 7.0 * np.sin(b) ** 2 + 0.1 * c**4 * np.sin(a))


def g_function(x: Array) -> Array:
    own = np.array([0.0, 1.0, 4.5, 9.0])
    return np.asarray(np.prod((np.abs(4.0 * x - 2.0) + own) / (1.0 + own), axis=1))


def friedman(x: Array) -> Array:
    curved = 10.0 * np.sin(math.pi * x[:, 0] * x[:, 1]) + 20.0 * (x[:, 2] - 0.5) ** 2
    return np.asarray(curved + 10.0 * x[:, 3] + 5.0 * x[:, 4])


FUNCTIONS: dict[Callable[[Array], Array], int] = {additive: 4, valley: 4, ishigami: 3, g_function: 4, friedman: 5}


def searched(space: Space, function: Callable[[Array], Array], num_trials: int, seed: int) -> list[Observation]:
    rng = np.random.default_rng([seed, num_trials])
    spread = float(np.std(function(rng.random((1000, space.num_dims)))))
    x, scores = np.empty((num_trials, space.num_dims)), np.empty(num_trials)
    for i in range(num_trials):
        point = rng.random(space.num_dims)
        if i >= num_trials // 3:
            start = x[rng.choice(np.argsort(scores[:i])[-4:])]
            moved = rng.random(space.num_dims) < 0.4
            point = np.where(moved, start + 0.25 * rng.standard_normal(space.num_dims), start)
        x[i] = space.canonical(np.clip(point, 0.0, 1.0)[None, :])[0]
        scores[i] = function(x[i : i + 1])[0] + NOISE * spread * rng.standard_normal()
    return [
        Observation(params=params, state=TrialState.COMPLETE, score=score, cost_seconds=10.0, number=i)
        for i, (params, score) in enumerate(zip(space.from_unit_many(x), scores.tolist(), strict=True))
    ]


def truths(model: SweepModel, function: Callable[[Array], Array], rng: np.random.Generator) -> tuple[Array, Array]:
    """Returns the shares near the configs that the model rates best, and the total Sobol indices, `d` each."""

    def z(x: Array) -> Array:
        return model.score.scale.to_z(function(x))

    best = sorted(model.contenders, key=lambda one: -one.score.value)[:5]
    anchors = model.space.to_unit_many([one.params for one in best])
    grid = (np.arange(POINTS) + 0.5) / POINTS
    rows = rng.random((ROWS, model.space.num_dims))
    variance = float(np.var(z(rng.random((50_000, model.space.num_dims)))))
    along = []
    for base in (anchors, rows):
        values = []
        for i in range(model.space.num_dims):
            x = np.repeat(base, POINTS, axis=0)
            x[:, i] = np.tile(grid, len(base))
            values.append(float(np.mean(np.var(z(x).reshape(len(base), POINTS), axis=1))))
        along.append(np.array(values))
    return along[0] / along[0].sum(), along[1] / variance


def measured(function: Callable[[Array], Array], num_own: int, num_trials: int, seed: int) -> list[dict[str, Any]]:
    space = Space([Float(f"p{i}", 0.0, 1.0) for i in range(num_own + NUM_NOTHING)])

    def score(x: Array) -> Array:
        return function(x[:, :num_own])

    trials = searched(space, score, num_trials, seed)
    model = SweepModel.fit(space, trials)
    began = time.process_time()
    found = {one.name: one for one in matters(model).parameters}
    seconds = time.process_time() - began
    near, whole = truths(model, score, np.random.default_rng(seed))
    ranked = [found[name] for name in space.names]
    about = {"function": function.__name__, "trials": num_trials, "seed": seed}

    def row(method: str, near_shares: Array, whole_shares: Array) -> dict[str, Any]:
        ranks = (float(spearmanr(near_shares, near)[0]), float(spearmanr(whole_shares, whole)[0]))
        return {**about, "method": method, "rank_near": ranks[0], "rank_whole": ranks[1]}

    def held(shares: list[Any], truth: Array) -> tuple[float, float]:
        # Shares are shown in whole percent, and so is what nothing does.
        inside = [one.low - 0.005 <= t <= one.high + 0.005 for one, t in zip(shares, truth.tolist(), strict=True)]
        return float(np.mean(inside)), float(np.mean([one.high - one.low for one in shares]))

    own = row("matters", np.array([m.share.value for m in ranked]), np.array([m.whole.value for m in ranked]))
    own["held_near"], own["width_near"] = held([m.share for m in ranked], near)
    own["held_whole"], own["width_whole"] = held([m.whole for m in ranked], whole)
    verdicts = [(m.verdict, t >= MATTERS) for m, t in zip(ranked, near.tolist(), strict=True)]
    own["wrong"] = float(np.mean([v == ("hardly" if matters_truly else "matters") for v, matters_truly in verdicts]))
    own["sure"] = float(np.mean([v != "maybe" for v, _ in verdicts]))
    own["seconds"] = seconds
    rows = [own]
    for one in importances(space, trials):
        shares = np.array([one.shares.get(name, 0.0) for name in space.names])
        rows.append(row(one.method, shares, shares))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    seeds = parser.parse_args().seeds
    rows = [
        row
        for seed in range(seeds)
        for num_trials in (30, 100)
        for function, num_own in FUNCTIONS.items()
        for row in measured(function, num_own, num_trials, seed)
    ]
    keys = ("rank_near", "rank_whole", "held_near", "width_near", "held_whole", "width_whole", "wrong", "sure")
    print(f"{'trials':<8}{'method':<16}" + "".join(f"{key:>13}" for key in (*keys, "seconds")))
    for num_trials in (30, 100):
        for method in dict.fromkeys(row["method"] for row in rows):
            own = [row for row in rows if (row["trials"], row["method"]) == (num_trials, method)]
            means = [np.nanmean([row[key] for row in own]) if key in own[0] else math.nan for key in (*keys, "seconds")]
            print(f"{num_trials:<8}{method:<16}" + "".join(f"{mean:>13.2f}" for mean in means))
    print(f"\nwritten to {machine.write_result('engine_matters', rows, threads=1).relative_to(machine.ROOT)}")


if __name__ == "__main__":
    main()
