"""Parameters whose best values lie on the end of their range: the range hides something better, perhaps.

The question is answered by the engine's score model, not by counting trials. A search repeats what worked: many of the
best trials share a value because they were bred from one config, and some of these values lie on an end by chance.

A parameter is named when all of this holds:

1. The best expected config has a value in the end zone: the outer 10 % of the range on its scale, or the outermost
   value where the parameter has 3 to 20 of them.
2. The model believes, with a probability of 90 %, that along this parameter, through the best configs, the score is
   highest in the end zone. The probability is the share of functions, drawn from the joint posterior, whose maximum is
   there. Where a parameter does nothing, drawn functions have their maxima on both ends and between them.
3. The best value is better than a random value of the range by at least `MIN_EFFECT` standard deviations of the scores.
   A parameter that does less has no best value (as in `protein.engine.laws`).

In simulated sweeps of 60 noisy trials with one such parameter among six, it was found in 54 of 60. None of the 300
other parameters was named; with 120 trials, 2 of 300 were. At 80 % it would have been 7 and 6 of 300.

The cost parameter is left out: more steps nearly always help, and `protein laws` says by how much. So are categoricals
and parameters with two values, which have no end.

Scores are those of the store, to be maximised.
"""

import dataclasses
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from protein.analysis.model_maps import weighted_parts
from protein.engine import results
from protein.engine.front_model import MIN_EFFECT
from protein.engine.gp import Array, GaussianProcess, Kernel, single_thread
from protein.engine.joint_fit import model_inputs
from protein.engine.recommend import Learnt
from protein.engine.results import RangeEnd
from protein.space import Categorical, Float, Integer, Parameter, Space

MIN_TRIALS = 12  # distinct configs that were trained to their end
ZONE = 0.1  # of the unit range
LEAST_PROBABILITY = 0.9
_MAX_COUNTED = 20  # values: a parameter with more is treated like a continuous one
_NUM_POINTS = 21  # along a continuous parameter
_NUM_ANCHORS = 3  # the best configs, through which the slices go
_NUM_DRAWS = 300  # for each of them
_JITTER = 1e-9
_SEED = 11  # the answer is a function of the trials alone


def range_ends(model: Learnt | None) -> list[RangeEnd]:
    """Returns the parameters whose best values lie on the end of their range, most certain first.

    Nothing is returned where too few trials tell (`MIN_TRIALS` configs that were trained to their end), or there is no
    model because the scores cannot be modelled.
    """
    if model is None:
        return []
    space = model.space
    ranked = sorted(model.contenders, key=lambda c: (-c.score.value, c.expected_cost_seconds))
    if len(ranked) < MIN_TRIALS or results.MODEL not in model.basis:
        return []
    anchors = space.canonical(space.to_unit_many([one.params for one in ranked[:_NUM_ANCHORS]]))
    asked = [_Slices.of(space, i, anchors) for i in range(len(space.parameters))]
    some = [slices for slices in asked if slices is not None]
    if not some:
        return []
    with single_thread(), np.errstate(all="ignore"):
        posterior = _Posterior.of(model, np.concatenate([x for slices in some for x in slices.points]))
        found, first = [], 0
        for slices in some:
            end = _end_of(slices, posterior, first)
            first += sum(map(len, slices.points))
            if end is not None:
                found.append(end)
    return sorted(found, key=lambda one: (-one.probability, -one.effect, one.name))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Slices:
    """Slices along one parameter, whose best value lies in an end zone.

    Attributes:
        parameter: it.
        side: which end.
        here: its unit coordinate in the best config.
        points: for each anchor the valid points of the slice through it, `m x d`.
        inside: for each of these, `m`, whether it lies in the end zone.
    """

    parameter: Float | Integer
    side: Literal["low", "high"]
    here: float
    points: list[Array]
    inside: list[NDArray[np.bool_]]

    @classmethod
    def of(cls, space: Space, i: int, anchors: Array) -> "_Slices | None":
        """Returns those along the i-th parameter through the best configs, best first; None where nothing is asked.

        Nothing is asked of a parameter that the best config has not. Others of the best that lack it have no slice.
        """
        parameter = space.parameters[i]
        active = space.active(anchors)[:, i]
        if i == space.cost_index or isinstance(parameter, Categorical) or not active[0]:
            return None
        anchors = anchors[active]
        listed = parameter.values()
        if listed is not None and len(listed) <= 2:
            return None
        if listed is not None and len(listed) <= _MAX_COUNTED:
            grid = parameter.encode(np.array(listed, dtype=np.float64))
            low_zone, high_zone = grid <= grid[0], grid >= grid[-1]
        else:
            grid = np.linspace(0.0, 1.0, _NUM_POINTS)
            low_zone, high_zone = grid <= ZONE + 1e-9, grid >= 1.0 - ZONE - 1e-9
        side: Literal["low", "high"]
        here = float(anchors[0, i])
        if here <= grid[low_zone].max() + 1e-9:
            side, zone = "low", low_zone
        elif here >= grid[high_zone].min() - 1e-9:
            side, zone = "high", high_zone
        else:
            return None
        points, insides = [], []
        for anchor in anchors:
            x = np.tile(anchor, (len(grid), 1))
            x[:, i] = grid
            valid = space.valid(space.canonical(x))
            if not (valid & zone).any() or not (valid & ~zone).any():
                return None  # a constraint ends the range elsewhere
            points.append(x[valid])
            insides.append(zone[valid])
        return cls(parameter=parameter, side=side, here=here, points=points, inside=insides)


def _end_of(slices: _Slices, posterior: "_Posterior", first: int) -> RangeEnd | None:
    """Returns the finding on slices whose points begin at position `first` of the posterior's, if there is one."""
    rng = np.random.default_rng(_SEED)
    in_zone, effects = [], []
    for inside in slices.inside:
        here = slice(first, first + len(inside))
        first += len(inside)
        draws = posterior.draws(here, _NUM_DRAWS, rng)
        if not np.isfinite(draws).all():
            return None
        in_zone.append(float(np.mean(inside[np.argmax(draws, axis=1)])))
        mean = posterior.mean[here]
        effects.append(float(mean[inside].max() - mean.mean()))
    probability, effect = float(np.mean(in_zone)), float(np.mean(effects))
    if probability < LEAST_PROBABILITY or effect < MIN_EFFECT:
        return None
    parameter = slices.parameter
    return RangeEnd(
        name=parameter.name,
        end=slices.side,
        bound=parameter.low if slices.side == "low" else parameter.high,
        best_value=parameter.raw(float(parameter.decode(np.array([slices.here]))[0])),
        probability=probability,
        effect=effect,
        natural=_is_natural(parameter, slices.side),
    )


def _is_natural(parameter: Parameter, side: Literal["low", "high"]) -> bool:
    """Whether a bound looks like one that cannot be passed."""
    assert not isinstance(parameter, Categorical)
    if side == "low":
        whole = isinstance(parameter.low, int)
        return parameter.low == 0 or (whole and parameter.low == 1)
    return parameter.high == 1.0 and parameter.low >= 0 and not isinstance(parameter.high, int)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Posterior:
    """The posterior of z at `m` points, in the parts of the mixture. Many points at once take a third of the time.

    Attributes:
        features: `m x p`, of the points.
        mean: `m`, of the whole mixture, with the line.
        line: `m`, what the model adds to its process.
        parts: weight, process, its mean, `m`, and L^-1 k(X, x), `n x m`.
    """

    features: Array
    mean: Array
    line: Array
    parts: list[tuple[float, GaussianProcess, Array, Array]]

    @classmethod
    def of(cls, model: Learnt, x_unit: Array) -> "_Posterior":
        features = model_inputs(model.space, x_unit, model.score.process)
        parts = []
        for weight, part in weighted_parts(model.score.process):
            cross = part.kernel(part.x, features)
            whitened = solve_triangular(part.chol, cross, lower=True, check_finite=False)
            parts.append((weight, part, cross.T @ part.alpha, whitened))
        inner = np.sum([weight * mean for weight, _, mean, _ in parts], axis=0)
        line = model.score.line(x_unit)
        return cls(features=features, mean=inner + line, line=line, parts=parts)

    def draws(self, here: slice, num_draws: int, rng: np.random.Generator) -> Array:
        """Returns functions drawn from the joint posterior at some of the points, `num_draws x m`."""
        counts = rng.multinomial(num_draws, [weight for weight, *_ in self.parts])
        drawn = [
            _drawn(part.kernel, self.features[here], mean[here], whitened[:, here], int(count), rng)
            for (_, part, mean, whitened), count in zip(self.parts, counts, strict=True)
            if count
        ]
        return np.concatenate(drawn) + self.line[here]


def _drawn(
    kernel: Kernel, features: Array, mean: Array, whitened: Array, num_draws: int, rng: np.random.Generator
) -> Array:
    covariance = kernel(features, features) - whitened.T @ whitened
    values, vectors = np.linalg.eigh(covariance + _JITTER * np.eye(len(features)))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(mean + rng.standard_normal((num_draws, len(features))) @ root.T)
