"""A callback for Keras, with any of its backends. The score is a name of the `logs`, such as `val_loss`."""

from collections.abc import Mapping
from typing import Any

import keras

from protein.callbacks import TrialCallback


class ProteinCallback(TrialCallback, keras.callbacks.Callback):
    """Reports after each epoch. Steps are epochs. A trial that goes on is restored as by Keras' `BackupAndRestore`.

    Make one for each call of `fit`. Of one that is used again, only the first call is kept and restored.
    """

    _num_fits = _num_epochs = 0

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._num_fits += 1
        if self._num_fits == 1 and self.checkpoint is not None:
            self.model.optimizer.build(self.model.trainable_variables)  # so that its state is loaded, too
            self.model.load_weights(str(self.checkpoint))
            self.model._initial_epoch = self._trial.steps_behind

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._num_epochs = epoch + 1
        self._trial.tell(self._num_epochs, logs or {})
        if self._trial.is_due():
            self._save()

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        if self._num_epochs:
            self._save()
        if self.checkpoint is not None:
            self.model._initial_epoch = None  # of the next call
        self._trial.check()

    def _save(self) -> None:
        if self._num_fits == 1:
            self._trial.save(self._num_epochs, ".weights.h5", self.model.save_weights)
