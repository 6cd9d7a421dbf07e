import numpy as np

from protein import Float, Integer, Space, Sweep


def train(params, report):  # your own function: takes a config, returns a score; a higher score is better
    rng, weights, curvature = np.random.default_rng(report.seed), np.ones(50), np.logspace(-2, 0, 50)
    for _ in range(params["steps"]):
        weights -= params["lr"] * (curvature * weights + rng.normal(scale=0.1, size=50))
    return -np.log10(curvature @ weights**2)


space = Space([Float("lr", 1e-3, 1, scale="log"), Integer("steps", 100, 200_000, scale="log")], cost_parameter="steps")
result = Sweep(space, budget="10s", max_trials=50, name="mine").run(train)
print(result.best.score, dict(result.best.params))
