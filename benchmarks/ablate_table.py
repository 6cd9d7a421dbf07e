"""The table of `ablate.py`: what each option changes, over environments, with intervals.

The difference of an option in one environment is the mean of its seeds less the mean of the base's seeds. The overall
difference is the mean over environments, so each counts equally. The interval draws the seeds of every side and every
environment anew (a stratified bootstrap). It does not hold what another sweep of the step size would have recommended,
nor that other environments might have been chosen.

Source: Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice", section 4.
"""

import dataclasses
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LEVEL = 0.9
DRAWS = 10_000
LARGEST = 1.2  # normalised scores are cut here: what lies far beyond the solved score is not worth more


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One option in one environment: normalised scores, and its CPU seconds a step beside those of the base.

    `at_cost` are scores at the base's cost; empty where that was not run, because it was no better at equal steps.
    """

    env: str
    option: str
    at_steps: Sequence[float]
    at_cost: Sequence[float]
    cost_ratio: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An option less the base at equal steps: overall, from `low` to `high` with 90 %, and in each environment."""

    option: str
    mean: float
    low: float
    high: float
    by_env: dict[str, tuple[float, float, float]]  # mean, low, high
    by_env_at_cost: dict[str, tuple[float, float, float]]  # where it was run
    runs: int
    cost_ratio: float  # geometric mean over environments


def differences(sides: Sequence[Side], *, draws: int = DRAWS, seed: int = 0) -> list[Difference]:
    """Returns each option's difference to the base, over the environments in which both have runs."""
    rng = np.random.default_rng(seed)
    base = {side.env: _cut(side.at_steps) for side in sides if side.option == "base" and side.at_steps}
    found = []
    for option in dict.fromkeys(side.option for side in sides if side.option != "base"):
        own = [side for side in sides if side.option == option and side.at_steps and side.env in base]
        if not own:
            continue
        by_env, at_cost, drawn = {}, {}, []
        for side in own:
            mean, resampled = _difference(_cut(side.at_steps), base[side.env], draws, rng)
            drawn.append(resampled)
            by_env[side.env] = (mean, *_ends(resampled))
            if side.at_cost:
                mean, resampled = _difference(_cut(side.at_cost), base[side.env], draws, rng)
                at_cost[side.env] = (mean, *_ends(resampled))
        low, high = _ends(np.mean(drawn, axis=0))
        found.append(
            Difference(
                option=option,
                mean=statistics.mean(mean for mean, _, _ in by_env.values()),
                low=low,
                high=high,
                by_env=by_env,
                by_env_at_cost=at_cost,
                runs=sum(len(side.at_steps) for side in own),
                cost_ratio=statistics.geometric_mean([side.cost_ratio for side in own]),
            )
        )
    return found


def markdown(sides: Sequence[Side]) -> str:
    """Returns two tables: the options overall, and each option in each environment at equal steps and at equal cost."""
    found = differences(sides)
    envs = list(dict.fromkeys(side.env for side in sides))
    bases = {side.env: _cut(side.at_steps) for side in sides if side.option == "base" and side.at_steps}
    scores = [f"{bases[env].mean():.2f} ({len(bases[env])})" if env in bases else "" for env in envs]
    lines = [
        "| option | difference at equal steps | 90 % | environments, runs | CPU a step |",
        "|---|---|---|---|---|",
        *(
            f"| {one.option} | {one.mean:+.3f} | {one.low:+.2f} to {one.high:+.2f} |"
            f" {len(one.by_env)}, {one.runs} | {one.cost_ratio:.2f} |"
            for one in found
        ),
        "",
        f"| option | {' | '.join(envs)} |",
        f"|---|{'---|' * len(envs)}",
        f"| base, its score (seeds) | {' | '.join(scores)} |",
        *(f"| {one.option} | {' | '.join(_cell(one, env) for env in envs)} |" for one in found),
    ]
    return "\n".join(lines)


def _cell(difference: Difference, env: str) -> str:
    """Returns the difference at equal steps, and at equal cost where that was run. Bold: the interval leaves out 0."""
    parts = [table[env] for table in (difference.by_env, difference.by_env_at_cost) if env in table]
    return ", ".join(f"**{mean:+.2f}**" if low > 0 or high < 0 else f"{mean:+.2f}" for mean, low, high in parts)


def _cut(scores: Sequence[float]) -> npt.NDArray[np.float64]:
    return np.minimum(np.array(scores, np.float64), LARGEST)


def _difference(
    own: npt.NDArray[np.float64], base: npt.NDArray[np.float64], draws: int, rng: np.random.Generator
) -> tuple[float, npt.NDArray[np.float64]]:
    """Returns the difference of the means, and of the means of redrawn seeds."""
    redrawn = [rng.choice(values, size=(draws, len(values))).mean(axis=1) for values in (own, base)]
    return float(own.mean() - base.mean()), redrawn[0] - redrawn[1]


def _ends(drawn: npt.NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
