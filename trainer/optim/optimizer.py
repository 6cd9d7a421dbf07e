"""The optimiser of a network: an AdamW or Muon for each group of parameters, all on one schedule.

Muon's step is scaled to the size of AdamW's, so that one learning rate can serve both.
"""

from collections.abc import Callable, Mapping, Sequence

import torch

from .adamw import AdamW
from .groups import Group
from .muon import Muon


class Optimizer:
    """Several optimisers, each with its own step size, that rise and fall together."""

    def __init__(self, groups: Sequence[Group], share: Callable[[float], float]) -> None:
        """Sorts nothing: the groups are taken as they come, and a checkpoint counts on their order.

        Args:
            groups: those without parameters are left out.
            share: maps the fraction of the run, in [0, 1], to the share of the largest step sizes.
        """
        self._share = share
        self.parts = [AdamW(group) if group.method == "adamw" else Muon(group) for group in groups if group.parameters]

    def set_progress(self, progress: float) -> None:
        """Sets the step sizes for the fraction `progress`, in [0, 1], of the run."""
        share = self._share(progress)
        for part in self.parts:
            part.learning_rate = share * part.group.learning_rate

    @property
    def learning_rate(self) -> float:
        """The step size of the first group, now."""
        return self.parts[0].learning_rate

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def state_bytes(self) -> int:
        """Returns the size of `state` after a step. Before the first one there is none yet."""
        return sum(part.state_bytes() for part in self.parts)

    def state(self) -> dict[str, torch.Tensor]:
        """Returns what the next step depends on, apart from weights and gradients."""
        return {
            f"{index}.{number}.{name}": value
            for index, part in enumerate(self.parts)
            for number, values in part.state().items()
            for name, value in values.items()
        }

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restores a `state`. Raises ValueError where it comes from another optimiser or network."""
        values: list[dict[int, dict[str, torch.Tensor]]] = [{} for _ in self.parts]
        for key, tensor in state.items():
            index, number, name = key.split(".", 2)
            if int(index) < len(values):
                values[int(index)].setdefault(int(number), {})[name] = tensor
        for part, own in zip(self.parts, values, strict=True):
            shapes = [parameter.shape for parameter in part.group.parameters]
            names = {"momentum_buffer"} if isinstance(part, Muon) else {"step", "exp_avg", "exp_avg_sq"}
            fits = all(
                number < len(shapes)
                and tensors.keys() == names
                and all(not tensor.ndim or tensor.shape == shapes[number] for tensor in tensors.values())
                for number, tensors in own.items()
            )
            if state and (not fits or len(own) != len(shapes)):
                raise ValueError("it comes from another optimiser: use the same train.optimizer")
            part.set_state(own)
