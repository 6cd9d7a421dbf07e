"""The table of `ablate.py`: what each option changes, over environments, with intervals.

The difference of an option in one environment is the mean of its seeds less the mean of the base's seeds. The overall
difference is the mean over environments, so each counts equally. Seeds are few, so the spread between seeds is
estimated for an environment from all its sides together (the pooled variance of an analysis of variance), and the
interval is Student's. Redrawing two to five seeds, the bootstrap, gives intervals that are much too narrow. The
interval does not hold what another sweep of the step size would have recommended, nor that other environments might
have been chosen.

Source: any book on the analysis of variance, "pooled standard deviation"; of differences over several environments,
the degrees of freedom are Satterthwaite's (1946, "An approximate distribution of estimates of variance components").
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence

from scipy import stats

LEVEL = 0.9
LARGEST = 1.2  # normalised scores are cut here: what lies far beyond the solved score is not worth more


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One option in one environment: normalised scores, and its CPU seconds a step beside those of the base.

    `at_cost` are scores at the base's cost. It is empty where that was not run: at equal steps it was no better than
    the base, or cost the same.
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


@dataclasses.dataclass(frozen=True, slots=True)
class _Noise:
    """Between seeds of one environment: the variance, and the degrees of freedom of its estimate."""

    variance: float
    freedom: int


def differences(sides: Sequence[Side]) -> list[Difference]:
    """Returns each option's difference to the base, over the environments in which both have runs."""
    noise = {env: _noise([side for side in sides if side.env == env]) for env in {side.env for side in sides}}
    base = {side.env: _cut(side.at_steps) for side in sides if side.option == "base" and side.at_steps}
    found = []
    for option in dict.fromkeys(side.option for side in sides if side.option != "base"):
        own = [side for side in sides if side.option == option and side.at_steps and side.env in base]
        if not own:
            continue
        at_steps = {side.env: _difference(_cut(side.at_steps), base[side.env], noise[side.env]) for side in own}
        at_cost = {
            side.env: _difference(_cut(side.at_cost), base[side.env], noise[side.env]) for side in own if side.at_cost
        }
        mean, (low, high) = _mean(list(at_steps.values()))
        found.append(
            Difference(
                option=option,
                mean=mean,
                low=low,
                high=high,
                by_env={env: (one.mean, *one.ends) for env, one in at_steps.items()},
                by_env_at_cost={env: (one.mean, *one.ends) for env, one in at_cost.items()},
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
    scores = [f"{statistics.fmean(bases[env]):.2f} ({len(bases[env])})" if env in bases else "" for env in envs]
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


def _cut(scores: Sequence[float]) -> list[float]:
    return [min(score, LARGEST) for score in scores]


def _noise(sides: Sequence[Side]) -> _Noise:
    """Returns the spread between seeds, from all sides of one environment."""
    groups = [_cut(side.at_steps) for side in sides if len(side.at_steps) > 1]
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum((score - statistics.fmean(group)) ** 2 for group in groups for score in group)
    return _Noise(squares / freedom if freedom else math.inf, freedom)


@dataclasses.dataclass(frozen=True, slots=True)
class _Estimate:
    mean: float
    variance: float  # of the mean
    freedom: float

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval; without any spread known, everything is possible."""
        if not math.isfinite(self.variance):
            return -math.inf, math.inf
        half = float(stats.t.ppf((1 + LEVEL) / 2, self.freedom)) * math.sqrt(self.variance)
        return self.mean - half, self.mean + half


def _difference(own: Sequence[float], base: Sequence[float], noise: _Noise) -> _Estimate:
    variance = noise.variance * (1 / len(own) + 1 / len(base))
    return _Estimate(statistics.fmean(own) - statistics.fmean(base), variance, noise.freedom)


def _mean(estimates: Sequence[_Estimate]) -> tuple[float, tuple[float, float]]:
    """Returns the mean of independent estimates and its interval."""
    mean, count = statistics.fmean(one.mean for one in estimates), len(estimates)
    total = sum(one.variance for one in estimates)
    if not total or not math.isfinite(total):
        return mean, _Estimate(mean, total, 1).ends
    freedom = total**2 / sum(one.variance**2 / one.freedom for one in estimates)
    return mean, _Estimate(mean, total / count**2, freedom).ends
