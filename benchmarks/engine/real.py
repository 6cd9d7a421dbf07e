"""Real training: scikit-learn models on its own data sets. Each run is a fraction of a second of real work.

    real-mlp       11 d  a neural network on handwritten digits; small batches and wide layers make an epoch expensive
    real-kernel    11 d  random Fourier features and a linear classifier on digits; many features cost much; can diverge
    real-boosting   8 d  gradient boosting on diabetes; deep trees and many features cost much; too many rounds overfit

The score is accuracy (digits) or R^2 (diabetes) on a validation split; the truth is that of the same trained model on a
test split that nothing else sees. Diabetes has few rows, so for it three splits are trained at once and averaged. A
task's seed draws the splits and the initial config; `seed` and `repeat` of a run draw the initialisation and order.

Costs are the process's CPU seconds in training (not in evaluation), on one thread, so that other work on the machine
hardly changes them. Costs depend on the machine, and so does the committed scale of these tasks
(`real_reference.json`).
"""

import dataclasses
import functools
import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import threadpoolctl
from engine.protocol import Watch
from numpy.typing import NDArray

from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.types import Measurement, Observation, Params, TrialState

Array = NDArray[Any]
FAMILIES = ("real-mlp", "real-kernel", "real-boosting")
NUM_CURVE_POINTS = 10
_DIVERGED = 1e8  # weights beyond it have diverged


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One division of a data set: inputs `n x p` and targets `n` of training, validation and test."""

    train: tuple[Array, Array]
    validation: tuple[Array, Array]
    test: tuple[Array, Array]


class Diverged(Exception):
    """Training gave numbers that are not finite."""


class Model:
    """One model on one split, trained in pieces."""

    def advance(self, steps: int) -> None:
        """Trains on to `steps` epochs or rounds. Raises `Diverged`."""
        raise NotImplementedError

    def score(self, x: Array, y: Array) -> float:
        """Returns accuracy or R^2."""
        raise NotImplementedError


class _Mlp(Model):
    def __init__(self, params: Params, split: Split, seed: int) -> None:
        from sklearn.neural_network import MLPClassifier

        self._x, self._y = split.train
        self._epochs = 0
        self._net = MLPClassifier(
            hidden_layer_sizes=(params["width"],) * int(params["layers"]),
            activation=params["activation"],
            solver=params["solver"],
            alpha=params["alpha"],
            batch_size=params["batch"],
            learning_rate_init=params["lr"],
            momentum=params["momentum"],
            beta_1=params["beta_1"],
            nesterovs_momentum=params["nesterov"],
            random_state=seed,
        )

    def advance(self, steps: int) -> None:
        for _ in range(steps - self._epochs):
            _finite(lambda: self._net.partial_fit(self._x, self._y, classes=np.arange(10)))
            if not np.isfinite(self._net.loss_) or max(np.abs(w).max() for w in self._net.coefs_) > _DIVERGED:
                raise Diverged
        self._epochs = steps

    def score(self, x: Array, y: Array) -> float:
        return float(self._net.score(x, y))


class _Kernel(Model):
    def __init__(self, params: Params, split: Split, seed: int) -> None:
        from sklearn.kernel_approximation import RBFSampler
        from sklearn.linear_model import SGDClassifier

        self._split, self._epochs = split, 0
        self._features: Array | None = None
        self._rng = np.random.default_rng(seed)
        self._map = RBFSampler(gamma=params["gamma"], n_components=params["components"], random_state=seed)
        self._linear = SGDClassifier(
            loss=params["loss"],
            penalty=params["penalty"],
            alpha=params["alpha"],
            l1_ratio=params["l1_ratio"],
            learning_rate=params["schedule"],
            eta0=params["eta0"],
            power_t=params["power_t"],
            average=params["average"],
            random_state=seed,
        )

    def advance(self, steps: int) -> None:
        x, y = self._split.train
        features = self._map.fit_transform(x) if self._features is None else self._features
        self._features = features
        for _ in range(steps - self._epochs):
            order = self._rng.permutation(len(y))
            _finite(lambda: self._linear.partial_fit(features[order], y[order], classes=np.arange(10)))  # noqa: B023
            if np.abs(self._linear.coef_).max() > _DIVERGED:
                raise Diverged
        self._epochs = steps

    def score(self, x: Array, y: Array) -> float:
        return float(self._linear.score(self._map.transform(x), y))


class _Boosting(Model):
    def __init__(self, params: Params, split: Split, seed: int) -> None:
        from sklearn.ensemble import GradientBoostingRegressor

        self._x, self._y = split.train
        self._trees = GradientBoostingRegressor(
            loss=params["loss"],
            alpha=params["alpha"],
            learning_rate=params["lr"],
            max_depth=params["depth"],
            min_samples_leaf=params["leaf"],
            subsample=params["subsample"],
            max_features=params["max_features"],
            warm_start=True,
            random_state=seed,
        )

    def advance(self, steps: int) -> None:
        self._trees.set_params(n_estimators=steps)
        _finite(lambda: self._trees.fit(self._x, self._y))

    def score(self, x: Array, y: Array) -> float:
        value = float(self._trees.score(x, y))
        if not math.isfinite(value) or value < -1e3:
            raise Diverged
        return value


def _finite(train: Callable[[], object]) -> None:
    try:
        train()
    except ValueError as error:  # how scikit-learn reports weights and gradients that overflow
        raise Diverged from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealTask:
    """One model with the splits of a seed."""

    name: str
    space: Space
    start: Params
    splits: tuple[Split, ...]
    model: Callable[[Params, Split, int], Model]
    truths: dict[tuple[object, ...], float] = dataclasses.field(default_factory=dict)  # of the runs so far

    @property
    def family(self) -> str:
        return self.name

    def run(self, params: Params, *, seed: int, repeat: int = 0, watch: Watch | None = None) -> Observation:
        """Trains; see `engine.protocol.Task`."""
        self.space.validate(params)
        with threadpoolctl.threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._run(params, seed, repeat, watch)

    def true_score(self, observation: Observation) -> float:
        """Returns the score on the test split of the model that this run trained."""
        return self.truths[_key(observation)]

    def _run(self, params: Params, seed: int, repeat: int, watch: Watch | None) -> Observation:
        init = np.random.SeedSequence([seed, repeat]).generate_state(len(self.splits)) >> 1
        curve: tuple[Measurement, ...] = ()
        spent, state, reason = 0.0, TrialState.COMPLETE, ""
        models: list[Model] = []
        assert self.space.cost_parameter is not None
        try:
            for steps in _marks(int(params[self.space.cost_parameter])):
                began = time.process_time()
                try:
                    models = models or [self.model(params, s, int(i)) for s, i in zip(self.splits, init, strict=True)]
                    for model in models:
                        model.advance(steps)
                finally:
                    spent += time.process_time() - began
                score = float(np.mean([m.score(*s.validation) for m, s in zip(models, self.splits, strict=True)]))
                curve = (*curve, Measurement(steps=steps, elapsed_seconds=spent, score=score))
                last = steps == params[self.space.cost_parameter]
                if watch is not None and not last and watch(curve):
                    state = TrialState.PRUNED
                    break
        except Diverged:
            state, reason = TrialState.FAILED, "diverged"
        final = None if state is TrialState.FAILED else curve[-1].score
        observation = Observation(
            params=params, state=state, score=final, cost_seconds=spent, curve=curve, reason=reason
        )
        if final is not None:
            tests = [m.score(*s.test) for m, s in zip(models, self.splits, strict=True)]
            self.truths[_key(observation)] = float(np.mean(tests))
        return observation


def make_real(family: str, seed: int) -> RealTask:
    """Returns a model's task with the splits and the initial config of a seed."""
    rng = np.random.default_rng([FAMILIES.index(family), seed])
    space = Space(_PARAMETERS[family], cost_parameter="rounds" if family == "real-boosting" else "epochs")
    assert space.cost_index is not None
    u = np.clip(0.5 + 0.15 * rng.standard_normal(space.num_dims), 0.02, 0.98)
    u[space.cost_index] = rng.uniform(0.35, 0.6)
    start = space.snap(space.from_unit(u))
    if family == "real-boosting":
        return RealTask(
            name=family,
            space=space,
            start=start,
            splits=tuple(_split(_diabetes(), 200, 100, rng) for _ in range(3)),
            model=_Boosting,
        )
    return RealTask(
        name=family,
        space=space,
        start=start,
        splits=(_split(_digits(), 600, 400, rng),),
        model=_Mlp if family == "real-mlp" else _Kernel,
    )


def _key(observation: Observation) -> tuple[object, ...]:
    """Identifies a run: CPU seconds are never the same twice."""
    return (observation.cost_seconds, observation.score, *observation.params.values())


def _marks(steps: int) -> Iterator[int]:
    """The steps at which a run of this length is evaluated."""
    return iter(sorted({max(1, round(steps * (i + 1) / NUM_CURVE_POINTS)) for i in range(NUM_CURVE_POINTS)}))


def _split(data: tuple[Array, Array], train: int, validation: int, rng: np.random.Generator) -> Split:
    x, y = data
    order = rng.permutation(len(y))
    rows = np.split(order, [train, train + validation])
    return Split(train=(x[rows[0]], y[rows[0]]), validation=(x[rows[1]], y[rows[1]]), test=(x[rows[2]], y[rows[2]]))


@functools.cache
def _digits() -> tuple[Array, Array]:
    """1,797 images of 64 pixels in [0, 1], ten classes."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return np.asarray(x / 16.0), np.asarray(y)


@functools.cache
def _diabetes() -> tuple[Array, Array]:
    """442 patients, ten measurements, a number to predict."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    return np.asarray(x), np.asarray(y)


_PARAMETERS: dict[str, list[Parameter]] = {
    "real-mlp": [
        Float("lr", 3e-4, 1.0, scale="log"),
        Float("alpha", 1e-6, 10.0, scale="log"),
        Float("momentum", 0.5, 0.99, scale="logit"),
        Float("beta_1", 0.5, 0.99, scale="logit"),
        Integer("width", 8, 256, scale="pow2"),
        Integer("layers", 1, 3),
        Integer("batch", 8, 256, scale="pow2"),
        Categorical("solver", ("adam", "sgd")),
        Categorical("activation", ("relu", "tanh", "logistic")),
        Categorical("nesterov", (False, True)),
        Integer("epochs", 2, 60, scale="log"),
    ],
    "real-kernel": [
        Float("gamma", 1e-3, 1.0, scale="log"),
        Float("alpha", 1e-8, 1e-1, scale="log"),
        Float("l1_ratio", 0.0, 1.0),
        Float("eta0", 1e-3, 100.0, scale="log"),
        Float("power_t", 0.1, 0.9),
        Integer("components", 16, 2048, scale="pow2"),
        Categorical("loss", ("hinge", "log_loss", "modified_huber", "squared_error")),
        Categorical("penalty", ("l2", "l1", "elasticnet")),
        Categorical("schedule", ("constant", "invscaling", "optimal")),
        Categorical("average", (False, True)),
        Integer("epochs", 1, 60, scale="log"),
    ],
    "real-boosting": [
        Float("lr", 5e-3, 1.0, scale="log"),
        Integer("depth", 1, 5),
        Integer("leaf", 1, 32, scale="log"),
        Float("subsample", 0.2, 1.0),
        Float("max_features", 0.1, 1.0),
        Float("alpha", 0.5, 0.99, scale="logit"),
        Categorical("loss", ("squared_error", "absolute_error", "huber")),
        Integer("rounds", 5, 300, scale="log"),
    ],
}
