"""Two or more sides held against each other: "the old algorithm against the new one, both tuned".

Notation
    side        what is compared: one sweep, or several that are alike but for their seed and their environment
    seeds       the sweeps of one side in one environment
    spent       seconds of training that a sweep has spent until a trial ended, failed trials included
    b(s)        the best score of complete trials when s seconds were spent
    f(t)        the best score of complete trials that cost at most t seconds: the front
    S_e         what every sweep in environment e has spent at least: up to there all had the same budget
    normalised  0 is the median score of the environment's complete trials, 1 the best one, of all sides together. Each
                side has the same weight in the median. What is below 0 counts as 0

Three figures of a sweep, all normalised, higher is better. They are those of the engine's benchmarks.

    best        b(S_e): the best config that the budget has bought
    hypervolume area under the front of score and ln cost of the trials that had ended by S_e; 1 for a front that is at
                1 from the cheapest trial on
    area        mean of b(s) over s up to S_e: how soon it was found

The figure of a side is the mean over its environments of the mean over the seeds. Its interval is the central 80 % of
a bootstrap: the seeds of each environment are drawn anew, with replacement. From k seeds a plain bootstrap is too sure,
by the factor sqrt((k - 1) / k), and again because k seeds hardly tell their own spread. So deviations are widened by
sqrt(k / (k - 1)) and by the ratio of Student's t quantile to the normal one. From one seed there is no interval, and
none of a difference or a mean over environments that one seed takes part in: the spread of the others is a part of it.

The scores are measured ones, so the best of many noisy trials is partly luck. A side with more trials for the same
budget has more of that luck. Where this matters, compare what `recommendation` expects of each side.

Only what several sides have in common can be compared: environments that one side lacks are left out, and named.
Scores are those of the store, to be maximised.

Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapters 6 and 12.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from protein.engine.gp import Array
from protein.engine.pareto import MIN_COST_SECONDS, Scored, front_indices, hypervolume
from protein.errors import UsageError
from protein.types import Z80, Direction, Estimate, TrialState
from protein.units import format_duration


class Ended(Scored, Protocol):
    """What a comparison needs of a trial; `TrialRecord` has it."""

    @property
    def cost_seconds(self) -> float: ...
    @property
    def finished_at(self) -> datetime | None: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """One sweep, reduced to what is compared.

    Attributes:
        name: of the sweep.
        env: its environment.
        direction: of the scores as the user knows them. They are kept here as they are stored.
        spent: `n`, seconds spent when each finished trial ended, rising; its last is what the sweep has spent.
        best: `n`, best score of complete trials by then; -infinity before the first one.
        scores, costs: `k`, of complete trials.
        ended: `k`, seconds spent when each of these ended, rising.
    """

    name: str
    env: str
    direction: Direction
    spent: Array
    best: Array
    scores: Array
    costs: Array
    ended: Array

    @classmethod
    def of(
        cls, name: str, env: str, trials: Sequence[Ended], *, direction: Direction = Direction.MAXIMIZE
    ) -> "SweepResult":
        """Returns the result of a sweep's trials, given by number. Running trials do not count.

        Raises:
            UsageError: no trial was trained to its end.
        """
        finished = [trial for trial in trials if trial.state.finished]
        ended = [math.nan if trial.finished_at is None else trial.finished_at.timestamp() for trial in finished]
        return cls.of_columns(
            name,
            env,
            complete=np.array([t.state is TrialState.COMPLETE and not t.excluded for t in finished], dtype=bool),
            score=np.array([math.nan if t.score is None else t.score for t in finished], dtype=np.float64),
            cost_seconds=np.array([trial.cost_seconds for trial in finished], dtype=np.float64),
            run_seconds=np.array([trial.run_seconds for trial in finished], dtype=np.float64),
            finished_at=np.array(ended, dtype=np.float64),
            direction=direction,
        )

    @classmethod
    def of_columns(
        cls,
        name: str,
        env: str,
        *,
        complete: NDArray[np.bool_],
        score: Array,
        cost_seconds: Array,
        run_seconds: Array,
        finished_at: Array,
        direction: Direction = Direction.MAXIMIZE,
    ) -> "SweepResult":
        """Returns the same from columns of `n` finished trials, by number.

        Args:
            name, env, direction: see above.
            complete: `n`, which were trained to their end and are not excluded.
            score: `n`, as stored; NaN where there is none.
            cost_seconds: `n`, what each has cost.
            run_seconds: `n`, what its whole run has cost.
            finished_at: `n`, when it ended, on any clock. NaN anywhere: in the order of the numbers.

        Raises:
            UsageError: no trial was trained to its end.
        """
        complete = complete & np.isfinite(score)
        if not complete.any():
            raise UsageError(f"sweep '{name}' has no complete trial yet, so it cannot be compared; give it more time")
        order = np.arange(len(score)) if np.isnan(finished_at).any() else np.argsort(finished_at, kind="stable")
        spent = np.cumsum(cost_seconds[order])
        return cls(
            name=name,
            env=env,
            direction=direction,
            spent=spent,
            best=np.maximum.accumulate(np.where(complete, score, -np.inf)[order]),
            scores=score[order][complete[order]],
            costs=np.maximum(run_seconds, MIN_COST_SECONDS)[order][complete[order]],
            ended=spent[complete[order]],
        )

    @property
    def spent_seconds(self) -> float:
        return float(self.spent[-1])

    def best_at(self, spent_seconds: Array) -> Array:
        """Returns b at `m` seconds, `m`; -infinity before the first score."""
        index = np.searchsorted(self.spent, np.asarray(spent_seconds) * (1 + 1e-12), side="right") - 1
        return np.where(index >= 0, self.best[np.maximum(index, 0)], -np.inf)

    def complete_by(self, spent_seconds: float) -> tuple[Array, Array]:
        """Returns scores and costs of the complete trials that had ended when so much was spent."""
        by_then = self.ended <= spent_seconds * (1 + 1e-12)
        return self.scores[by_then], self.costs[by_then]

    def front_at(self, cost_seconds: Array) -> Array:
        """Returns f at `m` costs in seconds, `m`; -infinity below the cheapest trial."""
        index = front_indices(self.scores, self.costs)
        position = np.searchsorted(self.costs[index], np.asarray(cost_seconds) * (1 + 1e-12), side="right") - 1
        return np.where(position >= 0, self.scores[index][np.maximum(position, 0)], -np.inf)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What is compared: sweeps under one label."""

    label: str
    sweeps: tuple[SweepResult, ...]


FIGURES = ("best", "hypervolume", "area")
NUM_GRID = 101  # points of a curve over spent budget or cost
_ALIKE = 1.02  # budgets that differ by less are the same
_NUM_DRAWS = 2000  # of a figure
_NUM_BAND_DRAWS = 400  # of a curve
_SEED = 3

# A hyphen in 1e-3 and the point in 0.01 begin no seed.
_SEPARATOR = r"(?:(?<!\de)[-_ /]|(?<!\d)\.)"
_SEED_SUFFIX = re.compile(rf"(?:{_SEPARATOR}(?:(?:seed|s|run|rep|r)[-_. ]?)?|seed[-_. ]?)\d+$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What all sides have in common in one environment.

    Attributes:
        name: of the environment.
        direction: of its scores as the user knows them.
        low, high: scores that are 0 and 1 when normalised.
        common_seconds: S_e.
        cost_range: the cheapest and the most expensive complete trial, in seconds.
    """

    name: str
    direction: Direction
    low: float
    high: float
    common_seconds: float
    cost_range: tuple[float, float]

    def normalised(self, scores: Array) -> Array:
        """Returns scores, any shape, as 0 to 1. Where all scores of the environment are equal, they are all 1."""
        if self.high <= self.low:
            return np.where(scores >= self.high, 1.0, 0.0)
        return np.maximum((scores - self.low) / (self.high - self.low), 0.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The mean of a side's seeds along an axis, `m` each; NaN where one of its sweeps has no value yet.

    Attributes:
        x: seconds spent, cost in seconds, or a share of the common budget.
        value: the mean.
        low, high: its 80 % interval; equal to the mean where there is one seed only.
    """

    x: Array
    value: Array
    low: Array
    high: Array


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SideResult:
    """The figures and curves of one side.

    Attributes:
        label: of the side.
        num_seeds: number of sweeps by environment.
        figures: by name (`FIGURES`), over all common environments.
        by_environment: the same for each environment alone.
        best: by environment, b over the seconds spent, in scores.
        front: by environment, f over the cost in seconds, in scores.
        overall: normalised b over the share of the common budget, mean over the environments.
    """

    label: str
    num_seeds: Mapping[str, int]
    figures: Mapping[str, Estimate]
    by_environment: Mapping[str, Mapping[str, Estimate]]
    best: Mapping[str, Band]
    front: Mapping[str, Band]
    overall: Band


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """By how much a side is better than the reference, in one figure.

    Attributes:
        figure: of `FIGURES`.
        value: the difference of the two figures, with its 80 % interval; without one where either side has one seed
            only in an environment.
        probability: share of the bootstrap in which the side is better; None where there is no interval.
    """

    figure: str
    value: Estimate
    probability: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All sides; the first is the reference.

    Attributes:
        environments: those that all sides have, in the order of the first side.
        sides: in the order given.
        differences: by label of each other side, its `Difference` from the reference in each of `FIGURES`.
        notes: what a reader must know, one line each (environments left out, one seed only, unequal budgets).
    """

    environments: tuple[Environment, ...]
    sides: tuple[SideResult, ...]
    differences: Mapping[str, tuple[Difference, ...]]
    notes: tuple[str, ...]


def compare(sides: Sequence[Side], *, environments: Sequence[str] = ()) -> Comparison:
    """Compares sides; the first is the reference.

    Args:
        sides: at least one, each with at least one sweep; labels differ.
        environments: to keep; empty: all that the sides have in common.

    Raises:
        UsageError: no environment is common to all sides, or one that was asked for is not.
    """
    if len({side.label for side in sides}) < len(sides) or not sides:
        raise UsageError("sides need different labels; name each sweep or group once")
    common, notes = _common(sides, environments)
    known = [_environment(env, sides) for env in common]
    rng = np.random.default_rng(_SEED)
    figures = [[_figures(side, env) for env in known] for side in sides]  # side, environment: figures x seeds
    draws = [[_draws(own, rng) for own in of_side] for of_side in figures]  # ... figures x draws
    joint = [_joint(of_side, own) for of_side, own in zip(draws, figures, strict=True)]  # side: figures x draws
    for side, of_side in zip(sides, figures, strict=True):
        single = [env.name for env, own in zip(known, of_side, strict=True) if own.shape[1] == 1]
        if len(single) == len(known):
            notes.append(f"{side.label} has one sweep in each environment, so there is no interval over seeds")
        elif single:
            notes.append(f"{side.label} has one sweep in {_listed(single)}, so its mean figures have no interval")
    for env in known:
        spent = [own.spent_seconds for side in sides for own in side.sweeps if own.env == env.name]
        if max(spent) > _ALIKE * min(spent):
            notes.append(
                f"budgets differ in {env.name} ({_duration(min(spent))} to {_duration(max(spent))}), so the figures are"
                f" taken at {_duration(env.common_seconds)}, which all sweeps have spent"
            )
    return Comparison(
        environments=tuple(known),
        sides=tuple(
            SideResult(
                label=side.label,
                num_seeds={env.name: own.shape[1] for env, own in zip(known, figures[i], strict=True)},
                figures=_estimates(_mean(figures[i]), joint[i]),
                by_environment={
                    env.name: _estimates(own.mean(axis=1), drawn)
                    for env, own, drawn in zip(known, figures[i], draws[i], strict=True)
                },
                best={env.name: _best_band(side, env, rng) for env in known},
                front={env.name: _front_band(side, env, rng) for env in known},
                overall=_overall_band(side, known, rng),
            )
            for i, side in enumerate(sides)
        ),
        differences={
            side.label: _differences(
                _mean(figures[i]),
                joint[i],
                _mean(figures[0]),
                joint[0],
                known=all(own.shape[1] > 1 for own in (*figures[i], *figures[0])),
            )
            for i, side in enumerate(sides)
            if i
        },
        notes=tuple(notes),
    )


def side_labels(sweeps: Sequence[tuple[str, str]]) -> list[str]:
    """Returns a label for each sweep, given as (name, environment): sweeps of one label make up a side.

    A label is the name without its environment and without a seed at its end: "old" for "old-pong-1" of pong and for
    "old-maze-2" of maze. A label that would stand for sweeps of one name only is that name. Where all sweeps would get
    the same label, nothing is left to compare, and each has its own name.
    """
    labels = []
    for name, env in sweeps:
        bare = re.sub(rf"(?:^|[-_. /]+){re.escape(env)}(?=$|[-_. /])", "", without_seed(name), flags=re.IGNORECASE)
        labels.append(bare.strip("-_. /") or without_seed(name))
    if len(set(labels)) == 1:
        return [name for name, _ in sweeps]
    counts = {label: labels.count(label) for label in labels}
    return [label if counts[label] > 1 else name for label, (name, _) in zip(labels, sweeps, strict=True)]


def without_seed(name: str) -> str:
    """Returns a sweep's name without a number at its end that may be a seed: "ppo" for "ppo-3", "ppo_s3", "ppo seed 3".

    A number that is part of a word, such as in "g2048" and "layers4", or of another number, as in "lr-0.01" and
    "lr-1e-3", is kept.
    """
    stem = _SEED_SUFFIX.sub("", name)
    return stem or name


def _common(sides: Sequence[Side], wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the environments to compare in, and notes on those left out."""
    have = [{sweep.env for sweep in side.sweeps} for side in sides]
    listed = list(dict.fromkeys(sweep.env for side in sides for sweep in side.sweeps))
    common = [env for env in listed if all(env in own for own in have)]
    for env in wanted:
        if env not in common:
            lacking = [side.label for side, own in zip(sides, have, strict=True) if env not in own]
            raise UsageError(f"{_listed(lacking)} has no sweep of '{env}'; common to all: {_listed(common) or 'none'}")
    if not common:
        said = "; ".join(f"{side.label}: {_listed(sorted(own))}" for side, own in zip(sides, have, strict=True))
        raise UsageError(f"the sides have no environment in common ({said}); compare sweeps of the same environment")
    left_out = [env for env in listed if env not in common]
    notes = [f"left out, because not all sides have it: {_listed(left_out)}"] if left_out and not wanted else []
    return [env for env in common if not wanted or env in wanted], notes


def _environment(name: str, sides: Sequence[Side]) -> Environment:
    groups = [[sweep for sweep in side.sweeps if sweep.env == name] for side in sides]
    sweeps = [sweep for group in groups for sweep in group]
    directions = {sweep.direction for sweep in sweeps}
    if len(directions) > 1:
        raise UsageError(
            f"some sweeps of '{name}' maximise their score and others minimise it, so they cannot be compared;"
            " name sweeps of one direction"
        )
    by_side = [np.concatenate([sweep.scores for sweep in group]) for group in groups]
    scores = np.concatenate(by_side)
    weights = np.concatenate([np.full(len(own), 1.0 / len(own)) for own in by_side])
    costs = np.concatenate([sweep.costs for sweep in sweeps])
    return Environment(
        name=name,
        direction=directions.pop(),
        low=_weighted_median(scores, weights),
        high=float(scores.max()),
        common_seconds=min(sweep.spent_seconds for sweep in sweeps),
        cost_range=(float(costs.min()), float(costs.max())),
    )


def _weighted_median(values: Array, weights: Array) -> float:
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    half = 0.5 * cumulative[-1]
    below, at_most = (np.searchsorted(cumulative, half * (1 + sign * 1e-9), side="left") for sign in (-1, 1))
    last = len(values) - 1
    return float(0.5 * (values[order][min(below, last)] + values[order][min(at_most, last)]))


def _figures(side: Side, env: Environment) -> Array:
    """Returns the figures of a side's sweeps in one environment, `figures x seeds`."""
    columns = []
    for sweep in (sweep for sweep in side.sweeps if sweep.env == env.name):
        low, high = env.cost_range
        reference = high * (1.0 + 1e-9)
        ideal = math.log(reference / low)
        found, costs = sweep.complete_by(env.common_seconds)  # a larger budget is no merit
        scores = env.normalised(found)
        # Where all trials cost the same there is no front but a point.
        volume = (
            hypervolume(scores, costs, reference_score=0.0, reference_cost=reference) / ideal
            if ideal > 1e-6
            else float(scores.max(initial=0.0))
        )
        columns.append(
            [float(env.normalised(sweep.best_at(np.array([env.common_seconds])))[0]), volume, _area(sweep, env)]
        )
    return np.array(columns).T


def _area(sweep: SweepResult, env: Environment) -> float:
    """Returns the mean of normalised b over the common budget: an exact sum over its steps."""
    if env.common_seconds == 0.0:  # nothing has cost anything, so all was found at once
        return float(env.normalised(sweep.best_at(np.zeros(1)))[0])
    inside = sweep.spent < env.common_seconds
    edges = np.concatenate([[0.0], sweep.spent[inside], [env.common_seconds]])
    values = env.normalised(np.concatenate([[-np.inf], sweep.best[inside]]))
    return float(np.sum(values * np.diff(edges))) / env.common_seconds


def _draws(own: Array, rng: np.random.Generator, num_draws: int = _NUM_DRAWS) -> Array:
    """Returns bootstrap means over the last axis, `figures x draws`, widened as said at the head of this file."""
    k = own.shape[-1]
    if k == 1:
        return np.repeat(own, num_draws, axis=-1)
    chosen = rng.integers(k, size=(num_draws, k))
    mean = own.mean(axis=-1, keepdims=True)
    return np.asarray(mean + _widening(k) * (own[..., chosen].mean(axis=-1) - mean))


def _widening(num_seeds: int) -> float:
    quantile = float(stats.t.ppf(0.9, num_seeds - 1))
    return math.sqrt(num_seeds / (num_seeds - 1)) * quantile / Z80


def _mean(by_environment: Sequence[Array]) -> Array:
    """Returns the mean over environments of the mean over seeds, `figures`."""
    return np.asarray(np.mean([own.mean(axis=1) for own in by_environment], axis=0))


def _joint(draws: Sequence[Array], own: Sequence[Array]) -> Array:
    """Returns draws of the mean over environments, `figures x draws`; all are the mean where one has a single seed."""
    if min(one.shape[1] for one in own) == 1:
        return np.repeat(_mean(own)[:, None], _NUM_DRAWS, axis=1)
    return np.asarray(np.mean(draws, axis=0))


def _estimates(values: Array, draws: Array) -> dict[str, Estimate]:
    return {name: _estimate(values[i], draws[i]) for i, name in enumerate(FIGURES)}


def _estimate(value: float, draws: Array) -> Estimate:
    low, high = np.quantile(draws, (0.1, 0.9)).tolist()
    return Estimate(value=float(value), low=min(low, float(value)), high=max(high, float(value)))


def _differences(
    values: Array, draws: Array, reference: Array, reference_draws: Array, *, known: bool
) -> tuple[Difference, ...]:
    """Returns the differences of two sides; `known` is whether both have several seeds in every environment."""
    found = []
    for i, name in enumerate(FIGURES):
        difference = float(values[i] - reference[i])
        drawn = draws[i] - reference_draws[i] if known else np.array([difference])
        better = float(np.mean(drawn > 0) + 0.5 * np.mean(drawn == 0))
        found.append(
            Difference(
                figure=name,
                value=_estimate(difference, drawn),
                probability=better if np.ptp(drawn) > 0 else None,
            )
        )
    return tuple(found)


def _band(x: Array, rows: Array, rng: np.random.Generator) -> Band:
    """Returns the band of a side's seeds, `seeds x m`."""
    rows = np.where(np.isfinite(rows), rows, np.nan)
    draws = _draws(rows.T, rng, _NUM_BAND_DRAWS)
    low, high = np.quantile(draws, (0.1, 0.9), axis=1)
    value = rows.mean(axis=0)
    return Band(x=x, value=value, low=np.minimum(low, value), high=np.maximum(high, value))


def _best_band(side: Side, env: Environment, rng: np.random.Generator) -> Band:
    sweeps = [sweep for sweep in side.sweeps if sweep.env == env.name]
    x = np.linspace(0.0, min(sweep.spent_seconds for sweep in sweeps), NUM_GRID)
    return _band(x, np.stack([sweep.best_at(x) for sweep in sweeps]), rng)


def _front_band(side: Side, env: Environment, rng: np.random.Generator) -> Band:
    sweeps = [sweep for sweep in side.sweeps if sweep.env == env.name]
    x = np.geomspace(env.cost_range[0], max(env.cost_range[1], env.cost_range[0] * (1 + 1e-9)), NUM_GRID)
    return _band(x, np.stack([sweep.front_at(x) for sweep in sweeps]), rng)


def _overall_band(side: Side, environments: Sequence[Environment], rng: np.random.Generator) -> Band:
    x = np.linspace(0.0, 1.0, NUM_GRID)
    draws, values = [], []
    for env in environments:
        sweeps = [sweep for sweep in side.sweeps if sweep.env == env.name]
        rows = np.stack([env.normalised(sweep.best_at(x * env.common_seconds)) for sweep in sweeps])
        draws.append(_draws(rows.T, rng, _NUM_BAND_DRAWS))
        values.append(rows.mean(axis=0))
    value = np.mean(values, axis=0)
    alone = any(sum(sweep.env == env.name for sweep in side.sweeps) == 1 for env in environments)
    low, high = (value, value) if alone else np.quantile(np.mean(draws, axis=0), (0.1, 0.9), axis=1)
    return Band(x=x, value=value, low=np.minimum(low, value), high=np.maximum(high, value))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _duration(seconds: float) -> str:
    return format_duration(round(seconds)) if seconds >= 10 else f"{seconds:.2g}s"
