import numpy as np

from protein import Float, Integer, Space, Sweep

space = Space(
    [Float("lr", 1e-3, 1.0, scale="log"), Integer("epochs", 10, 1000, scale="log")],
    cost_parameter="epochs",
)


def train(params, report):
    draws = np.random.default_rng(report.seed)  # seed everything by it: forks share numpy's global state
    x = draws.normal(size=(500, 50))
    y = x @ draws.normal(size=50) + draws.normal(size=500)
    weights = np.zeros(50)
    for epoch in range(1, params["epochs"] + 1):
        error = x @ weights - y
        weights -= params["lr"] * x.T @ error / len(y)
        if epoch % 10 == 0:
            report(epoch, float(np.mean(error**2)))
    return float(np.mean((x @ weights - y) ** 2))


if __name__ == "__main__":
    sweep = Sweep(space, budget="2s", max_trials=30, name="several", direction="minimize")
    result = sweep.run(train, workers=2)
    print(result.best.score, dict(result.best.params))
