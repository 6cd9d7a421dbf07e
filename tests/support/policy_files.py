"""Checkpoints of policies with weights at random, and the games that they play, for tests of what else plays them."""

from pathlib import Path
from typing import Any

import numpy as np
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


@torch.inference_mode()
def native_game(path: Path, seed: int, index: int, steps: int) -> tuple[bytes, bytes, Any]:
    """Plays greedily, as `Actor` does. Returns actions, trajectory, and outputs with values, `T x M x rows + 1`."""
    saved = policies.read(path)
    spec = envs_c.spec(saved.config.env.name)
    policy = Policy(spec, saved.config.policy, generator=torch.Generator())
    policy.load_state_dict(saved.group("policy"))
    scaling = saved.group("scaling")
    normalizer = Normalizer(Moments.saved(scaling, Normalizer.NAME), torch.device("cpu")) if scaling else None
    envs = envs_c.VecEnv(spec.name, 1, seed=seed, frame_skip=FRAME_SKIP, first_index=index)
    agents = envs.num_agents
    observations = np.zeros((agents, spec.observation_size), spec.observation_dtype)
    rewards = np.zeros(agents, np.float32)
    terminals, truncations = np.zeros((2, agents), np.bool_)
    envs.reset(seed, observations)
    state = None
    taken, seen, outputs = [], [observations.tobytes()], []
    for _ in range(steps):
        given = torch.from_numpy(observations)
        given = given if normalizer is None else normalizer.apply(given)
        resets = torch.from_numpy(terminals | truncations).unsqueeze(0)
        output, state = policy(given.unsqueeze(0), state, resets)
        actions = policy.distribution.mode(output[: policy.action_rows]).numpy()
        outputs.append(torch.cat([output.t(), policy.values(output).unsqueeze(1)], dim=1).numpy().copy())
        envs.step(actions, observations, rewards, terminals, truncations)
        taken.append(actions.tobytes())
        seen += [observations.tobytes(), rewards.tobytes(), terminals.tobytes(), truncations.tobytes()]
    return b"".join(taken), b"".join(seen), np.stack(outputs)
