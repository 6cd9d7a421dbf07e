"""Loss scaling for float16, whose smallest numbers are too large for many gradients.

The loss is multiplied by a scale before it is differentiated, and the gradients are divided by it before the optimiser
uses them. Where a gradient overflows, the step is skipped and the scale is halved. After a while without overflow the
scale grows again. torch's GradScaler does the work. Other precisions are not scaled.

Source: Micikevicius et al. 2018, "Mixed precision training", section 3.2.
"""

from collections.abc import Mapping

import torch
from torch import nn

from .optimizer import Optimizer

SMALLEST_SCALE = 1e-4  # where gradients overflow even at this scale, the scale is not the cause


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

        The norm of a skipped step is 0.
        """
        if not self._scaler.is_enabled():
            norm = _clip_(weights, max_norm)
            optimizer.step()
            return norm
        parts = [part for part in optimizer.parts if isinstance(part, torch.optim.Optimizer)]
        assert len(parts) == len(optimizer.parts), "in float16 all parts are torch's own classes"
        for part in parts:
            self._scaler.unscale_(part)
        norm = _clip_(weights, max_norm)
        # torch skips the step of an optimiser whose own gradients overflowed. Of two, the other must skip it too.
        if len(parts) == 1 or bool(norm.isfinite()):
            for part in parts:
                self._scaler.step(part)
        self._scaler.update()
        return norm.nan_to_num(nan=0.0, posinf=0.0)

    @property
    def exhausted(self) -> bool:
        """Whether the scale is so small that the gradients themselves must be the cause of the overflow."""
        return self._scaler.is_enabled() and self._scaler.get_scale() < SMALLEST_SCALE

    def state(self) -> dict[str, torch.Tensor]:
        """Returns scale and growth; empty without scaling."""
        return {name: torch.tensor(value) for name, value in self._scaler.state_dict().items()}

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restores a `state`; a state that was taken without scaling changes nothing."""
        if self._scaler.is_enabled() and state:
            self._scaler.load_state_dict({name: tensor.item() for name, tensor in state.items()})


def _clip_(weights: nn.Parameter, max_norm: float) -> torch.Tensor:
    """Scales the gradient down to `max_norm` and returns its norm before.

    torch's own function takes three times as long, because it is made for lists of parameters.
    """
    assert weights.grad is not None
    norm: torch.Tensor = torch.linalg.vector_norm(weights.grad)
    weights.grad.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
    return norm
