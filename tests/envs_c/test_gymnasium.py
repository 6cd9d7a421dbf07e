"""Our environments through Gymnasium's interface: its own checker, and the same episodes as through ours."""

import gymnasium
import numpy as np
import pytest
from env_buffers import GAMES
from gymnasium.utils.env_checker import check_env

from protein import envs_c
from protein.envs_c.gymnasium import env_id

ALONE = [name for name in GAMES if envs_c.spec(name).agents_per_env == 1]
TOGETHER = [name for name in GAMES if name not in ALONE]


@pytest.mark.parametrize("name", ALONE)
def test_gymnasiums_checker_has_nothing_to_say(name: str) -> None:
    env = gymnasium.make(env_id(name))
    check_env(env.unwrapped)  # warnings are errors; all render modes are tried, too
    env.close()


@pytest.mark.parametrize("name", GAMES)
def test_observations_stay_within_the_space_and_an_episodes_last_is_its_own(name: str) -> None:
    envs = gymnasium.make_vec(env_id(name), num_envs=16, frame_skip=4)
    envs.action_space.seed(1)
    observations, infos = envs.reset(seed=3)
    space, spec = envs.single_observation_space, envs_c.spec(name)
    assert envs.num_envs == 16 * spec.agents_per_env
    lengths, ended, playing = np.zeros(envs.num_envs, int), 0, infos.get("playing", np.ones(envs.num_envs, np.bool_))
    for _ in range(min(spec.max_episode_steps // 4 + 2, 1500)):
        assert envs.observation_space.contains(observations)
        observations, _, terminals, truncations, infos = envs.step(envs.action_space.sample())
        lengths += 1
        over = (terminals | truncations) & playing
        playing = infos.get("playing", playing)
        assert ("final_obs" in infos) == over.any()
        if over.any():
            np.testing.assert_array_equal(infos["_final_obs"], over)
            for row in np.flatnonzero(over):
                assert space.contains(infos["final_obs"][row])
                assert spec.score_range[0] <= infos["score"][row] <= spec.score_range[1]
            ended += over.sum()
            lengths[over] = 0
    assert ended > 0


@pytest.mark.parametrize("name", ALONE)
def test_one_environment_plays_what_ours_plays(name: str) -> None:
    env = gymnasium.make(env_id(name), frame_skip=8)
    native = envs_c.VecEnv(name, 1, frame_skip=8)
    size = native.spec.observation_size
    theirs, finals = np.zeros((2, 1, size), native.spec.observation_dtype)
    rewards, terminals, truncations = np.zeros(1, np.float32), *np.zeros((2, 1), np.bool_)
    env.action_space.seed(0)
    observation, _ = env.reset(seed=5)
    native.reset(int(np.random.default_rng(5).integers(2**63)), theirs)
    for _ in range(native.spec.max_episode_steps // 8 + 1):
        np.testing.assert_array_equal(np.ravel(observation), theirs[0])
        action = env.action_space.sample()
        observation, reward, terminal, truncation, info = env.step(action)
        row = np.reshape(action, (1, -1))
        taken = row.astype(np.float32) if native.spec.continuous_actions else row.astype(np.int32)
        native.step(taken, theirs, rewards, terminals, truncations, finals, True)
        assert (reward, terminal, truncation) == (rewards[0], terminals[0], truncations[0])
        if terminal or truncation:
            break
    assert terminal or truncation
    np.testing.assert_array_equal(np.ravel(observation), finals[0])
    assert info["score"] == native.drain_episodes().score[0]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(action)
    again, _ = env.reset()
    assert env.observation_space.contains(again)


def test_seeds_and_threads() -> None:
    def play(seed: int, threads: int) -> np.ndarray:
        envs = gymnasium.make_vec(env_id("cartpole"), num_envs=64, threads=threads)
        first, _ = envs.reset(seed=seed)
        return np.stack([first, *(envs.step(np.ones(64, np.int64))[0] for _ in range(50))])

    np.testing.assert_array_equal(play(1, 1), play(1, 3))
    assert (play(1, 1) != play(2, 1)).any()
    envs = gymnasium.make_vec(env_id("cartpole"), num_envs=2)
    for wrong in ({"seed": [1, 2]}, {"options": {"reset_mask": np.ones(2, np.bool_)}}):
        with pytest.raises(ValueError, match="one seed for all of them, and no options"):
            envs.reset(**wrong)


def test_what_cannot_be_made_is_told() -> None:
    for name in TOGETHER:
        with pytest.raises(ValueError, match=rf'agents, .*make_vec\("protein/{name}-v0"'):
            envs_c.gymnasium.NativeEnv(name)
    with pytest.raises(envs_c.UnknownEnvError, match="did you mean 'pong'"):
        envs_c.gymnasium.NativeEnv("pang")
    with pytest.raises(ValueError, match="render_mode 'braille' is none of"):
        envs_c.gymnasium.NativeEnv("pong", render_mode="braille")
