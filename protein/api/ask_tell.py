"""The engine by itself: ask for a config, tell how it went. This needs neither our trainer nor our store.

    engine = Protein(space, seed=0, budget_seconds=3600.0)
    while (suggestion := engine.suggest()) is not None:
        score, seconds = train(suggestion.params)
        engine.observe(suggestion.params, score=score, cost_seconds=seconds)

With `can_continue` a suggestion may be to go on with an earlier trial: then `suggestion.continues` is that trial's
number, its position in `observations`.

A suggestion is a function of the arguments, of the observations so far (in their order), of the suggestions that are
not observed yet, and of the seed. So `observations` is the only state to keep: an engine that is created with the
observations of another makes the same suggestions as that one would have made.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from protein import validate
from protein.api import by_hand
from protein.api.definition import Options
from protein.direction import shown_contender, shown_estimate, stored_range, stored_score
from protein.engine.budget import RunningCost, budget_left, limit_reached, why_nothing
from protein.engine.laws import Laws, fit_laws
from protein.engine.recommend import contenders
from protein.engine.results import Contender, best
from protein.engine.sample import sampled
from protein.engine.settings import EngineSettings
from protein.errors import UsageError
from protein.space import Space
from protein.sweep.methods import make_designer
from protein.types import (
    MAX_COST_SECONDS,
    MAX_SCORE,
    Budget,
    Direction,
    Measurement,
    Observation,
    Params,
    Suggestion,
    SuggestionKind,
    TrialEnd,
    TrialState,
    is_score,
    parse_limits,
    with_open_ends,
)
from protein.validate import number, plain_params, score_of, shown
from protein.view import text


class Protein:
    """Suggests configs by ask and tell; not for use from several threads at once."""

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        budget_seconds: float | None = None,
        max_trial_seconds: float | None = None,
        max_trials: int | None = None,
        start: Params | None = None,
        direction: Literal["maximize", "minimize"] = "maximize",
        score_range: Sequence[float | None] | None = None,
        method: str = "protein",
        can_continue: bool = False,
        require: Mapping[str, str] | Sequence[str] | str | None = None,
        observations: Iterable[Observation] = (),
        warm_start: Iterable[Observation] | Iterable[Iterable[Observation]] = (),
    ) -> None:
        """Begins a search, or continues one.

        Args:
            space: what to search. Its `cost_parameter` is the parameter that makes a trial expensive. Without one, the
                engine learns what does.
            seed: the only source of randomness.
            budget_seconds: what all trials together may cost; None: no limit.
            max_trial_seconds: what one trial may cost; None: no limit.
            max_trials: how many trials there may be, failed ones included; None: no limit. Where few trials share a
                large budget, each may be more expensive.
            start: the initial config, tried first; None: the middle of every range (method "protein").
            direction: whether a higher score is better, or a lower one.
            score_range: the lowest and the highest possible score, as in (0, 1) for an accuracy, with None for an open
                end; None: not known. Predictions stay inside.
            method: "protein"; for comparison "random", or one of Optuna's samplers, as in "optuna:tpe".
            can_continue: your training keeps what a longer run needs. Then a suggestion whose `continues` is not None
                is to go on with that trial, to a larger value of the space's `cost_parameter`, at the cost of the rest.
            require: limits on what trials measure beside the score, as in ["memory_gb <= 8"] or {"memory_gb": "<= 8"}:
                tell the values with `observe(..., metrics={"memory_gb": 5.1})`.
            observations: those of an engine that this one continues.
            warm_start: finished trials of an earlier search of this or an overlapping space, to begin from; scores and
                costs may be in other units. Parameters that this space lacks are dropped. Parameters that a trial
                lacks take the value of `start`. Of several searches, a list for each, the most promising first.

        Raises:
            UsageError: a budget or a limit that is not above 0, an unknown direction or method, a warm start without a
                usable trial, a value of another kind than is asked for.
            SpaceError: `start` or an observation is not a point of the space.
        """
        self._options = options = Options(
            method=method,
            seed=seed,
            direction=validate.direction(direction),
            start=start,
            budget_seconds=validate.seconds(budget_seconds, "budget_seconds"),
            max_trial_seconds=validate.seconds(max_trial_seconds, "max_trial_seconds"),
            max_trials=max_trials,
            can_continue=can_continue,
            require=parse_limits(require, "require") or (),
        )
        options.check(space)
        self._space = space
        sources = [[self._inward(one) for one in trials] for trials in _listed_sources(warm_start)]
        self._limits = options.require or ()
        ends = validate.score_range(score_range)
        self._score_range = None if ends is None else with_open_ends(ends)
        settings = EngineSettings(score_range=stored_range(self._score_range, options.direction))
        self._designer = make_designer(
            method,
            space,
            options.start,
            seed=options.seed,
            settings=settings,
            warm_start=sources,
            limits=self._limits,
        )
        self._observations: list[Observation] = []
        self._pending: list[Suggestion] = []
        self._queued: list[Suggestion] = []
        self._ended = ""
        for observation in _listed_observations(observations, "observations"):
            self._add(observation)

    @property
    def observations(self) -> tuple[Observation, ...]:
        """The observed trials, oldest first."""
        return tuple(self._observations)

    @property
    def pending(self) -> tuple[Suggestion, ...]:
        """What has been suggested and not yet observed, oldest first. Observe a lost trial, too, as "interrupted"."""
        return tuple(self._pending)

    @property
    def ended(self) -> str:
        """Why the last `suggest` returned None; "" where it suggested something.

        This is "the budget is spent", "the limit of 50 trials is reached", "every config of the space was tried" or "no
        new config is expected to fit ...". Once pending trials are observed, there may be something to suggest again.
        """
        return self._ended

    @property
    def spent_seconds(self) -> float:
        """What the observed trials have cost, failures included."""
        return sum(observation.cost_seconds for observation in self._observations)

    def best(self, under_seconds: float = math.inf) -> Contender | None:
        """Returns the best expected config: the observed one with the best expected true score. None without a score.

        The config with the best measured score may be another one, because measured scores contain noise (see
        `protein.engine.recommend`). With limits, it is one that keeps them, as far as there is one; `keeps` is the
        probability.

        Args:
            under_seconds: the most that the config may be expected to cost.
        """
        limit = number(under_seconds, "under_seconds")
        if math.isnan(limit):
            raise UsageError("under_seconds must be a number of seconds, got nan; leave it out for the best overall")
        seen, sample = sampled(self._history(), limits=self._limits)
        chosen = best(contenders(self._space, seen, sample, limits=self._limits), limit)
        if chosen is None:
            return None
        numbers = tuple(known for i in chosen.trials if (known := seen[i].number) is not None)
        found = shown_contender(dataclasses.replace(chosen, trials=numbers), self._options.direction)
        return dataclasses.replace(found, score=text.within(found.score, self._score_range))

    def laws(self) -> Laws:
        """Returns how each parameter's best value changes with cost; `Laws.plan` gives the config to try at a cost.

        Raises:
            UsageError: the space has no cost parameter, fewer than 10 configs were trained to their end, or their costs
                are too much alike.
        """
        return fit_laws(self._space, self._history())

    def enqueue(self, configs: Params | Sequence[Params]) -> None:
        """Queues configs of your own, all of them or none: `suggest` returns them first, with the kind "by_hand".

        They are no part of `observations`, so an engine that is created with those of another does not have them.

        Args:
            configs: one config, or a list of them. What is not given is as in `start`, else in the middle.

        Raises:
            UsageError: this config was observed, suggested or queued before.
            SpaceError: an unknown name, a value out of its range, or a constraint that is broken.
        """
        start = self._options.start
        asked = [by_hand.whole(self._space, start, one) for one in by_hand.points_of(configs)]
        suggested = (*self._pending, *self._queued)
        known = [
            self._space.key(params)
            for params in (*(o.params for o in self._observations), *(s.params for s in suggested))
        ]
        for params in asked:
            if (key := self._space.key(params)) in known:
                raise UsageError(f"this config is known already: {params}; change a value")
            known.append(key)
        self._queued += [Suggestion(params=one, kind=SuggestionKind.BY_HAND, origin="by hand") for one in asked]

    def suggest(self) -> Suggestion | None:
        """Returns the next config to try, or None; `ended` is then the reason.

        Call it again before `observe` to run trials side by side. The suggestions differ, and what they are expected to
        cost is subtracted from the budget by the rule of `protein.engine.budget`: what was predicted for them, else
        `max_trial_seconds`, else the mean cost of the observed trials.
        """
        position = len(self._observations) + len(self._pending)
        remaining_trials = None
        if self._options.max_trials is not None:
            remaining_trials = self._options.max_trials - position
            if remaining_trials <= 0:
                self._ended = limit_reached(self._options.max_trials)
                return None
        history = self._history()
        if self._queued and not self._budget_left().spent:
            self._ended = ""
            self._pending.append(queued := self._queued.pop(0))
            return dataclasses.replace(queued, params=plain_params(queued.params))
        running = [pending.params for pending in self._pending]
        budget = dataclasses.replace(
            self._budget_left(),
            max_trial_seconds=self._options.max_trial_seconds,
            remaining_trials=remaining_trials,
        )
        seed = int(np.random.SeedSequence([self._options.seed, position]).generate_state(1)[0])
        suggestion = self._designer.suggest(history, running, budget, seed)
        if suggestion is None:
            self._ended = why_nothing(self._space, history, running, budget)
            return None
        self._ended = ""
        predicted = shown_estimate(suggestion.predicted_score, self._options.direction)
        self._pending.append(dataclasses.replace(suggestion, predicted_score=predicted))
        # A copy of the params: training code may pop from it, and the pending suggestion has to keep its own.
        return dataclasses.replace(suggestion, predicted_score=predicted, params=plain_params(suggestion.params))

    def should_stop(self, params: Params, curve: Sequence[tuple[int, float, float | None]]) -> str | None:
        """Returns why a running trial is not worth finishing, or None. Ask at each new point of its learning curve.

        Where there is a reason, end the trial and call `observe(params, stopped=reason, score=..., ...)`. For a trial
        that goes on with an earlier one there is none: the rule compares runs from their first step on.

        Args:
            params: the trial's config.
            curve: its points so far, each (steps, cost_seconds, score); score is None where there is none yet. Steps
                are in the unit of the space's cost parameter. Without one, all trials make equally many steps.

        Raises:
            UsageError: a number that is not finite.
            SpaceError: the params are not a point of the space.
        """
        self._space.validate(params := plain_params(params))
        points = _curve(curve, self._options.direction)
        if self._suggested_continuation(params) is not None:
            return None
        return self._designer.should_stop(self._history(), params, points, self._options.seed)

    def observe(
        self,
        params: Params,
        *,
        cost_seconds: float,
        score: float | None = None,
        curve: Sequence[tuple[int, float, float | None]] = (),
        failed: str = "",
        stopped: str = "",
        metrics: Mapping[str, float] | None = None,
        continues: int | Literal["as suggested"] | None = "as suggested",
    ) -> None:
        """Tells how a trial went; `params` need not be a suggestion.

        Args:
            params: the config, one value for each parameter of the space.
            cost_seconds: what it cost, 0 or more; of a trial that went on with an earlier one, the rest alone.
            score: its result; None only with `failed` or `stopped`.
            curve: points of its learning curve, each (steps, cost_seconds, score); score is None where there was none
                yet. Steps are in the unit of the space's cost parameter, so that the engine sees how much was to come.
            failed: why it has no result. Its cost counts all the same. The words of `protein.types.TrialEnd`, such as
                "diverged" and "out_of_memory", are kept as its end; any other text is kept as a failure. Give
                "interrupted" for a trial that ended for a reason other than its params, such as a lost worker: then
                only its cost counts.
            stopped: why it was stopped before its end, such as the reason that `should_stop` gave; `score` is then its
                last score, if it had one.
            metrics: what was measured beside the score, by name; values that are not finite are left out.
            continues: the number of the trial that it went on with; None: it was trained anew, from its first step on,
                also where the suggestion was to go on with one, whose files may be lost. Left out, it went as it was
                suggested. The seconds of its curve are its own, the steps those of the whole run.

        Raises:
            UsageError: neither or both of `score` and `failed` are given; both `failed` and `stopped` are; a number is
                not finite, or a score beyond 1e300; or `continues` is the number of no complete trial.
            SpaceError: the params are not a point of the space.
        """
        if failed and stopped:
            raise UsageError(f"a trial has either failed or was stopped, got failed={failed!r} and stopped={stopped!r}")
        if (score is None) == (not failed) and not stopped:
            raise UsageError(f"a trial has either a score or a reason why it failed, got {score!r} and {failed!r}")
        self._space.validate(params := plain_params(params))
        if score is not None and not is_score(score := score_of(score, "score")):
            raise UsageError(
                f"score must be finite and within {MAX_SCORE:g}, got {score};"
                " tell a trial that gave no number with failed='...'"
            )
        if not isinstance(metrics, Mapping | None):
            raise UsageError(f"metrics must map names to numbers, as in {{'memory_gb': 5.1}}, got {shown(metrics)}")
        measured = {str(name): number(value, f"the metric '{name}'") for name, value in (metrics or {}).items()}
        if continues == "as suggested":
            continues = self._suggested_continuation(params)
        end = _failure_of(failed) if failed else TrialEnd.STOPPED_EARLY if stopped else TrialEnd.COMPLETE
        try:
            observation = Observation(
                params=params,
                state=end.state,
                score=score,
                cost_seconds=_possible_cost(number(cost_seconds, "cost_seconds")),
                curve=_curve(curve),
                reason=str(failed or stopped),
                end=end,
                metrics={name: value for name, value in measured.items() if math.isfinite(value)},
                continues=continues,
                continued_seconds=0.0 if continues is None else self._continued(continues).run_seconds,
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
        self._add(observation)

    def _suggested_continuation(self, params: Params) -> int | None:
        """Returns the number of the trial that a pending suggestion of these params goes on with, if any."""
        key = self._space.key(params)
        return next((one.continues for one in self._pending if self._space.key(one.params) == key), None)

    def _continued(self, number: int) -> Observation:
        """Returns the complete trial of a number."""
        known = self._observations
        if type(number) is not int or not 0 <= number < len(known) or known[number].state is not TrialState.COMPLETE:
            raise UsageError(f"continues must be the number of a complete trial of {len(known)}, got {shown(number)}")
        return known[number]

    def _history(self) -> list[Observation]:
        """Returns the observations as the designer sees them: numbered, to be maximised, and which it may continue."""
        return [
            dataclasses.replace(
                self._inward(one), number=i, resumable_seconds=one.run_seconds if self._options.can_continue else None
            )
            for i, one in enumerate(self._observations)
        ]

    def _budget_left(self) -> Budget:
        predictions = [suggestion.predicted_cost_seconds for suggestion in self._pending]
        return budget_left(
            self._options.budget_seconds,
            [observation.cost_seconds for observation in self._observations],
            [
                RunningCost(
                    predicted_seconds=None if predicted is None else predicted.value,
                    max_trial_seconds=self._options.max_trial_seconds,
                )
                for predicted in predictions
            ],
        )

    def _add(self, observation: Observation) -> None:
        self._space.validate(observation.params)
        if observation.continues is not None:
            self._continued(observation.continues)
        self._observations.append(observation)
        key = self._space.key(observation.params)
        for index, pending in enumerate(self._pending):
            if self._space.key(pending.params) == key:
                del self._pending[index]
                break

    def _inward(self, observation: Observation) -> Observation:
        """Returns an observation whose score and curve are to be maximised."""
        if self._options.direction is Direction.MAXIMIZE:
            return observation
        return dataclasses.replace(
            observation,
            score=stored_score(observation.score, self._options.direction),
            curve=tuple(
                dataclasses.replace(point, score=stored_score(point.score, self._options.direction))
                for point in observation.curve
            ),
        )


def _curve(
    points: Sequence[tuple[int, float, float | None]], direction: Direction = Direction.MAXIMIZE
) -> tuple[Measurement, ...]:
    """Returns curve points as measurements whose scores are to be maximised."""
    measurements = []
    for point in validate.listed(points, "a curve must be a list of points, each (steps, cost_seconds, score)"):
        try:
            steps, seconds, score = point
        except (TypeError, ValueError) as error:
            raise UsageError(f"a point of a curve is (steps, cost_seconds, score), got {shown(point)}") from error
        if not math.isfinite(steps := number(steps, "steps of a curve")):
            raise UsageError(f"steps of a curve must be finite, got {steps}")
        if score is not None and not is_score(score := score_of(score, "score of a curve")):
            raise UsageError(
                f"score of a curve must be finite and within {MAX_SCORE:g}, got {score};"
                " give None where there is none yet"
            )
        try:
            point = Measurement(
                steps=int(steps),
                elapsed_seconds=number(seconds, "cost_seconds of a curve"),
                score=stored_score(score, direction),
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
        measurements.append(point)
    return tuple(measurements)


def _failure_of(failed: Any) -> TrialEnd:
    """Returns the end that a word names, as in "diverged" and "interrupted"; `FAILED` for any other text."""
    word = str(failed)
    end = TrialEnd(word) if word in {end.value for end in TrialEnd} else TrialEnd.FAILED
    return end if end.state is TrialState.FAILED else TrialEnd.FAILED


def _listed_sources(warm_start: Iterable[Observation] | Iterable[Iterable[Observation]]) -> list[list[Observation]]:
    """Returns the observations of each earlier search: of one, or of several."""
    several = isinstance(warm_start, list | tuple) and any(isinstance(one, list | tuple) for one in warm_start)
    found = [_listed_observations(one, "warm_start") for one in (warm_start if several else [warm_start])]  # type: ignore[arg-type]
    return [trials for trials in found if trials]


def _listed_observations(observations: Iterable[Observation], what: str) -> list[Observation]:
    """Returns the observations. Raises `UsageError` for anything else, such as a sweep's name."""
    wanted = f"{what} must be a list of observations, as in an engine's `observations`"
    for observation in (observed := validate.listed(observations, wanted)):
        if not isinstance(observation, Observation):
            raise UsageError(f"{wanted}, got {shown(observation)}")
    return observed


def _possible_cost(seconds: float) -> float:
    if math.isfinite(seconds) and seconds > MAX_COST_SECONDS:
        raise UsageError(f"cost_seconds must be at most {MAX_COST_SECONDS:g} s (31 years), got {seconds:.3g}")
    return seconds
