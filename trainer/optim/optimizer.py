"""From gradients to new weights, whatever the loss: all weights in one vector, AdamW, loss scaling and clipping.

All parameters of a network are views of one vector, and all gradients are views of another. So clipping, the optimiser
and a sum over processes take one call each instead of one per layer. No tensor here is ever replaced by another one.

`torch.optim.AdamW` would do the same as the class here, but torch's classes load its compiler the first time that one
is used: 816 modules, 70 MB and over a second of every run's start. The functions that it calls in the end do not.
Muon, the other optimiser, is in `protein.trainer.optim.muon`.

Source: AdamW: Loshchilov and Hutter 2019, "Decoupled weight decay regularization"; loss scaling: Micikevicius et al.
2018, "Mixed precision training", section 3.2.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.adamw import adamw

# Loss scaling
FIRST_SCALE = 2.0**16
GROWTH, BACKOFF = 2.0, 0.5
GROWTH_INTERVAL = 2000  # steps without overflow after which it grows
SMALLEST_SCALE = 1e-4  # where gradients overflow even at this scale, the scale is not the cause


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


class Part:
    """Some of a network's parameters, and how they are trained: by `AdamW` or `Muon`.

    `largest_rate` is the largest step size, `learning_rate` the present one. The `states` are, of each parameter by
    name, what the next step depends on, as torch's classes have it.

    A step reads the step size in tensors on the device (`_follows`). So one that was recorded reads the present one.
    """

    states: list[dict[str, torch.Tensor]]

    def __init__(self, learning_rate: float, device: torch.device) -> None:
        self.largest_rate = self._learning_rate = learning_rate
        self._device = device
        self._numbers: list[tuple[torch.Tensor, float, float]] = []  # with factor and addend

    @property
    def learning_rate(self) -> float:
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._learning_rate = rate
        for number, factor, plus in self._numbers:
            number.fill_(plus + factor * rate)

    def _follows(self, factor: float, plus: float = 0.0, *, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Returns a number on the device that is always `plus` + `factor` times the step size."""
        number = torch.full((), plus + factor * self._learning_rate, dtype=dtype, device=self._device)
        self._numbers.append((number, factor, plus))
        return number

    def step(self) -> None:
        """Takes a step with the parameters' gradients."""
        raise NotImplementedError


class AdamW(Part):
    """As `torch.optim.AdamW(fused=True)` computes it."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        learning_rate: float,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        decays: torch.Tensor | None = None,
    ) -> None:
        """Begins with moments of zero.

        Args:
            parameters: on their final device.
            learning_rate: largest step size.
            weight_decay: per unit of the step size. Only parameters of two dimensions or more decay: biases and gains
                have none.
            betas: the decays of the running means of gradient and squared gradient.
            eps: added to the root of the latter.
            decays: where the only parameter is a vector of many: 1 where an entry decays, else 0.
        """
        device = parameters[0].device
        super().__init__(learning_rate, device)
        self._weight_decay, self._betas, self._eps, self._decays = weight_decay, betas, eps, decays
        # The fused kernel of the CPU takes it in float64, that of CUDA in float32; elsewhere there may be none.
        kind = torch.float64 if device.type == "cpu" else torch.float32
        self._rate = self._follows(1.0, dtype=kind) if device.type in ("cpu", "cuda") else None
        self._shrinks = self._follows(-weight_decay)
        self.states = [
            {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
            }
            for parameter in parameters
        ]
        # Those that share a decay take their step in one call.
        both = list(zip(parameters, self.states, strict=True))
        decaying = [one for one in both if weight_decay and one[0].ndim >= 2]
        others = [one for one in both if not weight_decay or one[0].ndim < 2]
        self._calls = [(some, decay) for some, decay in ((decaying, weight_decay), (others, 0.0)) if some]
        self._vector = parameters[0]

    @torch.no_grad()
    def step(self) -> None:
        """Takes a step with the parameters' gradients."""
        if self._decays is not None and self._weight_decay:
            self._vector.addcmul_(self._vector * self._shrinks, self._decays)
        for some, weight_decay in self._calls:
            weights: list[torch.Tensor] = [parameter for parameter, _ in some]
            lists = (
                weights,
                [gradient_of(parameter) for parameter, _ in some],
                [state["exp_avg"] for _, state in some],
                [state["exp_avg_sq"] for _, state in some],
                list[torch.Tensor](),
                [state["step"] for _, state in some],
            )
            rest: dict[str, Any] = {
                "amsgrad": False,
                "beta1": self._betas[0],
                "beta2": self._betas[1],
                "weight_decay": weight_decay,
                "eps": self._eps,
                "maximize": False,
            }
            if self._rate is None:
                adamw(*lists, foreach=False, fused=False, lr=self.learning_rate, **rest)
            else:  # what `adamw` calls: for a vector of 5,000 it takes 8 us instead of 18
                torch._foreach_add_(lists[-1], 1)
                torch._fused_adamw_(*lists, lr=self._rate, **rest)


class Optimizer:
    """Several optimisers, each with its own step size, that rise and fall together; clipping, and loss scaling.

    Where the precision is `fp16`, the loss is scaled: the smallest numbers of float16 are too large for many gradients.
    So the loss is multiplied by a scale before it is differentiated, and the gradients are divided by it before they
    are used. Where a gradient overflows, the step is skipped and the scale is halved. After a while without overflow
    the scale grows again. It does what torch's GradScaler does, with the same state.
    """

    def __init__(
        self, weights: nn.Parameter, parts: Sequence[Part], share: Callable[[float], float], *, precision: str = "fp32"
    ) -> None:
        """Sorts nothing: the parts are taken as they come, and a checkpoint counts on their order.

        Args:
            weights: the vector of all weights, with that of their gradients.
            parts: that train them.
            share: maps the fraction of the run, in [0, 1], to the share of the largest step sizes.
            precision: of the passes that compute the gradients.
        """
        self._weights, self.parts, self._share = weights, parts, share
        self._scales = precision == "fp16"
        self._scale = FIRST_SCALE
        self._good_steps = 0  # since the scale last changed

    def set_progress(self, progress: float) -> None:
        """Sets the step sizes for the fraction `progress`, in [0, 1], of the run."""
        share = self._share(progress)
        for part in self.parts:
            part.learning_rate = share * part.largest_rate

    @property
    def learning_rate(self) -> float:
        """The step size of the first part, now."""
        return self.parts[0].learning_rate

    def scaled(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns the derivative of the scaled loss, given the loss's; or the scaled loss, given the loss."""
        return gradient * self._scale if self._scales else gradient

    def step(self, max_norm: float) -> torch.Tensor:
        """Unscales the gradients, clips them to `max_norm` and takes the step; returns the norm before clipping.

        The norm of a skipped step is 0. `max_norm` 0: gradients are not clipped.
        """
        gradients = gradient_of(self._weights)
        if self._scales:
            gradients.mul_(1.0 / self._scale)
        norm: torch.Tensor = torch.linalg.vector_norm(gradients)
        if self._scales and not math.isfinite(norm.item()):
            self._scale, self._good_steps = self._scale * BACKOFF, 0
            return torch.zeros_like(norm)
        if max_norm:  # torch's own function takes three times as long, because it is made for lists of parameters
            gradients.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
        for part in self.parts:
            part.step()
        self._good_steps += 1
        if self._good_steps == GROWTH_INTERVAL:
            self._scale, self._good_steps = self._scale * GROWTH, 0
        return norm

    @property
    def exhausted(self) -> bool:
        """Whether the scale is so small that the gradients themselves must be the cause of the overflow."""
        return self._scales and self._scale < SMALLEST_SCALE

    def state(self) -> dict[str, torch.Tensor]:
        """Returns what the next step depends on, apart from weights and gradients."""
        state = self.moments()
        if self._scales:
            state["scaler.scale"] = torch.tensor(self._scale, dtype=torch.float64)
            state["scaler._growth_tracker"] = torch.tensor(self._good_steps)
        return state

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restores a `state`; one that was taken without scaling leaves the scale as it is.

        Raises:
            ValueError: it comes from another optimiser or network.
        """
        own = self.moments()
        saved = {name: tensor for name, tensor in state.items() if name.startswith("optimizer.")}
        if saved:  # earlier versions saved none before the first step
            if {name: t.shape for name, t in saved.items()} != {name: t.shape for name, t in own.items()}:
                raise ValueError("it comes from another optimiser: use the same train.optimizer")
            for name, tensor in saved.items():
                own[name].copy_(tensor)
        if self._scales and "scaler.scale" in state:
            self._scale, self._good_steps = float(state["scaler.scale"]), int(state["scaler._growth_tracker"])

    def moments(self) -> dict[str, torch.Tensor]:
        """Returns the parts' own tensors, which each step changes."""
        return {
            f"optimizer.{index}.{number}.{name}": value
            for index, part in enumerate(self.parts)
            for number, values in enumerate(part.states)
            for name, value in values.items()
        }


def gradient_of(parameter: torch.Tensor) -> torch.Tensor:
    """Returns a parameter's gradient, which must be there."""
    assert parameter.grad is not None
    return parameter.grad


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
