import optuna
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

from protein import ProteinSampler

images, digits = load_digits(return_X_y=True)


def objective(trial):
    forest = RandomForestClassifier(
        n_estimators=trial.suggest_int("trees", 3, 1000, log=True),
        max_features=trial.suggest_float("features", 0.02, 1.0, log=True),
        min_samples_leaf=trial.suggest_int("leaf", 1, 20),
    )
    return cross_val_score(forest, images, digits, cv=3).mean()


sampler = ProteinSampler(seed=0, cost_parameter="trees", budget_seconds=6.0)
study = optuna.create_study(direction="maximize", sampler=sampler, storage="sqlite:///forest.db")
study.optimize(objective)
print(study.best_params, study.best_value, study.best_trial.user_attrs.get("protein:origin"))
