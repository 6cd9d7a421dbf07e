"""Recurrent layers over whole segments: the part that goes step by step, differentiable.

Notation: `T` steps of `M` agents, `H` units, h and c the states, resets `T x M`: True where the state is zeroed before
that step. For minGRU the caller computes the products with the inputs for all steps.

    LSTM      i, f, g, o = W_ih x + W_hh h' + b;   c = s(f) c' + s(i) tanh(g);   h = s(o) tanh(c)   s the sigmoid
    minGRU    z = s(gate logits);   h = (1 - z) h' + z G(candidates);   G(x) = x + 0.5 for x >= 0, else s(x)

The compiled LSTM takes a few agents at a time through all steps, with weights that stay in a core's cache. The products
with the inputs are part of a step, so that they never go to memory: on a core of an AMD EPYC (Zen 5) a product reaches
255 GFLOP/s in the cache, and 207 where it writes its result to memory. `lstm_policy` goes further: it takes a step of a
whole policy, with weights that are packed once.

Elsewhere the LSTM goes step by step, too: cuDNN's takes no resets within a sequence, and where to cut the sequences is
known only to the device. A recording (`protein.trainer.machine.graphs`) makes these steps one launch. The minGRU is a
`scan` (`protein.trainer.kernels.scan`).

Source: Hochreiter and Schmidhuber 1997, "Long short-term memory" (with the forget gate of Gers et al. 2000); Feng et
al. 2024, "Were RNNs all we needed?", section 3.2 and appendix B.
"""

from typing import Any

import torch

from . import _native
from .mlp import is_native
from .scan import scan

Pair = tuple[torch.Tensor, torch.Tensor]


def lstm_sequence(
    inputs: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    bias: torch.Tensor,
    state: torch.Tensor,
    resets: torch.Tensor,
) -> Pair:
    """Returns the hidden states `T x M x H`, and the state after the last step, `M x 2H`, in the state's precision.

    Gradients go to inputs and weights through the hidden states; the states before and after are constants.

    Args:
        inputs: `T x M x D`, all rows contiguous and equally far apart.
        w_ih: `4H x D`; the gates in the order i, f, g, o.
        w_hh: `4H x H`.
        bias: `4H`.
        state: `M x 2H`, h and c side by side, before the first step.
        resets: `T x M`, bool.

    Raises:
        ValueError: a tensor does not fit this description.
    """
    if inputs.is_cpu:  # autocast's half precision would only slow the compiled layer down
        inputs = inputs.to(state.dtype)
    if not is_native(inputs, w_ih, w_hh, bias, state):
        return lstm_sequence_by_torch(inputs, w_ih, w_hh, bias, state, resets)
    if torch.is_grad_enabled() and (inputs.requires_grad or w_ih.requires_grad):
        result: Pair = _LSTM.apply(inputs, w_ih, w_hh, bias, state, resets)  # type: ignore[no-untyped-call]
        return result
    hidden, after = _lstm_outputs(inputs, w_hh)
    _native.lstm_forward(inputs, w_ih, w_hh, bias, state, resets, hidden, after, None, None)
    return hidden, after


def lstm_policy(
    layers: tuple[torch.Tensor, ...], w_ih: torch.Tensor, w_hh: torch.Tensor, bias: torch.Tensor
) -> _native.LstmPolicy:
    """Packs the weights of a policy for acting: encoder with ReLUs, LSTM and output layer. It keeps no reference.

    Its `step(observations, state, resets, output, after)` takes `M x D`, `M x 2H` and `M`, and writes `rows x M`, each
    row contiguous, and the new state to `after`: None, or `M x 2H`, which may be `state`.

    Args:
        layers: weight `outputs x inputs` and bias `outputs` of the encoder's layers, then of the output layer; float32
            on the CPU, as the rest.
        w_ih: `4H x` outputs of the encoder.
        w_hh: `4H x H`.
        bias: `4H`.

    Raises:
        ValueError: a tensor does not fit this description.
    """
    return _native.LstmPolicy(layers, w_ih, w_hh, bias)


def mingru_sequence(
    gate_logits: torch.Tensor, candidates: torch.Tensor, h0: torch.Tensor, resets: torch.Tensor
) -> Pair:
    """Returns the hidden states `T x M x H`, and h after the last step, `M x H`.

    Gradients go to `gate_logits` and `candidates` through the hidden states; the states before and after are constants.

    Args:
        gate_logits: `T x M x H`; like `candidates` with contiguous rows, such as one half of a `T x M x 2H` product.
        candidates: `T x M x H`, laid out as the gate logits are.
        h0: `M x H`, before the first step.
        resets: `T x M`, bool.

    Raises:
        ValueError: a tensor does not fit this description.
    """
    if not is_native(gate_logits, candidates, h0):
        return mingru_sequence_by_torch(gate_logits, candidates, h0, resets)
    if torch.is_grad_enabled() and (gate_logits.requires_grad or candidates.requires_grad):
        hidden: torch.Tensor = _MinGRU.apply(gate_logits, candidates, h0, resets)  # type: ignore[no-untyped-call]
    else:
        hidden = _mingru_forward(gate_logits, candidates, h0, resets)
    return hidden, hidden.detach()[-1]


def lstm_sequence_by_torch(
    inputs: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    bias: torch.Tensor,
    state: torch.Tensor,
    resets: torch.Tensor,
) -> Pair:
    """Computes what `lstm_sequence` does, on any device and in any precision; the state stays in that of `state`."""
    (h, c), weight, outputs = state.detach().chunk(2, dim=1), w_hh.t(), []
    gates_x = torch.nn.functional.linear(inputs, w_ih, bias).to(state.dtype)
    zero, reset = state.new_zeros(()), resets.unsqueeze(2)
    for t in range(len(gates_x)):
        # Selected, not multiplied by 0: the state before a reset must have no effect, even if it is NaN.
        h, c = torch.where(reset[t], zero, h), torch.where(reset[t], zero, c)
        h, c = _cell(gates_x[t], h @ weight, c)
        outputs.append(h)
    return torch.stack(outputs), torch.cat([h, c], dim=1).detach()


def _cell(gates_x: torch.Tensor, gates_h: torch.Tensor, c: torch.Tensor) -> Pair:
    """Returns h and c after a step; on CUDA by the kernel of torch's own cell, one in place of ten."""
    if gates_x.is_cuda:
        with torch.autocast("cuda", enabled=False):  # or c would be kept in half precision
            h, c, _ = torch.ops.aten._thnn_fused_lstm_cell(gates_x, gates_h.to(c.dtype), c)
        return h, c
    i, f, g, o = (gates_x + gates_h).chunk(4, dim=1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def mingru_sequence_by_torch(
    gate_logits: torch.Tensor, candidates: torch.Tensor, h0: torch.Tensor, resets: torch.Tensor
) -> Pair:
    """Computes what `mingru_sequence` does, on any device and in any precision."""
    z = gate_logits.sigmoid()
    new = z * torch.where(candidates >= 0, candidates + 0.5, candidates.sigmoid())
    hidden = scan(1 - z, new, h0.detach(), resets.unsqueeze(2))
    return hidden, hidden.detach()[-1]


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        w_ih: torch.Tensor,
        w_hh: torch.Tensor,
        bias: torch.Tensor,
        state: torch.Tensor,
        resets: torch.Tensor,
    ) -> Pair:
        hidden, after = _lstm_outputs(inputs, w_hh)
        gates, cells = inputs.new_empty(*hidden.shape[:2], len(w_hh)), torch.empty_like(hidden)
        _native.lstm_forward(inputs, w_ih, w_hh, bias, state, resets, hidden, after, gates, cells)
        ctx.save_for_backward(inputs, w_ih, w_hh, bias, state, resets, hidden, gates, cells)
        ctx.mark_non_differentiable(after)
        return hidden, after

    @staticmethod
    def backward(ctx: Any, *by_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, w_ih, w_hh, bias, state, resets, hidden, gates, cells = ctx.saved_tensors
        kept = hidden, gates, cells, by_outputs[0].contiguous()
        by_inputs = inputs.new_empty(inputs.shape) if ctx.needs_input_grad[0] else None
        by_weights = torch.empty_like(w_ih), torch.empty_like(w_hh), torch.empty_like(bias)
        _native.lstm_backward(inputs, w_ih, w_hh, bias, state, resets, *kept, by_inputs, *by_weights)
        return by_inputs, *by_weights, None, None


class _MinGRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gate_logits: torch.Tensor, candidates: torch.Tensor, h0: torch.Tensor, resets: torch.Tensor
    ) -> torch.Tensor:
        hidden = _mingru_forward(gate_logits, candidates, h0, resets)
        ctx.save_for_backward(gate_logits, candidates, h0, resets, hidden)
        return hidden

    @staticmethod
    def backward(ctx: Any, *by_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gate_logits, candidates, h0, resets, hidden = ctx.saved_tensors
        by_hidden = by_outputs[0].contiguous()
        by_gates, by_candidates = torch.empty_like(hidden), torch.empty_like(hidden)
        _native.mingru_backward(gate_logits, candidates, h0, resets, hidden, by_hidden, by_gates, by_candidates)
        return by_gates, by_candidates, None, None


def _lstm_outputs(inputs: torch.Tensor, w_hh: torch.Tensor) -> Pair:
    """Returns memory for the hidden states and for the state after the last step."""
    steps, agents, _ = inputs.shape
    units = len(w_hh) // 4
    return inputs.new_empty(steps, agents, units), inputs.new_empty(agents, 2 * units)


def _mingru_forward(
    gate_logits: torch.Tensor, candidates: torch.Tensor, h0: torch.Tensor, resets: torch.Tensor
) -> torch.Tensor:
    hidden = gate_logits.new_empty(gate_logits.shape)
    _native.mingru_forward(gate_logits, candidates, h0, resets, hidden)
    return hidden
