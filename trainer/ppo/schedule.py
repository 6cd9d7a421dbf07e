"""Where a run is in its steps: how long each iteration is, how far along a batch lies, when the step size decays."""

from ..config import TrainConfig
from ..course.decay import decay_is_next, rate_stays


class Schedule:
    """Of a run with `agents` agents, those of all processes."""

    def __init__(self, train: TrainConfig, agents: int) -> None:
        self._train, self._agents = train, agents
        # Then a longer run would have had another bonus from its first step on.
        self._bonus_varies = train.ent_coef_final >= 0 and train.ent_coef_final != train.ent_coef

    def horizon(self, steps: int) -> int:
        """Returns the length of the iteration after `steps`. The last one may be shorter, to end at the run's steps."""
        return min(self._train.horizon, -(-(self._train.total_timesteps - steps) // self._agents))

    def horizons(self, steps: int) -> set[int]:
        """Returns the lengths of all iterations that are to come after `steps`."""
        left = max(self._train.total_timesteps - steps, 0)
        whole, rest = divmod(left, self._train.horizon * self._agents)
        full = {self._train.horizon} if whole else set()
        return full | ({-(-rest // self._agents)} if rest else set())

    def progress(self, steps: int, taken: int, *, warmed_up: bool) -> float:
        """Returns the fraction of the run in the middle of a batch of `taken` steps that begins after `steps`.

        Of the middle, so that neither a warm-up's first step nor a schedule's last one has size 0.
        """
        progress = min((steps + 0.5 * taken) / self._train.total_timesteps, 1.0)
        return max(progress, self._train.warmup_fraction) if warmed_up else progress

    def decay_is_next(self, steps: int) -> bool:
        """Whether the step size of `wsd` begins to fall in the batch after `steps`, which goes by its middle.

        So a longer run can go on from there. It is never so where it could not.
        """
        train, agents = self._train, self._agents
        next_size, full_size = self.horizon(steps) * agents, train.horizon * agents
        return not self._bonus_varies and decay_is_next(
            train, train.total_timesteps, steps, next_size=next_size, full_size=full_size
        )

    def stays(self, progress: float) -> bool:
        """Whether no schedule has changed anything until `progress`, so that a longer run can go on from there."""
        return not self._bonus_varies and rate_stays(self._train, progress)
