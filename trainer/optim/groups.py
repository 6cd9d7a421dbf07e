"""Parameters that one optimiser treats alike: the same method, step size and decay."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Some of a network's parameters, and how they are trained."""

    parameters: Sequence[nn.Parameter]
    method: Literal["adamw", "muon"]
    """`muon`: all are matrices."""
    learning_rate: float
    """Largest step size."""
    weight_decay: float = 0.0
    """Per unit of the step size. Only parameters of two dimensions or more decay: biases and gains have none."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's two decays; Muon's momentum is the first one."""
    eps: float = 1e-8
    decays: torch.Tensor | None = None
    """Where the only parameter is a vector of many: 1 where an entry decays, else 0."""
    stacked: int | Sequence[int] = 1
    """Matrices of equal shape that lie above each other in each parameter, or the number for each parameter; Muon
    orthogonalises each matrix alone."""
