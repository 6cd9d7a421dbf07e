"""The published settings of the peers, each with its source. None was tuned here.

Stable-Baselines3: the tuned PPO settings of RL Baselines3 Zoo, `hyperparams/ppo.yml`. Its file names older versions of
some environments (LunarLander-v2, HalfCheetah-v3, Hopper-v3, Pong without sticky actions); the versions here are those
that Gymnasium still makes. `("linear", x)` falls from x to 0, as `lin_x` there.

CleanRL: the defaults of its scripts `ppo.py` (CartPole, LunarLander), `ppo_continuous_action.py` (Box actions) and
`ppo_atari.py` (Atari). CleanRL has no settings of its own for LunarLander, nor for single MuJoCo environments.

Neither has settings for our own pong and breakout. There, both get those for Atari, where the games come from, with an
MLP for the short observations.

Source: Raffin, RL Baselines3 Zoo, https://github.com/DLR-RM/rl-baselines3-zoo; Huang et al. 2022, "CleanRL:
High-quality Single-file Implementations of Deep Reinforcement Learning Algorithms", JMLR 23(274).
"""

import dataclasses
from typing import Any, Literal

Schedule = tuple[Literal["linear"], float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stable:
    """A section of the zoo's file: `arguments` are those of `stable_baselines3.PPO`."""

    total_timesteps: int
    num_envs: int
    arguments: dict[str, Any]
    normalize: bool = False
    log_std_init: float | None = None
    hidden_sizes: tuple[int, ...] = ()  # of policy and value function, with ReLU; (): the library's 64, 64 with tanh


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clean:
    """The arguments of one of CleanRL's scripts."""

    network: Literal["mlp", "gaussian", "atari"]
    total_timesteps: int
    num_envs: int
    num_steps: int
    learning_rate: float
    num_minibatches: int
    update_epochs: int
    clip_coef: float
    ent_coef: float
    gamma: float = 0.99
    gae_lambda: float = 0.95
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    normalize: bool = False  # observations, clipped to 10, and rewards, clipped to 10: each instance its own


_LARGE = (256, 256)
_STABLE_ATARI: dict[str, Any] = {
    "n_steps": 128,
    "n_epochs": 4,
    "batch_size": 256,
    "learning_rate": ("linear", 2.5e-4),
    "clip_range": ("linear", 0.1),
    "vf_coef": 0.5,
    "ent_coef": 0.01,
}

STABLE: dict[str, Stable] = {
    "gym:CartPole-v1": Stable(
        total_timesteps=100_000,
        num_envs=8,
        arguments={
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "n_epochs": 20,
            "ent_coef": 0.0,
            "learning_rate": ("linear", 0.001),
            "clip_range": ("linear", 0.2),
        },
    ),
    "gym:LunarLander-v3": Stable(
        total_timesteps=1_000_000,
        num_envs=16,
        arguments={
            "n_steps": 1024,
            "batch_size": 64,
            "gae_lambda": 0.98,
            "gamma": 0.999,
            "n_epochs": 4,
            "ent_coef": 0.01,
        },
    ),
    "gym:BipedalWalker-v3": Stable(
        total_timesteps=5_000_000,
        num_envs=32,
        normalize=True,
        arguments={
            "n_steps": 2048,
            "batch_size": 64,
            "gae_lambda": 0.95,
            "gamma": 0.999,
            "n_epochs": 10,
            "ent_coef": 0.0,
            "learning_rate": 3e-4,
            "clip_range": 0.18,
        },
    ),
    "gym:HalfCheetah-v5": Stable(
        total_timesteps=1_000_000,
        num_envs=1,
        normalize=True,
        log_std_init=-2.0,
        hidden_sizes=_LARGE,
        arguments={
            "n_steps": 512,
            "batch_size": 64,
            "gae_lambda": 0.92,
            "gamma": 0.98,
            "n_epochs": 20,
            "ent_coef": 0.000401762,
            "learning_rate": 2.0633e-05,
            "clip_range": 0.1,
            "max_grad_norm": 0.8,
            "vf_coef": 0.58096,
        },
    ),
    "gym:Hopper-v5": Stable(
        total_timesteps=1_000_000,
        num_envs=1,
        normalize=True,
        log_std_init=-2.0,
        hidden_sizes=_LARGE,
        arguments={
            "n_steps": 512,
            "batch_size": 32,
            "gae_lambda": 0.99,
            "gamma": 0.999,
            "n_epochs": 5,
            "ent_coef": 0.00229519,
            "learning_rate": 9.80828e-05,
            "clip_range": 0.2,
            "max_grad_norm": 0.7,
            "vf_coef": 0.835671,
        },
    ),
    "gym:ALE/Pong-v5": Stable(total_timesteps=10_000_000, num_envs=8, arguments=_STABLE_ATARI),
    "pong": Stable(total_timesteps=10_000_000, num_envs=8, arguments=_STABLE_ATARI),
    "breakout": Stable(total_timesteps=10_000_000, num_envs=8, arguments=_STABLE_ATARI),
}

_CLASSIC = Clean(
    network="mlp",
    total_timesteps=500_000,
    num_envs=4,
    num_steps=128,
    learning_rate=2.5e-4,
    num_minibatches=4,
    update_epochs=4,
    clip_coef=0.2,
    ent_coef=0.01,
)
_CONTINUOUS = Clean(
    network="gaussian",
    total_timesteps=1_000_000,
    num_envs=1,
    num_steps=2048,
    learning_rate=3e-4,
    num_minibatches=32,
    update_epochs=10,
    clip_coef=0.2,
    ent_coef=0.0,
    normalize=True,
)
_ATARI = Clean(
    network="atari",
    total_timesteps=10_000_000,
    num_envs=8,
    num_steps=128,
    learning_rate=2.5e-4,
    num_minibatches=4,
    update_epochs=4,
    clip_coef=0.1,
    ent_coef=0.01,
)
_OWN = dataclasses.replace(_ATARI, network="mlp")

CLEAN: dict[str, Clean] = {
    "gym:CartPole-v1": _CLASSIC,
    "gym:LunarLander-v3": _CLASSIC,
    "gym:BipedalWalker-v3": _CONTINUOUS,
    "gym:HalfCheetah-v5": _CONTINUOUS,
    "gym:Hopper-v5": _CONTINUOUS,
    "gym:ALE/Pong-v5": _ATARI,
    "pong": _OWN,
    "breakout": _OWN,
}

RUST = ("gym:CartPole-v1", "gym:LunarLander-v3")  # where rlox runs: it normalises and reads pictures otherwise
