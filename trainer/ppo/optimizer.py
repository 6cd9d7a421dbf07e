"""Which of a policy's parameters go to which optimiser.

AdamW works on the vector of all weights. With `train.optimizer = "muon"`, Muon works on the matrices of the hidden
layers, and AdamW on the other parameters: biases, the first layer, the output layer. A recurrent layer stacks a square
matrix for each of its gates; Muon works on each of them.
"""

import torch
from torch import nn

from ..config import TrainConfig
from ..model.policy import Policy
from ..optim.gradients import FlatGradients
from ..optim.groups import Group
from ..optim.optimizer import Optimizer
from ..optim.schedule import rate_share


def make_optimizer(policy: Policy, gradients: FlatGradients, config: TrainConfig) -> Optimizer:
    """Returns the optimiser of the policy whose parameters `gradients` holds."""
    matrices = _hidden_matrices(policy) if config.optimizer == "muon" else []
    chosen = {id(matrix) for matrix in matrices}
    rest: list[nn.Parameter] = [gradients.weights]
    decays: torch.Tensor | None = None
    if matrices:
        rest = [parameter for parameter in policy.parameters() if id(parameter) not in chosen]
    elif config.weight_decay:
        trained = [(p.detach(), p.ndim >= 2 and p.requires_grad) for p in policy.parameters()]
        decays = torch.cat([torch.full_like(p, float(decays)).flatten() for p, decays in trained])

    recurrent = {id(parameter) for parameter in policy.recurrence.parameters()} if policy.recurrence else set()
    stacked = [m.shape[0] // m.shape[1] if id(m) in recurrent else 1 for m in matrices]

    def group(parameters: list[nn.Parameter], method: str) -> Group:
        return Group(
            parameters=parameters,
            method="muon" if method == "muon" else "adamw",
            learning_rate=config.learning_rate,
            weight_decay=config.weight_decay,
            betas=(config.beta1, config.beta2),
            eps=config.adam_eps,
            decays=decays,
            stacked=stacked if method == "muon" else 1,
        )

    groups = [group(rest, "adamw"), group(matrices, "muon")]
    return Optimizer(groups, lambda progress: rate_share(config, progress))


def _hidden_matrices(policy: Policy) -> list[nn.Parameter]:
    """Returns the matrices between hidden layers: neither layers that read observations nor output layers."""
    encoders = [policy.encoder, *([] if policy.value_encoder is None else [policy.value_encoder])]
    first = {id(next(encoder.parameters())) for encoder in encoders}
    return [
        parameter
        for name, parameter in policy.named_parameters()
        if parameter.ndim == 2 and id(parameter) not in first and not name.startswith(("head.", "value_output."))
    ]
