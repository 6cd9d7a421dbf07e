"""An Optuna study as the engine sees it: its joint parameters as a space, its trials as observations.

Notation
    joint parameters  those that are suggested together (see `protein.optuna.sampler`). The i-th is called `p<i>`,
                      because a name in Optuna may be any text
    sign              1 for a study that maximises, -1 for one that minimises; scores times it are to be maximised
"""

import dataclasses
import functools
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from protein.errors import SpaceError, UsageError
from protein.space import Space
from protein.space.parameters import Categorical, Float, Integer, Parameter
from protein.types import Measurement, Observation, ParamValue, TrialEnd, TrialState, is_score

PLANNED = "protein:params:"  # system attributes: joint params of a trial that has not asked for all of them yet


@dataclasses.dataclass(frozen=True, slots=True)
class _ByText:
    """Distributions that are told apart by their text: choices may have no hash, and 1, 1.0 and True are equal."""

    text: str
    distributions: tuple[tuple[str, BaseDistribution], ...] = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Joint:
    """The joint parameters as a space."""

    distributions: tuple[tuple[str, BaseDistribution], ...]
    space: Space

    @staticmethod
    def of(distributions: tuple[tuple[str, BaseDistribution], ...], cost_parameter: str | None) -> "Joint":
        return Joint._made(_ByText(repr(distributions), distributions), cost_parameter)

    @staticmethod
    @functools.lru_cache(maxsize=32)
    def _made(key: "_ByText", cost_parameter: str | None) -> "Joint":
        distributions = key.distributions
        parameters, cost = [], None
        for i, (name, distribution) in enumerate(distributions):
            parameter = as_parameter(f"p{i}", distribution)
            assert parameter is not None, name
            parameters.append(parameter)
            if name == cost_parameter:
                cost = parameter.name
                if isinstance(parameter, Categorical):
                    raise UsageError(f"cost_parameter '{name}' is categorical; it needs a numeric range")
        return Joint(distributions, Space(parameters, cost_parameter=cost))

    def params(self, trial: FrozenTrial) -> dict[str, ParamValue] | None:
        """Returns a trial's joint params, including those it has not asked for yet; None when it lacks some."""
        fixed = trial.system_attrs.get("fixed_params", {})
        return self._inward({**_planned(trial, dict(self.distributions)), **fixed, **trial.params})

    def fixed_params(self, trial: FrozenTrial) -> dict[str, ParamValue] | None:
        """Returns the joint params that a trial was enqueued with; None unless it was enqueued with all of them."""
        return self._inward(trial.system_attrs.get("fixed_params", {}))

    def taken_meanwhile(
        self, params: Mapping[str, ParamValue], before: Sequence[FrozenTrial], now: Sequence[FrozenTrial]
    ) -> bool:
        """Whether a trial has been given these joint params between two readings of a study's trials."""
        had = {trial.number for trial in before if self.params(trial) == params}
        return any(trial.number not in had and self.params(trial) == params for trial in now)

    def values(self, params: Mapping[str, ParamValue]) -> dict[str, Any]:
        """Returns Optuna's values of params of the space."""
        return {
            name: to_optunas(distribution, params[parameter.name])
            for parameter, (name, distribution) in zip(self.space.parameters, self.distributions, strict=True)
        }

    def _inward(self, values: Mapping[str, Any]) -> dict[str, ParamValue] | None:
        params: dict[str, ParamValue] = {}
        for parameter, (name, distribution) in zip(self.space.parameters, self.distributions, strict=True):
            try:
                params[parameter.name] = to_ours(distribution, values[name])
                parameter.check(params[parameter.name])
            except (KeyError, ValueError, SpaceError):  # it has no value, or one outside the range
                return None
        return params

    def cheapest(self) -> dict[str, ParamValue]:
        """Returns the middle of the space at its lowest cost."""
        x = np.full(self.space.num_dims, 0.5)
        if self.space.cost_index is not None:
            x[self.space.cost_index] = 0.0
        return self.space.from_unit(x)

    def steps_per_report(self, trials: Sequence[FrozenTrial]) -> float | None:
        """Returns how much of the cost parameter one step of the intermediate values stands for, from complete trials.

        A trial of 100 epochs may report after each epoch, or count batches. None where no trial shows it. Steps are
        taken to be counted from 0, which matters only where they are few. Without a cost parameter they stay as they
        are. A cost parameter of 0 or less, such as a logarithm, stands for no number of steps: then it is None, too.
        """
        name = self.space.cost_parameter
        if name is None:
            return 1.0
        found = []
        for trial in trials:
            params = self.params(trial)
            last = trial.last_step
            if trial.state is OptunaState.COMPLETE and params is not None and last is not None:
                found.append(float(params[name]) / (last + 1))
        unit = statistics.median(found) if found else None
        return unit if unit is not None and unit > 0 else None

    def observations(
        self, trial: FrozenTrial, sign: float, cost_seconds: float, steps_per_report: float | None
    ) -> list[Observation]:
        """Returns what the engine learns from a finished trial; nothing when it lacks a joint parameter.

        A pruned trial is both a score at the steps that it reached and a failure of what it was asked for. Without the
        failure the engine, which knows nothing of the study's pruner, would ask for a promising trial that is always
        pruned again and again.
        """
        params = self.params(trial)
        if params is None:
            return []
        score: float | None = None
        reason = ""
        violated = [key for key, value in trial.constraints.items() if value > 0]
        if trial.state is OptunaState.FAIL:
            end, reason = TrialEnd.FAILED, "failed"
        elif violated:
            end, reason = TrialEnd.FAILED, f"violates constraint {violated[0]}"
        elif trial.state is OptunaState.COMPLETE:
            assert trial.value is not None
            end, score = TrialEnd.COMPLETE, sign * trial.value
            if not is_score(score):
                end, score, reason = TrialEnd.DIVERGED, None, f"value {trial.value}"
        else:
            end, score = TrialEnd.STOPPED_EARLY, _finite(trial.value, sign)
        learnt = Observation(
            params=params,
            state=end.state,
            score=score,
            cost_seconds=cost_seconds,
            curve=_curve(trial, sign, cost_seconds, steps_per_report),
            reason=reason,
            end=end,
        )
        if end is not TrialEnd.STOPPED_EARLY:
            return [learnt]
        pruned = Observation(params=params, state=TrialState.FAILED, score=None, cost_seconds=0.0, reason="pruned")
        return [learnt, pruned]


def _curve(
    trial: FrozenTrial, sign: float, cost_seconds: float, steps_per_report: float | None
) -> tuple[Measurement, ...]:
    """Returns a trial's intermediate values. Optuna keeps no times, so the cost is spread evenly over the steps."""
    last = trial.last_step
    if steps_per_report is None or last is None:
        return ()
    return tuple(
        Measurement(
            steps=round((step + 1) * steps_per_report),
            elapsed_seconds=cost_seconds * (step + 1) / (last + 1),
            score=_finite(value, sign),
        )
        for step, value in sorted(trial.intermediate_values.items())
    )


def _finite(value: float | None, sign: float) -> float | None:
    return sign * value if value is not None and is_score(value) else None


def as_parameter(name: str, distribution: BaseDistribution) -> Parameter | None:
    """Returns a distribution as a parameter of ours; None where a space cannot hold it.

    A distribution with a step is counted in steps: values 10, 15, 20 are the numbers 2, 3, 4. So they stay in
    proportion to the cost.
    """
    try:
        if isinstance(distribution, CategoricalDistribution):
            return Categorical(name, tuple(range(len(distribution.choices))))
        assert isinstance(distribution, FloatDistribution | IntDistribution)
        low, high, step = distribution.low, distribution.high, distribution.step
        scale: Literal["log", "linear"] = "log" if distribution.log else "linear"
        if step is None:
            return Float(name, low, high, scale=scale)
        first = round(low / step)
        return Integer(name, first, first + round((high - low) / step), scale=scale)
    except (SpaceError, OverflowError):  # a single value, or more of them than float64 can tell apart
        return None


def to_ours(distribution: BaseDistribution, value: Any) -> ParamValue:
    """Returns our value for one of Optuna's. Raises `ValueError` for a value that the distribution cannot have."""
    internal = distribution.to_internal_repr(value)
    if isinstance(distribution, CategoricalDistribution):
        return int(internal)
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if distribution.step is None:
        return float(internal)
    return round(distribution.low / distribution.step) + round((internal - distribution.low) / distribution.step)


def to_optunas(distribution: BaseDistribution, number: ParamValue) -> Any:
    """Returns Optuna's value for one of ours."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(number)]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if distribution.step is None:
        return float(number)
    steps = int(number) - round(distribution.low / distribution.step)
    return min(distribution.low + steps * distribution.step, distribution.high)


def _planned(trial: FrozenTrial, distributions: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """Returns the joint params that a trial was given, whether or not it has asked for them yet."""
    parts = sorted((int(key.removeprefix(PLANNED)), key) for key in trial.system_attrs if key.startswith(PLANNED))
    internal: dict[str, float] = json.loads("".join(trial.system_attrs[key] for _, key in parts) or "{}")
    return {name: distributions[name].to_external_repr(x) for name, x in internal.items() if name in distributions}
