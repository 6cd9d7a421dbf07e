"""Rotary positions: queries and keys are rotated by angles that grow with their position.

So their product depends on how far apart they are, and no position needs weights of its own.

Notation: `T` positions, `H` heads of size `D`. Entries `i` and `i + D/2` of a head are turned together, by the angle
t * BASE^(-2i/D) at position t.

Source: Su et al. 2021, "RoFormer: enhanced transformer with rotary position embedding", section 3.2.
"""

import torch

BASE = 10_000.0


def rotations(positions: int, head_size: int, *, turning: bool = True, factor: float = 1.0) -> torch.Tensor:
    """Returns the cosines and sines of all angles, `2 x positions x 1 x head_size`; `head_size` is even.

    Each half of the last dimension holds all `head_size / 2` angles. The first half of the sines is negated, so that
    `kernels.attention.rotate` needs no signs.

    Args:
        positions: T.
        head_size: D.
        turning: without it all angles are 0.
        factor: what is rotated is multiplied by it, too.
    """
    frequencies = BASE ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * frequencies * turning
    cosines, sines = angles.cos(), angles.sin()
    both = torch.stack([torch.cat([cosines, cosines], 1), torch.cat([-sines, sines], 1)])
    return (factor * both.unsqueeze(2)).float()
