"""The optimisers and the step size's schedule.

AdamW works on the vector of all weights. Muon works on the matrices of the hidden layers and orthogonalises each
update. The other parameters (biases, the first layer, the output layer) are then AdamW's. Muon's step is scaled to the
size of AdamW's, so that one learning rate serves both.

Source: Loshchilov and Hutter 2019, "Decoupled weight decay regularization"; Jordan et al. 2024, "Muon: an optimizer for
hidden layers in neural networks"; the scale: Liu et al. 2025, "Muon is scalable for LLM training", section 2.2; the
schedule of warm-up, stable and decay: Hu et al. 2024, "MiniCPM", section 4.2.
"""

import math
from collections.abc import Mapping

import torch
from torch import nn

from ..config import TrainConfig
from ..machine.precision import update_precision
from ..model.policy import Policy
from .adamw import AdamW
from .gradients import FlatGradients


class Optimizer:
    """One or two of torch's optimisers behind one step size."""

    def __init__(self, policy: Policy, gradients: FlatGradients, config: TrainConfig, device: torch.device) -> None:
        self._config = config
        matrices = _hidden_matrices(policy) if config.optimizer == "muon" else []
        chosen = {id(matrix) for matrix in matrices}
        rest: list[nn.Parameter] = [gradients.weights]
        if matrices:
            rest = [parameter for parameter in policy.parameters() if id(parameter) not in chosen]
        self.parts: list[torch.optim.Optimizer | AdamW] = []
        fused = device.type in ("cpu", "cuda")
        if fused and not matrices and "fp16" not in update_precision(config):  # float16's scaler needs torch's class
            self.parts = [
                AdamW(
                    gradients.weights,
                    lr=config.learning_rate,
                    betas=(config.beta1, config.beta2),
                    eps=config.adam_eps,
                    weight_decay=config.weight_decay,
                )
            ]
            return
        self.parts = [
            torch.optim.AdamW(
                rest,
                lr=config.learning_rate,
                betas=(config.beta1, config.beta2),
                eps=config.adam_eps,
                weight_decay=config.weight_decay,
                fused=fused,
            )
        ]
        if matrices:
            self.parts.append(
                torch.optim.Muon(
                    matrices,
                    lr=config.learning_rate,
                    weight_decay=config.weight_decay,
                    momentum=config.beta1,
                    adjust_lr_fn="match_rms_adamw",
                )
            )

    def set_progress(self, progress: float) -> None:
        """Sets the step size for the fraction `progress`, in [0, 1], of the run."""
        rate = scheduled_rate(self._config, progress)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate

    @property
    def learning_rate(self) -> float:
        """The step size now."""
        return float(self.parts[0].param_groups[0]["lr"])

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def state(self) -> dict[str, torch.Tensor]:
        """Returns what the next step depends on, apart from weights and gradients."""
        return {
            f"{index}.{parameter}.{name}": torch.as_tensor(value)
            for index, part in enumerate(self.parts)
            for parameter, values in part.state_dict()["state"].items()
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
            shapes = [parameter.shape for parameter in part.param_groups[0]["params"]]
            fits = all(
                number < len(shapes) and (not tensor.ndim or tensor.shape == shapes[number])
                for number, tensors in own.items()
                for tensor in tensors.values()
            )
            if state and (not fits or len(own) != len(shapes)):
                raise ValueError("it comes from another optimiser: use the same train.optimizer")
            part.load_state_dict({"state": own, "param_groups": part.state_dict()["param_groups"]})


def scheduled_rate(config: TrainConfig, progress: float) -> float:
    """Returns the step size after the fraction `progress`, in [0, 1], of the run.

    It rises linearly over `warmup_fraction`, then follows the schedule over the rest. With `wsd` (warm-up, stable,
    decay) it is constant until the last `decay_fraction` of the run.
    """
    warmup = config.warmup_fraction
    if progress < warmup:
        return config.learning_rate * progress / warmup
    if config.lr_schedule == "constant" or warmup >= 1:
        return config.learning_rate
    if config.lr_schedule == "wsd":
        return config.learning_rate * min((1 - progress) / max(config.decay_fraction, 1e-12), 1.0)
    along = (progress - warmup) / (1 - warmup)
    left = 1 - along if config.lr_schedule == "linear" else 0.5 * (1 + math.cos(math.pi * along))
    return config.learning_rate * left


def _hidden_matrices(policy: Policy) -> list[nn.Parameter]:
    """Returns the matrices between hidden layers: neither the layer that reads observations nor the output layer."""
    first = next(policy.encoder.parameters())
    return [
        parameter
        for name, parameter in policy.named_parameters()
        if parameter.ndim == 2 and parameter is not first and not name.startswith("head.")
    ]
