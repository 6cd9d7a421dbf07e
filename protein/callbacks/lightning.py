"""A callback for Lightning. The score is a name that the module logs, such as `val_loss`."""

import signal
from typing import Any

try:
    from lightning import pytorch
except ImportError:
    import pytorch_lightning as pytorch  # the same under its older name

from protein.callbacks import CountingCallback
from protein.errors import UsageError


class ProteinCallback(CountingCallback, pytorch.Callback):
    """Reports the score when it was logged anew: after a validation, or at the end of a training epoch.

    `checkpoint` is for `ckpt_path`.
    """

    _last: Any = None  # the score's tensor, as it was reported last
    _steps = 0

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self._trial.is_function and trainer.world_size > 1:
            processes = f"one process, not in {trainer.world_size}"
            raise UsageError(f"a function's trial trains in {processes}; run the program by protein sweep --command")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._trial.runs and trainer.world_size > 1:
            # The sweep sends SIGTERM to all processes. In Lightning's handlers they would wait for each other.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            is_epoch_end = trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
            self._take(trainer, num_epochs=trainer.current_epoch + is_epoch_end)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._take(trainer, num_epochs=trainer.current_epoch + 1)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self._last is not None:
            self._save(trainer)
        self._trial.check()

    def _take(self, trainer: Any, num_epochs: int) -> None:
        metrics = dict(trainer.callback_metrics) if self._trial.runs else {}
        score, last = metrics.get(self._trial.monitor), self._last
        if not metrics or (score is not None and last is not None and score.data_ptr() == last.data_ptr()):
            return  # it is that of an earlier validation
        self._last = score
        self._steps = num_epochs if self._counts_epochs else trainer.global_step
        self._trial.tell(self._steps, metrics, is_reporter=trainer.is_global_zero)
        if trainer.strategy.broadcast(self._trial.is_due()):  # all processes save together
            self._save(trainer)

    def _save(self, trainer: Any) -> None:
        self._trial.save(self._steps, ".ckpt", trainer.save_checkpoint, is_writer=trainer.is_global_zero)
