"""The training score: the mean over the last finished episodes, of all processes together.

Each process keeps as many scores as the window holds, with the moment of each, and they are merged only when somebody
asks: the last ones of all are among the last ones of each. So nothing is exchanged between reports, and no process's
episodes count for more than another's.
"""

import collections
import dataclasses
import statistics
from collections.abc import Iterable

from trainer.distributed import World


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The scores in the window, oldest first, and how many episodes have finished in all."""

    scores: list[float]
    episodes: int

    @property
    def mean(self) -> float | None:
        """None before the first episode has finished."""
        return statistics.fmean(self.scores) if self.scores else None


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

    def standing(self) -> Standing:
        """Returns that of all processes, all of which must ask; only the first one is told."""
        gathered = self._world.gather((list(self._last), self._episodes))
        # A stable sort: those of one moment stay in the order of processes.
        scores = sorted((entry for of_one, _ in gathered for entry in of_one), key=lambda entry: entry[0])
        return Standing(
            scores=[score for _, score in scores[-self._window :]], episodes=sum(count for _, count in gathered)
        )
