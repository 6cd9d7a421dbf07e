"""The two sides of the comparison: tasks, on which configs are trained one at a time, and methods, which choose them.

A task hides its truth. `run` gives what a user would see (a noisy score, a cost, the curve so far while it runs).
`true_score` gives what the comparison counts, and no method may call it.
"""

from collections.abc import Callable
from typing import Protocol

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
