"""Runs of PPO of a fraction of a second, for tests: 16 environments, eight iterations."""

from typing import Any

from protein.trainer.config import RunConfig

BATCH = 16 * 32  # steps of an iteration
SMALL: dict[str, dict[str, Any]] = {
    "env": {"num_envs": 16, "frame_skip": 16},
    "policy": {"hidden_size": 8},
    "train": {"total_timesteps": 4000, "threads": 2, "device": "cpu", "horizon": 32, "minibatch_size": 128},
    "eval": {"episodes": 8, "num_envs": 4},
}


def small(**sections: dict[str, Any]) -> RunConfig:
    return RunConfig.from_dict(
        {
            name: values | sections.get(name, {})
            for name, values in (SMALL | {name: {} for name in sections if name not in SMALL}).items()
        }
    )
