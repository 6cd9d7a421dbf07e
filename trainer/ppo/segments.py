"""Choosing the segments of a minibatch: each once an epoch, or those with large advantages more often.

Notation: n segments, a minibatch of m different ones, p_i the priority of segment i: the sum of its absolute
advantages, to the power `alpha`.

Without replacement, segments cannot be drawn in proportion to any p: one whose share of p is above 1/m would have to
come twice. So the chance q_i that segment i is in a minibatch is

    q_i = min(1, k p_i),  with k such that the q_i add up to m

and the segments are drawn by systematic sampling: in random order they are laid side by side on a line, each q_i long,
and the points u, u + 1, ..., u + m - 1 with one random u in [0, 1) each choose the segment that they hit. No q_i is
above 1, so no segment is hit twice. A segment of length q_i is hit with probability q_i, exactly.

A segment's weight is (m / (n q_i))^beta. With beta = 1 the minibatch's weighted mean of any x is that of Horvitz and
Thompson, and unbiased:

    E[ 1/m sum_chosen x_i m / (n q_i) ] = 1/m sum_i q_i x_i m / (n q_i) = 1/n sum_i x_i

The usual weights, (n p_i / sum p)^-beta, are right for draws with replacement only. Without it they make the preferred
segments too light: where a minibatch is the whole batch, nothing was preferred, and every weight must be 1. beta goes
to 1 as the run ends, when the bias would matter most.

Priorities are added up in float32 on their device and continued in float64 on the CPU, because some devices (MPS) have
no float64.

Source: Schaul et al. 2016, "Prioritized experience replay", eq. 1 and section 3.4, on segments instead of transitions;
Madow 1949, "On the theory of systematic sampling, II"; Horvitz and Thompson 1952, "A generalization of sampling without
replacement from a finite universe".
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
    priorities = (advantages.abs().sum(dim=0).cpu().double() + 1e-6).pow(alpha)
    if not bool(priorities.isfinite().all()):
        raise DivergedError("an advantage is not finite: lower train.learning_rate or max_grad_norm")
    chances = inclusion_chances(priorities, size)
    weights = (size / (segments * chances)).pow(beta).float()
    for _ in range(-(-segments // size)):
        order = torch.randperm(segments, generator=generator)
        first = float(torch.rand((), dtype=torch.float64, generator=generator))
        chosen = systematic(chances, order, first)
        yield chosen, weights[chosen]


def inclusion_chances(priorities: torch.Tensor, size: int) -> torch.Tensor:
    """Returns q, `n`: as large as the priorities allow, at most 1, and together `size`.

    Args:
        priorities: `n`, float64, above 0.
        size: at most n.
    """
    falling, order = priorities.sort(descending=True)
    # Of the j largest, taken as certain, the others share what is left. The first j for which none of them exceeds 1.
    certain = torch.arange(size, dtype=priorities.dtype)
    rest = falling.flip(0).cumsum(0).flip(0)[:size]
    factors = (size - certain) / rest
    fits = factors * falling[:size] <= 1.0
    chances = torch.ones_like(priorities)
    if bool(fits.any()):
        first = int(fits.to(torch.uint8).argmax())
        chances[order[first:]] = factors[first] * falling[first:]
    return chances


def systematic(chances: torch.Tensor, order: torch.Tensor, first: float) -> torch.Tensor:
    """Returns the indices that `first`, `first` + 1, ... hit on the line of `chances` in this `order`.

    Args:
        chances: `n`, in (0, 1]; together a whole number m.
        order: a permutation of `n`.
        first: in [0, 1).
    """
    size = round(float(chances.sum()))
    ends = chances[order].cumsum(0)
    points = first + torch.arange(size, dtype=chances.dtype)
    # Without the line's end: rounding may leave it a little short of a point.
    return order[torch.searchsorted(ends[:-1], points, right=True)]
