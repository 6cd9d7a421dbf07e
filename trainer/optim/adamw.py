"""AdamW on one vector of weights, as `torch.optim.AdamW(fused=True)` computes it, without the class around it.

The class loads torch's compiler the first time that it is used: 816 modules, 70 MB and over a second of every run's
start. The function that it calls in the end does not.
"""

from typing import Any

import torch
from torch import nn
from torch.optim.adamw import adamw


class AdamW:
    """What of `torch.optim.AdamW` the trainer uses; its state is interchangeable with that of torch's."""

    def __init__(
        self, weights: nn.Parameter, *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        """`weights` is one vector on the CPU or on a CUDA device."""
        self._weights = weights
        self.param_groups: list[dict[str, Any]] = [
            {"params": [weights], "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        ]
        self._state: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Takes a step with the weights' gradient."""
        weights, (group,) = self._weights, self.param_groups
        assert weights.grad is not None
        if not self._state:
            self._state = {
                "step": torch.zeros((), device=weights.device),
                "exp_avg": torch.zeros_like(weights),
                "exp_avg_sq": torch.zeros_like(weights),
            }
        adamw(
            [weights],
            [weights.grad],
            [self._state["exp_avg"]],
            [self._state["exp_avg_sq"]],
            [],
            [self._state["step"]],
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns the state in the form of torch's."""
        groups = [{**self.param_groups[0], "params": [0]}]
        return {"state": {0: dict(self._state)} if self._state else {}, "param_groups": groups}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a `state_dict`."""
        found = state["state"].get(0, {})
        self._state = {name: value.to(self._weights.device).clone() for name, value in found.items()}
        self.param_groups[0].update({key: value for key, value in state["param_groups"][0].items() if key != "params"})
