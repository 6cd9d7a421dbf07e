"""Trials of a source sweep beside a sweep's own, in one Gaussian process.

One extra input separates the two sweeps: 0 for our trials, a constant for the source's. Its lengthscale is fitted with
the others. So the data decide how strongly the two sweeps' functions correlate, and where the source sweep has no
trials the posterior stays uncertain. The source points are left out where they do not make the sweep's own results
twenty times likelier.

Notation
    target    `n`, what a model is fitted to: z of a score, ln of a cost, or +1 and -1 for a trial that gave a score or
              failed
    features  `n x p`, `space.features(x_unit)` and further columns, which are 0 for runs of this sweep to their end

Source: Swersky, Snoek and Adams, Multi-Task Bayesian Optimization (2013), here with a single correlation.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from protein.engine.gp import Array, GaussianProcess, Prior, Runs, fit, subset
from protein.engine.mixture import Mixture
from protein.space import Space

_FULL_POINTS = 120  # own and source points together, within these limits on the number of source points:
_MIN_SOURCE_POINTS = 20
_MAX_SOURCE_POINTS = 60
_MIN_LOG_EVIDENCE = math.log(20.0)  # this sweep's own results must become so much likelier by the source points
_SOURCE_DISTANCE = 1 / 2.3  # of the extra input between the sweeps, in prior lengthscales: 0.87 correlation at first


@dataclasses.dataclass(frozen=True, slots=True)
class SourceTrials:
    """What a source sweep found.

    Attributes:
        x_unit: `n x d`, its trials.
        target: `n`.
        expects: returns the targets, `m`, that a model of the source sweep alone expects at `m x d` points.
    """

    x_unit: Array
    target: Array
    expects: Callable[[Array], Array]

    def some(self, num_own: int) -> "SourceTrials":
        """Returns as many of them as are used beside `num_own` trials of this sweep; half have the highest targets."""
        size = min(max(_FULL_POINTS - num_own, _MIN_SOURCE_POINTS), _MAX_SOURCE_POINTS)
        keep = subset(self.target, size)
        return SourceTrials(self.x_unit[keep], self.target[keep], self.expects)


def aligned(source: SourceTrials, x_unit: Array, z: Array) -> Array:
    """Returns the source sweep's z in units of this sweep's, `n`.

    At this sweep's trials, `x_unit` with scores z, the source sweep's expectations get the mean and about the spread of
    z. How well the two agree beyond that is found by the fit.
    """
    expected = source.expects(x_unit)
    spread = float(np.std(expected))
    factor = min(max(float(np.std(z)) / spread, 0.5), 2.0) if spread > 1e-9 and len(z) > 2 else 1.0
    return np.asarray(float(np.mean(z)) + factor * (source.target - float(np.mean(expected))))


def fit_jointly(
    own: GaussianProcess,
    space: Space,
    features: Array,
    groups: list[int],
    prior: Prior,
    x_source: Array,
    y_source: Array,
    runs: Runs | None = None,
) -> tuple[GaussianProcess, bool]:
    """Returns the process fitted to source and own points together, and True; or `own` and False.

    Args:
        own: the process fitted to this sweep's points alone, `n x p`. It is returned where the source points do not
            raise the log density of this sweep's own results by `_MIN_LOG_EVIDENCE`.
        space: the space.
        features: model inputs of the own points, `n x p`.
        groups: the lengthscale of each of the p columns.
        prior: of the hyperparameters.
        x_source: `k x d`.
        y_source: `k`, the source points' targets as the process sees them.
        runs: `n`, which run each own point is of; None: each is of a run of its own.
    """
    if len(own.y) < len(features):  # the process saw only some of many own points: no help is needed
        return own, False
    x, groups = stacked(space, features, groups, prior, x_source)
    if runs is not None:
        runs = np.concatenate([np.arange(len(y_source)), len(y_source) + runs])
    # No point may be dropped here: the source points are told from the own ones by their position.
    joint = fit(x, np.concatenate([y_source, own.y]), groups, prior, runs=runs, max_points=len(x))
    likelier = joint.log_density(len(x_source)) >= own.log_density() + _MIN_LOG_EVIDENCE
    return (joint, True) if likelier else (own, False)


def stacked(space: Space, features: Array, groups: list[int], prior: Prior, x_source: Array) -> tuple[Array, list[int]]:
    """Returns model inputs of source points and, below them, of own ones, `n x (p + 1)`, and the columns' groups.

    In the additional column the two sweeps are `_SOURCE_DISTANCE` apart.
    """
    source, own = _padded(space.features(x_source), features.shape[1] + 1), _padded(features, features.shape[1] + 1)
    source[:, -1] = _SOURCE_DISTANCE * math.exp(prior.log_lengthscale[0])
    return np.concatenate([source, own]), [*groups, max(groups) + 1]


def model_inputs(space: Space, x_unit: Array, process: GaussianProcess | Mixture) -> Array:
    """Returns the inputs of `process` for runs of this sweep to their end at `n x d` points, `n x p`."""
    return _padded(space.features(x_unit), process.x.shape[1])


def _padded(features: Array, width: int) -> Array:
    return np.column_stack([features, np.zeros((len(features), width - features.shape[1]))])
