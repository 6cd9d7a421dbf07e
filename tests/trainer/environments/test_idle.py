"""Agents that take no part for a while: what they observe, earn and end counts nowhere."""

from pathlib import Path

import numpy as np
import pytest
from training_parts import make_policy, make_rollout
from walk_env import training, walk_example  # noqa: F401 (a fixture)

from protein import envs_c
from protein.trainer.environments import make, playing, spec
from protein.trainer.environments.base import EpisodeCounter
from protein.trainer.errors import ConfigError
from protein.trainer.run import run


def test_a_python_environment_may_say_who_plays(walk: str, tmp_path: Path) -> None:
    """Here the second of two agents rests in every second step. What it does then is no part of its episode."""
    (tmp_path / "resting_example.py").write_text(
        "import walk_example, numpy as np\n"
        "class Resting(walk_example.Walk):\n"
        "    def __init__(self, num_envs, **args):\n"
        "        super().__init__(num_envs, **args)\n"
        "        self.playing = np.ones(num_envs, bool)\n"
        "    def step(self, *arrays):\n"
        "        super().step(*arrays)\n"
        "        self.playing[1:] ^= True\n"
        "class Wrong(walk_example.Walk):\n"
        "    playing = np.ones(3, bool)\n"
    )
    envs = make("python:resting_example:Resting", 2)
    observations, rewards, ends = np.zeros((2, 1), np.float32), np.zeros(2, np.float32), np.zeros((2, 2), np.bool_)
    envs.reset(1, observations)
    for step in range(30):
        rows = playing(envs)
        assert rows is not None and rows.tolist() == [True, step % 2 == 0]
        envs.step(np.ones(2, np.int32), observations, rewards, *ends)
        if step % 2:
            assert not (envs.drain_episodes().agent == 1).any(), "an idle row ends no episode"
    assert playing(make(walk, 2)) is None
    assert run(training("python:resting_example:Resting"), directory=None, report=lambda _: None).steps == 256
    with pytest.raises(ConfigError, match=r"playing must be bool of shape \(1,\), got bool of shape \(3,\)"):
        spec("python:resting_example:Wrong")


def test_who_plays_may_be_a_list(walk: str, tmp_path: Path) -> None:
    (tmp_path / "listing_example.py").write_text(
        "import walk_example\n"
        "class Listing(walk_example.Walk):\n"
        "    playing = property(lambda self: [True] * self.num_envs)\n"
    )
    assert run(training("python:listing_example:Listing"), directory=None, report=lambda _: None).steps == 256


def test_what_idle_agents_earn_is_in_no_episode() -> None:
    """The columns are two agents. The first rests once between two episodes, the second in the middle of one."""
    rewards = np.array([[1, 2], [5, 7], [1, 3], [4, 4]], np.float32)
    playing = np.array([[1, 1], [0, 0], [1, 1], [1, 1]], np.bool_)
    ended = np.array([[1, 0], [0, 0], [1, 1], [1, 1]], np.bool_)
    counter = EpisodeCounter(2)
    for step in zip(rewards, ended, playing, strict=True):
        counter.add(*step)
    episodes = counter.drain()
    assert episodes.agent.tolist() == [0, 0, 1, 0, 1]
    assert episodes.score.tolist() == episodes.return_.tolist() == [1, 1, 5, 4, 4]
    assert episodes.length.tolist() == [1, 1, 2, 1, 1]


def test_an_end_while_idle_is_no_episode_and_carries_nothing_over() -> None:
    counter, yes, no = EpisodeCounter(1), np.ones(1, np.bool_), np.zeros(1, np.bool_)
    counter.add(np.full(1, 3, np.float32), no, yes)
    counter.add(np.full(1, 5, np.float32), yes, no)
    assert len(counter.drain()) == 0
    counter.add(np.full(1, 2, np.float32), yes, yes)
    episodes = counter.drain()
    assert (episodes.score.tolist(), episodes.length.tolist()) == ([2.0], [1])


def test_a_team_reward_counts_only_for_the_agents_that_still_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two agents ends after one of four steps; every step rewards both rows with 1."""
    (tmp_path / "team_example.py").write_text(
        "import numpy as np\n"
        "class Team:\n"
        "    action_sizes, agents_per_env, observation_shape = (2,), 2, (1,)\n"
        "    def __init__(self, num_envs, **args):\n"
        "        self.num_envs, self.playing = num_envs, np.ones(2 * num_envs, bool)\n"
        "    def reset(self, seed, observations): self.age, self.playing[:], observations[:] = 0, True, 0\n"
        "    def step(self, actions, observations, rewards, terminals, truncations, finals):\n"
        "        self.age = (self.age + 1) % 4\n"
        "        observations[:], rewards[:], truncations[:] = self.age, 1, False\n"
        "        terminals[0::2], terminals[1::2] = self.age < 2, self.age == 0\n"
        "        self.playing[0::2] = self.age == 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    envs = make("python:team_example:Team", 1)
    observations, rewards, ends = np.zeros((2, 1), np.float32), np.zeros(2, np.float32), np.zeros((2, 2), np.bool_)
    envs.reset(1, observations)
    for _ in range(8):
        envs.step(np.ones(2, np.int32), observations, rewards, *ends)
    episodes = envs.drain_episodes()
    assert episodes.agent.tolist() == [0, 1, 0, 1]
    assert episodes.score.tolist() == episodes.length.tolist() == [1, 4, 1, 4]


def test_agents_of_a_world_in_c_come_and_go_and_begin_without_memory() -> None:
    """Rows change between playing and idle only where memory is cleared; idle ones are rewarded with nothing."""
    envs, came = envs_c.VecEnv("frontier16", 8), 0
    rollout = make_rollout([envs], make_policy(envs.spec, recurrence="mingru"), horizon=64)
    rollout.reset(1)
    for _ in range(4):
        batch = rollout.collect(64)
        assert batch.playing is not None
        assert not batch.rewards[~batch.playing].any()
        changed = batch.playing[1:] != batch.playing[:-1]
        np.testing.assert_array_equal(batch.resets[1:] & changed, changed)
        np.testing.assert_array_equal(batch.ends[:-1], batch.resets[1:])
        came += int((changed & batch.playing[1:]).sum())
    assert came > 10
