"""A callback for LightGBM. The score is named as LightGBM prints it: `valid_0's multi_logloss`."""

import lightgbm

from protein.callbacks import TrialCallback


class ProteinCallback(TrialCallback):
    """Reports after each round of `train`, `cv` or an estimator with an `eval_set`. Steps are rounds.

    `checkpoint` is for `init_model`. The models of `cv` are not kept.
    """

    order = 15  # after the metrics are recorded, before LightGBM's own early stopping ends the loop

    def __call__(self, env: lightgbm.callback.CallbackEnv) -> None:
        """Takes the state of the training after a round."""
        if not self._trial.runs:
            return
        steps = env.iteration + 1
        self._trial.tell(steps, {f"{found[0]}'s {found[1]}": found[2] for found in env.evaluation_result_list or ()})
        self._trial.check()  # each round has the same metrics
        if isinstance(env.model, lightgbm.Booster) and (self._trial.is_due() or steps == env.end_iteration):
            self._trial.save(steps, ".txt", env.model.save_model)
