"""Real rollouts and PPO on small networks, for the tests of updates."""

from typing import Any

import torch
from training_parts import CPU, make_rollout, make_spec, scripted

from protein.trainer.config import TrainConfig
from protein.trainer.machine.stopwatch import Stopwatch
from protein.trainer.model.policy import Policy
from protein.trainer.ppo.rollout import Batch
from protein.trainer.ppo.update import PPO


def collected(policy: Policy, *, steps: int = 5, agents: int = 12, seed: int = 3, skip: int = 3) -> Batch:
    """A real rollout with ends in the middle of segments; a recurrent state that is not zero begins it."""
    kind = policy.distribution
    spec = make_spec(continuous_actions=kind.components) if kind.dtype.is_floating_point else make_spec()
    rollout = make_rollout(scripted(steps + skip, agents, spec, seed=seed), policy, horizon=max(steps, skip))
    rollout.reset(0)
    if skip:
        rollout.collect(skip)
    return rollout.collect(steps)


class Recorder:
    """Keeps each step's gradient, and takes no step: the weights stay."""

    def __init__(self) -> None:
        self.gradients: list[torch.Tensor] = []

    def takes_over(self, ppo: PPO) -> None:
        def step(max_norm: float) -> torch.Tensor:
            gradient = ppo._flat.gradients.clone()
            self.gradients.append(gradient)
            norm: torch.Tensor = gradient.norm()
            return norm

        ppo.optimizer.step = step  # type: ignore[method-assign]


def make_ppo(policy: Policy, recorder: Recorder | None = None, **train: Any) -> PPO:
    ppo = PPO(
        policy,
        make_config(**train),
        device=CPU,
        generator=torch.Generator().manual_seed(0),
        stopwatch=Stopwatch(CPU),
    )
    if recorder is not None:
        recorder.takes_over(ppo)
    return ppo


def make_config(**train: Any) -> TrainConfig:
    return TrainConfig(**({"lr_schedule": "constant"} | train))
