"""A callback for Stable-Baselines3. The score is a name of its logger, such as `rollout/ep_rew_mean`."""

from typing import Any

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter

from protein.callbacks import TrialCallback


class ProteinCallback(TrialCallback, BaseCallback, KVWriter):
    """Reports what the logger writes, evaluations of `EvalCallback` too. Steps are those of the environments.

    `checkpoint` is for the algorithm's `load`: the model, without a replay buffer and the statistics of `VecNormalize`.
    """

    def _init_callback(self) -> None:
        if self._trial.runs and self not in self.logger.output_formats:
            self.logger.output_formats.append(self)  # nothing else sees what the algorithm records itself

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        self._trial.tell(self.model.num_timesteps, key_values)
        if self._trial.is_due():
            self._save()

    def close(self) -> None:
        """Keeps nothing open."""

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._save()
        self._trial.check()

    def _save(self) -> None:
        self._trial.save(self.model.num_timesteps, ".zip", self.model.save)
