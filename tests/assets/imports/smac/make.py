import math
import sys
from pathlib import Path

from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    ForbiddenAndConjunction,
    ForbiddenEqualsClause,
    Integer,
)
from smac import HyperparameterOptimizationFacade, MultiFidelityFacade, Scenario


def train(config, seed=0, budget=None, instance=None):
    if config["layers"] == 3:
        raise RuntimeError("out of luck")
    loss = (
        (math.log10(config["lr"]) + 2) ** 2
        + (config["momentum"] if config["optimizer"] == "sgd" else 0)
        + 1 / (budget or 1)
    )
    return {"loss": loss, "size": float(config["layers"])} if many else loss


space = ConfigurationSpace(seed=0)
lr, layers = Float("lr", (1e-4, 1e-1), log=True, default=1e-2), Integer("layers", (1, 3))
optimizer, momentum = Categorical("optimizer", ["adam", "sgd"]), Float("momentum", (0.0, 0.9))
space.add([lr, layers, optimizer, momentum])
space.add(EqualsCondition(momentum, optimizer, "sgd"))
space.add(ForbiddenAndConjunction(ForbiddenEqualsClause(layers, 1), ForbiddenEqualsClause(optimizer, "adam")))
out = Path(sys.argv[1])
many = False
common = {"crash_cost": 100.0, "configspace": space, "n_trials": 10, "deterministic": True, "seed": 0}
HyperparameterOptimizationFacade(
    Scenario(name="plain", output_directory=out, **common), train, overwrite=True, logging_level=False
).optimize()
MultiFidelityFacade(
    Scenario(name="budgets", output_directory=out, min_budget=1, max_budget=9, **common),
    train,
    overwrite=True,
    logging_level=False,
).optimize()
many = True
HyperparameterOptimizationFacade(
    Scenario(
        name="two",
        output_directory=out,
        objectives=["loss", "size"],
        **(common | {"n_trials": 4, "crash_cost": [100.0, 100.0]}),
    ),
    train,
    overwrite=True,
    logging_level=False,
).optimize()
many = False
HyperparameterOptimizationFacade(
    Scenario(
        name="instances",
        output_directory=out,
        instances=["a", "b"],
        instance_features={"a": [0.0], "b": [1.0]},
        **(common | {"deterministic": False, "n_trials": 8}),
    ),
    lambda config, instance, seed=0: train(config, seed) + (instance == "b"),
    overwrite=True,
    logging_level=False,
).optimize()
