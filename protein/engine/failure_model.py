"""Whether a trial will give a score, predicted before it is run."""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from protein.engine.gp import LENGTHSCALE_SD, Array, GaussianProcess, Prior, fit
from protein.engine.joint_fit import SourceTrials, model_inputs, stacked
from protein.space import Space

_MAX_POINTS = 300  # failures are smoother than scores: more points make the model slower, not better


@dataclasses.dataclass(frozen=True, slots=True)
class FailureModel:
    """A Gaussian process over +1 (gave a score) and -1 (failed), squashed to a probability."""

    space: Space
    center: float
    process: GaussianProcess | None  # None: nothing has failed yet

    @classmethod
    def fit(
        cls, space: Space, x_unit: Array, ok: NDArray[np.bool_], *, source: SourceTrials | None = None
    ) -> "FailureModel":
        """Fits to `n` points, `n x d`, and whether they gave a score, `n`; a source sweep's targets are +1 and -1."""
        num_source = 0
        if source is not None:
            source = source.some(len(x_unit))
            ok, num_source = np.concatenate([source.target > 0, ok]), len(source.target)
        if not len(ok) or bool(np.all(ok)):
            return cls(space, 1.0, None)
        # Two artificial successes keep the level above 0 where everything has failed so far, so that the search
        # continues.
        center = 2.0 * (float(np.sum(ok)) + 2.0) / (len(ok) + 2.0) - 1.0
        prior = Prior(
            log_lengthscale=(-0.3 + 0.5 * math.log(space.num_active / 8.0), LENGTHSCALE_SD),
            log_outputscale=(0.0, 0.7),
            log_noise=(math.log(0.05), 1.0),
        )
        keep = _in_proportion(ok[num_source:], _MAX_POINTS - num_source)
        target = 2.0 * np.concatenate([ok[:num_source], ok[num_source:][keep]]) - 1.0 - center
        features, groups = space.features(x_unit[keep]), space.feature_groups()
        if source is not None:
            features, groups = stacked(space, features, groups, prior, source.x_unit)
        return cls(space, center, fit(features, target, groups, prior))

    def p_ok(self, x_unit: Array) -> Array:
        """Returns the probability of a score, `m`, within (0, 1]; 1 before anything has failed."""
        if self.process is None:
            return np.ones(len(x_unit))
        mean, sd = self.process.predict(model_inputs(self.space, x_unit, self.process))
        squashed = ndtr((self.center + mean) / np.sqrt(sd * sd + 0.25))
        return np.asarray(np.maximum(squashed, 1e-6))


def _in_proportion(ok: NDArray[np.bool_], size: int) -> NDArray[np.intp]:
    """Returns at most `size` of n positions, in order, of successes and of failures the same share, drawn at random."""
    order = np.lexsort((np.random.default_rng(0).permutation(len(ok)), ok))
    return np.sort(order[np.linspace(0, len(ok) - 1, min(len(ok), size)).round().astype(np.intp)])
