"""BoTorch's acquisitions as methods of the comparison, used as its tutorials use them.

    logei      SingleTaskGP, LogExpectedImprovement over the best measured score
    qlognehvi  one SingleTaskGP each for score and -log cost, qLogNoisyExpectedHypervolumeImprovement with 32
               quasi-random samples; reference point by BoTorch's own rule from the front so far

Notation
    features  `n x p` in [0, 1]: unit coordinates, a categorical one as one column for each choice
    y         `n x 1` or `n x 2`, maximised
    theta     log lengthscales, log noise variance, mean: `p + 2`

The processes are BoTorch's with its default kernel, priors and bounds. Their hyperparameters are brought to the mode by
L-BFGS on the same posterior density, written out here: through automatic differentiation a fit took 1 to 4 seconds,
and the comparison needs ten thousand of them.

Both begin with Sobol points over the whole box. Mixed types: the acquisition is optimised over the relaxed features,
then rounded. Where the rounded point violates a constraint or was tried, it is replaced by a valid one: the best by
acquisition among neighbours of the rounded point and uniform points. A failed run counts as the worst score so far,
because otherwise it would be suggested again and again. One thread, 4 restarts from 128 raw samples.

Source: Ament et al., Unexpected Improvements to Expected Improvement (2023); Daulton et al., Parallel Bayesian
Optimization of Multiple Noisy Objectives with Expected Hypervolume Improvement (2021).
"""

import math
import warnings

import numpy as np
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.multi_objective.utils import prune_inferior_points_multi_objective
from botorch.models.gp_regression import SingleTaskGP
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.optim.optimize import optimize_acqf
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.multi_objective.hypervolume import infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from botorch.utils.sampling import manual_seed
from engine.protocol import Peer
from scipy.linalg import lapack
from scipy.optimize import minimize

from protein.engine.candidates import neighbours
from protein.engine.gp import Array, single_thread
from protein.engine.history import keys
from protein.space import Categorical, Space
from protein.types import Budget, Observation, Params

_NUM_INITIAL = 8
_NUM_RESTARTS = 4
_RAW_SAMPLES = 128
_NUM_SAMPLES = 32  # of the posterior, for the hypervolume
_NUM_PRUNING_SAMPLES = 256
_MAX_ITERATIONS = 30  # of the acquisition's optimiser
_NUM_REPAIRS = 256  # candidates of each kind where a point has to be replaced


class BotorchPeer(Peer):
    """One run of one acquisition."""

    def __init__(self, method: str, space: Space, start: Params | None, seed: int) -> None:
        from scipy.stats import qmc

        torch.set_num_threads(1)
        self._space, self._start, self._seed, self._two_values = space, start, seed, method == "qlognehvi"
        x = space.canonical(qmc.Sobol(space.num_dims, rng=np.random.default_rng([seed, 1])).random(256))
        self._design = space.from_unit_many(x[space.valid(x)])

    def ask(self, history: list[Observation], budget: Budget) -> Params | None:
        if not history and self._start is not None:
            return self._start
        position = len(history) - (self._start is not None)
        scores = [o.score for o in history if o.score is not None]
        if position < _NUM_INITIAL or not scores:
            return self._design[position % len(self._design)]
        x_tried = self._space.canonical(self._space.to_unit_many([o.params for o in history]))
        worst = min(scores)
        columns = [[worst if o.score is None else o.score for o in history]]
        if self._two_values:
            columns.append([-math.log(max(o.cost_seconds, 1e-3)) for o in history])
        features = torch.from_numpy(self._encode(x_tried))
        y = torch.tensor(columns, dtype=torch.float64).T
        seed = int(np.random.SeedSequence([self._seed, len(history)]).generate_state(1)[0])
        with single_thread(), manual_seed(seed % 2**31), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fits that stop early, inputs that are not standardised: BoTorch goes on
            return self._space.from_unit(self._best(features, y, x_tried, np.random.default_rng(seed)))

    def _best(self, features: torch.Tensor, y: torch.Tensor, x_tried: Array, rng: np.random.Generator) -> Array:
        acquisition = _hypervolume_improvement(features, y) if self._two_values else _improvement(features, y)
        bounds = torch.zeros(2, features.shape[1], dtype=torch.float64)
        bounds[1] = 1.0
        found, _ = optimize_acqf(
            acquisition,
            bounds,
            q=1,
            num_restarts=_NUM_RESTARTS,
            raw_samples=_RAW_SAMPLES,
            options={"maxiter": _MAX_ITERATIONS, "batch_limit": _NUM_RESTARTS, "init_batch_limit": _RAW_SAMPLES},
        )
        x = self._decode(found.numpy())
        taken = set(keys(x_tried))
        if self._space.valid(x)[0] and keys(x)[0] not in taken:
            return np.asarray(x[0])
        near = neighbours(self._space, x, _NUM_REPAIRS, (0.02, 0.3), rng)
        candidates = np.concatenate([near, self._space.sample(_NUM_REPAIRS, rng)])
        fresh = np.array([key not in taken for key in keys(candidates)])
        candidates = candidates[fresh] if fresh.any() else candidates
        with torch.no_grad():
            values = acquisition(torch.from_numpy(self._encode(candidates)).unsqueeze(1))
        return np.asarray(candidates[int(values.argmax())])

    def _encode(self, x: Array) -> Array:
        """Unit coordinates, `n x d`, to features, `n x p`."""
        columns = []
        for i, p in enumerate(self._space.parameters):
            if isinstance(p, Categorical):
                columns.append(np.eye(len(p.choices))[p.decode(x[:, i]).astype(int)])
            else:
                columns.append(x[:, i : i + 1])
        return np.concatenate(columns, axis=1)

    def _decode(self, features: Array) -> Array:
        """Features, `n x p`, to the nearest canonical unit coordinates, `n x d`; constraints are ignored."""
        x, at = np.empty((len(features), self._space.num_dims)), 0
        for i, p in enumerate(self._space.parameters):
            width = len(p.choices) if isinstance(p, Categorical) else 1
            block = features[:, at : at + width]
            x[:, i] = p.encode(block.argmax(axis=1).astype(float)) if isinstance(p, Categorical) else block[:, 0]
            at += width
        return self._space.canonical(np.clip(x, 0.0, 1.0))


def fitted(features: torch.Tensor, y: torch.Tensor) -> SingleTaskGP:
    """Returns BoTorch's default process of `n x p` features and `n x 1` outcomes, at its hyperparameters' mode."""
    model = SingleTaskGP(features, y)
    log_lengthscale, log_noise, mean = _mode(features.numpy(), model.train_targets.numpy())
    model.covar_module.lengthscale = torch.from_numpy(np.exp(log_lengthscale))
    model.likelihood.noise = torch.tensor(math.exp(log_noise), dtype=torch.float64)
    model.mean_module.constant.data.fill_(mean)
    return model.eval()


def _mode(x: Array, y: Array) -> tuple[Array, float, float]:
    """Log lengthscales, `p`, log noise variance and mean at the mode of the posterior that BoTorch maximises."""
    n, p = x.shape
    squared = ((x[:, None, :] - x[None, :, :]) ** 2).reshape(n * n, p)
    middle = np.concatenate([np.full(p, math.sqrt(2.0) + 0.5 * math.log(p)), [-4.0]])
    width = np.concatenate([np.full(p, math.sqrt(3.0)), [1.0]])

    def objective(theta: Array) -> tuple[float, Array]:
        weight, noise = np.exp(-2.0 * theta[:p]), math.exp(theta[p])
        k = np.exp(-0.5 * (squared @ weight)).reshape(n, n)
        full = k.copy()
        full.flat[:: n + 1] += noise + 1e-10
        chol, info = lapack.dpotrf(full, lower=1)
        if info != 0:
            return 1e10, np.zeros_like(theta)
        alpha, _ = lapack.dpotrs(chol, y - theta[p + 1], lower=1)
        inverse, _ = lapack.dpotri(chol, lower=1)
        inverse = np.where(np.tri(n, dtype=bool), inverse, inverse.T)
        slope = 0.5 * (inverse - np.outer(alpha, alpha))
        pull = (theta[: p + 1] - middle) / width
        # The density of a log-normal prior is 1 / l times that of a normal one of log l.
        value = 0.5 * float((y - theta[p + 1]) @ alpha) + float(np.log(np.diag(chol)).sum())
        value += 0.5 * float(pull @ pull) + float(theta[: p + 1].sum())
        by_lengthscale = ((slope * k).ravel() @ squared) * weight
        gradient = np.concatenate([by_lengthscale, [noise * np.trace(slope), -float(alpha.sum())]])
        gradient[: p + 1] += pull / width + 1.0
        return value, gradient

    start = np.concatenate([middle - width**2, [0.0]])  # the priors' modes, as in BoTorch
    bounds = [(math.log(2.5e-2), 10.0)] * p + [(math.log(1e-4), 2.0), (-3.0, 3.0)]
    theta = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200}).x
    return theta[:p], float(theta[p]), float(theta[p + 1])


def _improvement(features: torch.Tensor, y: torch.Tensor) -> AcquisitionFunction:
    return LogExpectedImprovement(fitted(features, y), best_f=y.max())


def _hypervolume_improvement(features: torch.Tensor, y: torch.Tensor) -> AcquisitionFunction:
    model = ModelListGP(fitted(features, y[:, :1]), fitted(features, y[:, 1:]))
    reference = infer_reference_point(y[is_non_dominated(y)])
    # What `prune_baseline=True` does, with fewer samples of the posterior than its 2048.
    baseline = prune_inferior_points_multi_objective(model, features, reference, num_samples=_NUM_PRUNING_SAMPLES)
    return qLogNoisyExpectedHypervolumeImprovement(
        model,
        ref_point=reference,
        X_baseline=baseline,
        sampler=SobolQMCNormalSampler(torch.Size([_NUM_SAMPLES])),
    )
