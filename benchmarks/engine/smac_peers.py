"""SMAC3 as a method of the comparison, over unit coordinates, by its ask and tell.

    smac   HyperparameterOptimizationFacade: a random forest on log-scaled scores, log expected improvement, local and
           random search, every fifth point at random in expectation

Its own defaults, but for two that suit a few dozen trials: 8 Sobol points (the default is a quarter of all trials,
which are not counted here) and a new forest before every suggestion (the default is every eighth). One run of each
config, as for the other peers.

It knows neither cost nor budget. A failed trial is told as crashed, at the worst score so far, because the default of
infinity spoils the forest's scale; one before the first score is told once there is a score. Choices are categorical
in the forest. Constraints are forbidden clauses that call the space, so no invalid point is drawn.

Source: Lindauer et al., SMAC3: A Versatile Bayesian Optimization Package for Hyperparameter Optimization (2022).
"""

import functools
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ConfigSpace import CategoricalHyperparameter, Configuration, ConfigurationSpace, UniformFloatHyperparameter
from ConfigSpace.forbidden import ForbiddenRelation
from engine.protocol import Peer
from smac import HyperparameterOptimizationFacade, Scenario
from smac.model.random_forest.random_forest import RandomForest
from smac.runhistory import StatusType, TrialInfo, TrialValue

from protein.engine.gp import Array, single_thread
from protein.space import Categorical, Space
from protein.space.constraints import Constraint
from protein.types import Budget, Observation, Params

_NUM_INITIAL = 8
_NUM_CHALLENGERS = 1000
_MAX_LEAVES = 4096  # more than there are trials
_MAX_TRIALS = 1_000_000


class _Unsaved(Scenario):
    """Its settings, which it cannot write: it has no text for our constraints."""

    def save(self) -> None:
        self.output_directory.mkdir(parents=True, exist_ok=True)


class SmacPeer(Peer):
    """One run."""

    def __init__(self, space: Space, start: Params | None, seed: int) -> None:
        self._space, self._start = space, start
        self._names = {name: f"p{i:03d}" for i, name in enumerate(space.names)}  # in the order that ConfigSpace keeps
        self._info: TrialInfo | None = None
        self._worst: float | None = None
        self._early: list[TrialInfo] = []  # failed before anything gave a score
        # It writes its state when it is made; after that, `tell` does not.
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            self._configs = self._config_space(seed)
            scenario = _Unsaved(
                self._configs,
                output_directory=Path(folder),
                deterministic=True,
                n_trials=_MAX_TRIALS,
                seed=seed,
            )
            facade = HyperparameterOptimizationFacade
            self._smac = facade(
                scenario,
                model=_forest(self._configs, seed),
                initial_design=facade.get_initial_design(scenario, n_configs=_NUM_INITIAL),
                acquisition_maximizer=facade.get_acquisition_maximizer(scenario, challengers=_NUM_CHALLENGERS),
                config_selector=facade.get_config_selector(scenario, retrain_after=1),
                logging_level=False,
                overwrite=True,
            )

    def ask(self, history: list[Observation], budget: Budget) -> Params | None:
        if not history and self._start is not None:
            self._info = TrialInfo(self._config(self._start), seed=0)
            return self._start
        with single_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._info = self._smac.ask()
        return self._space.from_unit(_x(self._space, self._info.config.get_array()[None, :])[0])

    def tell(self, observation: Observation) -> None:
        assert self._info is not None
        if observation.score is None and self._worst is None:
            self._early.append(self._info)
            return
        if observation.score is not None:
            self._worst = max(-observation.score, -observation.score if self._worst is None else self._worst)
            self._tell(self._info, -observation.score, StatusType.SUCCESS)
        failed, self._early = [*self._early, *([self._info] if observation.score is None else [])], []
        for info in failed:
            assert self._worst is not None
            self._tell(info, self._worst, StatusType.CRASHED)

    def _tell(self, info: TrialInfo, cost: float, status: StatusType) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._smac.tell(info, TrialValue(cost=cost, status=status), save=False)

    def _config_space(self, seed: int) -> ConfigurationSpace:
        configs = ConfigurationSpace(seed=seed)
        for p in self._space.parameters:
            name = self._names[p.name]
            if isinstance(p, Categorical):
                configs.add(CategoricalHyperparameter(name, list(range(len(p.choices)))))
            else:
                configs.add(UniformFloatHyperparameter(name, 0.0, 1.0))
        mentioned = {name for text in self._space.constraints for name in Constraint(text).names}
        constrained = [p for p in self._space.parameters if p.name in mentioned]
        if constrained:
            part = Space(constrained, constraints=self._space.constraints, fixed=self._space.fixed)
            keys = [configs[self._names[p.name]] for p in constrained]
            violations = functools.lru_cache(maxsize=1)(functools.partial(_violations, part))
            # One relation for each pair of neighbours: its local search checks only those of the parameter it moves.
            for left, right in zip(keys, [*keys[1:], keys[0]], strict=True):
                configs.add(_Invalid(violations, keys, left, right))
        return configs

    def _config(self, params: Params) -> Configuration:
        x = self._space.canonical(self._space.to_unit(params)[None, :])[0]
        values: dict[str, Any] = {}
        for i, p in enumerate(self._space.parameters):
            choice = isinstance(p, Categorical)
            values[self._names[p.name]] = int(p.decode(x[i : i + 1])[0]) if choice else float(x[i])
        return Configuration(self._configs, values=values)


class _Invalid(ForbiddenRelation):
    """Forbids what violates a constraint of the space."""

    _RELATION_STR = "INVALID"

    def __init__(self, violations: Callable[[bytes], Any], keys: list[Any], left: Any, right: Any) -> None:
        super().__init__(left, right)
        self._violations, self._keys = violations, keys
        self._rows: list[int] = []

    def __copy__(self) -> "_Invalid":
        return _Invalid(self._violations, self._keys, self.left, self.right)

    def set_vector_idx(self, hyperparameter_to_idx: Mapping[str, int]) -> None:
        super().set_vector_idx(hyperparameter_to_idx)
        self._rows = [hyperparameter_to_idx[key.name] for key in self._keys]

    def __repr__(self) -> str:
        return f"violates a constraint of {self.left.name}, {self.right.name}"

    def is_forbidden_value(self, values: Mapping[str, Any]) -> bool:
        return False

    def is_forbidden_vector(self, vector: Array) -> bool:
        return bool(self.is_forbidden_vector_array(vector[:, None])[0])

    def is_forbidden_vector_array(self, arr: Array) -> Any:
        return self._violations(arr[self._rows].tobytes())


def _violations(space: Space, rows: bytes) -> Any:
    """Which of n points, the columns of `d x n` numbers, violate a constraint."""
    return ~space.valid(_x(space, np.frombuffer(rows).reshape(space.num_dims, -1).T))


def _x(space: Space, vectors: Array) -> Array:
    """Its vectors, `n x d`, which hold the index of a choice, to unit coordinates."""
    x = np.array(vectors, dtype=np.float64)
    for i, p in enumerate(space.parameters):
        if isinstance(p, Categorical):
            x[:, i] = p.encode(x[:, i])
    return x


def _forest(configs: ConfigurationSpace, seed: int) -> RandomForest:
    """The facade's forest, but for the most leaves: it lays out its 2**20 for every fit, a second each time."""
    return RandomForest(
        configs,
        log_y=True,
        n_trees=10,
        bootstrapping=True,
        ratio_features=1.0,
        min_samples_split=2,
        min_samples_leaf=1,
        max_leaf_nodes=_MAX_LEAVES,
        seed=seed,
        n_jobs=1,
    )
