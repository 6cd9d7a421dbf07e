"""How a sweep is run here and now."""

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from protein.run.devices import Slots
from protein.run.job import CAP_FRACTION
from protein.sweep.stop_when import StopWhen


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """How a sweep is run here and now; none of it defines the sweep, so all may change when it is resumed."""

    directory: Path  # artifacts: one folder a trial
    workers: int = 1
    slots: Slots | None = None  # the places where trials run; None: one for each worker, without cores of its own
    max_cost_seconds: float | None = None  # stored as the sweep's budget once the loop has taken the sweep over
    max_trial_seconds: float | None = None  # the cap on one trial's cost; None becomes a quarter of the budget
    max_trials: int | None = None  # of the whole sweep, failed ones included
    max_memory_bytes: int | None = None
    speed: float | None = 1.0  # of this machine (`protein.run.speed`); None: trials run elsewhere
    can_continue: bool = False  # finished trials may go on to more steps, where they left something to go on from
    stop_when: StopWhen | None = None  # no trial is started once this holds; those that run may finish
    until: datetime | None = None  # no trial starts that is not expected to end by then; those that run wait then
    on_finish: str | None = None  # a line for the shell (`protein.sweep.hooks`), called when it has ended by itself
    on_trouble: str | None = None  # the same, when something is wrong
    store: str = ""  # as messages name it, without a password
    watched: Sequence[Path] = ()  # where there must be room on the disk, beside `directory`

    def __post_init__(self) -> None:
        if self.max_trial_seconds is None and self.max_cost_seconds is not None:
            object.__setattr__(self, "max_trial_seconds", CAP_FRACTION * self.max_cost_seconds)
