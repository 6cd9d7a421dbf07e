"""The learning curve: the score on a fixed part of the validation text, at some places of a run.

Its time is no cost, but somebody waits for it. So apart from the quarters of a run, which are always measured, it may
take at most `SHARE` of the time of training: where a point would take more, it is left out, and the next place is
looked at. The run's end is no place of its own: the score itself is measured there.
"""

from collections.abc import Callable

from ..machine.distributed import World
from .evaluate import Evaluator, TextLoss

SHARE = 0.05
FORWARD_SHARE = 1 / 3  # of a training step's time that its forward pass takes: a guess for the first point
SURE = 4  # of the places, evenly over the run, are measured in every run


class Curve:
    """Knows when a point is due, and measures it."""

    def __init__(self, evaluator: Evaluator, *, points: int, world: World) -> None:
        """`points`: how many places there are; the last one is the run's end."""
        self._evaluator, self._points, self._world = evaluator, points, world
        self._passed = 0  # places, of `points`
        self._longest: float | None = None  # seconds of a measurement
        self.seconds = 0.0  # of all measurements, on this machine's clock
        self._first_steps = 0

    def begin(self, steps: int, done: float) -> None:
        """Begins after `steps`, where the share `done` of the run is made; the places before have been looked at."""
        self._first_steps, self._passed = steps, self._place(done)

    def due(self, steps: int, done: float, seconds: float) -> bool:
        """Whether a point is due. All processes have to ask this alike.

        Args:
            steps: that are made.
            done: the share of the run, in [0, 1].
            seconds: of training.
        """
        before, self._passed = self._passed, self._place(done)
        if self._passed == before or self._passed >= self._points:
            return False
        sure = SURE * self._passed // self._points > SURE * before // self._points
        made = max(steps - self._first_steps, 1)
        guess = FORWARD_SHARE * self._evaluator.tokens * seconds / made
        expected = guess if self._longest is None else self._longest
        # Each process has measured its own seconds, and all must decide alike.
        late = self.seconds + expected > SHARE * seconds
        return sure or not self._world.agree(late, 0.0)[0]

    def measure(self, precision: str, stop: Callable[[], bool]) -> TextLoss | None:
        """Returns the loss now; None where `stop` interrupted it. All processes have to call this."""
        found = self._evaluator.measure(precision, stop)
        if found is not None:
            self.seconds += found.seconds
            self._longest = max(self._longest or 0.0, found.seconds)
        return found

    def _place(self, done: float) -> int:
        """Returns how many places lie behind a share of the run."""
        return int(self._points * done + 1e-9)
