"""What a trial costs, predicted before it is run.

Log cost in seconds is ln(cost parameter) + bias + linear weights + a Gaussian process, with one joint posterior. A
priori, cost is proportional to the cost parameter: one more epoch costs one more epoch. The weights and the process
learn how the truth departs from that. Without a cost parameter, the weights are free to find what makes a trial
expensive.

Costs hardly differ between two runs of one config, unless other programs use the machine. Then they may differ by half,
and a model that expects little noise takes it for structure. So there are two priors of the noise, of a calm machine
and of a busy one. The model has the one under which the data are likelier, by a margin in favour of the calm one.

Where some trials were on a GPU and others on a CPU, there are two cases. Where each trial took the faster device, its
cost is the lower of two that are equal where the choice changes: a function of the params, as any other. Where trials
were on whatever was free, it is not. So the device is one more input, -1/2 or 1/2, if it does not follow from the
params (the nearest trials foretell it no better than all of them do), and makes the costs twenty times likelier. A
trial that is to come is then expected on either as often as all trials were.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from protein.engine.gp import LENGTHSCALE_SD, Array, GaussianProcess, Prior, fit
from protein.engine.joint_fit import SourceTrials, fit_jointly, padded
from protein.engine.pareto import MIN_COST_SECONDS
from protein.space import Space
from protein.types import Z80, Estimate

_MAX_POINTS = 300  # costs are smoother than scores: more points make the model slower, not better

_MAX_STOPPED = 50  # stopped runs that are looked at

# Priors (mean, sd) of the log noise variance of log cost: 5 % between two runs of a config, and 40 %.
_CALM_NOISE, _BUSY_NOISE = (math.log(3e-3), 1.5), (math.log(0.15), 0.5)
_BUSY_MARGIN = 1.0  # by which the log posterior density must be higher with the prior of a busy machine
_MIN_BUSY_POINTS = 12  # with fewer, few costs and much noise look alike
_NEIGHBOURS = 3  # trials that may foretell on which device another one was
_MIN_LOG_EVIDENCE = math.log(20.0)  # by which the device as an input must make the costs likelier


@dataclasses.dataclass(frozen=True, slots=True)
class CostModel:
    """The model of log cost. `center` is the median of the log costs, less the cost parameter's share.

    `busy`: the costs differ so much between like trials that single ones say little. `gpu_share`: of the trials, where
    the device is an input.
    """

    space: Space
    center: float
    process: GaussianProcess
    busy: bool = False
    gpu_share: float | None = None

    @classmethod
    def fit(
        cls,
        space: Space,
        x_unit: Array,
        cost_seconds: Array,
        *,
        sources: Sequence[SourceTrials] = (),
        on_gpu: Array | None = None,
    ) -> "CostModel":
        """Fits to `n >= 1` points, `n x d`, and their costs, `n`; costs below `MIN_COST_SECONDS` count as that.

        `on_gpu`, `n`, 1 or 0: which of them were on a GPU, where there were both kinds.

        Source sweeps' costs are used up to a constant factor, because their machine may be a different one.
        """
        log_cost = np.log(np.maximum(cost_seconds, MIN_COST_SECONDS)) - _log_cost_parameter(space, x_unit)
        center = float(np.median(log_cost))
        known = space.cost_index is not None
        calm = Prior(
            log_lengthscale=(math.log(1.0) + 0.5 * math.log(space.num_active / 8.0), LENGTHSCALE_SD),
            log_outputscale=(math.log(0.05), 1.0),
            log_noise=_CALM_NOISE,
            bias_variance=1.0,
            linear_variance=0.5 if known else 4.0,
        )
        features, groups, gpu_share = space.features(x_unit), space.feature_groups(), None
        process, prior, busy = _fitted(features, log_cost - center, groups, calm)
        if on_gpu is not None and not _follows(features, on_gpu):
            more = np.column_stack([features, on_gpu - 0.5]), [*groups, max(groups) + 1]
            told, told_prior, told_busy = _fitted(more[0], log_cost - center, more[1], calm)
            if told.log_density() >= process.log_density() + _MIN_LOG_EVIDENCE:
                gpu_share = float(on_gpu.mean())
                (features, groups), process, prior, busy = more, told, told_prior, told_busy
        points = []
        for source in (source.some(len(x_unit)) for source in sources):
            factor = np.median(log_cost + _log_cost_parameter(space, x_unit) - source.expects(x_unit))
            log_source = source.target - _log_cost_parameter(space, source.x_unit)
            points.append((source.x_unit, log_source + factor - center))
        process, _ = fit_jointly(process, space, features, groups, prior, points)
        return cls(space, center, process, busy, gpu_share)

    def at_least(self, x_unit: Array, least_seconds: Array) -> "CostModel":
        """Returns the model given what runs that were stopped at `m x d` points had cost by then, `m`.

        A run that was expected to cost less teaches that it costs that much; any other teaches nothing.
        """
        if not len(x_unit):
            return self
        bound = np.log(np.maximum(least_seconds, MIN_COST_SECONDS))
        excess = bound - self.predict(x_unit)[0]
        most = np.argsort(-excess, kind="stable")[:_MAX_STOPPED]
        most = most[excess[most] > 0.0]
        y = (bound - self.center - _log_cost_parameter(self.space, x_unit))[most]
        features = self._inputs(x_unit[most])
        return dataclasses.replace(self, process=self.process.condition(features, y)) if len(y) else self

    def predict(self, x_unit: Array) -> tuple[Array, Array]:
        """Returns mean and standard deviation, `m` each, of ln cost in seconds as it will be measured (with noise)."""
        mean, sd = self.process.predict(self._inputs(x_unit))
        mu = mean + self.center + _log_cost_parameter(self.space, x_unit)
        return mu, np.sqrt(sd * sd + self.process.noise)

    def draws(self, num_draws: int, rng: np.random.Generator) -> Callable[[Array], Array]:
        """Returns functions drawn from the posterior of ln cost: of `m x d` points, `m x num_draws`."""
        draw = self.process.draws(num_draws, rng)
        return lambda x_unit: (
            draw(self._inputs(x_unit)) + (self.center + _log_cost_parameter(self.space, x_unit))[:, None]
        )

    def _inputs(self, x_unit: Array) -> Array:
        """Returns the inputs of the process at `m x d` points, of this sweep."""
        features = self.space.features(x_unit)
        if self.gpu_share is not None:
            features = np.column_stack([features, np.full(len(features), self.gpu_share - 0.5)])
        return padded(features, self.process.x.shape[1])

    def estimate(self, x: Array) -> Estimate:
        """Returns what a run at a point, `d`, will cost in seconds."""
        (mean,), (sd,) = (column.tolist() for column in self.predict(x[None, :]))
        return Estimate(value=math.exp(mean), low=math.exp(mean - Z80 * sd), high=math.exp(mean + Z80 * sd))


def _follows(features: Array, on_gpu: Array) -> bool:
    """Whether the device of each of n trials follows better from its neighbours, in `n x p`, than from all others."""
    squares = np.sum(features**2, axis=1) - 2.0 * features @ features.T  # less a number for each row
    np.fill_diagonal(squares, np.inf)
    near = np.argsort(squares, axis=1, kind="stable")[:, : min(_NEIGHBOURS, len(features) - 1)]
    of_others = (on_gpu.sum() - on_gpu) / (len(on_gpu) - 1)
    missed = np.mean((on_gpu[near].mean(axis=1) - on_gpu) ** 2)
    return bool(missed < np.mean((of_others - on_gpu) ** 2))


def _fitted(features: Array, y: Array, groups: list[int], prior: Prior) -> tuple[GaussianProcess, Prior, bool]:
    """Returns the process, and the prior that was chosen, of a calm machine as given or of a busy one."""
    process, busy = fit(features, y, groups, prior, max_points=_MAX_POINTS), False
    if len(features) >= _MIN_BUSY_POINTS:
        busy_prior = dataclasses.replace(prior, log_noise=_BUSY_NOISE)
        if_busy = fit(features, y, groups, busy_prior, max_points=_MAX_POINTS)
        busy = if_busy.log_posterior(groups, busy_prior) > process.log_posterior(groups, prior) + _BUSY_MARGIN
        if busy:
            process, prior = if_busy, busy_prior
    return process, prior, busy


def _log_cost_parameter(space: Space, x_unit: Array) -> Array:
    """Returns ln of the cost parameter's value, `n`; 0 where there is none, or where it may be 0 or negative."""
    if space.cost_index is None:
        return np.zeros(len(x_unit))
    parameter = space.parameters[space.cost_index]
    low = getattr(parameter, "low", 0)
    if low <= 0:
        return np.zeros(len(x_unit))
    return np.log(parameter.decode(x_unit[:, space.cost_index]))
