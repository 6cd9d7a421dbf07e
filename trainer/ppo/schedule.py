"""How long each iteration of PPO is, and before which one the step size begins to decay."""

from ..config import TrainConfig
from ..course.decay import decay_is_next


class Schedule:
    """Of a run with `agents` agents, those of all processes.

    Attributes:
        bonus_varies: whether the weight of the entropy bonus changes during the run. Then a longer run cannot go on
            from it, because it would have had another bonus from its first step on.
    """

    def __init__(self, train: TrainConfig, agents: int) -> None:
        self._train, self._agents = train, agents
        self.bonus_varies = train.ent_coef_final >= 0 and train.ent_coef_final != train.ent_coef

    def horizon(self, steps: int) -> int:
        """Returns the length of the iteration after `steps`. The last one may be shorter, to end at the run's steps."""
        return min(self._train.horizon, -(-(self._train.total_timesteps - steps) // self._agents))

    def horizons(self, steps: int) -> set[int]:
        """Returns the lengths of all iterations that are to come after `steps`."""
        left = max(self._train.total_timesteps - steps, 0)
        whole, rest = divmod(left, self._train.horizon * self._agents)
        full = {self._train.horizon} if whole else set()
        return full | ({-(-rest // self._agents)} if rest else set())

    def decay_is_next(self, steps: int) -> bool:
        """Whether the step size of `wsd` begins to fall in the batch after `steps`, which goes by its middle.

        So a longer run can go on from there. It is never so where it could not.
        """
        train, agents = self._train, self._agents
        next_size, full_size = self.horizon(steps) * agents, train.horizon * agents
        return not self.bonus_varies and decay_is_next(
            train, train.total_timesteps, steps, next_size=next_size, full_size=full_size
        )
