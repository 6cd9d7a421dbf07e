"""A function that is swept, and the sweep over it, for tests of sweeps over functions."""

import math
from typing import Any

from protein import Float, Integer, Report, Space, Sweep, storage

SPACE = Space([Float("lr", 1e-4, 1.0, scale="log"), Integer("epochs", 1, 20, scale="log")], cost_parameter="epochs")
START: dict[str, Any] = {"lr": 0.3, "epochs": 4}


def loss(lr: float, epochs: int) -> float:
    return (math.log10(lr) + 2.0) ** 2 / 4.0 + math.exp(-epochs / 8.0)


def train(params: dict[str, Any], report: Report) -> float:
    """Costs a second an epoch, by its own word."""
    for epoch in range(1, params["epochs"] + 1):
        if params["lr"] > 0.5:
            raise ArithmeticError("loss is\nnan")
        report(epoch, loss(params["lr"], epoch), cost_seconds=float(epoch), rate=params["lr"])
    return loss(params["lr"], params["epochs"])


def sweep(store: Any, budget: Any = 60.0, **changes: Any) -> Sweep:
    settings: dict[str, Any] = {"name": "mine", "direction": "minimize", "start": START, "quiet": True, **changes}
    return Sweep(SPACE, budget=budget, store=store, **settings)


def why_ended(store: str) -> str:
    """Returns why the last run of the sweep ended, as it is stored."""
    opened = storage.open_store(store)
    try:
        record = opened.find_sweep("mine")
        assert record is not None
        return record.ended
    finally:
        opened.close()
