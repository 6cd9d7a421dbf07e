"""Reinforcement learning: PPO, DQN and SAC on twelve environments, from tables of real training runs.

Notation
    c, r, k   measured config, one of its runs (seeds), entry of the table's step counts;  S steps of a trial
    average   mean score of c's runs at k; a run that had broken by then counts as the worst config's mean
    w(c)      weight of a measured config: the mean over 100 extremely randomised trees of its share of the leaf
    truth     sum of w(c) average(c, k) at every k, linear in log S between them
    luck      departure of one run from the mean of its config's unbroken runs, times sqrt(n / (n - 1)), n their number

`data/arlbench/README.md` tells where the tables come from and how one becomes a task. A trial draws a measured config
by the weights (a tree, then a member of its leaf) and one of its runs, and takes over that run's luck along its curve,
and its failure: at the first k without a score. Seconds are steps times the table's seconds per step, times a factor
of the true score where the table has one, times the departure of one measured run time. A task's seed draws nothing
but luck: the landscape and the initial config (the algorithm's defaults, all steps) are fixed.

Tables of the same form in the folder that the environment variable `PROTEIN_BENCH_TABLES` names become families, too.
"""

import dataclasses
import functools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from engine.protocol import Watch, replay
from numpy.typing import NDArray

from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.types import Measurement, Observation, Params, ParamValue, TrialState

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

TABLES = Path(__file__).resolve().parent / "data" / "arlbench"
FURTHER = os.environ.get("PROTEIN_BENCH_TABLES", "")
STEPS = "steps"  # the cost parameter's name
_PREFIX = "rl-"
_NUM_TREES = 100
_INACTIVE = 0.5  # unit coordinate of a parameter that is switched off


def _found(folder: Path) -> dict[str, Path]:
    return {_PREFIX + path.stem.replace("_", "-"): path for path in sorted(folder.glob("*.npz"))}


OURS = _found(TABLES)
OTHERS = {family: path for family, path in _found(Path(FURTHER)).items() if family not in OURS} if FURTHER else {}
FAMILIES = (*OURS, *OTHERS)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """One algorithm on one environment. `q` configs, up to `r` runs of each, `k` step counts, `m` nodes of the forest.

    The nodes of all trees are numbered one after another. What is known of a leaf is the mean over its members.
    """

    space: Space
    start: Params
    kinds: tuple[tuple[str, float, float], ...]  # kind, low and high of every hyperparameter
    switches: tuple[tuple[int, int], ...]  # positions of a hyperparameter and of the switch that must be 1 for it
    steps: Array  # `k`, whole numbers
    average: Array  # `q x k`
    luck: Array  # `q x r x k`; a broken run keeps its last one
    breaks: Indices  # `q x r`, the first entry without a score; k where there is none, -1 where there was no run
    limits: tuple[float, float]  # of all scores
    trees: tuple[Any, ...]
    offset: Indices  # first node of each tree
    members: tuple[Indices, ...]  # of each node, measured configs; none for an inner one
    leaf_average: Array  # `m x k`
    leaf_breaks: Array  # `m x k`, share of runs that break at an entry
    seconds_per_step: float
    by_score: tuple[Array, Array] | None  # scores, and the logarithm of a factor on the seconds
    log_seconds: Array  # departures of measured run times

    def final(self, u: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Returns true score, seconds without their noise, and whether it can give a score, `n` each."""
        steps = self.steps_of(u)
        score = self.at(self.course(u), steps)
        return score, steps * self.rate(score), np.ones(len(u), dtype=bool)

    def spent(self, u: Array) -> Array:
        """Returns the mean seconds of runs to their end or their failure, `n`."""
        steps, leaves = self.steps_of(u), self.leaves(u)
        breaks = self.leaf_breaks[leaves].mean(axis=1) * (self.steps <= steps[:, None])
        reached = steps * (1.0 - breaks.sum(axis=1)) + breaks @ self.steps
        rate = self.rate(self.at(self.leaf_average[leaves].mean(axis=1), steps))
        return np.asarray(reached * rate * np.exp(self.log_seconds).mean())

    def course(self, u: Array) -> Array:
        """Returns true scores at the table's step counts, `n x k`."""
        return np.asarray(self.leaf_average[self.leaves(u)].mean(axis=1))

    def weights(self, u: Array) -> Array:
        """Returns the weights of the measured configs, `n x q`."""
        weights = np.zeros((len(u), len(self.average)))
        for row, leaves in zip(weights, self.leaves(u), strict=True):
            for leaf in leaves:
                row[self.members[leaf]] += 1.0 / len(self.members[leaf]) / len(leaves)
        return weights

    def leaves(self, u: Array) -> Indices:
        """Returns the leaf of every tree, `n x 100`."""
        x = _coordinates(self._natural(u), self.kinds, self.switches)
        return np.stack([tree.apply(x) for tree in self.trees], axis=1) + self.offset

    def at(self, course: Array, steps: Array) -> Array:
        """Returns values at `n` step counts of courses, `n x k`: linear in the logarithm, constant beyond the ends."""
        return _interpolate(course, np.log(self.steps), np.log(steps))

    def rate(self, score: Array) -> Array:
        """Returns seconds per step at true scores, `n`, without noise."""
        factor = 0.0 if self.by_score is None else np.interp(score, *self.by_score)
        return np.asarray(self.seconds_per_step * np.exp(factor) * np.ones_like(score))

    def steps_of(self, u: Array) -> Array:
        """Returns the steps, `n`."""
        return self.space.parameters[-1].decode(u[:, -1])

    def draw(self, u: Array, rng: np.random.Generator) -> tuple[int, int]:
        """Returns a measured config, drawn by the weights of one config, `1 x d`, and one of its runs."""
        members = self.members[rng.choice(self.leaves(u)[0])]
        config = int(rng.choice(members))
        return config, int(rng.choice(np.flatnonzero(self.breaks[config] >= 0)))

    def _natural(self, u: Array) -> Array:
        """Returns the hyperparameters' values, `n x p`."""
        return np.column_stack([p.decode(u[:, i]) for i, p in enumerate(self.space.parameters[:-1])])


@dataclasses.dataclass(frozen=True, kw_only=True)
class RlTask:
    """One table as a task."""

    name: str
    table: Table

    @property
    def family(self) -> str:
        return self.name

    @property
    def space(self) -> Space:
        return self.table.space

    @property
    def start(self) -> Params:
        return self.table.start

    def run(self, params: Params, *, seed: int, repeat: int = 0, watch: Watch | None = None) -> Observation:
        """Returns one trial's outcome; see `engine.protocol.Task`."""
        self.space.validate(params)
        table, u = self.table, self.space.to_unit(params)[None, :]
        rng = np.random.default_rng([seed, repeat, *np.frombuffer(u.tobytes(), dtype=np.uint32).tolist()])
        config, run = table.draw(u, rng)
        course = table.course(u)
        steps = float(table.steps_of(u)[0])
        end = int(table.breaks[config, run])
        broken_at = table.steps[end] if end < len(table.steps) else np.inf
        failed = bool(steps >= broken_at)
        rate = float(table.rate(table.at(course, np.array([steps])))[0]) * np.exp(rng.choice(table.log_seconds))
        before = table.steps[:end]
        points = before if failed else np.append(before[before < steps], steps)
        noisy = np.repeat(course + table.luck[config, run], len(points), axis=0)
        scores = np.clip(table.at(noisy, points), *table.limits)
        curve = tuple(
            Measurement(steps=int(s), elapsed_seconds=float(s * rate), score=float(v))
            for s, v in zip(points, scores, strict=True)
        )
        return replay(
            params,
            curve,
            score=None if failed else float(scores[-1]),
            cost_seconds=float(rate * (broken_at if failed else steps)),
            reason="broke" if failed else "",
            watch=watch,
        )

    def true_score(self, observation: Observation) -> float:
        """Returns the true score at the steps that were reached."""
        u = self.space.to_unit(observation.params)[None, :]
        complete = observation.state is TrialState.COMPLETE
        steps = self.table.steps_of(u) if complete else np.array([float(observation.curve[-1].steps)])
        return float(self.table.at(self.table.course(u), steps)[0])


def make_rl(family: str, seed: int) -> RlTask:
    """Returns a table's task, the same for all seeds."""
    return RlTask(name=family, table=load(family))


@functools.cache
def load(family: str) -> Table:
    """Reads a table and fits its forest; once in a process, some tenths of a second."""
    path = OURS.get(family) or OTHERS[family]
    with np.load(path) as stored:
        arrays: dict[str, Any] = {key: stored[key] for key in stored.files}
    return fit(arrays, json.loads(path.with_suffix(".json").read_text()))


def fit(arrays: dict[str, Any], facts: dict[str, Any]) -> Table:
    """Returns the table of the arrays and facts that `data/arlbench/README.md` describes."""
    from sklearn.ensemble import ExtraTreesRegressor

    names = [p["name"] for p in facts["params"]]
    kinds = tuple((p["kind"], float(p["low"]), float(p["high"])) for p in facts["params"])
    switches = tuple((names.index(name), names.index(by)) for name, by in facts["active_only_if"].items())
    scores, ran = arrays["scores"].astype(np.float64), arrays["ran"]
    known = np.isfinite(scores)
    average = averages(scores, ran)
    alive = _mean(scores, known)  # of unbroken runs, NaN where there is none
    count = known.sum(axis=1, keepdims=True)
    luck = (scores - alive[:, None, :]) * np.sqrt(count / np.maximum(count - 1, 1))
    breaks = np.where(known.all(axis=2), scores.shape[2], np.argmin(known, axis=2))
    at = np.minimum(np.arange(scores.shape[2]), np.maximum(breaks - 1, 0)[..., None])
    luck = np.nan_to_num(np.take_along_axis(luck, at, axis=2))
    x = _coordinates(arrays["configs"], kinds, switches)
    forest = ExtraTreesRegressor(_NUM_TREES, min_samples_leaf=1, random_state=0)
    forest.fit(x, _normal_scores(average) if facts["surrogate"]["split_on"] == "rank" else average)
    trees = tuple(estimator.tree_ for estimator in forest.estimators_)
    offset = np.concatenate([[0], np.cumsum([tree.node_count for tree in trees])])
    members = tuple(
        np.flatnonzero(leaf_of == node)
        for tree in trees
        for leaf_of in [tree.apply(x)]
        for node in range(tree.node_count)
    )
    broken = (breaks[..., None] == np.arange(scores.shape[2])) & ran[..., None]
    broken_share = broken.sum(axis=1) / ran.sum(axis=1, keepdims=True)
    nothing = np.zeros(scores.shape[2])
    space, start = _space(facts["params"], arrays["steps"])
    by_score = facts["seconds_by_score"]
    factor = None if by_score is None else (np.array(by_score["score"]), np.array(by_score["log_factor"]))
    return Table(
        space=space,
        start=start,
        kinds=kinds,
        switches=switches,
        steps=arrays["steps"].astype(np.float64),
        average=average,
        luck=luck,
        breaks=np.where(ran, breaks, -1),
        limits=(float(np.nanmin(scores)), float(np.nanmax(scores))),
        trees=trees,
        offset=offset[:-1],
        members=members,
        leaf_average=np.array([average[own].mean(axis=0) if len(own) else nothing for own in members]),
        leaf_breaks=np.array([broken_share[own].mean(axis=0) if len(own) else nothing for own in members]),
        seconds_per_step=float(facts["seconds_per_step"]),
        by_score=factor,
        log_seconds=_departures(arrays, factor),
    )


def averages(scores: Array, ran: NDArray[np.bool_]) -> Array:
    """Returns mean scores, `q x k`, of `q x r x k` scores; a broken run counts as the worst mean of its step count."""
    worst = np.nanmin(_mean(scores, np.isfinite(scores)), axis=0)
    return _mean(np.where(np.isfinite(scores), scores, worst), np.repeat(ran[..., None], scores.shape[2], axis=2))


def _mean(scores: Array, counts: NDArray[np.bool_]) -> Array:
    """Mean over runs, `q x k`; NaN where none counts."""
    number = counts.sum(axis=1)
    total = np.where(counts, scores, 0.0).sum(axis=1)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def _normal_scores(average: Array) -> Array:
    from scipy.stats import norm, rankdata

    return np.asarray(norm.ppf(rankdata(average, axis=0) / (len(average) + 1)))


def _departures(arrays: dict[str, Any], factor: tuple[Array, Array] | None) -> Array:
    """Departures of the log seconds from the mean of their batch, less the factor of the run's own score."""
    left = np.log(arrays["runtime_seconds"].astype(np.float64))
    if factor is not None:
        left = left - np.interp(arrays["runtime_score"], *factor)
    _, batch = np.unique(arrays["runtime_campaign"], return_inverse=True)
    return np.asarray(left - (np.bincount(batch, left) / np.bincount(batch))[batch])


def _coordinates(values: Array, kinds: tuple[tuple[str, float, float], ...], switches: Any) -> NDArray[np.float32]:
    """Natural values, `n x p`, to 0..1 by their kind; what is switched off to the middle."""
    x = np.empty(values.shape)
    for i, (kind, low, high) in enumerate(kinds):
        column = values[:, i]
        if kind in ("log", "pow2"):
            column, low, high = np.log(column), np.log(low), np.log(high)
        x[:, i] = (column - low) / (high - low)
    for i, switch in switches:
        x[values[:, switch] != 1.0, i] = _INACTIVE
    return np.nan_to_num(x, nan=_INACTIVE).astype(np.float32)


def _interpolate(values: Array, knots: Array, at: Array) -> Array:
    """Values, `n x k` at knots, `k`, linear at one place each, `n`."""
    right = np.clip(np.searchsorted(knots, at), 1, len(knots) - 1)
    share = np.clip((at - knots[right - 1]) / (knots[right] - knots[right - 1]), 0.0, 1.0)
    rows = np.arange(len(values))
    return np.asarray((1.0 - share) * values[rows, right - 1] + share * values[rows, right])


def _space(params: list[dict[str, Any]], steps: Indices) -> tuple[Space, Params]:
    """The space, the steps last, and the default config at all steps."""
    parameters: list[Parameter] = []
    start: dict[str, ParamValue] = {}
    for p in params:
        name, kind, low, high, default = p["name"], p["kind"], p["low"], p["high"], p["default"]
        if kind == "int" and (low, high) == (0, 1):
            parameters.append(Categorical(name, (False, True)))
            start[name] = bool(default)
        elif kind in ("int", "pow2"):
            parameters.append(Integer(name, int(low), int(high), "linear" if kind == "int" else "pow2"))
            start[name] = round(default)
        else:
            parameters.append(Float(name, float(low), float(high), "linear" if kind == "float" else "log"))
            start[name] = float(default)
    first, last = int(steps[0]), int(steps[-1])
    space = Space([*parameters, Integer(STEPS, first, last, "log")], cost_parameter=STEPS)
    return space, {**start, STEPS: last}
