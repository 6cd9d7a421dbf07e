import optuna
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from protein import ProteinSampler

images, digits = load_digits(return_X_y=True)


def objective(trial):
    if trial.suggest_categorical("model", ["svm", "forest"]) == "svm":
        params = {
            "C": trial.suggest_float("C", 1e-3, 1e3, log=True),
            "kernel": trial.suggest_categorical("kernel", ["linear", "rbf"]),
        }
        if params["kernel"] == "rbf":
            params["gamma"] = trial.suggest_float("gamma", 1e-6, 1e-1, log=True)
        model = SVC(**params)
    else:
        model = RandomForestClassifier(
            max_depth=trial.suggest_int("max_depth", 2, 32),
            max_features=trial.suggest_float("max_features", 0.02, 1.0),
        )
    return cross_val_score(model, images, digits, cv=3).mean()


study = optuna.create_study(direction="maximize", sampler=ProteinSampler(seed=0, budget_seconds=6.0))
study.optimize(objective, n_trials=30)
print(study.best_value, study.best_params)
