"""Structured configs with nested groups, a group in a package of another name, and a loss that is returned."""

from dataclasses import dataclass, field
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING


@dataclass
class Optimizer:
    lr: float = 0.1


@dataclass
class Momentum(Optimizer):
    momentum: float = 0.9
    nesterov: bool = False


@dataclass
class Data:
    batch_size: int = 32
    layers: list[int] = field(default_factory=lambda: [8, 8])


DEFAULTS: list[Any] = [{"train/optimizer@train.optim": "adam"}, {"data": "base"}, "_self_"]


@dataclass
class Config:
    defaults: list[Any] = field(default_factory=lambda: [*DEFAULTS])
    train: dict[str, Any] = field(default_factory=dict)
    data: Data = MISSING


store = ConfigStore.instance()
store.store(name="config", node=Config)
store.store(group="train/optimizer", name="adam", node=Optimizer)
store.store(group="train/optimizer", name="sgd", node=Momentum)
store.store(group="data", name="base", node=Data)


@hydra.main(version_base=None, config_name="config")
def main(cfg: Config) -> float:
    optimizer: Any = cfg.train["optim"]
    loss = abs(optimizer.lr - 0.03) + abs(cfg.data.batch_size - 64) / 64 + 0.1 * len(cfg.data.layers)
    return float(loss + (abs(optimizer.momentum - 0.8) if "momentum" in optimizer else 0.2))


if __name__ == "__main__":
    main()
