"""What a user may ask of a search: one frozen value for all who ask, `Protein`, `Sweep` and `protein sweep`."""

import dataclasses
from datetime import datetime

from protein import validate
from protein.errors import UsageError
from protein.space import Space
from protein.sweep.stop_conditions import StopWhen
from protein.types import Direction, Params


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to search and where to end. None: no limit, or none of it.

    Attributes:
        method: of the search (`protein.sweep.methods`).
        seed: the source of randomness.
        direction: whether a higher score is better, or a lower one.
        start: the initial config, tried first.
        budget_seconds: what all trials together may cost.
        max_trial_seconds: what one trial may cost.
        max_trials: how many trials there may be, failed ones included.
        max_memory_bytes: of one trial.
        early_stopping: whether the engine may end trials whose curves are worse than those of similar ones.
        can_continue: whether finished trials may go on to more steps, where the sweep's trials can.
        stop_when: no trial is started once this holds.
        until: no trial starts that is not expected to end by then.
        warm_start: the sweeps of the store to learn from, in the form of `protein.api.warm_start.asked`.
        trackers: that the trials are also written to.
        on_finish: a line for the shell, called when the sweep has ended by itself.
        on_trouble: the same, when something is wrong.

    Raises:
        UsageError: a seed or a number of trials that cannot be.
    """

    method: str = "protein"
    seed: int = 0
    direction: Direction = Direction.MAXIMIZE
    start: Params | None = None
    budget_seconds: float | None = None
    max_trial_seconds: float | None = None
    max_trials: int | None = None
    max_memory_bytes: int | None = None
    early_stopping: bool = True
    can_continue: bool = False
    stop_when: StopWhen | None = None
    until: datetime | None = None
    warm_start: str | list[str] | None = None
    trackers: tuple[str, ...] = ()
    on_finish: str | None = None
    on_trouble: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", validate.seed(self.seed))
        object.__setattr__(self, "max_trials", validate.most_trials(self.max_trials))
        object.__setattr__(self, "start", validate.plain_params(self.start))

    def check(self, space: Space) -> None:
        """Finds what does not fit the space to search.

        Raises:
            UsageError: it is no space, or has no cost parameter although trials are to be continued.
            SpaceError: `start` is not a point of it.
        """
        if not isinstance(space, Space):
            raise UsageError(f"space must be a Space, got {validate.shown(space)}; write Space([...])")
        if self.start is not None:
            space.validate(self.start)
        if self.can_continue and space.cost_parameter is None:
            raise UsageError("can_continue needs a cost_parameter in the space: the parameter that counts the steps")


def require_room_for_a_trial(budget_seconds: float | None, cap_seconds: float | None, budget: str, cap: str) -> None:
    """Raises `UsageError` where one trial may cost more than all; `budget` and `cap` say what was given."""
    if budget_seconds is not None and cap_seconds is not None and budget_seconds < cap_seconds:
        raise UsageError(f"{budget} is smaller than one trial may cost, {cap}; raise the budget or lower the cap")
