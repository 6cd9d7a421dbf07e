"""A tracker for accelerate. The score is a name in what the program gives to `accelerator.log`."""

from collections.abc import Mapping
from typing import Any

from accelerate import Accelerator
from accelerate.tracking import GeneralTracker

from protein.callbacks import TrialCallback


class ProteinTracker(TrialCallback, GeneralTracker):
    """Reports what is logged, where it is in `Accelerator(log_with=...)`. Steps are those of `accelerator.log`.

    `checkpoint` is for `accelerator.load_state`.
    """

    name = "protein"
    requires_logging_directory = False
    _num_logs = 0

    @property
    def tracker(self) -> None:
        """Nothing: the trial is the run."""

    @property
    def steps_behind(self) -> int:
        """The steps of `checkpoint`."""
        return self._trial.steps_behind

    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Reports the values. Without a step the calls are counted."""
        self._num_logs += 1
        if self._trial.runs:
            self._trial.tell(self._trial.steps_behind + self._num_logs if step is None else step, values)

    def save(self, accelerator: Accelerator, steps: int) -> None:
        """Keeps the training's state after `steps` steps. Where several processes train together, each must call it."""

        def write(path: str) -> None:
            accelerator.save_state(path)
            accelerator.wait_for_everyone()  # each process writes a file of its own, and does not wait itself

        self._trial.save(steps, "", write, is_writer=accelerator.is_main_process)

    def finish(self) -> None:
        """Raises `UsageError` if the score never came."""
        self._trial.check()
