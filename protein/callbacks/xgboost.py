"""A callback for XGBoost. The score is named by its data and metric, as XGBoost prints it: `test-mlogloss`."""

from collections.abc import Mapping
from typing import Any

import xgboost

from protein.callbacks import TrialCallback


class ProteinCallback(TrialCallback, xgboost.callback.TrainingCallback):
    """Reports after each round of `train`, `cv` or an estimator with an `eval_set`. Steps are rounds.

    `checkpoint` is for `xgb_model`. The models of `cv` are not kept.
    """

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> bool:
        if self._trial.runs and xgboost.collective.get_rank() == 0:
            last = {f"{data}-{name}": values[-1] for data, found in evals_log.items() for name, values in found.items()}
            means = {name: value[0] if isinstance(value, tuple) else value for name, value in last.items()}  # of `cv`
            single = isinstance(model, xgboost.Booster)
            self._trial.tell(model.num_boosted_rounds() if single else epoch + 1, means)
            self._trial.check()  # each round has the same metrics
            if self._trial.is_due():
                self._save(model)
        return False

    def after_training(self, model: Any) -> Any:
        if self._trial.runs and xgboost.collective.get_rank() == 0:
            self._save(model)
        return model

    def _save(self, model: Any) -> None:
        if isinstance(model, xgboost.Booster):
            self._trial.save(model.num_boosted_rounds(), ".ubj", model.save_model)
