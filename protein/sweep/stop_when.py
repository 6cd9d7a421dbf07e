"""The condition that ends a sweep early: `gain < 0.5 per hour`.

It holds when the best score is expected to rise by less than that over further training (see
`protein.engine.outlook`). It is asked after finished trials, from the stored trials alone. So a sweep that is resumed
with the same condition, where that still holds, ends before it starts a trial. Without the condition, or with a lower
gain, it goes on.
"""

import dataclasses
import math
import re
from collections.abc import Sequence

import numpy as np

from protein.engine.outlook import Outlook, outlook
from protein.errors import UsageError
from protein.space import Space
from protein.types import Observation, TrialState
from protein.units import format_duration, parse_duration

_CONDITION = re.compile(r"gain\s*<\s*(?P<gain>\S+)\s+per\s+(?P<span>\S+)", re.IGNORECASE)
_SPANS = {"second": "1s", "minute": "1m", "hour": "1h", "day": "1d"}
_FORM = "write it like 'gain < 0.5 per hour' or 'gain < 2 per 10m'"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StopWhen:
    """Ends a sweep when the best score is expected to rise by less than `gain` (score units) in `seconds`."""

    gain: float
    seconds: float
    highest: float = math.inf  # possible score, as it is stored

    def __str__(self) -> str:
        return f"gain < {self.gain:g} per {format_duration(self.seconds)}"

    @classmethod
    def parse(cls, text: object, what: str, *, method: str, highest: float = math.inf) -> "StopWhen":
        """Reads a condition such as `gain < 0.5 per hour`.

        Args:
            text: the condition; a duration may stand in place of second, minute, hour and day.
            what: the flag or keyword that it was given to, to begin an error with.
            method: of the sweep; the outlook is that of method "protein".
            highest: the highest possible score; infinite where it is not known.

        Raises:
            UsageError: it cannot be read, its gain is not above 0, or the sweep has another method.
        """
        if method != "protein":
            raise UsageError(f"{what} needs method 'protein', and the method is '{method}'; drop one of the two")
        match = _CONDITION.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise UsageError(f"{what} '{text}' is not a condition; {_FORM}")
        try:
            gain = float(match["gain"])
        except ValueError as error:
            raise UsageError(f"{what} '{text}': the gain '{match['gain']}' is not a number; {_FORM}") from error
        if not (math.isfinite(gain) and gain > 0):
            raise UsageError(f"{what} '{text}': the gain {match['gain']} must be above 0 and finite; {_FORM}")
        span = match["span"].lower()
        seconds = parse_duration(_SPANS.get(span, span), f"{what} '{text}': the time")
        return cls(gain=gain, seconds=seconds, highest=highest)

    def holds(self, found: Outlook) -> bool:
        """Whether less than `gain` is expected."""
        return found.best(self.seconds).expected < self.gain

    def reason(self, space: Space, history: Sequence[Observation]) -> str | None:
        """Returns why the sweep should end now, or None where it should go on, or too little is known.

        Args:
            space: what is searched.
            history: the finished trials; scores are to be maximised.
        """
        try:
            found = outlook(space, history, self.highest)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):  # the search goes on without models, too
            return None
        if found is None or not self.holds(found):
            return None
        scores = {one.score for one in history if one.state is TrialState.COMPLETE and not one.excluded}
        if len(scores) == 1 and self.highest not in scores:  # as of a task whose short runs earn nothing
            return None
        expected = found.best(self.seconds).expected
        return (
            f"the expected gain of {expected:.2g} per {format_duration(self.seconds)} is below {self.gain:g};"
            " resume without this condition, or with a lower gain, to go on"
        )
