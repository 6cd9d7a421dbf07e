"""The two sides of the comparison: tasks, on which configs are trained one at a time, and methods, which choose them.

A task hides its truth. `run` gives what a user would see (a noisy score, a cost, the curve so far while it runs).
`true_score` gives what the comparison counts, and no method may call it.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from protein.space import Space
from protein.types import Budget, Measurement, Observation, Params, TrialState

Watch = Callable[[tuple[Measurement, ...]], bool]  # the curve so far -> stop here


class Task(Protocol):
    """One problem. `start` is the initial config, which every method tries first unless the run is blind."""

    @property
    def name(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def space(self) -> Space: ...
    @property
    def start(self) -> Params: ...

    def run(self, params: Params, *, seed: int, repeat: int = 0, watch: Watch | None = None) -> Observation:
        """Returns one trial's outcome with its curve.

        Args:
            params: raises `SpaceError` when they are not valid in the space.
            seed: of the noise, the same in every run of every method that is compared on this problem.
            repeat: counts the earlier runs of the same params: another repeat has other noise and the same truth.
            watch: asked after each curve point but the last; True ends the trial there: PRUNED, with the last point's
                score and the cost spent until then.
        """
        ...

    def true_score(self, observation: Observation) -> float:
        """Returns the noiseless (or held-out) score of what was run, at the steps that it reached.

        `observation` is one that `run` returned, with a score.
        """
        ...


@runtime_checkable
class ContinuableTask(Task, Protocol):
    """A problem whose finished trials can go on to more steps."""

    def go_on(
        self,
        params: Params,
        *,
        earlier: Sequence[Observation],
        seed: int,
        repeat: int = 0,
        watch: Watch | None = None,
    ) -> Observation:
        """Returns the outcome of the rest of a run; the other arguments are those of `run`.

        Args:
            params: those of the run with a larger cost parameter.
            earlier: the trials of the run so far, oldest first, at least one, all complete.
        """
        ...


class Altered:
    """What a task that alters the runs of another one, `base`, has in common with it."""

    base: Task

    @property
    def family(self) -> str:
        return self.base.family

    @property
    def space(self) -> Space:
        return self.base.space

    @property
    def start(self) -> Params:
        return self.base.start


class Method(Protocol):
    """One optimiser in one run."""

    @property
    def budget_free(self) -> bool:
        """Whether it ignores the remaining budget, so that a longer run begins exactly as a shorter one."""
        ...

    @property
    def recommends(self) -> bool:
        """Whether it has a recommendation of its own; for the others it is the config that measured best."""
        ...

    @property
    def continues(self) -> int | None:
        """The position of the trial that the params last asked for go on with; None: they begin a new run."""
        ...

    def ask(self, history: list[Observation], budget: Budget) -> Params | None:
        """Returns the next params; None ends the run."""
        ...

    def watch(self, params: Params, curve: tuple[Measurement, ...]) -> bool:
        """Whether to stop the running trial, whose curve so far is given."""
        ...

    def tell(self, observation: Observation) -> None: ...

    def recommend(self, history: list[Observation]) -> Params | None:
        """Returns the config that it recommends; None: the one that measured best."""
        ...


class Peer:
    """What most methods have in common: they ignore budget and curves, and recommend the config that measured best."""

    budget_free = True
    recommends = False
    continues: int | None = None

    def watch(self, params: Params, curve: tuple[Measurement, ...]) -> bool:
        return False

    def tell(self, observation: Observation) -> None:
        pass

    def recommend(self, history: list[Observation]) -> Params | None:
        return None


def replay(
    params: Params,
    curve: tuple[Measurement, ...],
    *,
    score: float | None,
    cost_seconds: float,
    reason: str,
    watch: Watch | None,
) -> Observation:
    """Returns the outcome of a trial, given its whole curve; FAILED when `score` is None."""
    if watch is not None:
        for n in range(1, len(curve)):
            last = curve[n - 1]
            if last.score is not None and watch(curve[:n]):
                return Observation(
                    params=params,
                    state=TrialState.PRUNED,
                    score=last.score,
                    cost_seconds=last.elapsed_seconds,
                    curve=curve[:n],
                )
    state = TrialState.FAILED if score is None else TrialState.COMPLETE
    return Observation(params=params, state=state, score=score, cost_seconds=cost_seconds, curve=curve, reason=reason)


def rest(whole: Observation, last: Observation, watch: Watch | None) -> Observation:
    """Returns what of a whole run comes after the trial `last`, with which it has begun."""
    behind, reached = last.run_seconds, last.curve[-1].steps
    curve = tuple(
        dataclasses.replace(point, elapsed_seconds=max(point.elapsed_seconds - behind, 0.0))
        for point in whole.curve
        if point.steps > reached
    )
    cost = max(whole.cost_seconds - behind, 0.0)
    found = replay(whole.params, curve, score=whole.score, cost_seconds=cost, reason=whole.reason, watch=watch)
    return dataclasses.replace(found, continues=last.number, continued_seconds=behind)
