"""All weights of a network in one vector, and their gradients in another; a policy's gradients.

All parameters are views of one vector, and all gradients are views of another. So clipping, the optimiser and a sum
over processes take one call each instead of one per layer.

Source: sums beside the backward pass: Li et al. 2020, "PyTorch distributed: experiences on accelerating data parallel
training", section 3.2.3.
"""

import contextlib
from collections.abc import Callable, Sequence

import torch
from torch import nn

from ..kernels import Backward, backward_from
from ..machine.distributed import World
from ..machine.stopwatch import Stopwatch
from ..model.policy import Policy

PART_BYTES = 4 * 2**20  # large enough that the fixed cost of a sum, some 0.1 ms, does not count
# Maps the network's output, `rows x B`, to d loss / d output.
GradientOf = Callable[[torch.Tensor], torch.Tensor]
Vjp = Callable[[torch.Tensor, torch.Tensor | None, torch.Tensor | None], tuple[torch.Tensor, Backward]]


class FlatWeights:
    """Two vectors: the `weights` of all parameters and their `gradients`. The network's tensors are views of them.

    Backward passes add to the gradients; `clear` sets them to zero.
    """

    def __init__(self, network: nn.Module) -> None:
        """Moves the network's parameters into one vector; the network must be on its final device."""
        self.weights = nn.Parameter(flatten_(network))
        self.gradients = torch.zeros_like(self.weights)
        self.weights.grad = self.gradients
        for parameter, gradient in zip(network.parameters(), _views(self.gradients, network), strict=True):
            parameter.grad = gradient

    def clear(self) -> None:
        """Sets all gradients to zero."""
        self.gradients.zero_()


class FlatGradients(FlatWeights):
    """The gradients of a policy: one backward pass at a time fills them."""

    def __init__(self, policy: Policy, stopwatch: Stopwatch) -> None:
        """As `FlatWeights`; the passes' time is booked on the stopwatch."""
        super().__init__(policy)
        self._policy = policy
        self._switch = stopwatch.switch
        self._vjp: Vjp = policy.vjp

    def compile(self) -> None:
        """Compiles the network's passes; each new shape of the observations is compiled when it first comes."""
        forward: Callable[..., tuple[torch.Tensor, torch.Tensor | None]] = torch.compile(self._policy, dynamic=True)

        def vjp(
            observations: torch.Tensor, state: torch.Tensor | None, resets: torch.Tensor | None
        ) -> tuple[torch.Tensor, Backward]:
            output, _ = forward(observations, state, resets)
            return output, lambda by_output: backward_from(output, by_output)

        self._vjp = vjp

    def stay_eager(self) -> None:
        """Undoes `compile`."""
        self._vjp = self._policy.vjp

    @torch.no_grad()
    def output(
        self,
        observations: torch.Tensor,
        state: torch.Tensor | None,
        resets: torch.Tensor | None,
        autocast: contextlib.AbstractContextManager[object],
    ) -> torch.Tensor:
        """Returns the network's output, `rows x B`, without gradients."""
        with autocast:  # not the compiled one, which would be compiled again for a pass without gradients
            output, _ = self._policy.forward(observations, state, resets)
        return output.float()

    def compute(
        self,
        observations: torch.Tensor,
        state: torch.Tensor | None,
        resets: torch.Tensor | None,
        gradient_of: GradientOf,
        autocast: contextlib.AbstractContextManager[object],
    ) -> None:
        """Fills `gradients`.

        Args:
            observations: `T x M x D`; like state and resets, what the policy's `forward` takes.
            state: `M x S`, or None.
            resets: `T x M`, or None.
            gradient_of: maps the network's output to d loss / d output, both `rows x B` in float32.
            autocast: the context in which the network runs.
        """
        self._switch("update_forward")
        self.clear()
        with autocast:
            output, backward = self._vjp(observations, state, resets)
        gradient = gradient_of(output.detach().float())
        self._switch("update_backward")
        backward(gradient.to(output.dtype))


class GradientSums:
    """Sums `gradients` over all processes: `begin` before the last backward pass of a step, `finish` after it.

    A backward pass fills the vector from its end to its beginning. So the vector is cut into parts of some megabytes.
    As soon as all gradients of a part are there, its sum over the processes begins, while the backward pass goes on.
    All processes begin the sums in the same order.
    """

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


def flatten_(network: nn.Module) -> torch.Tensor:
    """Moves a network's parameters into one vector, and returns it; the network must be on its final device."""
    weights = nn.utils.parameters_to_vector(network.parameters()).detach()
    for parameter, view in zip(network.parameters(), _views(weights, network), strict=True):
        parameter.data = view
    return weights


def _views(vector: torch.Tensor, network: nn.Module) -> list[torch.Tensor]:
    """Returns the parts of a vector that belong to each parameter, in their shapes."""
    parameters = list(network.parameters())
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    return [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]
