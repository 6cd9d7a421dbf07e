"""Slices and two-dimensional maps of the engine's score model: what it expects where no trial has been.

The model is that of the recommendation (`protein.engine.recommend`): fitted to final scores, and averaged over what is
not known of the noise. So a map and `protein best` never contradict each other.

Notation
    anchor     a config, `d` unit coordinates; a slice or a map goes through it and moves one or two parameters alone
    estimate   median and central 80 % interval of the true score of a run to its end, without noise
    closeness  0 to 1: how much a trial tells about the nearest point of a slice or a map. It is the model's correlation
               between the two, which falls with the distance in all parameters that the slice holds fixed

A slice at a fixed cost moves the cost parameter, too: at each point it has the value at which the cost model expects
that cost. Where no value in its range costs so much or so little, it is at the end of its range.

Scores are those of the store, to be maximised.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protein.engine import recommend, results
from protein.engine.cost_model import CostModel
from protein.engine.gp import Array, GaussianProcess, Mixture, single_thread
from protein.engine.history import History
from protein.engine.recommend import Learnt
from protein.engine.results import Contender
from protein.engine.sample import Sample
from protein.engine.score_model import ScoreModel
from protein.errors import SpaceError, UsageError
from protein.space import Categorical, Parameter, Space
from protein.types import Estimate, Observation, Params, ParamValue

MIN_SCORES = 4  # below that a map shows the prior and hardly the data
MAX_POINTS = 101  # of one axis
_COST_GRID = 17  # points along the cost parameter at which cost is predicted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The values that one parameter takes on a slice or a map, in rising order (choices in the order of the space).

    Attributes:
        name: of the parameter.
        scale: "linear", "log", "logit", "pow2", or "choices" for a categorical.
        values: `m` raw values.
        x_unit: `m`, their unit coordinates.
    """

    name: str
    scale: str
    values: tuple[ParamValue, ...]
    x_unit: Array


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The model along one parameter.

    Attributes:
        axis: `m` values of the parameter.
        scores: `m` estimates.
        cost_seconds: `m`, what such runs are expected to cost.
        valid: `m`, which of the configs satisfy the constraints of the space.
        gain: by how much the best estimate along the slice is above that of the anchor, in units of the score.
        reach: by how much the estimates differ along the slice, the highest less the lowest.
    """

    axis: Axis
    scores: tuple[Estimate, ...]
    cost_seconds: Array
    valid: NDArray[np.bool_]
    gain: float
    reach: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoreMap:
    """The model over two parameters. All arrays are `n x m`: one row for each value of `y`, a column for each of `x`.

    Attributes:
        x, y: the axes.
        value: the medians.
        low, high: the ends of the 80 % intervals.
        cost_seconds: what such runs are expected to cost.
        valid: which of the configs satisfy the constraints of the space.
    """

    x: Axis
    y: Axis
    value: Array
    low: Array
    high: Array
    cost_seconds: Array
    valid: NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True)
class SweepModel:
    """The engine's models of one sweep, fitted once and asked many times. Immutable, and safe to use in a thread.

    Attributes:
        space: what was searched.
        score: the score model of the recommendation.
        cost: the cost model.
        contenders: what could be recommended (`protein.engine.recommend`).
        num_scores: how many scores the score model has learnt from.
        basis: where the estimates come from; names what went wrong in the fit, if anything did.
    """

    space: Space
    score: ScoreModel
    cost: CostModel
    contenders: tuple[Contender, ...]
    num_scores: int
    basis: str

    @classmethod
    def fit(
        cls,
        space: Space,
        observations: Sequence[Observation],
        sample: Sample | None = None,
        *,
        learnt: Learnt | None = None,
    ) -> "SweepModel":
        """Fits the models to a sweep's finished trials.

        Args:
            space: what was searched; observations that it cannot read are left out.
            observations: of one sweep, in any state, oldest first; scores are to be maximised.
            sample: where the observations are a part of the sweep's (`protein.engine.sample`).
            learnt: of the same trials, where the caller has it; None: the score model is fitted here.

        Raises:
            UsageError: too few trials have a score, or the scores cannot be modelled.
        """
        with single_thread(), np.errstate(all="ignore"):
            data = History.of(space, observations, [])
            if len(data.scores) < MIN_SCORES:
                raise UsageError(
                    f"the model needs {MIN_SCORES} trials with a score, and has {len(data.scores)}; run more"
                )
            try:
                score = recommend.fitted(space, observations, sample) if learnt is None else learnt.score
                cost = CostModel.fit(space, data.x_scored, data.costs, on_gpu=data.on_gpu)
                cost = cost.at_least(data.x_stopped, data.least_costs)
                score.estimates(np.full((1, space.num_dims), 0.5), measured=False)
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                raise UsageError(
                    f"the model cannot be fitted to these scores ({type(error).__name__}: {error}); look at the scores"
                    " in the table, the largest and the smallest first"
                ) from error
        fallback = score.process.fallback
        return cls(
            space=space,
            score=score,
            cost=cost,
            contenders=tuple(
                recommend.contenders(space, observations, sample, model=score) if learnt is None else learnt.contenders
            ),
            num_scores=len(data.scores),
            basis=f"{results.MODEL} ({fallback})" if fallback else results.MODEL,
        )

    def anchor(self, under_seconds: float = math.inf) -> Array:
        """Returns the coordinates of the best expected config that costs at most `under_seconds`, `d`.

        Raises:
            UsageError: no config was trained to its end at that cost.
        """
        chosen = results.best(self.contenders, under_seconds)
        if chosen is None:
            limit = "" if math.isinf(under_seconds) else f" for {under_seconds:.3g} s or less"
            raise UsageError(f"no trial was trained to its end{limit}, so there is no config to go through; run more")
        return self.at(chosen.params)

    def at(self, params: Params) -> Array:
        """Returns the coordinates of a config, `d`. Raises `UsageError` for params that are not of this space."""
        try:
            return np.asarray(self.space.canonical(self.space.to_unit(params)[None, :])[0])
        except SpaceError as error:
            raise UsageError(f"this config is not of the sweep's space: {error}") from error

    def slice(self, name: str, anchor: Array, *, seconds: float | None = None, num_points: int = 41) -> Slice:
        """Returns the model along one parameter through `anchor`, `d`.

        Args:
            name: of the parameter.
            anchor: see Notation.
            seconds: the expected cost at every point (see the head of this file); None: the cost parameter is held.
            num_points: of the axis, 2 to `MAX_POINTS`; a parameter with fewer values has a point for each.

        Raises:
            UsageError: there is no such parameter, or it is not active in the config of `anchor`. Or `num_points` or
                `seconds` is out of range.
        """
        i = self._index(name, anchor)
        axis = _axis(self.space.parameters[i], num_points)
        x = np.tile(anchor, (len(axis.values), 1))
        x[:, i] = axis.x_unit
        with single_thread(), np.errstate(all="ignore"):
            x = self._at_cost(x, seconds, {i})
            scores = self.score.estimates(x, measured=False)
            [here] = self.score.estimates(self._at_cost(anchor[None, :], seconds, {i}), measured=False)
            cost = np.exp(self.cost.predict(x)[0])
        valid = self._exists(x, [i])
        values = [one.value for one, ok in zip(scores, valid, strict=True) if ok] or [here.value]
        return Slice(
            axis=axis,
            scores=tuple(scores),
            cost_seconds=cost,
            valid=valid,
            gain=max(max(values) - here.value, 0.0),
            reach=max(values) - min(values),
        )

    def map(
        self, name_x: str, name_y: str, anchor: Array, *, seconds: float | None = None, num_points: int = 25
    ) -> ScoreMap:
        """Returns the model over two parameters through `anchor`, `d`. Arguments and errors as of `slice`."""
        i, j = self._index(name_x, anchor), self._index(name_y, anchor)
        if i == j:
            raise UsageError(f"a map needs two different parameters, got '{name_x}' twice")
        axis_x, axis_y = (_axis(self.space.parameters[k], num_points) for k in (i, j))
        shape = len(axis_y.values), len(axis_x.values)
        x = np.tile(anchor, (shape[0] * shape[1], 1))
        x[:, i] = np.tile(axis_x.x_unit, shape[0])
        x[:, j] = np.repeat(axis_y.x_unit, shape[1])
        with single_thread(), np.errstate(all="ignore"):
            x = self._at_cost(x, seconds, {i, j})
            scores = self.score.estimates(x, measured=False)
            cost = np.exp(self.cost.predict(x)[0])
        return ScoreMap(
            x=axis_x,
            y=axis_y,
            value=np.array([one.value for one in scores]).reshape(shape),
            low=np.array([one.low for one in scores]).reshape(shape),
            high=np.array([one.high for one in scores]).reshape(shape),
            cost_seconds=cost.reshape(shape),
            valid=self._exists(x, [i, j]).reshape(shape),
        )

    def closeness(self, x_unit: Array, anchor: Array, names: Sequence[str]) -> Array:
        """Returns how close trials, `n x d`, are to a slice or map of these parameters through `anchor`, `n`."""
        moved = {self._index(name) for name in names}
        nearest = np.tile(anchor, (len(x_unit), 1))
        nearest[:, sorted(moved)] = x_unit[:, sorted(moved)]
        features, there = self.space.features(x_unit), self.space.features(nearest)
        found = np.zeros(len(x_unit))
        for weight, part in weighted_parts(self.score.process):
            lengthscale = part.kernel.lengthscale[: features.shape[1]]
            r = math.sqrt(5.0) * np.sqrt(np.sum(((features - there) / lengthscale) ** 2, axis=1))
            found += weight * (1.0 + r + r * r / 3.0) * np.exp(-r)
        return found

    def _index(self, name: str, anchor: Array | None = None) -> int:
        try:
            self.space.parameter(name)
        except SpaceError as error:
            raise UsageError(str(error)) from error
        index = self.space.names.index(name)
        if anchor is not None and not self.space.active(anchor[None, :])[0, index]:
            raise UsageError(
                f"{name} is not active in this config, so the model says nothing of it; go through another"
            )
        return index

    def _exists(self, x_unit: Array, moved: list[int]) -> NDArray[np.bool_]:
        """Returns which of `m x d` points satisfy the constraints, and have all parameters that are moved, `m`."""
        return np.asarray(self.space.valid(x_unit) & self.space.active(x_unit)[:, moved].all(axis=1))

    def _at_cost(self, x_unit: Array, seconds: float | None, moved: set[int]) -> Array:
        """Returns `m x d` points with the cost parameter where `seconds` are expected, unless it is among the moved."""
        index = self.space.cost_index
        if seconds is None or index is None or index in moved:
            return x_unit
        if not (math.isfinite(seconds) and seconds > 0):
            raise UsageError(f"a cost must be a number of seconds above 0, got {seconds}")
        grid = np.linspace(0.0, 1.0, _COST_GRID)
        rows = np.repeat(x_unit, _COST_GRID, axis=0)
        rows[:, index] = np.tile(grid, len(x_unit))
        # More steps never cost less. Where noise in the model says so, the cost stays what it was.
        log_cost = np.maximum.accumulate(self.cost.predict(rows)[0].reshape(len(x_unit), _COST_GRID), axis=1)
        found = x_unit.copy()
        found[:, index] = [np.interp(math.log(seconds), row, grid) for row in log_cost]
        return self.space.canonical(found)


def weighted_parts(process: GaussianProcess | Mixture) -> list[tuple[float, GaussianProcess]]:
    """Returns the processes that a model is made of, each with its weight; the weights add up to 1."""
    if isinstance(process, GaussianProcess):
        return [(1.0, process)]
    return list(zip(process.weights.tolist(), process.parts, strict=True))


def _axis(parameter: Parameter, num_points: int) -> Axis:
    if not 2 <= num_points <= MAX_POINTS:
        raise UsageError(f"an axis has 2 to {MAX_POINTS} points, got {num_points}")
    listed = parameter.values()
    if isinstance(parameter, Categorical) or (listed is not None and len(listed) <= num_points):
        assert listed is not None
        numbers = np.array(listed, dtype=np.float64)
    else:
        numbers = np.unique(parameter.decode(np.linspace(0.0, 1.0, num_points)))
    return Axis(
        name=parameter.name,
        scale="choices" if isinstance(parameter, Categorical) else parameter.scale,
        values=tuple(parameter.raw(number) for number in numbers.tolist()),
        x_unit=np.clip(parameter.encode(numbers), 0.0, 1.0),
    )
