"""Loss scaling for float16, whose smallest numbers are too large for many gradients.

Gradients are computed of the loss times a scale, divided by it before the optimiser sees them, and the step is left out
where one overflowed; the scale then halves, and grows again after a while without. torch's own GradScaler does the
work; other precisions pass through untouched.

Source: Micikevicius et al. 2018, "Mixed precision training", section 3.2.
"""

from collections.abc import Mapping

import torch
from torch import nn

from protein.trainer.optim.optimizer import Optimizer

SMALLEST_SCALE = 1e-4  # a gradient that still overflows here is not a matter of its scale


class Scaler:
    """Takes the optimiser's steps, scaled where the precision is `fp16`."""

    def __init__(self, device: torch.device, precision: str) -> None:
        self._scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    def scale(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns the derivative of the scaled loss, given the loss's."""
        scaled: torch.Tensor = self._scaler.scale(gradient)
        return scaled

    def step(self, optimizer: Optimizer, weights: nn.Parameter, max_norm: float) -> torch.Tensor:
        """Unscales the gradients, clips them to `max_norm` and takes the step; returns the norm before clipping.

        A step that was left out counts as a norm of 0.
        """
        if not self._scaler.is_enabled():
            norm = _clip_(weights, max_norm)
            optimizer.step()
            return norm
        for part in optimizer.parts:
            self._scaler.unscale_(part)
        norm = _clip_(weights, max_norm)
        # torch leaves out the step of the optimiser whose own gradients overflowed; of two, the other must wait too.
        if len(optimizer.parts) == 1 or bool(norm.isfinite()):
            for part in optimizer.parts:
                self._scaler.step(part)
        self._scaler.update()
        return norm.nan_to_num(nan=0.0, posinf=0.0)

    @property
    def exhausted(self) -> bool:
        """Whether the scale has fallen so far that the gradients themselves must be at fault."""
        return self._scaler.is_enabled() and self._scaler.get_scale() < SMALLEST_SCALE

    def state(self) -> dict[str, torch.Tensor]:
        """Returns scale and growth; empty without scaling."""
        return {name: torch.tensor(value) for name, value in self._scaler.state_dict().items()}

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Goes on where `state` was taken; begins anew where that was without scaling."""
        if self._scaler.is_enabled() and state:
            self._scaler.load_state_dict({name: tensor.item() for name, tensor in state.items()})


def _clip_(weights: nn.Parameter, max_norm: float) -> torch.Tensor:
    """Scales the gradient down to `max_norm` and returns its norm before.

    torch's own takes three times as long: it is made for lists of parameters, and this is one.
    """
    assert weights.grad is not None
    norm: torch.Tensor = torch.linalg.vector_norm(weights.grad)
    weights.grad.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
    return norm
