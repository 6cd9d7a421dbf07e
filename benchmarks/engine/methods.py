"""The optimisers under comparison, as one interface: give the next params, be told how it went.

All get the same: the space, the user's own config as their first trial, and after each trial its score or failure and
its cost. `protein:name=value;...` is the engine with settings of its recipe changed: the ablations.
"""

import ast
import dataclasses
from typing import Any, Protocol

import numpy as np

from protein.designer import Recipe, make_designer
from protein.space import Categorical, Space
from protein.types import Observation, Params

OPTUNA = ("tpe", "tpe-multi", "gp", "nsga2", "cmaes")


class Method(Protocol):
    """One optimiser in one run."""

    def ask(self, history: list[Observation], remaining_seconds: float) -> Params | None: ...
    def tell(self, observation: Observation) -> None: ...


def make_method(name: str, space: Space, start: Params, seed: int) -> Method:
    """Returns an optimiser by name. Raises `ValueError` for an unknown one."""
    method, _, settings = name.partition(":")
    if method in ("protein", "random"):
        changes = dict(part.split("=", 1) for part in settings.split(";") if part)
        recipe = dataclasses.replace(Recipe(), **{key: ast.literal_eval(value) for key, value in changes.items()})
        return _Designer(method, space, start, seed, recipe)
    if method == "sobol":
        return _Sobol(space, start, seed)
    if method in OPTUNA:
        return _Optuna(method, space, start, seed)
    raise ValueError(f"unknown method {name!r}; known: protein, random, sobol, {', '.join(OPTUNA)}")


class _Designer:
    def __init__(self, method: str, space: Space, start: Params, seed: int, recipe: Recipe) -> None:
        self._designer = make_designer(method, space, start, seed=seed, recipe=recipe)
        self._seed = seed

    def ask(self, history: list[Observation], remaining_seconds: float) -> Params | None:
        seed = int(np.random.SeedSequence([self._seed, len(history)]).generate_state(1)[0])
        suggestion = self._designer.suggest(
            history, [], remaining_seconds=remaining_seconds, max_trial_seconds=None, seed=seed
        )
        return None if suggestion is None else suggestion.params

    def tell(self, observation: Observation) -> None:
        pass


class _Sobol:
    """Scrambled Sobol points over the whole box."""

    def __init__(self, space: Space, start: Params, seed: int) -> None:
        from scipy.stats import qmc

        x = space.canonical(qmc.Sobol(space.num_dims, rng=np.random.default_rng(seed)).random(512))
        self._points = [start, *space.from_unit_many(x[space.valid(x)])]

    def ask(self, history: list[Observation], remaining_seconds: float) -> Params | None:
        return self._points[len(history)]

    def tell(self, observation: Observation) -> None:
        pass


class _Optuna:
    """An Optuna sampler over unit coordinates; the multi-objective ones see log cost as their second value.

    Points that violate a constraint are told as failed and asked again: they cost nothing.
    """

    def __init__(self, method: str, space: Space, start: Params, seed: int) -> None:
        import warnings

        import optuna

        warnings.filterwarnings("ignore", module="optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna, self._space = optuna, space
        self._two_values = method in ("tpe-multi", "nsga2")
        samplers: dict[str, Any] = {
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed, multivariate=True),
            "tpe-multi": lambda: optuna.samplers.TPESampler(seed=seed),
            "gp": lambda: optuna.samplers.GPSampler(seed=seed),
            "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed, population_size=16),
            "cmaes": lambda: optuna.samplers.CmaEsSampler(seed=seed),
        }
        directions = ["maximize", "minimize"] if self._two_values else ["maximize"]
        self._study = optuna.create_study(sampler=samplers[method](), directions=directions)
        x = space.to_unit(start)
        self._study.enqueue_trial(
            {
                p.name: start[p.name] if isinstance(p, Categorical) else float(x[i])
                for i, p in enumerate(space.parameters)
            }
        )
        self._trial: Any = None

    def ask(self, history: list[Observation], remaining_seconds: float) -> Params | None:
        for _ in range(200):
            self._trial = self._study.ask()
            x = np.empty(self._space.num_dims)
            for i, p in enumerate(self._space.parameters):
                if isinstance(p, Categorical):
                    value = self._trial.suggest_categorical(p.name, list(p.choices))
                    x[i] = p.encode(np.array([p.numeric(value)]))[0]
                else:
                    x[i] = self._trial.suggest_float(p.name, 0.0, 1.0)
            params = self._space.from_unit(x)
            if self._space.is_valid(params):
                return params
            self._study.tell(self._trial, state=self._optuna.trial.TrialState.FAIL)
        return None

    def tell(self, observation: Observation) -> None:
        if observation.score is None:
            self._study.tell(self._trial, state=self._optuna.trial.TrialState.FAIL)
        elif self._two_values:
            self._study.tell(self._trial, [observation.score, float(np.log(observation.cost_seconds))])
        else:
            self._study.tell(self._trial, observation.score)
