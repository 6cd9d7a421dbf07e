"""A Hydra program as it is, with one line more: it reports its learning curve. `python train.py --multirun`"""

import random

import hydra
from omegaconf import DictConfig

import protein


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> float:
    """Fits a polynomial by stochastic gradient descent, and returns its mean squared error."""
    chance = random.Random(0)
    points = [(x, x**2 - 0.5 * x + chance.gauss(0.0, 0.05)) for x in (chance.uniform(-1.0, 1.0) for _ in range(64))]
    weights = [0.0] * (cfg.model.degree + 1)
    loss = float("inf")
    for epoch in range(1, cfg.epochs + 1):
        for x, y in points:
            error = sum(weight * x**power for power, weight in enumerate(weights)) - y
            for power in range(len(weights)):
                weights[power] -= cfg.lr * (error * x**power + cfg.decay * weights[power])
        loss = sum((sum(w * x**p for p, w in enumerate(weights)) - y) ** 2 for x, y in points) / len(points)
        protein.report(epoch, loss)
    return loss


if __name__ == "__main__":
    main()
