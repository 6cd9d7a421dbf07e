"""Loss scaling for float16, whose smallest numbers are too large for many gradients.

The loss is multiplied by a scale before it is differentiated, and the gradients are divided by it before the optimiser
uses them. Where a gradient overflows, the step is skipped and the scale is halved. After a while without overflow the
scale grows again. It does what torch's GradScaler does, with the same state, for optimisers that are not torch's own
classes. Other precisions are not scaled.

Source: Micikevicius et al. 2018, "Mixed precision training", section 3.2.
"""

import math
from collections.abc import Mapping

import torch
from torch import nn

from .optimizer import Optimizer

FIRST_SCALE = 2.0**16
GROWTH, BACKOFF = 2.0, 0.5
GROWTH_INTERVAL = 2000  # steps without overflow after which it grows
SMALLEST_SCALE = 1e-4  # where gradients overflow even at this scale, the scale is not the cause


class Scaler:
    """Takes the optimiser's steps, scaled where the precision is `fp16`."""

    def __init__(self, precision: str) -> None:
        self._enabled = precision == "fp16"
        self._scale = FIRST_SCALE
        self._good_steps = 0  # since the scale last changed

    def scale(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns the derivative of the scaled loss, given the loss's; or the scaled loss, given the loss."""
        return gradient * self._scale if self._enabled else gradient

    def step(self, optimizer: Optimizer, weights: nn.Parameter, max_norm: float) -> torch.Tensor:
        """Unscales the gradients, clips them to `max_norm` and takes the step; returns the norm before clipping.

        The norm of a skipped step is 0. `weights`: the vector of all; `max_norm` 0: gradients are not clipped.
        """
        assert weights.grad is not None
        if self._enabled:
            weights.grad.mul_(1.0 / self._scale)
        norm: torch.Tensor = torch.linalg.vector_norm(weights.grad)
        if self._enabled and not math.isfinite(norm.item()):
            self._scale, self._good_steps = self._scale * BACKOFF, 0
            return torch.zeros_like(norm)
        if max_norm:  # torch's own function takes three times as long, because it is made for lists of parameters
            weights.grad.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
        optimizer.step()
        self._good_steps += 1
        if self._good_steps == GROWTH_INTERVAL:
            self._scale, self._good_steps = self._scale * GROWTH, 0
        return norm

    @property
    def exhausted(self) -> bool:
        """Whether the scale is so small that the gradients themselves must be the cause of the overflow."""
        return self._enabled and self._scale < SMALLEST_SCALE

    def state(self) -> dict[str, torch.Tensor]:
        """Returns scale and growth; empty without scaling."""
        if not self._enabled:
            return {}
        return {
            "scale": torch.tensor(self._scale, dtype=torch.float64),
            "_growth_tracker": torch.tensor(self._good_steps),
        }

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restores a `state`; a state that was taken without scaling changes nothing."""
        if self._enabled and state:
            self._scale, self._good_steps = float(state["scale"]), int(state["_growth_tracker"])
