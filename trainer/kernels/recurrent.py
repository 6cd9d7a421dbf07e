"""Recurrent layers over whole segments: the part that goes step by step, differentiable.

Notation: `T` steps of `M` agents, `H` units, h and c the states, resets `T x M`: True where the state is zeroed before
that step. The caller computes what does not depend on the state (products with the inputs, biases) for all steps.

    LSTM      i, f, g, o = gates_x + W_hh h';   c = s(f) c' + s(i) tanh(g);   h = s(o) tanh(c)      s the sigmoid
    minGRU    z = s(gate logits);   h = (1 - z) h' + z G(candidates);   G(x) = x + 0.5 for x >= 0, else s(x)

The compiled LSTM takes a few agents at a time through all steps, with weights that stay in a core's cache. The gradient
of W_hh is one product over all steps and agents.

Source: Hochreiter and Schmidhuber 1997, "Long short-term memory" (with the forget gate of Gers et al. 2000); Feng et
al. 2024, "Were RNNs all we needed?", section 3.2 and appendix B.
"""

from typing import Any

import torch

from . import _native
from .linear import weight_gradient
from .tensors import is_native

State = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def lstm_sequence(
    gates_x: torch.Tensor, w_hh: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor, resets: torch.Tensor
) -> State:
    """Returns the hidden states `T x M x H`, and h and c after the last step, `M x H`.

    Gradients go to `gates_x` and `w_hh` through the hidden states; the states before and after are constants.

    Args:
        gates_x: `T x M x 4H`, contiguous: the inputs' part of the gates, in the order i, f, g, o.
        w_hh: `4H x H`.
        h0: `M x H`, before the first step.
        c0: `M x H`, before the first step.
        resets: `T x M`, bool.

    Raises:
        ValueError: a tensor does not fit this description.
    """
    if not is_native(gates_x, w_hh, h0, c0):
        return lstm_sequence_by_torch(gates_x, w_hh, h0, c0, resets)
    if torch.is_grad_enabled() and (gates_x.requires_grad or w_hh.requires_grad):
        result: State = _LSTM.apply(gates_x, w_hh, h0, c0, resets)  # type: ignore[no-untyped-call]
        return result
    return _lstm_forward(gates_x, w_hh, h0, c0, resets, None)


def mingru_sequence(
    gate_logits: torch.Tensor, candidates: torch.Tensor, h0: torch.Tensor, resets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
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
    gates_x: torch.Tensor, w_hh: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor, resets: torch.Tensor
) -> State:
    """Computes what `lstm_sequence` does, on any device and in any precision."""
    h, c, weight, outputs = h0.detach(), c0.detach(), w_hh.t(), []
    keep = resets.logical_not().to(gates_x.dtype).unsqueeze(2)
    for t in range(len(gates_x)):
        i, f, g, o = (gates_x[t] + (h * keep[t]) @ weight).chunk(4, dim=1)
        c = f.sigmoid() * (c * keep[t]) + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs), h.detach(), c.detach()


def mingru_sequence_by_torch(
    gate_logits: torch.Tensor, candidates: torch.Tensor, h0: torch.Tensor, resets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes what `mingru_sequence` does, on any device and in any precision."""
    z = gate_logits.sigmoid()
    new = z * torch.where(candidates >= 0, candidates + 0.5, candidates.sigmoid())
    kept = (1 - z) * resets.logical_not().to(z.dtype).unsqueeze(2)
    h, outputs = h0.detach(), []
    for t in range(len(z)):
        h = torch.addcmul(new[t], kept[t], h)
        outputs.append(h)
    return torch.stack(outputs), h.detach()


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        gates_x: torch.Tensor,
        w_hh: torch.Tensor,
        h0: torch.Tensor,
        c0: torch.Tensor,
        resets: torch.Tensor,
    ) -> State:
        steps, agents, width = gates_x.shape
        gates, cells, previous = (gates_x.new_empty(steps, agents, n) for n in (width, width // 4, width // 4))
        hidden, h, c = _lstm_forward(gates_x, w_hh, h0, c0, resets, (gates, cells, previous))
        ctx.save_for_backward(w_hh, c0, resets, gates, cells, previous)
        ctx.mark_non_differentiable(h, c)
        return hidden, h, c

    @staticmethod
    def backward(ctx: Any, *by_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        w_hh, c0, resets, gates, cells, previous = ctx.saved_tensors
        by_hidden, by_gates = by_outputs[0].contiguous(), torch.empty_like(gates)
        _native.lstm_backward(w_hh, c0, resets, gates, cells, by_hidden, by_gates)
        by_weight = None
        if ctx.needs_input_grad[1]:
            by_weight = weight_gradient(by_gates.flatten(0, 1), previous.flatten(0, 1))
        return by_gates, by_weight, None, None, None


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


def _lstm_forward(
    gates_x: torch.Tensor,
    w_hh: torch.Tensor,
    h0: torch.Tensor,
    c0: torch.Tensor,
    resets: torch.Tensor,
    keep: State | None,
) -> State:
    """Runs the layer; `keep` is written for the backward pass: gates (after their functions), cells, previous h."""
    steps, agents, width = gates_x.shape
    hidden = gates_x.new_empty(steps, agents, width // 4)
    h, c = gates_x.new_empty(agents, width // 4), gates_x.new_empty(agents, width // 4)
    _native.lstm_forward(gates_x, w_hh, h0, c0, resets, hidden, h, c, *(keep or (None, None, None)))
    return hidden, h, c


def _mingru_forward(
    gate_logits: torch.Tensor, candidates: torch.Tensor, h0: torch.Tensor, resets: torch.Tensor
) -> torch.Tensor:
    hidden = gate_logits.new_empty(gate_logits.shape)
    _native.mingru_forward(gate_logits, candidates, h0, resets, hidden)
    return hidden
