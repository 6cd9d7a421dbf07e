"""The engine for everyone else: ask for a config, tell how it went. No trainer and no store of ours is needed.

    engine = Protein(space, seed=0, budget_seconds=3600.0)
    while (suggestion := engine.suggest()) is not None:
        score, seconds = train(suggestion.params)
        engine.observe(suggestion.params, score=score, cost_seconds=seconds)

A suggestion is a function of the arguments, the observations so far (in their order), the suggestions that are not
observed yet, and the seed. So an engine that is given the observations of another goes on as that one would have: keep
`observations`, and no other state, to resume.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from protein import validate
from protein.direction import shown_contender, shown_estimate, stored_score
from protein.engine.left import limit_reached, why_nothing
from protein.engine.recommend import Contender, best, contenders
from protein.errors import UsageError
from protein.space import Space
from protein.sweep.methods import make_designer
from protein.types import Direction, Measurement, Observation, Params, Suggestion, TrialState
from protein.validate import number, plain_params, shown


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
        method: str = "protein",
        observations: Iterable[Observation] = (),
        prior: Iterable[Observation] = (),
    ) -> None:
        """Begins a search, or goes on with one.

        Args:
            space: what to search. Its `cost_parameter` says what makes a trial dear; without it the engine finds out.
            seed: the only source of randomness.
            budget_seconds: what all trials together may cost; None: no limit.
            max_trial_seconds: what one trial may cost; None: no limit.
            max_trials: how many trials there may be, failed ones included; None: no limit. Where few share a large
                budget, each may be dearer.
            start: the config that you have, tried first; None: none.
            direction: whether a higher score is better, or a lower one.
            method: "protein"; for comparison "random", or one of Optuna's samplers, as in "optuna:tpe".
            observations: those of an engine that this one continues.
            prior: finished trials of a former search of this or an overlapping space, to begin from; scores and costs
                may be in other units. Parameters that this space lacks are dropped, those that a trial lacks take
                the value of `start`.

        Raises:
            UsageError: a budget or a limit that is not above 0, an unknown direction or method, a prior of no use, a
                value of another kind than is asked for.
            SpaceError: `start` or an observation is not a point of the space.
        """
        if not isinstance(space, Space):
            raise UsageError(f"space must be a Space, got {shown(space)}; write Space([...])")
        if start is not None:
            space.validate(start := plain_params(start))
        self._space = space
        self._seed = validate.seed(seed)
        self._budget_seconds = validate.seconds(budget_seconds, "budget_seconds")
        self._max_trial_seconds = validate.seconds(max_trial_seconds, "max_trial_seconds")
        self._max_trials = validate.most_trials(max_trials)
        self._direction = validate.direction(direction)
        self._designer = make_designer(
            method, space, start, seed=self._seed, prior=[self._inward(o) for o in _told(prior, "prior")]
        )
        self._observations: list[Observation] = []
        self._pending: list[Suggestion] = []
        self._ended = ""
        for observation in _told(observations, "observations"):
            self._add(observation)

    @property
    def observations(self) -> tuple[Observation, ...]:
        """What has been told, oldest first."""
        return tuple(self._observations)

    @property
    def pending(self) -> tuple[Suggestion, ...]:
        """What has been suggested and not yet observed, oldest first. A lost one must be observed, too."""
        return tuple(self._pending)

    @property
    def ended(self) -> str:
        """Why the last `suggest` returned None; "" where it suggested something.

        It is "the budget is spent", "the limit of 50 trials is reached", "every config of the space was tried" or "no
        new config is expected to fit ...". More may fit once what is pending is observed.
        """
        return self._ended

    @property
    def spent_seconds(self) -> float:
        """What the observed trials have cost, failures included."""
        return sum(observation.cost_seconds for observation in self._observations)

    def best(self, under_seconds: float = math.inf) -> Contender | None:
        """Returns the observed config whose true score is expected to be best, or None before one has a score.

        That need not be the one of the best observed score, which noise may have flattered (see
        `protein.engine.recommend`).

        Args:
            under_seconds: the most that the config may be expected to cost.
        """
        limit = number(under_seconds, "under_seconds")
        if math.isnan(limit):
            raise UsageError("under_seconds must be a number of seconds, got nan; leave it out for the best at all")
        chosen = best(contenders(self._space, [self._inward(o) for o in self._observations]), limit)
        return None if chosen is None else shown_contender(chosen, self._direction)

    def suggest(self) -> Suggestion | None:
        """Returns the next config to try, or None when nothing worth starting fits the budget any more, no more trials
        are allowed, or every config of a small space was tried: `ended` says which.

        Call it again before `observe` to run trials side by side: the suggestions differ, and what they are expected
        to cost is set aside: for those without a prediction, what trials have cost so far on average.
        """
        position = len(self._observations) + len(self._pending)
        remaining_trials = None
        if self._max_trials is not None:
            remaining_trials = self._max_trials - position
            if remaining_trials <= 0:
                self._ended = limit_reached(self._max_trials)
                return None
        history = [dataclasses.replace(self._inward(one), number=i) for i, one in enumerate(self._observations)]
        running = [pending.params for pending in self._pending]
        remaining = self._remaining_seconds()
        suggestion = self._designer.suggest(
            history,
            running,
            remaining_seconds=remaining,
            max_trial_seconds=self._max_trial_seconds,
            seed=int(np.random.SeedSequence([self._seed, position]).generate_state(1)[0]),
            remaining_trials=remaining_trials,
        )
        if suggestion is None:
            self._ended = why_nothing(
                self._space,
                history,
                running,
                remaining_seconds=remaining,
                max_trial_seconds=self._max_trial_seconds,
            )
            return None
        self._ended = ""
        predicted = shown_estimate(suggestion.predicted_score, self._direction)
        self._pending.append(dataclasses.replace(suggestion, predicted_score=predicted))
        # Params of its own: training code pops from them, and what is pending must not lose what it is.
        return dataclasses.replace(suggestion, predicted_score=predicted, params=dict(suggestion.params))

    def should_stop(self, params: Params, curve: Sequence[tuple[int, float, float | None]]) -> str | None:
        """Returns why a running trial is not worth finishing, or None: ask at each new point of its learning curve.

        End the trial on a reason, and tell it with `observe(params, stopped=reason, score=..., cost_seconds=..., ...)`.

        Args:
            params: the trial's config.
            curve: its points so far, each (steps, cost_seconds, score), a score of None where there is none yet; steps
                in the unit of the space's cost parameter. Without one, all trials make equally many.

        Raises:
            UsageError: a number that is not finite.
            SpaceError: the params are not a point of the space.
        """
        self._space.validate(params := plain_params(params))
        points = _curve(curve, self._direction)
        return self._designer.should_stop(
            [self._inward(observation) for observation in self._observations],
            [pending.params for pending in self._pending if dict(pending.params) != dict(params)],
            params,
            points,
            remaining_seconds=self._remaining_seconds(),
            seed=self._seed,
        )

    def observe(
        self,
        params: Params,
        *,
        cost_seconds: float,
        score: float | None = None,
        curve: Sequence[tuple[int, float, float | None]] = (),
        failed: str = "",
        stopped: str = "",
    ) -> None:
        """Tells how a trial went; `params` need not be a suggestion.

        Args:
            params: the config, one value for each parameter of the space.
            cost_seconds: what it cost, 0 or more.
            score: its result; None only with `failed` or `stopped`.
            curve: points on the way there, each (steps, cost_seconds, score), a score of None where there was none yet;
                steps in the unit of the space's cost parameter, so that the engine sees how much was to come.
            failed: why it has no result, such as "diverged"; its cost counts all the same. "interrupted" is a trial
                that was cut off for nothing that its params did, such as a lost worker: nothing else is learnt from it.
            stopped: why it was ended before its end, such as what `should_stop` said; `score` is then the last one that
                it had, if it had one.

        Raises:
            UsageError: neither or both of `score` and `failed`, both of `failed` and `stopped`, or a number that is not
                finite.
            SpaceError: the params are not a point of the space.
        """
        if failed and stopped:
            raise UsageError(f"a trial has either failed or was stopped, got failed={failed!r} and stopped={stopped!r}")
        if (score is None) == (not failed) and not stopped:
            raise UsageError(f"a trial has either a score or a reason why it failed, got {score!r} and {failed!r}")
        self._space.validate(params := plain_params(params))
        if score is not None and not math.isfinite(score := number(score, "score")):
            raise UsageError(f"score must be finite, got {score}; tell a trial that gave no number with failed='...'")
        state = TrialState.FAILED if failed else TrialState.PRUNED if stopped else TrialState.COMPLETE
        try:
            observation = Observation(
                params=params,
                state=state,
                score=score,
                cost_seconds=number(cost_seconds, "cost_seconds"),
                curve=_curve(curve),
                reason=str(failed or stopped),
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
        self._add(observation)

    def _remaining_seconds(self) -> float | None:
        if self._budget_seconds is None:
            return None
        average = self.spent_seconds / max(len(self._observations), 1)
        expected = sum(s.predicted_cost_seconds.value if s.predicted_cost_seconds else average for s in self._pending)
        return self._budget_seconds - self.spent_seconds - expected

    def _add(self, observation: Observation) -> None:
        self._space.validate(observation.params)
        self._observations.append(observation)
        for index, pending in enumerate(self._pending):
            if dict(pending.params) == dict(observation.params):
                del self._pending[index]
                break

    def _inward(self, observation: Observation) -> Observation:
        """Returns an observation whose score and curve are to be maximised."""
        if self._direction is Direction.MAXIMIZE:
            return observation
        return dataclasses.replace(
            observation,
            score=stored_score(observation.score, self._direction),
            curve=tuple(
                dataclasses.replace(point, score=stored_score(point.score, self._direction))
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
        if score is not None and not math.isfinite(score := stored_score(number(score, "score of a curve"), direction)):
            raise UsageError(f"score of a curve must be finite, got {score}; give None where there is none yet")
        try:
            point = Measurement(
                steps=int(steps), elapsed_seconds=number(seconds, "cost_seconds of a curve"), score=score
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
        measurements.append(point)
    return tuple(measurements)


def _told(observations: Iterable[Observation], what: str) -> list[Observation]:
    """Returns the observations; something else, such as a sweep's name, is an error."""
    wanted = f"{what} must be a list of observations, as in an engine's `observations`"
    for observation in (observed := validate.listed(observations, wanted)):
        if not isinstance(observation, Observation):
            raise UsageError(f"{wanted}, got {shown(observation)}")
    return observed
