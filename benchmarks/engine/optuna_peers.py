"""Optuna's samplers and pruners as methods of the comparison, over unit coordinates.

    tpe        TPESampler, multivariate
    tpe-multi  TPESampler on two values, score and log cost
    gp         GPSampler
    nsga2      NSGAIISampler on score and log cost, population 16
    asha       RandomSampler under SuccessiveHalvingPruner
    hyperband  TPESampler, multivariate, under HyperbandPruner

The pruners see a resource of 1 to `_MAX_RESOURCE`, the reached share of the most steps, with a reduction factor of 3:
rungs at 1/81, 1/27, 1/9 and 1/3 of the longest run. The sampler chooses the steps like any other parameter. With the
most steps each time, as both methods were published, they were worse in nearly every column (24 cells at 25 mean
random-trial costs: hyperband's best .43 against .57, its hypervolume .29 against .46): a space spans a factor of 1,000
in steps, and the first rung of a whole run costs as much as an ordinary trial.

A point that violates a constraint is reported as failed and another one is asked for, at no cost. After `_MAX_REFUSED`
such points in a row, the valid point nearest to the last one is run.
"""

import math
import warnings
from typing import Any

import numpy as np
import optuna
from engine.protocol import Peer

from protein.space import Categorical, Space
from protein.types import Budget, Measurement, Observation, Params, ParamValue, TrialState

_MAX_RESOURCE = 81
_MAX_REFUSED = 20
_STATES = optuna.trial.TrialState


class OptunaPeer(Peer):
    """One study of one sampler."""

    def __init__(self, method: str, space: Space, start: Params | None, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self._two_values = space, method in ("tpe-multi", "nsga2")
        self._prunes = method in ("asha", "hyperband")
        steps = None if space.cost_index is None else space.parameters[space.cost_index]
        self._most_steps = float(getattr(steps, "high", math.inf))
        pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
        if method == "asha":
            pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
        elif method == "hyperband":
            pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=_MAX_RESOURCE, reduction_factor=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental features
            self._study = optuna.create_study(
                study_name=f"{method} {seed}",  # the Hyperband pruner draws a trial's bracket from it
                sampler=_sampler(method, seed),
                pruner=pruner,
                directions=["maximize", "minimize"] if self._two_values else ["maximize"],
            )
        self._trial: Any = None
        self._reported: set[int] = set()  # resources that the running trial has reported
        self._start = start
        if start is not None:
            self._enqueue(start)

    def ask(self, history: list[Observation], budget: Budget) -> Params | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for refused in range(_MAX_REFUSED + 1):
                params = self._ask()
                if self._space.is_valid(params):
                    break
                self._study.tell(self._trial, state=_STATES.FAIL)
                if refused + 1 == _MAX_REFUSED:
                    self._enqueue(self._space.snap(params))
        return params

    def watch(self, params: Params, curve: tuple[Measurement, ...]) -> bool:
        if not self._prunes:
            return False
        assert curve[-1].score is not None
        share = curve[-1].steps / self._most_steps
        resource = min(max(math.ceil(_MAX_RESOURCE * share - 1e-9), 1), _MAX_RESOURCE)
        if resource not in self._reported:
            self._trial.report(curve[-1].score, resource)
            self._reported.add(resource)
        return bool(self._trial.should_prune())

    def tell(self, observation: Observation) -> None:
        if observation.score is None:
            self._study.tell(self._trial, state=_STATES.FAIL)
        elif observation.state is TrialState.PRUNED:
            self._study.tell(self._trial, state=_STATES.PRUNED)
        elif self._two_values:
            self._study.tell(self._trial, [observation.score, math.log(max(observation.cost_seconds, 1e-3))])
        else:
            self._study.tell(self._trial, observation.score)

    def _ask(self) -> Params:
        self._trial = self._study.ask()
        self._reported.clear()
        x = np.empty(self._space.num_dims)
        for i, p in enumerate(self._space.parameters):
            if isinstance(p, Categorical):
                value = self._trial.suggest_categorical(p.name, list(p.choices))
                x[i] = p.encode(np.array([p.numeric(value)]))[0]
            else:
                x[i] = self._trial.suggest_float(p.name, 0.0, 1.0)
        if self._start is not None:
            start, self._start = self._start, None
            return start  # with its exact values
        return self._space.from_unit(x)

    def _enqueue(self, params: Params) -> None:
        """Makes the given point the next one that is asked for."""
        x = self._space.to_unit(params)
        values: dict[str, ParamValue] = {}
        for i, p in enumerate(self._space.parameters):
            if isinstance(p, Categorical):
                values[p.name] = params[p.name]
            else:
                values[p.name] = float(x[i])
        self._study.enqueue_trial(values)


def _sampler(method: str, seed: int) -> optuna.samplers.BaseSampler:
    if method in ("tpe", "hyperband"):
        return optuna.samplers.TPESampler(seed=seed, multivariate=True)
    if method == "tpe-multi":
        return optuna.samplers.TPESampler(seed=seed)
    if method == "gp":
        return optuna.samplers.GPSampler(seed=seed)
    if method == "nsga2":
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=16)
    return optuna.samplers.RandomSampler(seed=seed)
