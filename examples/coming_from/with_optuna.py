import math

import optuna


def objective(trial):
    lr = trial.suggest_float("lr", 1e-4, 0.1, log=True)
    layers = trial.suggest_int("layers", 1, 4)
    for epoch in range(1, 5):
        loss = (math.log10(lr) + 2) ** 2 + layers / 10 + 1 / epoch
        trial.report(loss, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss


study = optuna.create_study(study_name="job", storage="sqlite:///job.db", load_if_exists=True)
study.optimize(objective, n_trials=20)
print(study.best_value, study.best_params)
