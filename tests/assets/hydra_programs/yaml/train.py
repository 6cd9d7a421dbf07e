"""Plain YAML, a group of configs, and a part of the space where it fails."""

from typing import Any

import hydra
from omegaconf import DictConfig


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> Any:
    if cfg.lr > 1.0 or cfg.returns == "raise":
        raise ArithmeticError(f"the loss diverged at {cfg.lr}")
    if cfg.returns is not None:
        return cfg.returns
    return float(cfg.model.size) - abs(cfg.lr - 0.01) - abs(cfg.model.get("dropout", 0.0) - 0.2)


if __name__ == "__main__":
    main()
