"""PPO of rlox, whose environments, buffers and advantages are in Rust: the peer `rust`. Prints one JSON line.

    python benchmarks/peers/rust.py --env gym:CartPole-v1 --seed 0 --goal 475 --max-seconds 60 --threads 1

It needs rlox: pip install rlox. Its defaults are CleanRL's settings for CartPole, so it gets those. CartPole is its own
environment in Rust; LunarLander is Gymnasium's, in one process.
"""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

os.environ.setdefault("RAYON_NUM_THREADS", "1")  # read when it is loaded: its environments take all cores otherwise
from rlox.algorithms.ppo import PPO

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peers.recording import Recording, run_peer
from peers.settings import CLEAN, RUST


class Ended(Exception):
    """The recording says that the run is over."""


class Counted:
    """The environments of a run, with their episodes counted."""

    def __init__(self, envs: Any, recording: Recording) -> None:
        self._envs, self._recording = envs, recording
        self._sums = np.zeros(envs.num_envs())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._envs, name)

    def step_all(self, actions: Any) -> Any:
        found = self._envs.step_all(actions)
        self._sums += found["rewards"]
        for row in np.flatnonzero(np.asarray(found["terminated"]) | np.asarray(found["truncated"])):
            self._recording.episode(float(self._sums[row]))
            self._sums[row] = 0.0
        if self._recording.step(len(self._sums)):
            raise Ended
        return found


def train(name: str, seed: int, recording: Recording) -> None:
    s = CLEAN[name]
    torch.manual_seed(seed)
    ppo = PPO(
        name.removeprefix("gym:"),
        n_envs=s.num_envs,
        seed=seed,
        n_steps=s.num_steps,
        n_epochs=s.update_epochs,
        batch_size=s.num_envs * s.num_steps // s.num_minibatches,
        learning_rate=s.learning_rate,
        clip_eps=s.clip_coef,
        ent_coef=s.ent_coef,
        vf_coef=s.vf_coef,
        max_grad_norm=s.max_grad_norm,
        gamma=s.gamma,
        gae_lambda=s.gae_lambda,
    )
    ppo.collector.env = Counted(ppo.collector.env, recording)
    recording.begin()
    try:
        ppo.train(s.total_timesteps)
    except Ended:
        return


if __name__ == "__main__":
    run_peer(__doc__, RUST, train)
