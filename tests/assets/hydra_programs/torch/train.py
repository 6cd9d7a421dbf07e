"""A program with torch that reports its learning curve, and goes on until it is stopped."""

import hydra
import torch
from omegaconf import DictConfig

import protein


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> float:
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    inputs = torch.randn(256, 8)
    targets = inputs @ torch.linspace(-1.0, 1.0, 8)
    weights = torch.zeros(8, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=cfg.lr)
    score = 0.0
    for epoch in range(1, cfg.epochs + 1):
        loss = ((inputs @ weights - targets) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        score = -float(loss.detach())
        protein.report(epoch, score, cost_seconds=float(epoch))  # an epoch costs a second
    return score


if __name__ == "__main__":
    main()
