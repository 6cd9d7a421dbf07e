"""Trials of a source sweep beside a sweep's own, in one Gaussian process, where they have shown to predict them.

One extra input separates the two sweeps: 0 for our trials, a constant for the source's. Its lengthscale is fitted with
the others. So the data decide how strongly the two sweeps' functions correlate, and where the source sweep has no
trials the posterior stays uncertain. The source points are left out where they do not make the sweep's own results
twenty times likelier.

Of several source sweeps, at most one is used: that whose points make the sweep's own results likeliest so far. The best
of K looks good by luck alone. A priori each is as likely to be the one that helps, so it has to make the results 20 K
times likelier. The belief is never stored: with every own trial it is found anew.

Notation
    target    `n`, what a model is fitted to: z of a score, ln of a cost, or +1 and -1 for a trial that gave a score or
              failed
    features  `n x p`, `space.features(x_unit)` and further columns, which are 0 for runs of this sweep to their end

Source: Swersky, Snoek and Adams, Multi-Task Bayesian Optimization (2013), here with a single correlation.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from protein.engine.gp import Array, GaussianProcess, Mixture, Prior, Runs, conditioned, fit, subset
from protein.space import Space

_FULL_POINTS = 120  # own and source points together, within these limits on the number of source points:
_MIN_SOURCE_POINTS = 20
_MAX_SOURCE_POINTS = 60
_MIN_LOG_EVIDENCE = math.log(20.0)  # this sweep's own results must become so much likelier by a source's points
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
    sources: Sequence[tuple[Array, Array]],
    runs: Runs | None = None,
) -> tuple[GaussianProcess, int | None]:
    """Returns the process fitted to own points and those of the best source, and which it is; or `own` and None.

    Args:
        own: the process fitted to this sweep's points alone, `n x p`. It is returned where no source's points raise the
            log density of this sweep's own results by `_MIN_LOG_EVIDENCE` and ln of the number of sources.
        space: the space.
        features: model inputs of the own points, `n x p`.
        groups: the lengthscale of each of the p columns.
        prior: of the hyperparameters.
        sources: of each source its points, `k x d`, and their targets as the process sees them, `k`.
        runs: `n`, which run each own point is of; None: each is of a run of its own.
    """
    if not sources or len(own.y) < len(features):  # of many own points the process saw some only: no help is needed
        return own, None
    runs = np.arange(len(features)) if runs is None else runs
    lengthscale = np.append(own.kernel.lengthscale, math.exp(prior.log_lengthscale[0]))
    kernel = dataclasses.replace(own.kernel, lengthscale=lengthscale)
    together, densities = [], []
    for x_source, y_source in sources:
        x, all_groups = stacked(space, features, groups, prior, x_source)
        k = len(y_source)
        together.append((x, np.concatenate([y_source, own.y]), np.concatenate([np.arange(k), k + runs])))
        if len(sources) > 1:  # compared at the hyperparameters of the own points: a fit for each would take long
            densities.append(conditioned(*together[-1], kernel, own.noise, own.run_variance).log_density(k))
    best = int(np.argmax(densities)) if densities else 0
    x, y, all_runs = together[best]
    # No point may be dropped here: the source points are told from the own ones by their position.
    joint = fit(x, y, all_groups, prior, runs=all_runs, max_points=len(x))
    gain = joint.log_density(len(x) - len(features)) - own.log_density()
    return (joint, best) if gain >= _MIN_LOG_EVIDENCE + math.log(len(sources)) else (own, None)


def stacked(space: Space, features: Array, groups: list[int], prior: Prior, x_source: Array) -> tuple[Array, list[int]]:
    """Returns model inputs of source points and, below them, of own ones, `n x (p + 1)`, and the columns' groups.

    In the additional column the two sweeps are `_SOURCE_DISTANCE` apart.
    """
    source, own = padded(space.features(x_source), features.shape[1] + 1), padded(features, features.shape[1] + 1)
    source[:, -1] = _SOURCE_DISTANCE * math.exp(prior.log_lengthscale[0])
    return np.concatenate([source, own]), [*groups, max(groups) + 1]


def model_inputs(space: Space, x_unit: Array, process: GaussianProcess | Mixture) -> Array:
    """Returns the inputs of `process` for runs of this sweep to their end at `n x d` points, `n x p`."""
    return padded(space.features(x_unit), process.x.shape[1])


def padded(features: Array, width: int) -> Array:
    """Returns `n x p` features with further columns of zeros: those of runs of this sweep to their end."""
    return np.column_stack([features, np.zeros((len(features), width - features.shape[1]))])
