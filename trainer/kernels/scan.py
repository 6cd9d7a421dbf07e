"""Linear recurrences over time without a step for each time: what advantages and a minGRU are made of.

    y[t] = inputs[t] + decays[t] y[t-1]                  t = 0 .. T-1

The steps are cut into blocks of about the root of `T`. All blocks take their steps side by side, as if nothing came
before them, and multiply the decays since their beginning. Then the blocks' last values are corrected one after the
other, and at last all others at once. That is three operations for each of some `sqrt(T)` steps, and the memory is read
three times. Doubling would take `3 log2(T)` operations, but each of them reads all of the memory. Every number is a sum
of the definition's terms in another order, so it is as accurate, where decays are within [0, 1].

Source: Blelloch 1990, "Prefix sums and their applications", section 1.4 (first-order recurrences).
"""

import math
from typing import Any

import torch


def scan(
    decays: torch.Tensor,
    inputs: torch.Tensor,
    before: torch.Tensor | None = None,
    cuts: torch.Tensor | None = None,
) -> torch.Tensor:
    """Returns y, `T x ...`; gradients go to decays and inputs.

    Args:
        decays: `T x ...`.
        inputs: `T x ...`, of the same shape.
        before: `...`, the value before the first step; None: 0.
        cuts: `T x ...`, broadcast to the inputs, bool: y[t] = inputs[t], whatever was before, even NaN; None: nowhere.
    """
    if torch.is_grad_enabled() and (decays.requires_grad or inputs.requires_grad):
        result: torch.Tensor = _Scan.apply(decays, inputs, before, cuts)  # type: ignore[no-untyped-call]
        return result
    return _scan(decays, inputs, before, cuts)


def _scan(
    decays: torch.Tensor, inputs: torch.Tensor, before: torch.Tensor | None, cuts: torch.Tensor | None
) -> torch.Tensor:
    steps = len(inputs)
    y = inputs.clone(memory_format=torch.contiguous_format)
    if before is not None:
        y[0].addcmul_(decays[0], before if cuts is None else before.masked_fill(cuts[0], 0.0))
    if steps == 1:
        return y
    length = max(n for n in range(1, math.isqrt(steps) + 1) if steps % n == 0)
    of = y.view(-1, length, *y.shape[1:])  # block, step in it
    # Of each step the product of the decays since its block began, and whether a cut lies in between.
    reach = decays.clone(memory_format=torch.contiguous_format).view(of.shape)
    cut = None if cuts is None else cuts.reshape(-1, length, *cuts.shape[1:])
    since = None if cut is None else cut.cumsum(1) > 0
    zero = y.new_zeros(())

    def kept(values: torch.Tensor, cut: torch.Tensor | None, *where: Any) -> torch.Tensor:
        """Returns what of some values counts: selected, not multiplied by 0, which would keep NaN."""
        return values if cut is None else torch.where(cut[where], zero, values)

    for t in range(1, length):
        of[:, t].addcmul_(reach[:, t], kept(of[:, t - 1], cut, slice(None), t))
        reach[:, t].mul_(reach[:, t - 1])
    if since is not None:
        reach.masked_fill_(since, 0.0)
    for block in range(1, len(of)):
        of[block, -1].addcmul_(reach[block, -1], kept(of[block - 1, -1], since, block, -1))
    rest = slice(1, None), slice(None, -1)
    of[rest].addcmul_(reach[rest], kept(of[:-1, -1:], since, *rest))
    return y


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        decays: torch.Tensor,
        inputs: torch.Tensor,
        before: torch.Tensor | None,
        cuts: torch.Tensor | None,
    ) -> torch.Tensor:
        y = _scan(decays, inputs, before, cuts)
        ctx.save_for_backward(decays, before, cuts, y)
        return y

    @staticmethod
    def backward(ctx: Any, *by_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        decays, before, cuts, y = ctx.saved_tensors
        # by_inputs[t] = by_y[t] + decays[t+1] by_inputs[t+1]: the same recurrence from the last step to the first.
        later = [None if rows is None else rows.roll(-1, 0).flip(0) for rows in (decays, cuts)]
        assert later[0] is not None
        by_inputs = _scan(later[0], by_outputs[0].flip(0), None, later[1]).flip(0)
        by_decays = torch.empty_like(by_inputs)
        torch.mul(by_inputs[1:], y[:-1], out=by_decays[1:])
        by_decays[0].zero_() if before is None else torch.mul(by_inputs[0], before, out=by_decays[0])
        if cuts is not None:
            by_decays.masked_fill_(cuts, 0.0)
        return by_decays, by_inputs, None, None
