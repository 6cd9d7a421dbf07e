"""PPO of Stable-Baselines3 with the tuned settings of its zoo: the peer `stable`. Prints one JSON line.

    python benchmarks/peers/stable.py --env gym:CartPole-v1 --seed 0 --goal 475 --max-seconds 60 --threads 1

It needs stable-baselines3, and OpenCV for Atari: pip install 'protein-sweep[bench]'. Environments are made as its zoo
makes them: one after another in one process.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecNormalize
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peers.recording import Recording, run_peer
from peers.settings import STABLE
from peers.worlds import Score, is_own, make_one, make_own, own_scores


class Native(VecEnv):
    """One of our games behind the library's interface, stepped as one batch in C."""

    def __init__(self, name: str, num_envs: int, score: Score) -> None:
        self._envs, self._score = make_own(name, num_envs), score
        super().__init__(num_envs, self._envs.single_observation_space, self._envs.single_action_space)
        self._actions: Any = None

    def reset(self) -> Any:
        seed = self._seeds[0]
        self._reset_seeds()
        return self._envs.reset(seed=seed)[0]

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        observations, rewards, terminals, truncations, infos = self._envs.step(self._actions)
        for score in own_scores(infos):
            self._score(score)
        each: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(terminals | truncations):
            cut = bool(truncations[row] and not terminals[row])
            each[row] = {"terminal_observation": infos["final_obs"][row], "TimeLimit.truncated": cut}
        return observations, rewards.astype(np.float32), terminals | truncations, each

    def close(self) -> None:
        self._envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self._envs, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **named: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Watch(BaseCallback):
    """Counts steps, and ends the training when the recording says so."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def _on_training_start(self) -> None:
        self._recording.begin()

    def _on_step(self) -> bool:
        return not self._recording.step(self.training_env.num_envs)


def make_envs(name: str, recording: Recording) -> Any:
    """Makes the environments as the zoo does."""
    s = STABLE[name]
    if is_own(name):
        return Native(name, s.num_envs, recording.episode)
    envs: Any = DummyVecEnv([lambda: make_one(name, recording.episode)] * s.num_envs)
    if name.startswith("gym:ALE/"):
        envs = VecFrameStack(envs, 4)
    return VecNormalize(envs, gamma=s.arguments["gamma"]) if s.normalize else envs


def value_of(setting: Any) -> Any:
    """Turns `("linear", x)` into the library's schedule."""
    if not isinstance(setting, tuple):
        return setting
    _, first = setting
    return lambda left: left * first


def train(name: str, seed: int, recording: Recording) -> None:
    s = STABLE[name]
    network: dict[str, Any] = {}
    if s.hidden_sizes:
        sizes = list(s.hidden_sizes)
        network = {"ortho_init": False, "activation_fn": nn.ReLU, "net_arch": {"pi": sizes, "vf": sizes}}
    if s.log_std_init is not None:
        network["log_std_init"] = s.log_std_init
    policy = "CnnPolicy" if name.startswith("gym:ALE/") else "MlpPolicy"
    arguments = {key: value_of(setting) for key, setting in s.arguments.items()}
    model = PPO(policy, make_envs(name, recording), seed=seed, device="cpu", policy_kwargs=network, **arguments)
    model.learn(s.total_timesteps, callback=Watch(recording))


if __name__ == "__main__":
    run_peer(__doc__, STABLE, train)
