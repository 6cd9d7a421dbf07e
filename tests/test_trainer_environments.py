"""Environments by name: what every kind of them must do alike, and what a wrong name is told."""

import numpy as np
import pytest

import envs_c
from trainer.environments import VectorEnv, make, resume, spec
from trainer.errors import ConfigError


def test_a_native_name_makes_the_native_environment() -> None:
    envs = make("pong", 3, seed=5, frame_skip=4, threads=1)
    direct = envs_c.VecEnv("pong", 3, seed=5, frame_skip=4)
    assert envs.spec == spec("pong") == direct.spec
    assert (envs.num_envs, envs.num_agents) == (3, 3)
    ours, theirs = np.zeros((2, 3, 8), np.float32)
    envs.reset(7, ours)
    direct.reset(7, theirs)
    np.testing.assert_array_equal(ours, theirs)
    envs.close()
    envs.close()


def test_native_environments_are_resumed_where_they_were() -> None:
    def step(envs: VectorEnv, observations: np.ndarray) -> None:
        rewards, ends = np.zeros(2, np.float32), np.zeros((2, 2), np.bool_)
        envs.step(np.ones(2, np.int32), observations, rewards, ends[0], ends[1])

    envs, observations = make("pong", 2), np.zeros((2, 8), np.float32)
    envs.reset(1, observations)
    state, saved = envs.get_state(), observations.copy()
    step(envs, observations)
    other = make("pong", 2)
    current = saved.copy()
    assert resume(other, state, current)
    np.testing.assert_array_equal(current, saved)
    step(other, current)
    np.testing.assert_array_equal(current, observations)


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'pong'"):
        spec("pang")
    with pytest.raises(ConfigError, match="did you mean 'pong'"):
        make("pang", 1)
