from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from protein import Categorical, Float, Integer, Space, Sweep

images, digits = load_digits(return_X_y=True)


def train(params, report):  # gets the parameters that exist: C and kernel of an SVM, depth and features of a forest
    build = {"svm": SVC, "forest": RandomForestClassifier}[params.pop("model")]
    return cross_val_score(build(**params), images, digits, cv=3).mean()


space = Space(
    [
        Categorical("model", ["svm", "forest"]),
        Float("C", 1e-3, 1e3, scale="log", when="model == 'svm'"),
        Categorical("kernel", ["linear", "rbf"], when="model == 'svm'"),
        Float("gamma", 1e-6, 1e-1, scale="log", when="kernel == 'rbf'"),
        Integer("max_depth", 2, 32, when="model == 'forest'"),
        Float("max_features", 0.02, 1.0, when="model == 'forest'"),
    ]
)
result = Sweep(space, budget="6s", max_trials=30, name="models").run(train)
print(result.best.score, dict(result.best.params))
