"""A callback for the Trainer of Hugging Face. The score is a name in what it logs, such as `eval_loss`."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from protein.callbacks import CountingCallback


class ProteinCallback(CountingCallback, TrainerCallback):
    """Reports what the Trainer logs. The Trainer saves as its arguments say, but into the trial's folder."""

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint of an earlier part of the trial, for `resume_from_checkpoint`; None: it begins anew."""
        found = [] if self._trial.behind is None else self._trial.behind.glob("checkpoint-*/trainer_state.json")
        whole = [path.parent for path in found]  # the Trainer writes that file last
        return max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._trial.folder is not None:
            args.output_dir = str(self._trial.folder)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if self._trial.runs:
            steps = int(state.epoch or 0) if self._counts_epochs else state.global_step
            self._trial.tell(steps, logs or {}, is_reporter=state.is_world_process_zero)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trial.check()
