"""Sums of gradients over processes that run beside the backward pass.

The gradients of all parameters lie in one vector, in the order of the parameters. A backward pass fills it from its end
to its beginning. So the vector is cut into parts of some megabytes. As soon as all gradients of a part are there, its
sum over the processes begins, while the backward pass goes on. All processes begin the sums in the same order.

Source: Li et al. 2020, "PyTorch distributed: experiences on accelerating data parallel training", section 3.2.3.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from .distributed import World

PART_BYTES = 4 * 2**20  # large enough that the fixed cost of a sum, some 0.1 ms, does not count


class GradientSums:
    """Sums `gradients` over all processes: `begin` before the last backward pass of a step, `finish` after it."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        gradients: torch.Tensor,
        world: World,
        *,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """`gradients` holds the gradients of all `parameters`, one after the other."""
        self._gradients, self._world = gradients, world
        self._parts: list[slice] = []  # in the order in which they are filled
        self._sizes: list[int] = []  # parameters in each
        self._left: list[int] = []  # of them, whose gradient is missing
        self._next = 0  # the part whose sum begins next
        self._waits: list[Callable[[], None]] = []
        self._active = False
        if world.size == 1:
            return
        end = first = gradients.numel()
        members: list[nn.Parameter] = []
        for number, parameter in reversed(list(enumerate(parameters))):
            first -= parameter.numel()
            members.append(parameter)
            if (end - first) * gradients.element_size() >= part_bytes or number == 0:
                part = len(self._parts)
                for member in members:
                    member.register_post_accumulate_grad_hook(lambda _, part=part: self._filled(part))
                self._parts.append(slice(first, end))
                self._sizes.append(len(members))
                end, members = first, []

    def begin(self) -> None:
        """The next backward pass is the last one before the sums."""
        self._left, self._next, self._waits = list(self._sizes), 0, []
        self._active = bool(self._parts)

    def finish(self) -> None:
        """Waits until `gradients` are the sums. Raises LostProcessError where another process does not answer."""
        self._left = [0] * len(self._parts)  # a parameter that the loss does not depend on gets no gradient
        self._begin_sums()
        self._active = False
        for wait in self._waits:
            wait()

    def _filled(self, part: int) -> None:
        if self._active:
            self._left[part] -= 1
            self._begin_sums()

    def _begin_sums(self) -> None:
        while self._active and self._next < len(self._parts) and self._left[self._next] <= 0:
            self._waits.append(self._world.sum_later_(self._gradients[self._parts[self._next]]))
            self._next += 1
