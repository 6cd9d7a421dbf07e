"""Which of a language model's parameters go to which optimiser, at which step size.

The blocks' matrices are one kind: Muon's, or AdamW's with the same step size. The embedding, the positions, the head
and all vectors are the other: they are AdamW's, with a step size of their own. Queries, keys and values lie above each
other in one matrix, and so do the two halves of a gated layer. Muon orthogonalises each of them alone.
"""

from collections.abc import Iterator

from torch import nn

from ..optim.groups import Group
from ..optim.optimizer import Optimizer
from ..optim.schedule import rate_share
from .config import TrainConfig
from .model import GPT


def make_optimizer(model: GPT, config: TrainConfig) -> Optimizer:
    """Returns the optimiser of a network that is on its final device; its `learning_rate` is the blocks' matrices'."""
    return Optimizer(
        list(parameter_groups(model, config)), lambda progress: rate_share(config, progress, config.final_fraction)
    )


def parameter_groups(model: GPT, config: TrainConfig) -> Iterator[Group]:
    """Yields the groups: the blocks' matrices first, those that stack as many matrices together, then the rest."""
    betas, eps = (config.beta1, config.beta2), config.adam_eps
    stacks: dict[int, list[nn.Parameter]] = {1: []}
    for name, parameter in model.blocks.named_parameters():
        if parameter.ndim == 2:
            stacks.setdefault(_stacked(name, model) if config.optimizer == "muon" else 1, []).append(parameter)
    for stacked, matrices in sorted(stacks.items()):
        yield Group(
            parameters=matrices,
            method=config.optimizer,
            learning_rate=config.learning_rate,
            weight_decay=config.weight_decay,
            betas=betas,
            eps=eps,
            stacked=stacked,
        )
    chosen = {id(parameter) for matrices in stacks.values() for parameter in matrices}
    yield Group(
        parameters=[parameter for parameter in model.parameters() if id(parameter) not in chosen],
        method="adamw",
        learning_rate=config.embedding_learning_rate,
        weight_decay=config.weight_decay,
        betas=betas,
        eps=eps,
    )


def _stacked(name: str, model: GPT) -> int:
    """Returns how many matrices a block's parameter stacks."""
    if name.endswith("attention.input.weight"):
        return 3
    return 2 if name.endswith("feed_forward.input.weight") and model.design.activation == "swiglu" else 1
