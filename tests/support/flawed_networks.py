"""Networks of a user's own with a flaw each."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Flawed(nn.Module):
    """Two layers; each flaw is a change of what it returns."""

    change: Callable[..., Any] = staticmethod(lambda actions, values, *state: (actions, values, *state))

    def __init__(self, observation_shape: tuple[int, ...], action_outputs: int, value_outputs: int) -> None:
        super().__init__()
        self.action = nn.Linear(observation_shape[0], action_outputs)
        self.value = nn.Linear(observation_shape[0], value_outputs)

    def forward(self, observations: torch.Tensor, *state: torch.Tensor) -> Any:
        return type(self).change(self.action(observations), self.value(observations), *state)


def flaw(change: Callable[..., Any], **attributes: Any) -> type[Flawed]:
    return type("Flaw", (Flawed,), {"change": staticmethod(change), **attributes})
