"""Searching under limits on measured values, on drawn problems: `python benchmarks/engine/limits.py`.

Each problem has four to six parameters, a noisy score and one or two metrics, with a limit on each:

    memory    one limit: a size that the score wants large, over four decades; about 45 % of the space keeps it
    latency   one limit, on a noisy sum of several parameters; about 30 % keeps it
    narrow    one limit, which a small part of the space keeps, and no random config mostly: 2 %
    two       two limits, on a size and on a latency that trade against each other; about 15 % keeps both
    loose     one limit that hardly matters: 90 % keeps it, and the best score does

A seed draws where the optimum lies and what weighs how much. After `NUM_TRIALS` trials each method hands over one
config. Counted are its true score if its true values keep the limits, relative to the best of 100,000 random configs
that keep them (1) and to the median of these (0), a config that breaks a limit counts as 0; and the share of configs
handed over that break one. Optuna hands over the best measured trial whose measured values keep the limits, as
`study.best_trial` does; so does random. Ours hands over its recommendation, `protein/best-measured` the same trials as
Optuna would.
"""

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protein.engine import results
from protein.engine.recommend import contenders
from protein.engine.results import Contender
from protein.space import Float, Space
from protein.sweep.methods import make_designer
from protein.types import Budget, Limit, Observation, TrialState, broken

Array = NDArray[np.float64]

NUM_TRIALS = 40
FAMILIES = ("memory", "latency", "narrow", "two", "loose")
METHODS = ("protein", "optuna:tpe", "optuna:gp", "random")
RESULTS = Path(__file__).parents[1] / "results" / "engine_limits.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """One drawn problem; `score` and the `metrics` map `n x d` unit coordinates to true values, `n`."""

    space: Space
    limits: tuple[Limit, ...]
    score: Callable[[Array], Array]
    metrics: Mapping[str, Callable[[Array], Array]]
    noise: float  # of the score
    metric_noise: float  # of the logarithm of a metric

    def feasible(self, u: Array) -> NDArray[np.bool_]:
        values = {name: metric(u) for name, metric in self.metrics.items()}
        return np.array([not broken(self.limits, {n: float(v[i]) for n, v in values.items()}) for i in range(len(u))])

    def scale(self, rng: np.random.Generator) -> tuple[float, float]:
        """Returns the median and the best score of configs that keep the limits."""
        u = rng.random((100_000, self.space.num_dims))
        kept = np.ones(len(u), dtype=bool)
        for limit in self.limits:
            kept &= self.metrics[limit.name](u) <= limit.bound
        scores = self.score(u[kept])
        return float(np.median(scores)), float(np.max(scores))


def make(family: str, seed: int) -> Problem:
    """Returns a family's problem of a seed."""
    rng = np.random.default_rng([FAMILIES.index(family), seed])
    d = int(rng.integers(4, 7))
    optimum = rng.uniform(0.15, 0.85, d)
    optimum[0] = rng.uniform(0.75, 1.0)  # the score wants a large size
    weights = np.exp(rng.normal(0.0, 0.6, d))
    weights *= 4.0 / weights.sum()
    mix = rng.uniform(-0.4, 0.4, 2)
    pull = rng.uniform(0.2, 1.0, d)
    shape = rng.uniform(0.6, 1.6)

    def score(u: Array) -> Array:
        delta = u - optimum
        delta[:, 1] = delta[:, 1] + mix[0] * delta[:, 2]
        delta[:, 2] = delta[:, 2] + mix[1] * delta[:, 3]
        return np.asarray(1.0 / (1.0 + 2.0 * (delta * delta) @ weights))

    def memory(u: Array) -> Array:
        return np.asarray(np.exp(9.0 * u[:, 0] ** shape + 1.5 * u[:, 1] * u[:, 2] - 4.0))

    def latency(u: Array) -> Array:
        return np.asarray(5.0 + 20.0 * u @ pull + 8.0 * np.sin(3.0 * u[:, 1]) * u[:, 0])

    metrics = {"memory": {"gb": memory}, "latency": {"ms": latency}, "narrow": {"gb": memory}}.get(
        family, {"gb": memory, "ms": latency} if family == "two" else {"gb": memory}
    )
    share = {"memory": 0.45, "latency": 0.3, "narrow": 0.02, "two": 0.35, "loose": 0.9}[family]
    u = np.random.default_rng(0).random((20_000, d))
    limits = tuple(Limit(name, "<=", float(np.quantile(one(u), share))) for name, one in metrics.items())
    space = Space([Float(f"x{i}", 0.0, 1.0) for i in range(d)])
    return Problem(space=space, limits=limits, score=score, metrics=metrics, noise=0.01, metric_noise=0.03)


def run(family: str, seed: int, method: str) -> tuple[list[Observation], float]:
    """Returns the trials of one method, and the CPU seconds that its suggestions took."""
    problem = make(family, seed)
    designer = make_designer(method, problem.space, None, seed=seed, limits=problem.limits)
    history: list[Observation] = []
    began = time.process_time()
    for number in range(NUM_TRIALS):
        suggestion = designer.suggest(history, [], Budget(remaining_trials=NUM_TRIALS - number), 1000 * seed + number)
        assert suggestion is not None
        u = problem.space.to_unit(suggestion.params)[None, :]
        rng = np.random.default_rng([seed, *np.frombuffer(u.tobytes(), dtype=np.uint32).tolist()])
        history.append(
            Observation(
                params=suggestion.params,
                state=TrialState.COMPLETE,
                score=float(problem.score(u.copy())[0] + problem.noise * rng.standard_normal()),
                cost_seconds=1.0,
                number=number,
                metrics={
                    name: float(metric(u)[0] * math.exp(problem.metric_noise * rng.standard_normal()))
                    for name, metric in problem.metrics.items()
                },
            )
        )
    return history, time.process_time() - began


def handed_over(
    problem: Problem, history: Sequence[Observation], found: Sequence[Contender], least: float | None
) -> Observation | None:
    """Returns the trial that is handed over: recommended from `least` on, or best measured within the limits."""
    if least is None:
        kept = [one for one in history if not broken(problem.limits, one.metrics)]
        return max(kept, key=lambda one: one.score or 0.0, default=None)
    able = [one for one in found if (one.keeps or 0.0) >= least]
    able = able or [one for one in found if (one.keeps or 0.0) >= results.LIKELY]
    able = able or [max(found, key=lambda one: one.keeps or 0.0)]
    return history[max(able, key=lambda one: one.score.value).trials[0]]


def measure(family: str, seed: int, method: str) -> list[dict[str, Any]]:
    """Returns what one run has given, a row for each way to hand over."""
    problem = make(family, seed)
    history, seconds = run(family, seed, method)
    low, high = problem.scale(np.random.default_rng(1))
    ways: dict[str, float | None] = {method: None}
    found: Sequence[Contender] = ()
    if method == "protein":
        found = contenders(problem.space, history, limits=problem.limits)
        ways = {"protein": results.SURELY, "protein/0.5": 0.5, "protein/0.9": 0.9, "protein/best-measured": None}
    rows: list[dict[str, Any]] = []
    for name, least in ways.items():
        chosen = handed_over(problem, history, found, least)
        worth, keeps = 0.0, False
        if chosen is not None:
            u = problem.space.to_unit(chosen.params)[None, :]
            keeps = bool(problem.feasible(u)[0])
            worth = (float(problem.score(u)[0]) - low) / (high - low) if keeps else 0.0
        within = sum(not broken(problem.limits, one.metrics) for one in history) / len(history)
        rows.append(
            {
                "family": family,
                "seed": seed,
                "method": name,
                "worth": round(max(worth, 0.0), 4),
                "keeps": keeps,
                "handed_over": chosen is not None,
                "share_within": round(within, 3),
                "seconds": round(seconds, 2),
            }
        )
    return rows


def report(rows: Sequence[dict[str, Any]]) -> None:
    methods = list(dict.fromkeys(str(row["method"]) for row in rows))
    families = list(dict.fromkeys(str(row["family"]) for row in rows))
    print("| method | " + " | ".join(families) + " | all | breaks a limit | none | trials within | CPU s |")
    print("|---" * (len(families) + 6) + "|")
    for method in methods:
        own = [row for row in rows if row["method"] == method]

        def mean(key: str, of: Sequence[dict[str, Any]]) -> float:
            return float(np.mean([float(row[key]) for row in of])) if of else math.nan

        cells = [f"{mean('worth', [r for r in own if r['family'] == family]):.3f}" for family in families]
        worth = [float(row["worth"]) for row in own]
        error = 1.96 * float(np.std(worth)) / math.sqrt(len(worth))
        breaks = mean("handed_over", own) - mean("keeps", own)
        cells += [
            f"{np.mean(worth):.3f} ± {error:.3f}",
            f"{100 * breaks:.0f} %",
            f"{100 * (1 - mean('handed_over', own)):.0f} %",
        ]
        print(
            f"| {method} | {' | '.join(cells)} | {100 * mean('share_within', own):.0f} % | {mean('seconds', own):.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:10", help="first and last, of Python's range")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true", help="print the table of the results that exist")
    given = parser.parse_args()
    if not given.report:
        first, last = map(int, given.seeds.split(":"))
        with given.output.open("a", encoding="utf-8") as file:
            for seed in range(first, last):
                for family in FAMILIES:
                    for method in given.methods.split(","):
                        for row in measure(family, seed, method):
                            print(json.dumps(row), file=file, flush=True)
    report([json.loads(line) for line in given.output.read_text(encoding="utf-8").splitlines()])


if __name__ == "__main__":
    main()
