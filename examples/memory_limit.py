import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from protein import Float, Integer, Space, Sweep

x, x_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)


def train(params, report):  # ridge regression on random Fourier features
    rng, size = np.random.default_rng(report.seed), params["features"]
    weights, shift = rng.normal(scale=params["rate"], size=(64, size)), rng.uniform(0, 2 * np.pi, size)
    inside, outside = (np.cos(images / 16 @ weights + shift) for images in (x, x_test))
    solved = np.linalg.solve(inside.T @ inside + params["ridge"] * np.eye(size), inside.T @ np.eye(10)[y])
    score = np.mean((outside @ solved).argmax(axis=1) == y_test)
    report(1, score, metrics={"memory_mb": (weights.nbytes + shift.nbytes + solved.nbytes) / 1e6})
    return score


space = Space(
    [
        Integer("features", 8, 1024, scale="log"),
        Float("rate", 0.01, 10, scale="log"),
        Float("ridge", 1e-6, 10, scale="log"),
    ]
)
result = Sweep(space, max_trials=24, name="small", require=["memory_mb <= 0.02"]).run(train)
print(result.best.metrics["memory_mb"], "MB")
print(result.best.score, dict(result.best.params))
