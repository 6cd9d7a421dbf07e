"""Choosing the segments of a minibatch: each once an epoch, or those with large advantages more often.

A segment's priority is the sum of its absolute advantages to the power `alpha`; a minibatch is drawn without
replacement with probabilities P in proportion. Importance weights (n P)^-beta correct for the preference. beta goes to
1 as the run ends, when the bias would matter most.

Source: Schaul et al. 2016, "Prioritized experience replay", eq. 1 and section 3.4, on segments instead of transitions.
"""

from collections.abc import Iterator

import torch

from ..errors import DivergedError


def shuffled(segments: int, size: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yields the indices of each minibatch of one epoch, with every segment once. The last minibatch may be shorter."""
    order = torch.randperm(segments, generator=generator)
    yield from torch.split(order, size)


def prioritized(
    advantages: torch.Tensor, size: int, *, alpha: float, beta: float, generator: torch.Generator
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields indices and importance weights, both `size`, of as many minibatches as one epoch has.

    Args:
        advantages: `T x n`, on any device.
        size: segments of a minibatch, at most n.
        alpha: 0 is uniform.
        beta: 0 does not correct for the preference, 1 corrects for all of it.
        generator: on the CPU.

    Raises:
        DivergedError: an advantage is not finite.
    """
    segments = advantages.shape[1]
    # The small number keeps every segment possible, and all equally likely where all advantages are 0.
    priorities = (advantages.abs().sum(dim=0).double().cpu() + 1e-6).pow(alpha)
    if not bool(priorities.isfinite().all()):
        raise DivergedError("an advantage is not finite: lower train.learning_rate or max_grad_norm")
    probabilities = priorities / priorities.sum()
    weights = (segments * probabilities).pow(-beta).float()
    for _ in range(-(-segments // size)):
        chosen = torch.multinomial(probabilities, size, generator=generator)
        yield chosen, weights[chosen]
