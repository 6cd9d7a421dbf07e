"""Conditional spaces: which scikit-learn pipeline, and how it is set, against TPE, whose home such spaces are.

    python benchmarks/engine/conditional.py --seeds 8             # a quarter of an hour of one core
    python benchmarks/engine/conditional.py --table               # from what was measured before: nothing is run

    pipe-digits     two levels: a support vector machine, neighbours, a forest or a linear model, for handwritten digits
    pipe-cancer     three levels: scaling, a reduction with its own parameters, and four classifiers; breast cancer
    pipe-diabetes   three levels: features, and five regressors, one of them with kernels that have parameters; diabetes
    pipe-friedman   two levels: four regressors on Friedman's first function with noise

The score is the mean over three folds that are the same for all: accuracy (digits), area under the ROC curve (cancer)
or R^2. It has no noise, so what measured best is best. Every run begins blind, and has the same number of trials.

    protein         the engine, on the conditional space
    protein-flat    the engine, told of no condition: all parameters always exist, and some change nothing
    random          uniform points of the conditional space
    tpe             Optuna's TPESampler as it is;  tpe-multi: multivariate;  tpe-group: multivariate with `group`.
                    They get the space as Optuna's users write it: `suggest_...` of what exists, in order

Figures: `best` is the highest score at the end, `area` the mean over the trials of the highest score so far. Both are
on a scale on which 0 is the median random config and 1 the best one that any method found.
"""

import argparse
import dataclasses
import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads: one process, one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import numpy as np
from numpy.typing import NDArray

from protein.engine.settings import EngineSettings
from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.sweep.methods import make_designer
from protein.types import Budget, Observation, Params, TrialState

RESULTS = machine.RESULTS / "engine_conditional.jsonl"
METHODS = ("protein", "protein-flat", "random", "tpe", "tpe-multi", "tpe-group")
NUM_TRIALS = 50
_NUM_FOLDS = 3
_NUM_RESAMPLED = 2000
Array = NDArray[Any]

_SVM: list[Parameter] = [
    Float("svm.C", 1e-3, 1e3, "log", when="model == 'svm'"),
    Categorical("svm.kernel", ("linear", "rbf", "poly", "sigmoid"), when="model == 'svm'"),
    Float("svm.gamma", 1e-5, 10.0, "log", when="svm.kernel != 'linear'"),
    Integer("svm.degree", 2, 5, when="svm.kernel == 'poly'"),
    Float("svm.coef0", 0.0, 1.0, when="svm.kernel in ['poly', 'sigmoid']"),
]
_NEIGHBOURS: list[Parameter] = [
    Integer("knn.neighbours", 1, 50, "log", when="model == 'knn'"),
    Categorical("knn.weights", ("uniform", "distance"), when="model == 'knn'"),
    Integer("knn.p", 1, 2, when="model == 'knn'"),
]
_FOREST: list[Parameter] = [
    Integer("forest.trees", 5, 40, "log", when="model == 'forest'"),
    Integer("forest.depth", 2, 20, when="model == 'forest'"),
    Float("forest.features", 0.05, 1.0, when="model == 'forest'"),
    Integer("forest.leaf", 1, 20, "log", when="model == 'forest'"),
]
_BOOSTING: list[Parameter] = [
    Integer("boost.rounds", 5, 60, "log", when="model == 'boost'"),
    Float("boost.lr", 5e-3, 1.0, "log", when="model == 'boost'"),
    Integer("boost.depth", 1, 5, when="model == 'boost'"),
    Float("boost.subsample", 0.3, 1.0, when="model == 'boost'"),
]
_LINEAR: list[Parameter] = [
    Categorical("linear.penalty", ("l2", "l1", "elasticnet"), when="model == 'linear'"),
    Float("linear.alpha", 1e-6, 1.0, "log", when="model == 'linear'"),
    Float("linear.l1_ratio", 0.05, 0.95, when="linear.penalty == 'elasticnet'"),
]
_PREPARED: list[Parameter] = [
    Categorical("scale", ("none", "standard", "minmax", "quantile")),
    Integer("scale.quantiles", 5, 100, "log", when="scale == 'quantile'"),
    Categorical("reduce", ("none", "pca", "best")),
    Integer("reduce.pca", 2, 20, when="reduce == 'pca'"),
    Categorical("reduce.whiten", (True, False), when="reduce == 'pca'"),
    Integer("reduce.best", 2, 25, when="reduce == 'best'"),
]
_EXPANDED: list[Parameter] = [
    Categorical("features", ("plain", "squares", "splines")),
    Integer("features.knots", 3, 8, when="features == 'splines'"),
]
SPACES: dict[str, Space] = {
    "pipe-digits": Space(
        [Categorical("model", ("linear", "svm", "knn", "forest")), *_LINEAR, *_SVM, *_NEIGHBOURS, *_FOREST]
    ),
    "pipe-cancer": Space(
        [*_PREPARED, Categorical("model", ("linear", "svm", "knn", "boost")), *_LINEAR, *_SVM, *_NEIGHBOURS, *_BOOSTING]
    ),
    "pipe-diabetes": Space(
        [
            *_EXPANDED,
            Categorical("model", ("linear", "svm", "knn", "forest", "boost")),
            *_LINEAR,
            *_SVM,
            *_NEIGHBOURS,
            *_FOREST,
            *_BOOSTING,
        ]
    ),
    "pipe-friedman": Space(
        [Categorical("model", ("svm", "knn", "forest", "boost")), *_SVM, *_NEIGHBOURS, *_FOREST, *_BOOSTING]
    ),
}
FAMILIES = tuple(SPACES)


def score(family: str, params: Params) -> float:
    """Returns a config's mean score over the folds; what cannot be fitted scores 0."""
    from sklearn.model_selection import KFold, cross_val_score

    x, y = _data(family)
    scoring = {"pipe-digits": "accuracy", "pipe-cancer": "roc_auc"}.get(family, "r2")
    folds = KFold(_NUM_FOLDS, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that do not converge: they are what a sweep meets
        found = cross_val_score(_pipeline(params, classifies=scoring != "r2"), x, y, scoring=scoring, cv=folds)
    mean = float(np.mean(found))
    return max(mean, 0.0) if np.isfinite(mean) else 0.0


@functools.cache
def _data(family: str) -> tuple[Array, Array]:
    from sklearn import datasets

    if family == "pipe-friedman":
        x, y = datasets.make_friedman1(300, n_features=10, noise=1.0, random_state=0)
    else:
        load: Callable[..., Any] = {
            "pipe-digits": datasets.load_digits,
            "pipe-cancer": datasets.load_breast_cancer,
            "pipe-diabetes": datasets.load_diabetes,
        }[family]
        x, y = load(return_X_y=True)
    chosen = np.random.default_rng(0).permutation(len(y))[:450]
    return np.asarray(x)[chosen], np.asarray(y)[chosen]


def _pipeline(params: Params, *, classifies: bool) -> Any:
    from sklearn import decomposition, feature_selection, pipeline, preprocessing

    p = cast(dict[str, Any], dict(params))
    steps: list[Any] = []
    if p.get("scale", "none") != "none":
        steps.append(
            {
                "standard": preprocessing.StandardScaler,
                "minmax": preprocessing.MinMaxScaler,
                "quantile": lambda: preprocessing.QuantileTransformer(n_quantiles=p["scale.quantiles"], random_state=0),
            }[p["scale"]]()
        )
    if p.get("reduce") == "pca":
        steps.append(decomposition.PCA(p["reduce.pca"], whiten=p["reduce.whiten"], random_state=0))
    if p.get("reduce") == "best":
        steps.append(feature_selection.SelectKBest(k=p["reduce.best"]))
    if p.get("features") == "squares":
        steps.append(preprocessing.PolynomialFeatures(2))
    if p.get("features") == "splines":
        steps.append(preprocessing.SplineTransformer(n_knots=p["features.knots"]))
    return pipeline.make_pipeline(*steps, _model(p, classifies))


def _model(p: dict[str, Any], classifies: bool) -> Any:
    from sklearn import ensemble, linear_model, neighbors, svm

    if p["model"] == "svm":
        given = {"C": p["svm.C"], "kernel": p["svm.kernel"], "max_iter": 2000}
        given |= {name: p[f"svm.{name}"] for name in ("gamma", "degree", "coef0") if f"svm.{name}" in p}
        return svm.SVC(**given) if classifies else svm.SVR(**given)
    if p["model"] == "knn":
        given = {"n_neighbors": p["knn.neighbours"], "weights": p["knn.weights"], "p": p["knn.p"]}
        return neighbors.KNeighborsClassifier(**given) if classifies else neighbors.KNeighborsRegressor(**given)
    if p["model"] == "linear":
        given = {"penalty": p["linear.penalty"], "alpha": p["linear.alpha"], "l1_ratio": p.get("linear.l1_ratio", 0.5)}
        build = linear_model.SGDClassifier if classifies else linear_model.SGDRegressor
        return build(**given, max_iter=30, tol=None, random_state=0)
    if p["model"] == "forest":
        given = {"n_estimators": p["forest.trees"], "max_depth": p["forest.depth"], "random_state": 0}
        given |= {"max_features": p["forest.features"], "min_samples_leaf": p["forest.leaf"]}
        return ensemble.RandomForestClassifier(**given) if classifies else ensemble.RandomForestRegressor(**given)
    given = {"n_estimators": p["boost.rounds"], "learning_rate": p["boost.lr"], "max_depth": p["boost.depth"]}
    given |= {"subsample": p["boost.subsample"], "random_state": 0}
    return ensemble.GradientBoostingClassifier(**given) if classifies else ensemble.GradientBoostingRegressor(**given)


def run(method: str, family: str, seed: int, num_trials: int) -> list[float]:
    """Returns the scores of a sweep's trials in order."""
    space = SPACES[family]
    if method.startswith("tpe"):
        return _optuna(method, family, seed, num_trials)
    searched = space
    if method == "protein-flat":
        searched = Space([dataclasses.replace(parameter, when=None) for parameter in space.parameters])
    designer = make_designer(
        "random" if method == "random" else "protein", searched, None, seed=seed, settings=EngineSettings()
    )
    history: list[Observation] = []
    for number in range(num_trials):
        suggestion_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        suggestion = designer.suggest(history, [], Budget(remaining_trials=num_trials - number), suggestion_seed)
        assert suggestion is not None
        exists = space.from_unit(space.to_unit(suggestion.params))
        params = {name: value for name, value in suggestion.params.items() if name in exists}
        found = score(family, params)
        history.append(
            Observation(
                number=number, params=suggestion.params, state=TrialState.COMPLETE, score=found, cost_seconds=1.0
            )
        )
    return [one.score for one in history if one.score is not None]


def _optuna(method: str, family: str, seed: int, num_trials: int) -> list[float]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = SPACES[family]

    def objective(trial: Any) -> float:
        x = np.full((1, space.num_dims), 0.5)
        params: dict[str, Any] = {}
        for i, p in enumerate(space.parameters):
            if not space.active(x)[0, i]:
                continue
            if isinstance(p, Categorical):
                value = trial.suggest_categorical(p.name, list(p.choices))
            elif isinstance(p, Integer):
                value = trial.suggest_int(p.name, p.low, p.high, log=p.scale == "log")
            else:
                value = trial.suggest_float(p.name, p.low, p.high, log=p.scale == "log")
            params[p.name] = value
            x[0, i] = p.encode(p.numbers([value]))[0]
        return score(family, params)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `group` and `multivariate` are experimental
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=method != "tpe", group=method == "tpe-group")
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(objective, n_trials=num_trials)
    return [trial.value for trial in study.trials if trial.value is not None]


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the means by method, the differences to TPE with 90 % intervals, and the means by family."""
    traces = {(row["method"], row["family"], row["seed"]): np.maximum.accumulate(_scaled(row, rows)) for row in rows}
    methods = [method for method in METHODS if any(row["method"] == method for row in rows)]
    families = [family for family in FAMILIES if any(row["family"] == family for row in rows)]
    figures: dict[str, Callable[[Array], float]] = {"best": lambda t: float(t[-1]), "area": lambda t: float(t.mean())}
    lines = [
        f"{'':<14}{'sweeps':>7}"
        + "".join(f"  {name:>6} {'minus random':<22}{'minus tpe-group':<22}" for name in figures)
    ]
    for method in methods:
        line = f"{method:<14}{sum(key[0] == method for key in traces):>7}"
        for figure in figures.values():
            own = {key[1:]: figure(trace) for key, trace in traces.items() if key[0] == method}
            line += f"  {np.mean([np.mean([v for k, v in own.items() if k[0] == f]) for f in families]):>6.3f} "
            for other in ("random", "tpe-group"):
                theirs = {key[1:]: figure(trace) for key, trace in traces.items() if key[0] == other}
                line += f"{'' if other == method else _difference(own, theirs, families):<22}"
        lines.append(line)
    for name, figure in figures.items():
        lines += ["", f"{name + ' by family':<18}" + "".join(f"{method:>14}" for method in methods)]
        for family in families:
            means = [
                np.mean([figure(t) for k, t in traces.items() if k[:2] == (m, family)] or [np.nan]) for m in methods
            ]
            lines.append(f"{family:<18}" + "".join(f"{mean:>14.3f}" for mean in means))
    return lines


def _scaled(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> Array:
    own = [one for one in rows if one["family"] == row["family"]]
    median = float(np.median([value for one in own if one["method"] == "random" for value in one["scores"]]))
    best = max(value for one in own for value in one["scores"])
    return np.asarray(np.maximum((np.array(row["scores"]) - median) / (best - median), 0.0))


def _difference(own: dict[Any, float], theirs: dict[Any, float], families: Sequence[str]) -> str:
    """Returns the mean difference over families, with its 90 % interval over other seeds of the same families."""
    rng = np.random.default_rng(0)
    gaps = [np.array([own[k] - theirs[k] for k in own if k in theirs and k[0] == family]) for family in families]
    gaps = [gap for gap in gaps if len(gap)]
    if not gaps:
        return ""
    drawn = []
    for gap in gaps:
        widened = gap.mean() + (gap - gap.mean()) * np.sqrt(len(gap) / max(len(gap) - 1, 1))
        drawn.append(widened[rng.integers(0, len(gap), (_NUM_RESAMPLED, len(gap)))].mean(axis=1))
    low, high = np.quantile(np.mean(drawn, axis=0), [0.05, 0.95])
    return f"{np.mean([gap.mean() for gap in gaps]):+.3f} [{low:+.3f}, {high:+.3f}]"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=NUM_TRIALS)
    parser.add_argument("--file", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="run nothing, print what is there")
    arguments = parser.parse_args(argv)
    rows = _read(arguments.file)
    if not arguments.table:
        done = {(row["method"], row["family"], row["seed"]) for row in rows}
        with arguments.file.open("a") as file:
            file.write(json.dumps({"header": machine.describe()}) + "\n")
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
                for family in arguments.families:
                    for method in arguments.methods:
                        if (method, family, seed) in done:
                            continue
                        scores = [round(value, 6) for value in run(method, family, seed, arguments.trials)]
                        row = {"method": method, "family": family, "seed": seed, "scores": scores}
                        file.write(json.dumps(row, separators=(",", ":")) + "\n")
                        file.flush()
        rows = _read(arguments.file)
    print("\n".join(table(rows)))


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if "scores" in row]


if __name__ == "__main__":
    main()
