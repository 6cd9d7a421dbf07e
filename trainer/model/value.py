"""Value heads: one number, or a categorical distribution over returns.

Notation: `rows` of the output that a head reads, feature-major `rows x B`; v the value now, v_old then, R its target,
d the range of value clipping. What the caller weighs a sample's loss with is `scale`.

The scalar head's loss is  1 / 2 max((v - R)^2, (v_old + clip(v - v_old, -d, d) - R)^2).
The distributional head's is the cross-entropy of softmax(rows) to the target spread over its two neighbouring bins
("two-hot"), whose derivative by the rows is  softmax - two-hot. Its bins are dense near 0 and far apart at the
ends, symexp of an even grid, so that one setting serves small and large returns; the value is the mean of the bins.

Source: value clipping: Huang et al. 2022, "The 37 implementation details of PPO"; categorical values: Bellemare et al.
2017, "A distributional perspective on reinforcement learning", with two-hot targets on symexp bins: Hafner et al. 2023,
"Mastering diverse domains through world models", eq. 9 to 11.
"""

import math
from typing import Protocol

import torch


class ValueHead(Protocol):
    """`rows` of output and what they mean."""

    rows: int

    def decode(self, output: torch.Tensor) -> torch.Tensor:
        """Maps `rows x ...` to values `...`."""

    def loss(self, output: torch.Tensor, values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Returns each sample's loss, `B`."""

    def gradient_(
        self,
        output: torch.Tensor,
        values: torch.Tensor,
        targets: torch.Tensor,
        scale: torch.Tensor | float,
        out: torch.Tensor,
    ) -> None:
        """Writes `scale` (a number or `B`) times the derivative of each sample's loss by the output."""


class ScalarValue:
    """The value itself. `clip` 0: no clipping around the old value."""

    rows = 1

    def __init__(self, clip: float) -> None:
        self.clip = clip

    def decode(self, output: torch.Tensor) -> torch.Tensor:
        return output[0]

    def loss(self, output: torch.Tensor, values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        error = (output[0] - targets).square()
        if self.clip:
            near = values + (output[0] - values).clamp(-self.clip, self.clip)
            error = torch.max(error, (near - targets).square())
        return 0.5 * error

    def gradient_(
        self,
        output: torch.Tensor,
        values: torch.Tensor,
        targets: torch.Tensor,
        scale: torch.Tensor | float,
        out: torch.Tensor,
    ) -> None:
        value = output[0]
        gradient = torch.sub(value, targets, out=out[0])
        if self.clip:
            moved = value - values
            clipped = moved.clamp(-self.clip, self.clip)
            # Where the clip changes the value, it counts only if the clipped error is the larger one, and it is a
            # constant.
            gradient.mul_((clipped == moved) | (gradient.square() >= (values + clipped - targets).square()))
        gradient.mul_(scale)


class CategoricalValue:
    """A distribution over `bins` returns from -limit to limit; returns beyond count as the outermost bin."""

    def __init__(self, bins: int, limit: float) -> None:
        self.rows = bins
        half = math.log1p(limit)
        grid = torch.linspace(-half, half, bins, dtype=torch.float64)
        support = grid.sign() * grid.abs().expm1()
        self._support = support.float()

    def decode(self, output: torch.Tensor) -> torch.Tensor:
        support = self._to(output).view(-1, *[1] * (output.ndim - 1))
        # Not as a matrix product, which autocast would take in half precision.
        return (torch.softmax(output.float(), dim=0) * support).sum(dim=0)

    def loss(self, output: torch.Tensor, values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return -(self._two_hot(targets, output) * torch.log_softmax(output, dim=0)).sum(dim=0)

    def gradient_(
        self,
        output: torch.Tensor,
        values: torch.Tensor,
        targets: torch.Tensor,
        scale: torch.Tensor | float,
        out: torch.Tensor,
    ) -> None:
        torch.sub(torch.softmax(output, dim=0), self._two_hot(targets, output), out=out).mul_(scale)

    def _two_hot(self, targets: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        support = self._to(output)
        inside = targets.clamp(support[0], support[-1]).contiguous()
        above = torch.searchsorted(support, inside).clamp(1, self.rows - 1)
        low, high = support[above - 1], support[above]
        share = (inside - low) / (high - low)
        spread = torch.zeros_like(output)
        spread.scatter_(0, (above - 1).unsqueeze(0), (1 - share).unsqueeze(0))
        return spread.scatter_(0, above.unsqueeze(0), share.unsqueeze(0))

    def _to(self, output: torch.Tensor) -> torch.Tensor:
        if self._support.device != output.device:
            self._support = self._support.to(output.device)
        return self._support
