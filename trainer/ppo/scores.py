"""The training score: the mean over the last finished episodes of all processes.

Each process keeps its own last `window` scores, and when each was reached. The last scores of all processes are among
these, so they need to be merged only for a report. Processes exchange nothing between reports, and all episodes count
the same.

The window holds at least one episode for each agent, and there is no score before it is full. Of episodes that begin
together, the short ones end first. In most games a short episode is an early loss or a quick win, so an early mean
would be biased.
"""

import collections
import dataclasses
import statistics
from collections.abc import Iterable

from ..machine.distributed import World


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSummary:
    """The scores in the window, oldest first, how many it holds when full, and the number of all finished episodes."""

    scores: list[float]
    window: int
    episodes: int

    @property
    def mean(self) -> float | None:
        """None before the window is full."""
        return statistics.fmean(self.scores) if len(self.scores) >= self.window else None


class Scores:
    """The last `window` scores of this process's episodes, and their number."""

    def __init__(self, window: int, world: World) -> None:
        self._window, self._world = window, world
        self._last: collections.deque[tuple[int, float]] = collections.deque(maxlen=window)  # (moment, score)
        self._episodes = 0

    def add(self, moment: int, scores: Iterable[float], episodes: int) -> None:
        """Counts `episodes`, of which `scores` are the last; `moment`, the steps of the run then, never decreases."""
        self._last.extend((moment, score) for score in scores)
        self._episodes += episodes

    def replace(self, moment: int, scores: Iterable[float], episodes: int) -> None:
        """Takes over what a checkpoint knows, in place of all that was counted: a leg may have read its parent's."""
        self._last.clear()
        self._episodes = 0
        self.add(moment, scores, episodes)

    def summary(self) -> ScoreSummary:
        """Returns the summary of all processes on the first one. All of them must call this."""
        gathered = self._world.gather((list(self._last), self._episodes))
        # A stable sort: those of one moment stay in the order of processes.
        scores = sorted((entry for of_one, _ in gathered for entry in of_one), key=lambda entry: entry[0])
        return ScoreSummary(
            scores=[score for _, score in scores[-self._window :]],
            window=self._window,
            episodes=sum(count for _, count in gathered),
        )
