"""Choosing the segments of a minibatch: every segment once an epoch, in a random order."""

from collections.abc import Iterator

import torch


def shuffled(segments: int, size: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yields the indices of each minibatch of one epoch, with every segment once. The last minibatch may be shorter."""
    order = torch.randperm(segments, generator=generator)
    yield from torch.split(order, size)
