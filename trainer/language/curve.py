"""The learning curve: the score on a fixed part of the validation text, at some places of a run.

Its time is no cost, but somebody waits for it. So it may take at most `SHARE` of the time of training: where a point
would take more, it is left out, and the next place is looked at.
"""

from collections.abc import Callable

from ..machine.distributed import World
from .evaluate import Evaluator, TextLoss

SHARE = 0.05
FORWARD_SHARE = 1 / 3  # of a training step's time that its forward pass takes: a guess for the first point


class Curve:
    """Knows when a point is due, and measures it."""

    def __init__(self, evaluator: Evaluator, *, points: int, total_steps: int, world: World) -> None:
        """`points`: how many places there are; the last one is the run's end."""
        self._evaluator, self._points, self._total, self._world = evaluator, points, total_steps, world
        self._next = 1  # the place that comes next, of `points`
        self._longest: float | None = None  # seconds of a measurement
        self.seconds = 0.0  # of all measurements, on this machine's clock
        self._first_steps = 0

    def begin(self, steps: int) -> None:
        """Begins after `steps`; the places before have been looked at."""
        self._first_steps = steps
        self._next = self._points * steps // self._total + 1

    def due(self, steps: int, seconds: float) -> bool:
        """Whether a point is due after `steps` and `seconds` of training. All processes have to ask this alike."""
        if not self._points or steps * self._points < self._next * self._total:
            return False
        self._next = self._points * steps // self._total + 1
        made = max(steps - self._first_steps, 1)
        guess = FORWARD_SHARE * self._evaluator.tokens * seconds / made
        expected = guess if self._longest is None else self._longest
        # Each process has measured its own seconds, and all must decide alike.
        late = self.seconds + expected > SHARE * seconds
        return not self._world.agree(late, 0.0)[0]

    def measure(self, precision: str, stop: Callable[[], bool]) -> TextLoss | None:
        """Returns the loss now; None where `stop` interrupted it. All processes have to call this."""
        found = self._evaluator.measure(precision, stop)
        if found is not None:
            self.seconds += found.seconds
            self._longest = max(self._longest or 0.0, found.seconds)
        return found
