"""A backward pass that begins with a gradient which is known already."""

from typing import Any

import torch


def backward_from(output: torch.Tensor, by_output: torch.Tensor) -> None:
    """Adds to the gradients of all leaves what d loss / d output, `by_output`, makes of them.

    `torch.autograd.backward` does the same. But where it is given a gradient, it loads sympy to compare two shapes,
    which takes a second and 40 MB. Where it is given a scalar alone, it loads nothing.
    """
    scalar: torch.Tensor = _Loss.apply(output, by_output)  # type: ignore[no-untyped-call]
    torch.autograd.backward(scalar)


class _Loss(torch.autograd.Function):
    """A scalar whose gradient with respect to `output` is `by_output`."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, by_output: torch.Tensor) -> torch.Tensor:
        ctx.by_output = by_output
        return output.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.by_output, None
