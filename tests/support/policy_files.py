"""Checkpoints of policies with weights at random, for tests of what plays them."""

from pathlib import Path
from typing import Any

import torch

from protein import envs_c
from protein.trainer.config import EnvConfig, PolicyConfig, RunConfig
from protein.trainer.model import saved as policies
from protein.trainer.model.policy import Policy
from protein.trainer.normalise import Moments, Normalizer

FRAME_SKIP = 3


def make_checkpoint(
    path: Path,
    name: str,
    options: dict[str, Any] | None = None,
    *,
    normalised: bool = False,
    seed: int = 0,
    env: str | None = None,
    module: str = "",
    scale: float = 1.5,
) -> Path:
    """Writes one of a game and a network, whose outputs are about as large as its inputs. Returns its path.

    `env` and `module` are what it says of itself, where that is something else.
    """
    spec = envs_c.spec(name)
    generator = torch.Generator().manual_seed(seed)
    policy = Policy(spec, PolicyConfig(**options or {}), generator=generator)
    tensors = {}
    for key, weight in policy.state_dict().items():
        fan = weight[0].numel() if weight.ndim > 1 else 4
        tensors[f"policy/{key}"] = torch.randn(weight.shape, generator=generator) * (scale / fan) ** 0.5
    if normalised:
        sample = torch.rand(50, spec.observation_size, generator=generator)
        sample[:, 0] = 0.25  # does not change
        tensors |= {f"scaling/{key}": one for key, one in Moments.of(sample).state(Normalizer.NAME).items()}
    config = RunConfig(
        env=EnvConfig(name=env or name, frame_skip=FRAME_SKIP), policy=PolicyConfig(**options or {}, module=module)
    )
    policies.write(path, config, spec, steps=1000, elapsed_seconds=2.5, score=None, tensors=tensors)
    return path
