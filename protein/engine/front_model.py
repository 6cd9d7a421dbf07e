"""A model of the best config as a function of cost: a Gaussian process in coordinates that move along with the optimum.

Notation
    x_unit   `n x d` unit coordinates;  u  those of all parameters but the cost parameter
    v        ln of the predicted cost, scaled: 0 at the cheapest and 1 at the most expensive trial with a score
    f(u, v)  the score, on the score model's scale, of the config u trained for as long as it takes to cost v
    b        `d` slopes of the best coordinates over v; 0 for categoricals and for the cost parameter
    place    `n x d` rows of u with v in the cost parameter's column;  moved: u - b (v - 1) in place of u

The cost parameter (steps) is replaced by what the trial costs. So the best config at a cost is the maximum of f over u
alone, and a wide network that costs more at each step competes with a narrow one that is trained for longer.

If the best value of a parameter follows a power law of cost, f at one cost looks like f at another, moved by b. The
process therefore sees moved coordinates. The slopes are inferred with its marginal likelihood and a prior around 0. All
trials teach them, not only those near the optimum. Their posterior is approximated by a normal one at its mode
(Laplace). Where the data are silent, it equals the prior.

Functions are drawn from the posterior (`protein.engine.gp`). Far from all trials such a draw may have high peaks that
no real score has. So its distance from the posterior mean is multiplied by `_TEMPER`, which was fitted to how often
intervals hold.

`FrontDraws` holds the best configs of S drawn functions, at each of `LEVELS` of v. Between these they are read off.
Beyond v = 1 each goes on in a straight line from its best config there, with a slope from the posterior of the slopes.
Half of how the draws' mean moves otherwise within the range is added to it. A random term that grows in proportion to
the distance stands for laws that bend. Coordinates end at the ends of their ranges. A parameter that hardly changes the
score has no best value: its draws are spread evenly over its range.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equation 5.9.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack
from scipy.optimize import minimize

from protein.engine.candidates import neighbours
from protein.engine.cost_model import CostModel
from protein.engine.gp import Array, GaussianProcess, subset
from protein.engine.history import History
from protein.engine.joint_fit import model_inputs
from protein.engine.score_model import ScoreModel, ScoreScale
from protein.engine.settings import EngineSettings
from protein.space import Categorical, Float, Space

NUM_DRAWS = 64
LEVELS = (0.4, 0.6, 0.8, 1.0)
MIN_EFFECT = 0.15  # standard deviations of the scores that a parameter must be able to change, to have a best value
SLOPE_SD = 0.1  # prior standard deviation of a unit coordinate's slope over a decade of cost
_FOLLOWED_EFFECT, _FOLLOWED_EVIDENCE = 0.02, 0.5  # the same, and standard deviations of the slope, for a plan to follow
_DEPARTURE_SHARE = 0.5  # of how the draws' mean departs from the law within the trials' range, carried on beyond it
_BEND = 0.03  # standard deviation of the growing term, in unit coordinates for each factor of 10 in cost
_NUM_EFFECT_POINTS = 8  # over a parameter's range, to see how much it changes the score
_MAX_POINTS = 300  # the model is fitted several times
_NUM_ROUNDS = 2  # of fitting the process and the slopes in turn
_MAX_ITERATIONS = 30
_MIN_LOG_RANGE = 1e-3  # of ln cost: where the costs of all trials are the same
_JITTER = 1e-8  # times the outputscale, on the diagonal
_TEMPER = 0.6  # of a draw's distance from the posterior mean
_GRID = 17  # points along the cost parameter at which cost is predicted
_NUM_UNIFORM, _NUM_NEAR, _NUM_CENTERS = 600, 900, 20  # candidates over the box and near the best trials
_NEAR_WIDTHS = (0.02, 0.4)
_REFINE_WIDTHS, _NUM_REFINED = ((0.05, 0.15), (0.02, 0.06), (0.005, 0.02)), 12


@dataclasses.dataclass(frozen=True, slots=True)
class FrontModel:
    """See the head of this file. Immutable.

    Attributes:
        space: the space; it has a cost parameter.
        cost: the model of ln cost.
        score: the model of f in moved coordinates.
        places: `n x d`, what it was fitted to.
        slopes: b.
        slope_covariance: `d x d`, of b.
        log_cost_range: ln cost where v is 0 and 1.
        reach: the largest coordinate of the cost parameter that a trial had.
    """

    space: Space
    cost: CostModel
    score: ScoreModel
    places: Array
    slopes: Array
    slope_covariance: Array
    log_cost_range: tuple[float, float]
    reach: float

    @classmethod
    def fit(cls, space: Space, data: History) -> "FrontModel":
        """Fits to trials with scores, at least two, that differ in cost."""
        index = _cost_index(space)
        keep = subset(data.scores, _MAX_POINTS)
        x, scores = data.x_scored[keep], data.scores[keep]
        cost = CostModel.fit(space, data.x_scored, data.costs, on_gpu=data.on_gpu)
        log_cost, _ = cost.predict(x)
        low = float(log_cost.min())
        high = max(float(log_cost.max()), low + _MIN_LOG_RANGE)
        places = x.copy()
        places[:, index] = (log_cost - low) / (high - low)
        by_cost = _with_cost_for_steps(space, low, high)
        settings, scale = EngineSettings(), ScoreScale.of(data.scores)

        def fitted(slopes: Array) -> ScoreModel:
            return ScoreModel.fit(
                by_cost,
                _moved(places, slopes, index),
                scores,
                unfinished=data.unfinished[keep],
                runs=data.runs[keep],
                log_run_variance=settings.log_run_variance,
                scale=scale,
                log_noise=settings.log_noise,
                amplitude_slope=settings.amplitude_slope,
            )

        free = np.array([i for i, p in enumerate(space.parameters) if i != index and not isinstance(p, Categorical)])
        slopes, covariance = np.zeros(space.num_dims), np.zeros((space.num_dims, space.num_dims))
        score = fitted(slopes)
        if len(free):
            sd = SLOPE_SD * (high - low) / math.log(10.0)
            for _ in range(_NUM_ROUNDS):
                slopes[free], covariance[np.ix_(free, free)] = _slope_posterior(
                    score, places, slopes, free.astype(np.intp), index, sd
                )
                score = fitted(slopes)
        return cls(space, cost, score, places, slopes, covariance, (low, high), float(np.max(x[:, index])))

    def level(self, seconds: float) -> float:
        """Returns v at a cost."""
        low, high = self.log_cost_range
        return (math.log(seconds) - low) / (high - low)

    def seconds(self, level: float) -> float:
        """Returns the cost at v."""
        low, high = self.log_cost_range
        return math.exp(low + level * (high - low))

    def expects(self, places: Array) -> Array:
        """Returns the posterior mean of f, `m`, at `m x d` places."""
        return self.score.process.mean(self._features(places))

    def draws(self, num_draws: int, rng: np.random.Generator) -> Callable[[Array], Array]:
        """Returns functions drawn from the posterior as one: of `m x d` places, `m x num_draws`."""
        draw = _mode(self.score).draws(num_draws, rng, temper=_TEMPER)
        return lambda places: draw(self._features(places))

    def best_places(self, levels: Array, num_draws: int, rng: np.random.Generator) -> Array:
        """Returns where each of some drawn functions is highest at each of J levels of v, `J x num_draws x d`."""
        draw = self.draws(num_draws, rng)
        centers = self.places[np.argsort(-self.expects(self.places), kind="stable")[:_NUM_CENTERS]]
        pool = np.concatenate(
            [
                self.places,
                self.space.sample(_NUM_UNIFORM, rng),
                neighbours(self.space, centers, _NUM_NEAR // len(centers), _NEAR_WIDTHS, rng),
            ]
        )
        best = np.empty((len(levels), num_draws, self.space.num_dims))
        found = centers
        for j, level in enumerate(levels.tolist()):
            tried = self._at(np.concatenate([pool, found]), level)
            value = draw(tried)
            found, height = tried[np.argmax(value, axis=0)], np.max(value, axis=0)
            for widths in _REFINE_WIDTHS:
                near = neighbours(self.space, np.unique(found, axis=0), _NUM_REFINED, widths, rng)
                near = self._at(np.concatenate([found, near]), level)
                value = draw(near)
                better = np.max(value, axis=0) > height
                found = np.where(better[:, None], near[np.argmax(value, axis=0)], found)
                height = np.maximum(height, np.max(value, axis=0))
            best[j] = found
        return best

    def cost_coordinates(self, places: Array, log_seconds: float) -> tuple[Array, Array]:
        """Returns how far the cost parameter has to go so that configs cost so much.

        Args:
            places: `m x d`; their v is not used.
            log_seconds: ln of the cost.

        Returns:
            its unit coordinates, `m`, at most those of the largest trial; and the factors, `m`, at least 1, by which
            the values there still have to grow. Beyond the trials, cost is proportional to the cost parameter.
        """
        index = _cost_index(self.space)
        grid = np.linspace(0.0, self.reach, _GRID)
        x = np.repeat(places, _GRID, axis=0)
        x[:, index] = np.tile(grid, len(places))
        log_cost = np.maximum.accumulate(self.cost.predict(x)[0].reshape(len(places), _GRID), axis=1)
        coordinates = np.array([np.interp(log_seconds, row, grid) for row in log_cost])
        return coordinates, np.exp(np.maximum(log_seconds - log_cost[:, -1], 0.0))

    def _features(self, places: Array) -> Array:
        """Returns the inputs of the process, `m x p`, for runs to their end."""
        return model_inputs(self.score.space, _moved(places, self.slopes, _cost_index(self.space)), self.score.process)

    def _at(self, places: Array, level: float) -> Array:
        """Returns those places that can cost so little, at this level."""
        index = _cost_index(self.space)
        shortest = places.copy()
        shortest[:, index] = 0.0
        log_cost, _ = self.cost.predict(shortest)
        low, high = self.log_cost_range
        can = log_cost <= low + level * (high - low)
        moved = places[can] if can.any() else places[[int(np.argmin(log_cost))]]
        moved[:, index] = level
        return moved


@dataclasses.dataclass(frozen=True, slots=True)
class FrontDraws:
    """Draws of the best config at every cost; see the head of this file.

    Attributes:
        places: `J x S x d`.
        slopes: `S x d`, over v.
        mean_slope: `d`, their mean.
        followed: `d`, which parameters can change the score at all and have a mean slope that is at least half a
            standard deviation from 0.
        bends: `S x d`, standard normal.
        effects: `d`, how much each parameter can change the score, in standard deviations of the scores.
        matters: `d`, which parameters can change it enough to have a best value.
    """

    places: Array
    slopes: Array
    mean_slope: Array
    followed: NDArray[np.bool_]
    bends: Array
    effects: Array
    matters: NDArray[np.bool_]

    @classmethod
    def of(cls, model: FrontModel, rng: np.random.Generator) -> "FrontDraws":
        """Draws the best places of a front model."""
        space, levels = model.space, np.array(LEVELS)
        places = model.best_places(levels, NUM_DRAWS, rng)
        effects = _effects(model, places[-1])
        fixed = _without_line(space)
        matters = (effects >= MIN_EFFECT) | (np.arange(space.num_dims) == space.cost_index)
        centred = levels - levels.mean()
        lines = np.tensordot(centred, places.mean(axis=1), axes=(0, 0)) / float(centred @ centred)
        departure = _DEPARTURE_SHARE * (lines - model.slopes)
        mean_slope = np.where(fixed, 0.0, model.slopes + departure)
        factor = np.linalg.cholesky(model.slope_covariance + 1e-12 * np.eye(space.num_dims))
        slopes = mean_slope + rng.standard_normal((NUM_DRAWS, space.num_dims)) @ factor.T
        even = (rng.permuted(np.tile(np.arange(NUM_DRAWS), (space.num_dims, 1)), axis=1).T + 0.5) / NUM_DRAWS
        return cls(
            places=np.where(matters, places, even),
            slopes=np.where(fixed, 0.0, slopes),
            mean_slope=mean_slope,
            followed=~fixed
            & (effects >= _FOLLOWED_EFFECT)
            & (np.abs(mean_slope) >= _FOLLOWED_EVIDENCE * np.sqrt(np.diag(model.slope_covariance))),
            bends=np.where(fixed, 0.0, rng.standard_normal((NUM_DRAWS, space.num_dims))),
            effects=effects,
            matters=matters,
        )

    def at(self, model: FrontModel, seconds: float) -> Array:
        """Returns the best coordinates at a cost in every draw, `S x d`; the cost parameter's stand for nothing."""
        v = model.level(seconds)
        if v > 1.0:
            decades = (v - 1.0) * (model.log_cost_range[1] - model.log_cost_range[0]) / math.log(10.0)
            far = self.places[-1] + np.where(self.matters, self.slopes * (v - 1.0) + _BEND * decades * self.bends, 0.0)
            return np.asarray(np.clip(far, 0.0, 1.0))
        position = float(np.interp(v, LEVELS, np.arange(len(LEVELS))))
        below = min(int(position), len(LEVELS) - 2)
        share = position - below
        between = (1.0 - share) * self.places[below] + share * self.places[below + 1]
        return np.asarray(np.where(_without_line(model.space), self.places[below + round(share)], between))


def _cost_index(space: Space) -> int:
    assert space.cost_index is not None
    return space.cost_index


def _mode(score: ScoreModel) -> GaussianProcess:
    """Returns the process of a score model at the mode of its hyperparameters."""
    assert isinstance(score.process, GaussianProcess), "the front's model is not averaged"
    return score.process


def _with_cost_for_steps(space: Space, log_low: float, log_high: float) -> Space:
    """Returns the space with what a trial costs, in seconds, in the cost parameter's place."""
    low, high = math.exp(log_low), math.exp(log_high)
    parameters = [Float(p.name, low, high, "log") if p.name == space.cost_parameter else p for p in space.parameters]
    return Space(parameters, cost_parameter=space.cost_parameter, fixed=space.fixed)  # conditions may name these


def _moved(places: Array, slopes: Array, index: int) -> Array:
    """Returns places, `n x d`, in moved coordinates; the column of v stays."""
    return places - slopes * (places[:, [index]] - 1.0)


def _slope_posterior(
    score: ScoreModel, places: Array, slopes: Array, free: NDArray[np.intp], index: int, sd: float
) -> tuple[Array, Array]:
    """Returns the mode of the slopes that are free, `k`, and their covariance, `k x k`.

    The hyperparameters of the process are held.

    Args:
        score: the model of f, in coordinates that were moved by `slopes`.
        places: `n x d`.
        slopes: `d`, where the search for the mode begins.
        free: `k`, positions of the slopes that are inferred; all other slopes are 0.
        index: position of the cost parameter.
        sd: standard deviation of a slope's prior.
    """
    process, v, num = _mode(score), places[:, index], len(free)
    kernel, n = process.kernel, len(process.x)
    columns = np.array([list(score.space.feature_groups()).index(i) for i in free])
    weight = kernel.lengthscale[columns] ** -2.0
    amplitude = np.outer(kernel.amplitude(process.x), kernel.amplitude(process.x))
    noise = process.run_variance * (process.runs[:, None] == process.runs[None, :])
    noise.flat[:: n + 1] += process.noise + _JITTER * kernel.outputscale

    def objective(b: Array) -> tuple[float, Array]:
        """Minus the log posterior of the slopes, up to a constant, and its gradient."""
        x = process.x.copy()
        x[:, columns] = places[:, free] - b * (v[:, None] - 1.0)
        k = kernel(x, x) + noise
        chol, info = lapack.dpotrf(k, lower=1, clean=1)
        if info != 0:
            return 1e10, np.zeros(num)  # not positive definite: the line search steps back
        inverse = cho_solve((chol, True), np.eye(n))
        alpha = inverse @ process.y
        scaled = x / kernel.lengthscale
        squared = np.sum((scaled[:, None, :] - scaled[None, :, :]) ** 2, axis=2)
        r = np.sqrt(5.0 * squared)
        # d(-log p)/dK, times dK / d(squared distance)
        by_distance = 0.5 * (inverse - np.outer(alpha, alpha)) * amplitude
        by_distance *= -kernel.outputscale * (5.0 / 6.0) * (1.0 + r) * np.exp(-r)
        # The squared distance of a column moves by -2 w (x - x') (v - v') with its slope; the sum over pairs of
        # M (x - x') (v - v') is 2 (sum_a (sum_b M_ab) x_a v_a - x' M v).
        own = x[:, columns]
        pairs = 2.0 * (by_distance.sum(axis=1) * v @ own - (by_distance @ v) @ own)
        value = 0.5 * float(process.y @ alpha) + float(np.log(np.diag(chol)).sum()) + 0.5 * float(b @ b) / sd**2
        return value, -2.0 * weight * pairs + b / sd**2

    found = minimize(
        objective, slopes[free], jac=True, method="L-BFGS-B", options={"maxiter": _MAX_ITERATIONS, "ftol": 1e-8}
    ).x
    hessian, step = np.empty((num, num)), 0.01 * sd
    for i, move in enumerate(np.eye(num) * step):
        hessian[i] = (objective(found + move)[1] - objective(found - move)[1]) / (2.0 * step)
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    # The prior's own part is 1 / sd^2. Less than that is where the data are no evidence at all.
    return found, (vectors / np.maximum(values, sd**-2.0)) @ vectors.T


def _effects(model: FrontModel, places: Array) -> Array:
    """Returns how much each parameter can change the expected score near the best places, `S x d`, in z, `d`.

    It is by how much the best value over the parameter's range is better than a random one, all others held.
    """
    points = (np.arange(_NUM_EFFECT_POINTS) + 0.5) / _NUM_EFFECT_POINTS
    effects = np.empty(model.space.num_dims)
    for i in range(model.space.num_dims):
        x = np.repeat(places, _NUM_EFFECT_POINTS, axis=0)
        x[:, i] = np.tile(points, len(places))
        expected = model.expects(x).reshape(len(places), _NUM_EFFECT_POINTS)
        effects[i] = np.mean(expected.max(axis=1) - expected.mean(axis=1))
    return effects


def _without_line(space: Space) -> NDArray[np.bool_]:
    """Returns which parameters have no line over ln cost of their own, `d`: categoricals and the cost parameter."""
    fixed = [isinstance(p, Categorical) or i == space.cost_index for i, p in enumerate(space.parameters)]
    return np.array(fixed)
