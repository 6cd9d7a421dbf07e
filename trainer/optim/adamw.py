"""AdamW as `torch.optim.AdamW(fused=True)` computes it, without the class around it.

The class loads torch's compiler the first time that it is used: 816 modules, 70 MB and over a second of every run's
start. The function that it calls in the end does not.

Source: Loshchilov and Hutter 2019, "Decoupled weight decay regularization".
"""

from collections.abc import Mapping

import torch
from torch.optim.adamw import adamw

from .groups import Group

State = dict[str, torch.Tensor]


class AdamW:
    """Trains one group. Its state is that of torch's class, parameter by parameter."""

    def __init__(self, group: Group) -> None:
        """The parameters are on their final device."""
        self.group, self.learning_rate = group, group.learning_rate
        self._fused = group.parameters[0].device.type in ("cpu", "cuda")
        matrices = [n for n, parameter in enumerate(group.parameters) if parameter.ndim >= 2]
        vectors = [n for n, parameter in enumerate(group.parameters) if parameter.ndim < 2]
        # Those that share a decay take their step in one call.
        self._calls = [(matrices, group.weight_decay), (vectors, 0.0)]
        if not group.weight_decay:
            self._calls = [(list(range(len(group.parameters))), 0.0)]
        self._states: dict[int, State] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Takes a step with the parameters' gradients."""
        group, parameters, states = self.group, self.group.parameters, self._states
        if not states:
            self._states = states = {n: _empty(parameter) for n, parameter in enumerate(parameters)}
        if group.decays is not None and group.weight_decay:
            vector = parameters[0]
            vector.addcmul_(vector, group.decays, value=-self.learning_rate * group.weight_decay)
        for numbers, weight_decay in self._calls:
            if not numbers:
                continue
            adamw(
                [parameters[n] for n in numbers],
                [_gradient(parameters[n]) for n in numbers],
                [states[n]["exp_avg"] for n in numbers],
                [states[n]["exp_avg_sq"] for n in numbers],
                [],
                [states[n]["step"] for n in numbers],
                foreach=False,
                fused=self._fused,
                amsgrad=False,
                beta1=group.betas[0],
                beta2=group.betas[1],
                lr=self.learning_rate,
                weight_decay=weight_decay,
                eps=group.eps,
                maximize=False,
            )

    def state_bytes(self) -> int:
        """Returns the size of `state` after a step."""
        return sum(2 * parameter.numel() * parameter.element_size() + 4 for parameter in self.group.parameters)

    def state(self) -> dict[int, State]:
        """Returns what the next step depends on, by the parameter's number; empty before the first step."""
        return {n: dict(values) for n, values in self._states.items()}

    def set_state(self, state: Mapping[int, State]) -> None:
        """Restores a `state` whose shapes fit."""
        parameters = self.group.parameters
        self._states = {
            n: {name: value.to(parameters[n].device).clone() for name, value in values.items()}
            for n, values in sorted(state.items())
        }


def _empty(parameter: torch.Tensor) -> State:
    return {
        "step": torch.zeros((), device=parameter.device),
        "exp_avg": torch.zeros_like(parameter, requires_grad=False),
        "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
    }


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad
