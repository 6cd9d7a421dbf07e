"""Value heads: one number, or a categorical distribution over returns.

Notation: `rows` of the output that a head reads, feature-major `rows x B`. Their losses are in
`protein.trainer.ppo.loss`.

The bins of a distributional head are dense near 0 and far apart at the ends, symexp of an even grid, so that one
setting serves small and large returns. The value is the mean of the bins.

Source: categorical values: Bellemare et al. 2017, "A distributional perspective on reinforcement learning"; two-hot
targets on symexp bins: Hafner et al. 2023, "Mastering diverse domains through world models", eq. 9 to 11.
"""

import math
from typing import Protocol

import torch


class ValueHead(Protocol):
    """`rows` of output and what they mean."""

    rows: int

    def decode(self, output: torch.Tensor) -> torch.Tensor:
        """Maps `rows x ...` to values `...`."""


class ScalarValue:
    """The value itself."""

    rows = 1

    def decode(self, output: torch.Tensor) -> torch.Tensor:
        return output[0]


class CategoricalValue:
    """A distribution over `bins` returns from -limit to limit; returns beyond count as the outermost bin."""

    def __init__(self, bins: int, limit: float) -> None:
        self.rows = bins
        half = math.log1p(limit)
        grid = torch.linspace(-half, half, bins, dtype=torch.float64)
        support = grid.sign() * grid.abs().expm1()
        self._support = support.float()

    def decode(self, output: torch.Tensor) -> torch.Tensor:
        support = self._on(output.device).view(-1, *[1] * (output.ndim - 1))
        # Not as a matrix product, which autocast would take in half precision.
        return (torch.softmax(output.float(), dim=0) * support).sum(dim=0)

    def two_hot(self, targets: torch.Tensor) -> torch.Tensor:
        """Returns the distribution `rows x B` on the two bins around each target, `B`, whose mean the target is."""
        support = self._on(targets.device)
        inside = targets.clamp(support[0], support[-1]).contiguous()
        above = torch.searchsorted(support, inside).clamp(1, self.rows - 1)
        low, high = support[above - 1], support[above]
        share = (inside - low) / (high - low)
        spread = targets.new_zeros(self.rows, len(targets))
        spread.scatter_(0, (above - 1).unsqueeze(0), (1 - share).unsqueeze(0))
        return spread.scatter_(0, above.unsqueeze(0), share.unsqueeze(0))

    def _on(self, device: torch.device) -> torch.Tensor:
        if self._support.device != device:
            self._support = self._support.to(device)
        return self._support
