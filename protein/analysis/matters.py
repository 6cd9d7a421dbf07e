"""What matters: how much of the variation of score, or cost, near the best configs is due to each parameter.

The headline is one sentence: a parameter's share is the variance that moving it alone over its range makes around the
best configs, of the sum of these variances over all parameters. So the shares add up to 1, and a parameter whose
effect is far from every good config does not outrank one that has to be right. `protein.engine.laws` asks at the same
place.

Notation
    f          the score that the model expects of a run to its end, without noise, on its scale (ln cost for a cost).
               There bad outliers are compressed (`protein.engine.score_model`)
    draws      S functions from the posterior of f over the whole space. Every number is computed for each of them, so
               its mean is an estimate and its quantiles are the doubt, for any function of f. The mean of the draws is
               a further function: what varies in draws alone is not known, and nothing of it is surely there
    rows       `n x d` configs; a table has f at the rows with one parameter moved over a grid of its range, `n x g`
    V_i        mean over the rows of the variance along parameter i
    share      V_i / sum of all V_j at rows that are the best expected configs
    whole      V_i / V at rows that cover the space evenly, V the variance of f there: the total Sobol index
    alone      variance of f averaged over the rows, as a function of parameter i, / V: the first Sobol index
    pair       variance of what is left of f over two parameters, through the best configs, when the effects of each of
               the two are taken away; of the sum of all V_j

For the score, the cost parameter is apart: its range is that of short and long runs, so it would take nearly all of the
sum. Its share is V_c / (V_c + sum of the others). The same holds for a parameter that no best config has: its share is
that of configs with it. Pairs are of the parameters that matter most, without the cost parameter, of which the laws
speak. Where all parameters together hardly change anything, the sum is at least `_FLOOR`, so that none of them matters.

A grid has all values of a parameter with few of them. A point that breaks a constraint is left out. Where a constraint
leaves a parameter nowhere to go alone (a + b = 1), what shares a constraint with it moves along, as little as needed.

Sources: Sobol, Global Sensitivity Indices for Nonlinear Mathematical Models (2001); Hutter, Hoos and Leyton-Brown, An
Efficient Approach for Assessing Hyperparameter Importance (2014), of which this differs in where it looks; Oakley and
O'Hagan, Probabilistic Sensitivity Analysis of Complex Models (2004), for indices as draws of a Gaussian process.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protein.analysis.model_maps import SweepModel
from protein.columns import cell
from protein.engine.front_model import MIN_EFFECT
from protein.engine.gp import Array, single_thread
from protein.engine.laws import UNKNOWN_WIDTH
from protein.engine.results import Matter, Matters, Pair, Share, recommendable
from protein.errors import UsageError
from protein.space import Categorical, Parameter, Space
from protein.types import ParamValue

Target = Literal["score", "cost"]
TARGETS: tuple[Target, ...] = ("score", "cost")
MIN_TRIALS = 10  # with a score
_NUM_DRAWS = 128
_NUM_BEST = 5  # configs that are the best ones
_NUM_ROWS = 128  # that cover the space
_NUM_POINTS, _NUM_WHOLE, _NUM_PAIR = 24, 12, 8  # of a grid: along one parameter, the same over the space, of a pair
_NUM_PAIRED = 6  # parameters of which pairs are looked at
_NUM_NEAR = 4096  # points among which the nearest valid one is sought
_QUANTILES = (0.1, 0.5, 0.9)
_KNOWN_SHARE = 0.6  # of the draws, in which one choice must be the best
_FLOOR = {"score": MIN_EFFECT**2, "cost": 0.05**2}  # of the sum of all V_j: with less, nothing matters (5 % of a cost)
_LEAST = 1e-12  # of V: below that it is rounding
_VERDICTS = ("matters", "maybe", "hardly")  # the order of the list
_SEED = 31  # the answer is a function of the trials alone

Draw = Callable[[Array], Array]
Mask = NDArray[np.bool_]


def matters(model: SweepModel, target: Target = "score") -> Matters:
    """Returns what matters in a sweep, without laws.

    Args:
        model: of the sweep.
        target: "score"; or "cost", for what makes a trial cheap or expensive.

    Raises:
        UsageError: there is no such target.
    """
    if target not in TARGETS:
        raise UsageError(f"a parameter matters for {' or '.join(TARGETS)}, got '{target}'")
    found = Matters(target=target, num_trials=model.num_scores)
    if model.num_scores < MIN_TRIALS:
        few = f"needs {MIN_TRIALS} trials with a score, and has {model.num_scores}; run more"
        return dataclasses.replace(found, problem=few)
    if target == "score" and model.score.scale.sd == 0.0:
        return dataclasses.replace(found, problem=f"all {model.num_scores} trials have the same score")
    rng = np.random.default_rng(_SEED)
    with single_thread(), np.errstate(all="ignore"):
        draw = _with_mean((model.score if target == "score" else model.cost).draws(_NUM_DRAWS, rng))
        parameters, pairs = _found(model, draw, rng, target)
    return dataclasses.replace(found, parameters=parameters, pairs=pairs)


def _found(
    model: SweepModel, draw: Draw, rng: np.random.Generator, target: Target
) -> tuple[tuple[Matter, ...], tuple[Pair, ...]]:
    space = model.space
    ranked = sorted(recommendable(model.contenders), key=lambda one: (-one.score.value, one.expected_cost_seconds))
    tried = space.canonical(space.to_unit_many([one.params for one in ranked]))
    has = space.active(tried)
    near = [_Table.of(space, draw, tried[has[:, i]][:_NUM_BEST], i, _NUM_POINTS, rng) for i in range(space.num_dims)]
    along = np.stack([table.along() for table in near])  # d x S
    inactive: Mask = ~np.any(has[:_NUM_BEST], axis=0)
    apart = inactive.copy()
    if space.cost_index is not None and target == "score":
        apart[space.cost_index] = True
    total = along[~apart].sum(axis=0)
    shares = along / _sums(total + np.where(apart[:, None], along, 0.0), target)
    covering = _covering(space, rng)
    over = [_Table.of(space, draw, covering, i, _NUM_WHOLE, rng) for i in range(space.num_dims)]
    variance = np.maximum(np.mean([table.total() for table in over], axis=0), _LEAST)
    parameters = [
        Matter(
            name=parameter.name,
            share=_share(shares[i]) if len(near[i].f) else Share(value=0.0, low=0.0, high=1.0),
            whole=_share(over[i].along() / variance),
            alone=_share(over[i].alone() / variance),
            is_cost=i == space.cost_index and target == "score",
            active=not inactive[i],
            best=_best_range(parameter, near[i]) if target == "score" else None,
            choices=_best_choices(parameter, near[i]) if target == "score" else (),
        )
        for i, parameter in enumerate(space.parameters)
    ]
    largest = np.argsort([-one.share.value for one in parameters], kind="stable").tolist()
    order = sorted(largest, key=lambda i: _VERDICTS.index(parameters[i].verdict))
    paired = sorted([i for i in largest if not apart[i]][:_NUM_PAIRED])
    pairs = []
    for i, j in itertools.combinations(paired, 2):
        rows = tried[:_NUM_BEST][has[:_NUM_BEST, i] & has[:_NUM_BEST, j]]
        both = _interaction(space, draw, rows, i, j)
        if both is not None:
            share = _share(both / _sums(total, target))
            pairs.append(Pair(names=(space.names[i], space.names[j]), share=share))
    shown = [pair for pair in pairs if pair.share.verdict != "hardly"]
    return tuple(parameters[i] for i in order), tuple(sorted(shown, key=lambda pair: -pair.share.value))


@dataclasses.dataclass(frozen=True, slots=True)
class _Table:
    """Drawn functions at rows with one parameter moved over its range; see the head of this file.

    Attributes:
        grid: `g`, its unit coordinates.
        f: `n x g x S`.
        weight: `n x g`, of the points of each row: 0 where a point does not exist. Each row adds up to 1, or to 0 where
            it has fewer than two points.
    """

    grid: Array
    f: Array
    weight: Array

    @classmethod
    def of(cls, space: Space, draw: Draw, rows: Array, i: int, num: int, rng: np.random.Generator) -> "_Table":
        """Returns the table of the i-th parameter at those of `n x d` rows that have it, on at most `num` points."""
        rows = rows[space.active(rows)[:, i]]
        grid = _grid(space.parameters[i], num)
        x = np.repeat(rows, len(grid), axis=0)
        x[:, i] = np.tile(grid, len(rows))
        x = space.canonical(x)
        exists = _exists(space, x, [i]).reshape(len(rows), len(grid))
        if len(rows) and space.constraints and not (exists.sum(axis=1) > 1).any():
            x, exists = _moved_along(space, rows, i, grid, rng)
        exists = exists & (exists.sum(axis=1, keepdims=True) > 1)
        f = np.zeros((*exists.shape, 0)) if not len(rows) else draw(x).reshape(*exists.shape, -1)
        return cls(grid, f, exists / np.maximum(exists.sum(axis=1, keepdims=True), 1))

    def along(self) -> Array:
        """Returns V_i, `S`; 0 where no row has it, or it has nowhere to go."""
        used = self.weight.any(axis=1)
        if not used.any():
            return np.zeros(_NUM_DRAWS + 1)
        f, weight = self.f[used], self.weight[used][:, :, None]
        mean = np.sum(weight * f, axis=1, keepdims=True)
        return np.asarray(np.mean(np.sum(weight * (f - mean) ** 2, axis=1), axis=0))

    def total(self) -> Array:
        """Returns the variance over all points, `S`."""
        if not self.weight.any():
            return np.zeros(_NUM_DRAWS + 1)
        weight = (self.weight / self.weight.sum())[:, :, None]
        mean = np.sum(weight * self.f, axis=(0, 1))
        return np.asarray(np.sum(weight * (self.f - mean) ** 2, axis=(0, 1)))

    def alone(self) -> Array:
        """Returns the variance of the mean over rows, less what a mean over so few rows varies by chance, `S`."""
        own = self.weight.sum(axis=0)
        if not own.any():
            return np.zeros(_NUM_DRAWS + 1)
        f = self.f - np.sum(self.weight[:, :, None] * self.f, axis=1, keepdims=True)  # less each row's own mean
        column = np.sum(self.weight[:, :, None] * f, axis=0) / np.where(own > 0, own, 1.0)[:, None]
        share = (own / own.sum())[:, None]
        raw = np.sum(share * (column - np.sum(share * column, axis=0)) ** 2, axis=0)
        num = float(self.weight.any(axis=1).sum())
        return np.asarray(np.maximum(raw - self.along() / num, 0.0) / max(1.0 - 1.0 / num, 0.5))

    def best(self) -> NDArray[np.intp]:
        """Returns where on the grid each draw is highest, on average over the rows, `S`."""
        some: Mask = np.any(self.weight > 0, axis=0)
        f = self.f - np.sum(self.weight[:, :, None] * self.f, axis=1, keepdims=True)
        exists = self.weight[:, :, None] > 0
        mean = np.sum(np.where(exists, f, 0.0), axis=0) / np.maximum(np.sum(exists, axis=0), 1)
        return np.asarray(np.argmax(np.where(some[:, None], mean, -np.inf), axis=0))


def _interaction(space: Space, draw: Draw, rows: Array, i: int, j: int) -> Array | None:
    """Returns the mean variance of what two parameters do together through `n x d` rows, `S`; None: nothing is known.

    Where constraints leave out a part of a plane, it is the largest part of the grid on which both can move freely.
    """
    grids = [_grid(space.parameters[k], _NUM_PAIR) for k in (i, j)]
    found = []
    for row in rows:
        x = np.tile(row, (len(grids[0]) * len(grids[1]), 1))
        x[:, i], x[:, j] = np.repeat(grids[0], len(grids[1])), np.tile(grids[1], len(grids[0]))
        x = space.canonical(x)
        exists = _exists(space, x, [i, j]).reshape(len(grids[0]), len(grids[1]))
        kept = _rectangle(exists)
        if kept is None:
            continue
        f = draw(x).reshape(*exists.shape, -1)[np.ix_(*kept)]
        f = f - f.mean(axis=0, keepdims=True)
        f = f - f.mean(axis=1, keepdims=True)
        found.append(np.mean(f * f, axis=(0, 1)))
    return np.mean(found, axis=0) if found else None


def _rectangle(exists: Mask) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Returns rows and columns of a mask, at least two each, that hold no False; None where none are found."""
    rows, columns = np.arange(exists.shape[0]), np.arange(exists.shape[1])
    while len(rows) > 1 and len(columns) > 1:
        part = exists[np.ix_(rows, columns)]
        if part.all():
            return rows, columns
        by_row, by_column = np.mean(part, axis=1), np.mean(part, axis=0)
        if by_row.min() <= by_column.min():
            rows = np.delete(rows, np.argmin(by_row))
        else:
            columns = np.delete(columns, np.argmin(by_column))
    return None


def _grid(parameter: Parameter, num: int) -> Array:
    """Returns unit coordinates that stand for the range of a parameter: all values of few, else even ones, at most."""
    listed = parameter.values()
    if listed is not None and (len(listed) <= num or isinstance(parameter, Categorical)):
        return np.clip(parameter.encode(np.array(listed, dtype=np.float64)), 0.0, 1.0)
    return (np.arange(num) + 0.5) / num


def _exists(space: Space, x: Array, moved: Sequence[int]) -> Mask:
    """Returns which of `m x d` points satisfy the constraints, and have the parameters that are moved, `m`."""
    return np.asarray(space.valid(x) & space.active(x)[:, list(moved)].all(axis=1))


def _covering(space: Space, rng: np.random.Generator) -> Array:
    """Returns valid points that cover the space evenly, at most `_NUM_ROWS x d` (a Latin hypercube)."""
    order = rng.permuted(np.tile(np.arange(_NUM_ROWS), (space.num_dims, 1)), axis=1).T
    x = space.canonical((order + rng.random(order.shape)) / _NUM_ROWS)
    return x if space.valid(x).all() else space.sample(_NUM_ROWS, rng)


def _moved_along(space: Space, rows: Array, i: int, grid: Array, rng: np.random.Generator) -> tuple[Array, Mask]:
    """Returns rows with the i-th parameter near each place of a grid, `(n g) x d`, and which of them exist, `n x g`.

    All that has a constraint in common with it moves, too, to where the nearest valid point of many has it.
    """
    tied = np.array(space.tied(space.names[i]))
    others = tied[tied != i]
    some = space.sample(_NUM_NEAR, rng)
    cell_of = np.argmin(np.abs(some[:, [i]] - grid), axis=1)
    x = np.repeat(rows, len(grid), axis=0)
    for at, place in enumerate(x):
        inside = some[cell_of == at % len(grid)]
        if len(inside):
            nearest = np.argmin(np.abs(inside[:, others] - place[others]).sum(axis=1))
            place[tied] = inside[nearest, tied]
    x = space.canonical(x)
    there = np.isin(np.arange(len(grid)), cell_of)
    return x, _exists(space, x, [i]).reshape(len(rows), len(grid)) & there


def _with_mean(draw: Draw) -> Draw:
    """Returns S drawn functions and, behind them, their mean: what the trials show, without what nobody knows."""

    def both(x: Array) -> Array:
        f = draw(x)
        return np.column_stack([f, f.mean(axis=1)])

    return both


def _sums(total: Array, target: Target) -> Array:
    """Returns what variances are shares of, `... x (S + 1)`; for the mean function the same as for draws on average."""
    sums = np.maximum(total, _FLOOR[target])
    sums[..., -1] = sums[..., :-1].mean(axis=-1)
    return np.asarray(sums)


def _share(values: Array) -> Share:
    """Returns the mean of draws and their central 80 %, from `S + 1` shares of which the last is the mean function's.

    The interval holds both means. So where a parameter hardly varied in the trials it begins at 0: drawn functions vary
    along it, because nothing is known, but the trials show nothing of that.
    """
    values, shown = np.split(np.clip(np.nan_to_num(values), 0.0, 1.0), [-1])
    mean, (low, _, high) = float(np.mean(values)), np.quantile(values, _QUANTILES).tolist()
    return Share(value=mean, low=min(low, mean, float(shown[0])), high=max(high, mean))


def _best_range(parameter: Parameter, table: _Table) -> tuple[ParamValue, ParamValue, ParamValue] | None:
    """Returns the ends and the median of where the best value of a number lies; None where the data do not tell."""
    if isinstance(parameter, Categorical) or not table.weight.any():
        return None
    low, middle, high = np.quantile(table.grid[table.best()], _QUANTILES).tolist()
    if high - low >= UNKNOWN_WIDTH:
        return None
    ends = parameter.decode(np.array([low, middle, high])).tolist()
    return parameter.raw(ends[0]), parameter.raw(ends[1]), parameter.raw(ends[2])


def _best_choices(parameter: Parameter, table: _Table) -> tuple[tuple[ParamValue, float], ...]:
    """Returns the probability of each choice to be the best; nothing where the data do not tell."""
    if not isinstance(parameter, Categorical) or not table.weight.any():
        return ()
    counts = np.bincount(table.best(), minlength=len(parameter.choices)) / (_NUM_DRAWS + 1)
    order = np.argsort(-counts, kind="stable").tolist()
    if counts[order[0]] < _KNOWN_SHARE:
        return ()
    return tuple((cell(parameter.choices[k]), float(counts[k])) for k in order if counts[k] > 0)
