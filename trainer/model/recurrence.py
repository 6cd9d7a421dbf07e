"""Recurrent layers over whole segments, whose state is zeroed where an episode has ended.

Notation: `T` steps of `M` agents, `H` hidden units, state `M x S`, resets `T x M`: True where the state is zeroed
before that step. The products with the inputs are computed for all steps at once. The rest runs step by step in
`trainer.kernels`.

Source: Hochreiter and Schmidhuber 1997, "Long short-term memory"; Feng et al. 2024, "Were RNNs all we needed?" (minGRU,
with the positive candidate g of its appendix); a forget gate that begins at 1: Jozefowicz et al. 2015, "An empirical
exploration of recurrent network architectures"; gate biases initialised to a range of memory lengths: Tallec and
Ollivier 2018, "Can recurrent neural networks warp time?", section 2.
"""

import math

import torch
from torch import nn

from ..kernels import linear, lstm_sequence, mingru_sequence

LONGEST_MEMORY = 256.0  # time constant, in steps, of a minGRU's slowest unit at initialisation


class LSTM(nn.Module):
    """One LSTM layer; gates in the order input, forget, cell, output. The state is hidden and cell, side by side."""

    def __init__(self, hidden_size: int, generator: torch.Generator) -> None:
        super().__init__()
        self.state_size = 2 * hidden_size
        self.input = nn.Linear(hidden_size, 4 * hidden_size)
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        with torch.no_grad():
            for gate in range(4):
                rows = slice(gate * hidden_size, (gate + 1) * hidden_size)
                nn.init.orthogonal_(self.input.weight[rows], 1.0, generator=generator)
                nn.init.orthogonal_(self.weight_hh[rows], 1.0, generator=generator)
            self.input.bias.zero_()
            self.input.bias[hidden_size : 2 * hidden_size] = 1.0

    def forward(
        self, inputs: torch.Tensor, state: torch.Tensor | None, resets: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps inputs `T x M x H` to outputs `T x M x H` and the state after the last step."""
        steps, agents, _ = inputs.shape
        if state is None:
            state = inputs.new_zeros(agents, self.state_size, dtype=torch.float32)
        if resets is None:
            resets = torch.zeros(steps, agents, dtype=torch.bool, device=inputs.device)
        return lstm_sequence(inputs, self.input.weight, self.weight_hh, self.input.bias, state, resets)


class MinGRU(nn.Module):
    """One minGRU layer with a residual connection: neither gate nor candidate reads the state, so a step is cheap."""

    def __init__(self, hidden_size: int, generator: torch.Generator) -> None:
        super().__init__()
        self.state_size = hidden_size
        self.input = nn.Linear(hidden_size, 2 * hidden_size)
        with torch.no_grad():
            for part in range(2):
                rows = slice(part * hidden_size, (part + 1) * hidden_size)
                nn.init.orthogonal_(self.input.weight[rows], 1.0, generator=generator)
            self.input.bias.zero_()
            # Units forget over 2 to LONGEST_MEMORY steps, evenly in the logarithm: 1 / sigmoid(bias) = memory.
            memory = torch.logspace(math.log10(2.0), math.log10(LONGEST_MEMORY), hidden_size)
            self.input.bias[:hidden_size] = -torch.log(memory - 1)

    def forward(
        self, inputs: torch.Tensor, state: torch.Tensor | None, resets: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps inputs `T x M x H` to outputs `T x M x H` and the state after the last step."""
        steps, agents, _ = inputs.shape
        if state is None:
            state = inputs.new_zeros(agents, self.state_size, dtype=torch.float32)
        if resets is None:
            resets = torch.zeros(steps, agents, dtype=torch.bool, device=inputs.device)
        gates, candidates = linear(inputs, self.input.weight, self.input.bias).float().chunk(2, dim=-1)
        outputs, state = mingru_sequence(gates, candidates, state, resets)
        return inputs.float() + outputs, state
