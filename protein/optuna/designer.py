"""Optuna's samplers as designers, as in `--method optuna:tpe`: to compare with, or where they suit a problem better.

Every call of `suggest` rebuilds an Optuna study in memory from the history, asks its sampler and drops the study, so
that the store stays the only memory. What the sampler sees:

- The same geometry as our own engine. A number is its unit coordinate in [0, 1], whatever its scale. A parameter with
  few, evenly spaced values (powers of two, short integer ranges) is the position of its value. A categorical one is the
  index of its choice.
- Of a conditional space, the parameters that exist: what is asked for follows from what was proposed before, as in a
  study that is defined while it runs.
- The history in its order, oldest first. TPE gives old trials less weight; CMA-ES and NSGA-II work in generations.
  These two keep their state in the trials' attributes. So their study is replayed: each old trial is asked for again
  and then given the params that it really had.
- Failed trials as FAIL, which every sampler of Optuna ignores. Stopped trials as complete trials of the steps that they
  reached, or as FAIL where nobody knows how far that was (see `protein.engine.history`). Running trials as RUNNING.
- Limits on measured values as constraints. A value that a trial lacks counts as on the bound, which keeps it.
- The score alone; NSGA-II is given the score and the log cost.

A proposal that violates a constraint, repeats a trial or does not fit the budget is reported to Optuna as FAIL, and
another one is asked for, a few times. Then the nearest point that may be run takes its place, and the origin notes
this.

Source: optuna.samplers 5.0, each sampler with its own defaults (NSGA-II: 16 instead of 50 trials a generation). Only
`make_designer` imports this module, and only when it is needed: Optuna takes 0.4 s to load.
"""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, create_trial

from protein.engine.budget import AffordableCost, cheapest_points
from protein.engine.candidates import all_points, ladders, neighbours
from protein.engine.gp import Array, single_thread
from protein.engine.history import History, reached, readable, steps_per_unit, teaches
from protein.engine.pareto import MIN_COST_SECONDS
from protein.space import Categorical, Parameter, Space
from protein.types import Budget, Limit, Measurement, Observation, Params, Suggestion, SuggestionKind, TrialState

_POPULATION = 16  # a generation of 50, Optuna's default, is a whole sweep of random points
_NUM_ASKS = 10
_NUM_ASKS_SLOW = 2  # for the Gaussian process, whose next proposal is rarely another point
_MAX_BINS = 128
_NUM_NEAR = 256
_NEAR_WIDTHS = (0.02, 0.5)  # of the steps from a proposal that cannot be run to its neighbours
_NUM_RUNGS = 64

_SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: TPESampler(seed=seed),
    "gp": lambda seed: GPSampler(seed=seed),
    "random": lambda seed: RandomSampler(seed=seed),
    "nsga2": lambda seed: NSGAIISampler(seed=seed, population_size=_POPULATION),
    "cmaes": lambda seed: CmaEsSampler(seed=seed, warn_independent_sampling=False),
}


class OptunaDesigner:
    """The initial config, then what one of Optuna's samplers proposes, as far as the budget allows it."""

    def __init__(self, sampler: str, space: Space, start: Params | None, limits: Sequence[Limit] = ()) -> None:
        """`sampler` is one of `_SAMPLERS`; TPE, the Gaussian process and NSGA-II use limits."""
        self._sampler, self._space, self._limits = sampler, space, limits
        self._start = space.snap(start) if start is not None else None
        self._listed = all_points(space)
        self._axes = [_Axis(parameter) for parameter in space.parameters]

    def suggest(
        self,
        history: Sequence[Observation],
        running: Sequence[Params],
        budget: Budget,
        seed: int,
    ) -> Suggestion | None:
        """See `protein.ports.Designer`; unlike our own engine's, the suggestions depend on the history's order."""
        with single_thread(), np.errstate(all="ignore"), _quiet(), self._one_torch_thread():
            data = History.of(self._space, history, running)
            if budget.spent:
                return None
            start = self._start
            if start is not None and data.begins(self._space, start):
                return Suggestion(params=start, kind=SuggestionKind.INITIAL_CONFIG, origin="initial config")
            affordable = AffordableCost.of(self._space, data, budget)
            if start is not None and data.begins(self._space, start, affordable.fits):
                return Suggestion(params=start, kind=SuggestionKind.INITIAL_CONFIG, origin="initial config")
            kind = SuggestionKind.RANDOM if self._sampler == "random" else SuggestionKind.SEARCH
            origin = f"optuna {self._sampler}"
            asked = self._ask(self._study(history, running, seed), data, affordable)
            if self._may_run(asked, data, affordable):
                chosen: Array | None = asked
            else:
                chosen = self._nearest(asked, data, affordable, np.random.default_rng(seed))
                origin += ", nearest new point that fits"
            if chosen is None:
                return None
            params, cost = self._space.from_unit(chosen), affordable.estimate(chosen)
            return Suggestion(params=params, kind=kind, origin=origin, predicted_cost_seconds=cost)

    def should_stop(
        self,
        history: Sequence[Observation],
        params: Params,
        curve: Sequence[Measurement],
        seed: int,
    ) -> str | None:
        """Never stops a trial: in Optuna, pruning is not the samplers' part."""
        return None

    def _study(self, history: Sequence[Observation], running: Sequence[Params], seed: int) -> Study:
        """Returns a study with all finished and running trials in it."""
        sampler = _Replayed(_SAMPLERS[self._sampler](seed))
        directions = [StudyDirection.MAXIMIZE]
        if self._sampler == "nsga2":
            directions.append(StudyDirection.MINIMIZE)
        study = optuna.create_study(sampler=sampler, directions=directions)
        finished = [o for o in history if teaches(o)]
        unit = steps_per_unit(self._space, finished)
        ends = [reached(self._space, o, unit) for o in finished]
        known = [(o, o.score if share is not None else None) for o, (_, share) in zip(finished, ends, strict=True)]
        known, x_finished = readable(self._space, known, [params for params, _ in ends])
        _, x_running = readable(self._space, list(running), list(running))
        add = self._replay if self._sampler in ("nsga2", "cmaes") else self._add
        limits = [limit for limit in self._limits if any(limit.name in one.metrics for one, _ in known)]
        for (observation, score), x in zip(known, x_finished, strict=True):
            if score is None or observation.state is TrialState.FAILED:
                add(study, x, optuna.trial.TrialState.FAIL, None)
            else:
                log_cost = float(np.log(max(observation.run_seconds, MIN_COST_SECONDS)))
                values = [score, log_cost][: len(directions)]
                add(study, x, optuna.trial.TrialState.COMPLETE, values, _beyond(limits, observation.metrics))
        for x in x_running:
            add(study, x, optuna.trial.TrialState.RUNNING, None)
        return study

    def _add(
        self,
        study: Study,
        x: Array,
        state: optuna.trial.TrialState,
        values: list[float] | None,
        beyond: Mapping[str, float] | None = None,
    ) -> None:
        params = self._values(x)
        study.add_trial(
            create_trial(
                state=state,
                params=params,
                distributions={name: one for name, one in self._distributions().items() if name in params},
                values=values,
                constraints=dict(beyond or {}) or None,
            )
        )

    def _replay(
        self,
        study: Study,
        x: Array,
        state: optuna.trial.TrialState,
        values: list[float] | None,
        beyond: Mapping[str, float] | None = None,
    ) -> None:
        assert isinstance(study.sampler, _Replayed)
        with study.sampler.forced(self._values(x)):
            trial, _ = self._asked(study)
        for name, value in (beyond or {}).items():
            trial.set_constraint(name, value)
        if state.is_finished():
            study.tell(trial, values, state)

    def _ask(self, study: Study, data: History, affordable: AffordableCost) -> Array:
        """Returns the first proposal that may be run, `d` canonical coordinates; the last one where none may."""
        for _ in range(_NUM_ASKS_SLOW if self._sampler == "gp" else _NUM_ASKS):
            trial, proposed = self._asked(study)
            x = self._space.canonical(proposed[None, :])[0]
            if self._may_run(x, data, affordable):
                break
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return np.asarray(x)

    def _asked(self, study: Study) -> tuple[Any, Array]:
        """Returns a new trial of the study, and its unit coordinates, `d`, drawn in order as far as they exist."""
        if not self._space.is_conditional:
            trial = study.ask(self._distributions())
            return trial, np.array([axis.unit(trial.params[axis.name]) for axis in self._axes])
        trial, x = study.ask(), np.full(self._space.num_dims, 0.5)
        for i, axis in enumerate(self._axes):
            if self._space.active(x[None, :])[0, i]:  # conditions are on what comes before
                x[i] = axis.unit(trial._suggest(axis.name, axis.distribution))
        return trial, x

    @contextlib.contextmanager
    def _one_torch_thread(self) -> Iterator[None]:
        """Limits torch to one thread for the Gaussian process: four threads make it 20 times as slow."""
        if self._sampler != "gp":
            yield
            return
        import torch

        num_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(num_threads)

    def _may_run(self, x: Array, data: History, affordable: AffordableCost) -> bool:
        rows = x[None, :]
        return bool(self._space.valid(rows)[0] and len(data.untried(rows)) and affordable.fits(rows)[0])

    def _nearest(self, x: Array, data: History, affordable: AffordableCost, rng: np.random.Generator) -> Array | None:
        """Returns the point nearest to a proposal, `d`, that may be run, among points around it and everywhere."""
        if self._listed is not None:
            near = self._listed
        else:
            center = self._space.to_unit(self._space.snap(self._space.from_unit(x)))[None, :]
            parts = [ladders(self._space, center, _NUM_RUNGS, rng), self._space.sample(_NUM_NEAR, rng)]
            parts.append(neighbours(self._space, center, _NUM_NEAR, _NEAR_WIDTHS, rng))
            near = np.concatenate(parts)
            near = np.concatenate([near, cheapest_points(self._space, near)])
        near = data.untried(near)
        near = near[affordable.fits(near)] if len(near) else near
        return near[int(np.argmin(np.abs(near - x).sum(axis=1)))] if len(near) else None

    def _values(self, x: Array) -> dict[str, float | int]:
        active = self._space.active(x[None, :])[0]
        return {axis.name: axis.value(float(x[i])) for i, axis in enumerate(self._axes) if active[i]}

    def _distributions(self) -> dict[str, BaseDistribution]:
        return {axis.name: axis.distribution for axis in self._axes}


class _Axis:
    """One parameter as Optuna sees it: a distribution, and the way between its values and unit coordinates."""

    distribution: BaseDistribution

    def __init__(self, parameter: Parameter) -> None:
        self.name = parameter.name
        self._num_bins = _num_bins(parameter)
        if isinstance(parameter, Categorical):
            self.distribution = _SharedCategorical(range(self._num_bins))
        elif self._num_bins:
            self.distribution = _SharedInt(0, self._num_bins - 1)
        else:
            self.distribution = _SharedFloat(0.0, 1.0)

    def value(self, x: float) -> float | int:
        """Returns Optuna's value at a unit coordinate."""
        return min(int(x * self._num_bins), self._num_bins - 1) if self._num_bins else x

    def unit(self, value: float | int) -> float:
        """Returns the unit coordinate of one of Optuna's values."""
        return (value + 0.5) / self._num_bins if self._num_bins else value


def _beyond(limits: Sequence[Limit], metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns by how much a trial's values lie beyond each limit, as Optuna's constraints: at most 0 where it holds."""
    found = {}
    for limit in limits:
        value = metrics.get(limit.name, limit.bound)
        found[str(limit)] = value - limit.bound if limit.is_upper else limit.bound - value
    return found


def _num_bins(parameter: Parameter) -> int:
    """Returns the number of a parameter's values where each has an equal bin of the unit interval; 0 for any other.

    Long integer ranges count as continuous: GPSampler goes through all values of an integer one by one.
    """
    if isinstance(parameter, Categorical):
        return len(parameter.choices)
    if parameter.scale == "pow2":
        return round(math.log2(parameter.high / parameter.low)) + 1
    listed = parameter.values() if parameter.scale == "linear" else None
    return len(listed) if listed is not None and len(listed) <= _MAX_BINS else 0


class _Shared:
    """A distribution that is not copied with each trial. Copying took half of a suggestion's time at 200 trials."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class _SharedFloat(_Shared, FloatDistribution):
    pass


class _SharedInt(_Shared, IntDistribution):
    pass


class _SharedCategorical(_Shared, CategoricalDistribution):
    pass


class _Replayed(BaseSampler):
    """A sampler whose proposals can be replaced by the params that a trial really had."""

    def __init__(self, sampler: BaseSampler) -> None:
        self._sampler = sampler
        self._forced: dict[str, Any] | None = None

    @contextlib.contextmanager
    def forced(self, params: dict[str, Any]) -> Iterator[None]:
        """Gives these params to every trial inside the block."""
        self._forced = params
        try:
            yield
        finally:
            self._forced = None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        proposed = self._sampler.sample_relative(study, trial, search_space)
        if self._forced is None:
            return proposed
        return {name: self._forced[name] for name in search_space if name in self._forced}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        if self._forced is not None:
            return self._forced[param_name]
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._sampler.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: optuna.trial.TrialState, values: Sequence[float] | None
    ) -> None:
        self._sampler.after_trial(study, trial, state, values)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences Optuna's messages about a study that the user does not see."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
