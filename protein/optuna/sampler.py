"""The engine as a sampler of Optuna, for studies that Optuna runs.

    sampler = ProteinSampler(seed=0, cost_parameter="epochs", budget_seconds=3600.0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective)

The sampler keeps nothing but its arguments. Each suggestion is computed from the study's stored trials. So parallel
workers, other processes and a study that is loaded again all get the suggestions that one long run would get.

What the engine sees
    joint parameters  those that every trial so far has had with the same distribution; they are suggested together. So
                      are those that only some have had, where a rule tells exactly which: then the space is conditional
                      (`protein.space.presence`). All others (of changing spaces, and of the first trials) are sampled
                      one by one, by Optuna's TPE.
    score             the value; of a pruned trial the last one that it reported
    cost              seconds from a trial's start to its end, less the time of its suggestion, and a tenth of a second
                      at least; or the user attribute `cost_attribute`
    failures          trials that failed, violate a constraint (`trial.set_constraint`) or gave no finite value
    running trials    the models are conditioned on what is expected of them, so that workers do not all try the same.
                      Threads take turns, and a point that another process has taken in the meantime is not suggested
    budget            what running trials are expected to cost is subtracted, by the rule of `protein.engine.budget`
    initial config    the params of the first trial that was enqueued with all joint parameters

What the sampler writes on each trial with joint parameters: the user attributes `protein:origin`,
`protein:predicted_score`, `protein:predicted_cost_seconds`, the last two also with `..._interval` (80 %), and
`protein:suggest_seconds`. They show in optuna-dashboard.
"""

import contextlib
import dataclasses
import functools
import json
import math
import secrets
import statistics
import threading
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from protein import validate
from protein.engine.budget import RunningCost, budget_left
from protein.engine.designer import ProteinDesigner
from protein.engine.settings import EngineSettings
from protein.errors import SpaceError, UsageError
from protein.space import Space
from protein.space.constraints import Condition
from protein.space.parameters import Categorical, Float, Integer, Parameter
from protein.space.presence import rules
from protein.spelling import nearest
from protein.types import (
    Budget,
    Limit,
    Measurement,
    Observation,
    ParamValue,
    Suggestion,
    SuggestionKind,
    TrialEnd,
    TrialState,
    is_score,
)

# An Optuna study as the engine sees it: its joint parameters as a space, its trials as observations.
#
# Notation
#     joint parameters  those that are suggested together (see `protein.optuna.sampler`). The i-th is called `p<i>`,
#                       because a name in Optuna may be any text
#     sign              1 for a study that maximises, -1 for one that minimises; scores times it are to be maximised

PLANNED = "protein:params:"  # system attributes: joint params of a trial that has not asked for all of them yet


@dataclasses.dataclass(frozen=True, slots=True)
class _ByText:
    """Distributions that are told apart by their text: choices may have no hash, and 1, 1.0 and True are equal."""

    text: str
    distributions: tuple[tuple[str, BaseDistribution], ...] = dataclasses.field(compare=False)
    conditions: tuple[str | None, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Joint:
    """The joint parameters as a space."""

    distributions: tuple[tuple[str, BaseDistribution], ...]
    space: Space

    @staticmethod
    def of(
        distributions: tuple[tuple[str, BaseDistribution], ...],
        cost_parameter: str | None,
        conditions: Sequence[str | None] = (),
    ) -> "Joint":
        """`conditions` are those of the parameters in order, in the names of the space; none: they always exist."""
        return Joint._made(_ByText(repr(distributions), distributions, tuple(conditions)), cost_parameter)

    @staticmethod
    @functools.lru_cache(maxsize=32)
    def _made(key: "_ByText", cost_parameter: str | None) -> "Joint":
        distributions = key.distributions
        parameters, cost = [], None
        conditions = key.conditions or (None,) * len(distributions)
        for i, ((name, distribution), when) in enumerate(zip(distributions, conditions, strict=True)):
            parameter = as_parameter(f"p{i}", distribution)
            assert parameter is not None, name
            parameter = parameter if when is None else dataclasses.replace(parameter, when=when)
            parameters.append(parameter)
            if name == cost_parameter:
                cost = parameter.name
                if isinstance(parameter, Categorical):
                    raise UsageError(f"cost_parameter '{name}' is categorical; it needs a numeric range")
        return Joint(distributions, Space(parameters, cost_parameter=cost))

    def params(self, trial: FrozenTrial) -> dict[str, ParamValue] | None:
        """Returns a trial's joint params, including those it has not asked for yet; None when it lacks some.

        Those that do not exist in it are not among them.
        """
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
            if parameter.name in params
        }

    def _inward(self, values: Mapping[str, Any]) -> dict[str, ParamValue] | None:
        params: dict[str, ParamValue] = {}
        try:
            for parameter, (name, distribution) in zip(self.space.parameters, self.distributions, strict=True):
                if name in values or parameter.when is None:
                    params[parameter.name] = to_ours(distribution, values[name])
                    parameter.check(params[parameter.name])
            return self.space.only_active(params)
        except (KeyError, ValueError, SpaceError):  # one has no value, or one outside the range
            return None

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
            metrics=dict(trial.constraints),
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
            # Of equal choices, such as 1 and True, Optuna keeps the first one, whichever was suggested: they are one.
            places = [int(distribution.to_internal_repr(choice)) for choice in distribution.choices]
            return Categorical(name, tuple(dict.fromkeys(places)))
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


try:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler, TPESampler
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial
    from optuna.trial import TrialState as OptunaState

except ModuleNotFoundError as error:
    raise ImportError("ProteinSampler needs Optuna: run pip install 'protein-sweep[optuna]'") from error

ORIGIN = "protein:origin"
PREDICTED_SCORE = "protein:predicted_score"
PREDICTED_COST = "protein:predicted_cost_seconds"
SUGGEST_SECONDS = "protein:suggest_seconds"
_TURN = threading.RLock()  # threads of one study that ask at once would all see the same trials
_MAX_TRIES = 8  # at a point that no other process takes meanwhile
_PART_LENGTH = 2000  # a database column may hold no more than 2,048 characters
_MOST_TIMES = 10.0  # times the longest trial so far: what runs longer by the clock counts as having lost its process
_CLOCK_SECONDS = 0.1  # shorter trials differ by what else the machine did, and a seed would not repeat a study
_CHEAP_SHARE = 0.3  # of the cost parameter's range, for a first trial about which nothing is known


class ProteinSampler(BaseSampler):
    """Suggests what promises the most score for its cost, for studies of one objective in either direction."""

    def __init__(
        self,
        *,
        seed: int | None = None,
        cost_parameter: str | None = None,
        cost_attribute: str | None = None,
        budget_seconds: float | None = None,
    ) -> None:
        """Nothing is read or written before the first trial.

        Args:
            seed: the only source of randomness; None: a random one.
            cost_parameter: the parameter that makes a trial expensive, such as its number of steps or epochs. The
                engine then learns from intermediate values, too. None: the engine finds out what is expensive.
            cost_attribute: the user attribute in which the objective leaves a trial's cost in seconds; None: the time
                from its start to its end.
            budget_seconds: what all trials together may cost. A trial that would overrun it is not suggested, and
                `optimize` ends when nothing fits any more. None: no limit.

        Raises:
            UsageError: a budget that is not above 0, a seed that is no whole number of 0 or more.
        """
        self._seed = secrets.randbelow(2**31) if seed is None else validate.seed(seed)
        self._cost_parameter = cost_parameter
        self._cost_attribute = cost_attribute
        self._budget_seconds = validate.seconds(budget_seconds, "budget_seconds")

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Returns the joint parameters; see the head of this file."""
        _require_one_objective(study)
        known = _known(_others(study, trial))
        self._check_names(known)
        joint = optuna.search_space.intersection_search_space(known, include_pruned=True) if known else {}
        if known and known[0].state is OptunaState.FAIL:
            joint = {
                name: distribution
                for name, distribution in known[-1].distributions.items()
                if all(t.distributions.get(name) == distribution for t in known)
            }
        joint = {name: d for name, d in joint.items() if not d.single() and as_parameter("x", d) is not None}
        return {**joint, **self._conditional(known, joint)} if joint else joint

    def _conditional(
        self, known: Sequence[FrozenTrial], joint: Mapping[str, BaseDistribution]
    ) -> dict[str, BaseDistribution]:
        """Returns the parameters that only some trials have, where a rule tells which, behind what they depend on."""
        counts = Counter(name for trial in known for name in trial.distributions)
        last = {name: one for trial in known for name, one in trial.distributions.items()}
        found = {
            name: last[name]
            for name, _ in counts.most_common()
            if name not in joint
            and counts[name] < len(known)
            and all(trial.distributions.get(name, last[name]) == last[name] for trial in known)
            and not last[name].single()
            and as_parameter("x", last[name]) is not None
            and name != self._cost_parameter
        }
        while found:
            distributions = (*joint.items(), *found.items())
            conditions = conditions_of(known, distributions)[len(joint) :]
            cost = next((f"p{i}" for i, name in enumerate(joint) if name == self._cost_parameter), None)
            lacking = {
                name
                for name, when in zip(found, conditions, strict=True)
                if when is None or cost in Condition(when, "when").names
            }
            if not lacking:
                return found
            found = {name: one for name, one in found.items() if name not in lacking}
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Returns the next values of the joint parameters, and notes their origin and predictions on the trial.

        Raises:
            optuna.TrialPruned: nothing fits the budget any more, and the study has been stopped. Outside of `optimize`,
                where a study cannot be stopped, the params that should cost least are returned instead.
        """
        _require_one_objective(study)
        if not search_space:
            return {}
        began = time.monotonic()
        distributions = tuple(search_space.items())
        joint = Joint.of(
            distributions, self._cost_parameter, conditions_of(_known(_others(study, trial)), distributions)
        )
        sign = 1.0 if study.directions[0] is StudyDirection.MAXIMIZE else -1.0
        with _TURN:
            others = _others(study, trial)
            for _ in range(_MAX_TRIES):
                suggestion, spent = self._suggest(joint, others, sign, self._seed_of(trial, ""))
                before, others = others, _others(study, trial)
                if suggestion is None or not joint.taken_meanwhile(suggestion.params, before, others):
                    break
            if suggestion is None and not spent:
                # Every point was tried. Go on: there may be other parameters, and scores may be noisy.
                return {name: self.sample_independent(study, trial, name, d) for name, d in search_space.items()}
            if suggestion is None:
                if _stopped(study):
                    raise optuna.TrialPruned("nothing that is worth starting fits the rest of the budget")
                origin = "the budget is spent, cheapest params"
                suggestion = Suggestion(params=joint.cheapest(), kind=SuggestionKind.FALLBACK, origin=origin)
            values = joint.values(suggestion.params)
            internal = {name: search_space[name].to_internal_repr(value) for name, value in values.items()}
            _note(study, trial, suggestion, internal, sign, began)
        return values

    def _suggest(
        self, joint: Joint, others: Sequence[FrozenTrial], sign: float, seed: int
    ) -> tuple[Suggestion | None, bool]:
        """Returns the engine's suggestion, and whether the budget is the reason where there is none."""
        finished = [other for other in others if other.state.is_finished()]
        running = [other for other in others if other.state is OptunaState.RUNNING]
        unit = joint.steps_per_report(finished)
        history = [o for other in finished for o in joint.observations(other, sign, self._modelled_cost(other), unit)]
        start = next((params for other in others if (params := joint.fixed_params(other)) is not None), None)
        pending = [params for other in running if (params := joint.params(other)) is not None]
        # What a study calls a constraint is kept where it is at most 0.
        names = dict.fromkeys(name for other in finished for name in other.constraints)
        limits = [Limit(name, "<=", 0.0) for name in names]
        designer = ProteinDesigner(joint.space, start, seed=self._seed, settings=EngineSettings(), limits=limits)
        budget = self._budget_left(finished, running)
        suggestion = designer.suggest(history, pending, budget, seed)
        if suggestion is not None or budget.remaining_seconds is None:
            return suggestion, False
        free = designer.suggest(history, pending, Budget(), seed)
        return None, free is not None

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Returns a value of one parameter by TPE; of the cost parameter of a study's first trial, a cheap one."""
        _require_one_objective(study)
        seed = self._seed_of(trial, param_name)
        parameter = as_parameter("x", param_distribution)
        if param_name == self._cost_parameter and parameter is not None and not isinstance(parameter, Categorical):
            seen = (other for other in _trials(study) if param_name in other.distributions)
            if all(other.state is OptunaState.RUNNING for other in seen):
                x = np.random.default_rng(seed).uniform(0.0, _CHEAP_SHARE, size=1)
                return to_optunas(param_distribution, parameter.raw(float(parameter.decode(x)[0])))
        return TPESampler(seed=seed).sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: OptunaState, values: Sequence[float] | None) -> None:
        """Stops the study when the budget is spent. A study that is driven by ask and tell cannot be stopped."""
        finished = [other for other in _trials(study) if other.state.is_finished() and other.number != trial.number]
        if self._budget_left([*finished, trial], []).spent:
            _stopped(study)

    def _budget_left(self, finished: Sequence[FrozenTrial], running: Sequence[FrozenTrial]) -> Budget:
        done = [self._cost_seconds(one) for one in finished if one.state is not OptunaState.FAIL]
        most = _MOST_TIMES * max(done) if done and self._cost_attribute is None else math.inf
        failed = [self._at_most(one, most) for one in finished if one.state is OptunaState.FAIL]
        return budget_left(
            self._budget_seconds, [*done, *failed], [self._running_cost(trial, most) for trial in running]
        )

    def _running_cost(self, trial: FrozenTrial, most: float) -> RunningCost:
        # Where an attribute holds the cost, the clock may run in another unit: until it is there, nothing is known.
        by_clock = self._cost_attribute is None or self._cost_attribute in trial.user_attrs
        spent = self._at_most(trial, most) if by_clock else 0.0
        return RunningCost(predicted_seconds=trial.user_attrs.get(PREDICTED_COST), spent_seconds=spent)

    def _at_most(self, trial: FrozenTrial, most: float) -> float:
        """Returns the cost of a trial that may have lost its process: `most`, or more where it was predicted long.

        The clock of a trial whose process was killed goes on until somebody says that it has failed.
        """
        predicted = trial.user_attrs.get(PREDICTED_COST) or 0.0
        return min(self._cost_seconds(trial), max(most, _MOST_TIMES * predicted))

    def _modelled_cost(self, trial: FrozenTrial) -> float:
        """Returns the cost that the engine learns from; what is shorter than the clock can tell counts alike."""
        floor = _CLOCK_SECONDS if self._cost_attribute is None else 0.0
        return max(self._cost_seconds(trial), floor)

    def _cost_seconds(self, trial: FrozenTrial) -> float:
        if self._cost_attribute is not None:
            with contextlib.suppress(UsageError):
                noted = validate.number(trial.user_attrs.get(self._cost_attribute), self._cost_attribute)
                if math.isfinite(noted) and noted >= 0:
                    return noted
        if trial.datetime_start is None:
            return 0.0
        end = trial.datetime_complete or datetime.now()
        seconds = (end - trial.datetime_start).total_seconds() - float(trial.user_attrs.get(SUGGEST_SECONDS, 0.0))
        return max(seconds, 0.0)

    def _seed_of(self, trial: FrozenTrial, param_name: str) -> int:
        entropy = [self._seed, trial.number, zlib.crc32(param_name.encode())]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def _check_names(self, trials: Sequence[FrozenTrial]) -> None:
        """Raises `UsageError` when no complete trial has the parameter or attribute that was named to the sampler."""
        complete = [trial for trial in trials if trial.state is OptunaState.COMPLETE]
        for what, name, known in (
            ("cost_parameter", self._cost_parameter, {name for trial in complete for name in trial.distributions}),
            ("cost_attribute", self._cost_attribute, {name for trial in complete for name in trial.user_attrs}),
        ):
            if complete and name is not None and name not in known:
                given = {other for other in known if not other.startswith("protein:")}
                raise UsageError(
                    f"{what} '{name}' is in none of the study's trials{nearest(name, given) if given else ''}"
                )


def _known(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Returns the trials that show which parameters there are."""
    asked = [trial for trial in trials if trial.distributions]
    ended = [trial for trial in asked if trial.state in (OptunaState.COMPLETE, OptunaState.PRUNED)]
    return ended or [trial for trial in asked if trial.state is OptunaState.FAIL]


def conditions_of(
    known: Sequence[FrozenTrial], distributions: Sequence[tuple[str, BaseDistribution]]
) -> tuple[str | None, ...]:
    """Returns the conditions of parameters, called `p<i>` in their order, as trials show them; None: always there."""
    if all(len(trial.distributions.keys() & dict(distributions).keys()) == len(distributions) for trial in known):
        return (None,) * len(distributions)
    ordered = {f"p{i}" for i, (_, one) in enumerate(distributions) if not isinstance(one, CategoricalDistribution)}
    rows = [
        {
            f"p{i}": to_ours(one, trial.params[name])
            for i, (name, one) in enumerate(distributions)
            if name in trial.params
        }
        for trial in known
    ]
    found = rules(rows, ordered)
    return tuple(found.get(f"p{i}") for i in range(len(distributions)))


def _trials(study: Study) -> list[FrozenTrial]:
    """Returns all trials of a study. The study itself would show only one bracket of a Hyperband pruner."""
    return study._storage.get_all_trials(study._study_id, deepcopy=False)


def _others(study: Study, trial: FrozenTrial) -> list[FrozenTrial]:
    return [other for other in _trials(study) if other.number != trial.number]


def _require_one_objective(study: Study) -> None:
    if len(study.directions) > 1:
        raise ValueError(
            f"ProteinSampler optimises one objective, this study has {len(study.directions)}; give the score alone, the"
            " cost is the trial's duration or its user attribute cost_attribute"
        )


def _stopped(study: Study) -> bool:
    """Ends the running `optimize`; returns whether there was one."""
    try:
        study.stop()
    except (RuntimeError, AttributeError):  # driven by ask and tell, or one bracket of a Hyperband pruner
        return False
    return True


def _note(
    study: Study,
    trial: FrozenTrial,
    suggestion: Suggestion,
    internal: Mapping[str, float],
    sign: float,
    began: float,
) -> None:
    """Writes the joint params on the trial, for other workers, and their origin and predictions, for the user.

    `began` is when the suggestion began, on the monotonic clock: the time since then is not part of the trial's cost.
    """
    number, text = trial._trial_id, json.dumps(internal)
    for i in range(0, len(text), _PART_LENGTH):
        study._storage.set_trial_system_attr(number, f"{PLANNED}{i // _PART_LENGTH}", text[i : i + _PART_LENGTH])
    attributes: dict[str, Any] = {ORIGIN: suggestion.origin}
    for name, estimate in (
        (PREDICTED_SCORE, suggestion.predicted_score),
        (PREDICTED_COST, suggestion.predicted_cost_seconds),
    ):
        if estimate is not None:
            outward = sign if name == PREDICTED_SCORE else 1.0
            attributes[name] = outward * estimate.value
            attributes[f"{name}_interval"] = sorted([outward * estimate.low, outward * estimate.high])
    for name, value in attributes.items():
        study._storage.set_trial_user_attr(number, name, value)
    study._storage.set_trial_user_attr(number, SUGGEST_SECONDS, time.monotonic() - began)
