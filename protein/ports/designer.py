"""What the loop asks of a designer: the next trial, and whether a running one is worth finishing."""

from collections.abc import Sequence
from typing import Protocol

from protein.types import Budget, Measurement, Observation, Params, Suggestion


class Designer(Protocol):
    """Proposes trials. A pure function of its arguments: no state survives a call."""

    def suggest(
        self,
        history: Sequence[Observation],
        running: Sequence[Params],
        budget: Budget,
        seed: int,
    ) -> Suggestion | None:
        """Returns the next trial, or None when nothing worth starting fits the budget, or should not start yet.

        It is a point that was not tried before. It may be to continue a trial whose `resumable_seconds` are given.

        Args:
            history: finished trials, oldest first. The models ignore those whose `end` does not teach, and excluded
                ones; the params of excluded ones count as tried.
            running: params of trials that have not finished; the suggestion differs from them.
            budget: what the next trial may cost. What running trials are expected to cost is subtracted already.
            seed: the only source of randomness.
        """
        ...

    def should_stop(
        self,
        history: Sequence[Observation],
        params: Params,
        curve: Sequence[Measurement],
        seed: int,
    ) -> str | None:
        """Returns why a running trial is not worth finishing, or None to let it run on. Asked at each new curve point.

        Args:
            history: finished trials, oldest first; excluded ones are ignored.
            params: those of the running trial.
            curve: its points so far.
            seed: the only source of randomness; the same at every point of one trial.
        """
        ...
