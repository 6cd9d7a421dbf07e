import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training_parts import make_spec

from protein import envs_c
from protein.envs_c import EnvSpec, Episodes, VecEnv
from protein.trainer.config import PolicyConfig, RunConfig
from protein.trainer.errors import CheckpointError, ConfigError, TrainerError
from protein.trainer.evaluate import DRAIN_STEPS, envs_for, evaluate, play
from protein.trainer.model import saved as policies
from protein.trainer.model.policy import Policy
from protein.trainer.watch import Player

PONG = envs_c.spec("pong")


def make_policy(spec: EnvSpec = PONG, **config: Any) -> Policy:
    config = {"hidden_size": 8, "num_layers": 1} | config
    return Policy(spec, PolicyConfig(**config), generator=torch.Generator().manual_seed(0))


class UnevenEnvs:
    """Environment i plays episodes of length 1 + 9 i; a finished episode scores its length."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = self.num_agents = num_envs
        self.spec = make_spec((2,))
        self.steps = 0
        self.finished: list[tuple[int, float]] = []

    def reset(self, seed: int, observations: np.ndarray) -> None:
        observations[:] = 0

    def step(self, *_: np.ndarray) -> None:
        self.steps += 1
        for env in range(self.num_envs):
            length = 1 + 9 * env
            if self.steps % length == 0:
                self.finished.append((env, float(length)))

    def drain_episodes(self) -> Episodes:
        env, score = zip(*self.finished, strict=True) if self.finished else ((), ())
        self.finished = []
        return Episodes(
            agent=np.array(env, np.int32),
            score=np.array(score, np.float32),
            return_=np.array(score, np.float32),
            length=np.array(score, np.int32),
        )


def test_short_episodes_count_no_more_than_long_ones() -> None:
    envs: Any = UnevenEnvs(4)  # it has no more than what `play` calls
    result = play(make_policy(make_spec((2,))), envs, episodes=8, seed=0, greedy=False)
    assert result.scores == (1.0, 1.0, 10.0, 10.0, 19.0, 19.0, 28.0, 28.0)
    assert (result.score, result.episodes) == (14.5, 8)
    assert result.score_std == pytest.approx(np.std(result.scores))


def test_agents_of_one_game_are_one_result_for_the_error_of_the_mean() -> None:
    envs = VecEnv("entities", 8, seed=0)
    agents = envs.num_agents // 8
    result = play(make_policy(spec=envs.spec), envs, episodes=envs.num_agents, seed=0, greedy=False)
    games = [float(np.mean(result.scores[first : first + agents])) for first in range(0, len(result.scores), agents)]
    assert agents > 1 and result.score_error == pytest.approx(np.std(games, ddof=1) / math.sqrt(8))
    one = VecEnv("snake", 1, seed=0)
    result = play(make_policy(spec=one.spec), one, episodes=one.num_agents, seed=0, greedy=False)
    assert math.isnan(result.score_error), "one game"
    pong = VecEnv("pong", 4, seed=0, frame_skip=16)
    result = play(make_policy(), pong, episodes=8, seed=0, greedy=False)
    assert result.score_error == pytest.approx(np.std(result.scores, ddof=1) / math.sqrt(8))


def test_it_repeats_with_its_seed_and_differs_with_another() -> None:
    def scores(seed: int, greedy: bool = False) -> tuple[float, ...]:
        envs = VecEnv("pong", 16, seed=seed, frame_skip=16)
        return play(make_policy(), envs, episodes=16, seed=seed, greedy=greedy).scores

    assert scores(1) == scores(1)
    assert scores(1) != scores(2)
    assert scores(1) != scores(1, greedy=True)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.safetensors"
    config = RunConfig.from_dict({"env": {"frame_skip": 16}, "policy": {"hidden_size": 8, "num_layers": 1}})
    tensors = {f"policy/{name}": tensor for name, tensor in make_policy().state_dict().items()}
    policies.write(path, config, envs_c.spec("pong"), steps=1, elapsed_seconds=0.0, score=None, tensors=tensors)
    return path


def test_a_checkpoint_plays_as_its_policy_does(saved: Path) -> None:
    result = evaluate(saved, env="pong", episodes=32, num_envs=16, seed=3, threads=1)
    envs = VecEnv("pong", 16, seed=3, frame_skip=16)
    direct = play(make_policy(), envs, episodes=32, seed=3, greedy=False)
    assert result.scores == direct.scores
    assert result.episodes == 32
    assert -21 <= result.score < -5, "an untrained policy loses"


def test_fewer_episodes_than_environments_use_fewer_environments(saved: Path) -> None:
    assert evaluate(saved, env="pong", episodes=3, num_envs=256, threads=1).episodes == 3


def test_bad_requests(saved: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        evaluate(saved.with_name("none"), env="pong")
    with pytest.raises(ConfigError, match="did you mean 'pong'"):
        evaluate(saved, env="pang")
    with pytest.raises(ConfigError, match="10 episodes cannot be shared evenly by 4 environments"):
        evaluate(saved, env="pong", episodes=10, num_envs=4)
    with pytest.raises(ConfigError, match="cannot be shared evenly"):
        evaluate(saved, env="pong", episodes=0)


@pytest.mark.parametrize("env", ["pong", "pang"])
def test_arguments_of_its_own_environment_hide_no_wrong_one(env: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    config = RunConfig.from_dict({"env": {"name": "gym:CartPole-v1", "args": {"sutton_barto_reward": True}}})
    policies.write(path, config, PONG, steps=1, elapsed_seconds=0.0, score=None, tensors={})
    told = "it was trained on 'gym:CartPole-v1', not on 'pong'" if env == "pong" else "did you mean 'pong'"
    with pytest.raises(TrainerError, match=told):
        evaluate(path, env=env)
    with pytest.raises(TrainerError, match=told):
        Player(path, env=env, episodes=1)


@pytest.mark.parametrize(
    ("episodes", "num_envs", "agents", "expected"),
    [(256, 256, 1, 256), (256, 64, 1, 64), (256, 256, 8, 32), (256, 256, 256, 1), (100, 100, 256, 1), (96, 64, 1, 48)],
)
def test_agents_share_the_episodes_evenly_whatever_an_environment_holds(
    episodes: int, num_envs: int, agents: int, expected: int
) -> None:
    assert envs_for(episodes, num_envs, agents) == expected


@pytest.mark.parametrize(("endless", "stuck", "limit"), [((0, 1, 2, 3), 4, 0), ((2,), 1, 0), ((2,), 1, 30)])
def test_an_episode_that_never_ends_is_told_and_ends_the_evaluation(
    monkeypatch: pytest.MonkeyPatch, endless: tuple[int, ...], stuck: int, limit: int
) -> None:
    """However many episodes each agent is to play: one that does not end is enough, whatever the environment says."""
    monkeypatch.setattr("protein.trainer.evaluate.ENDLESS_STEPS", 40)
    spec, most = dataclasses.replace(make_spec((2,)), max_episode_steps=limit), 40 + limit

    class Endless(UnevenEnvs):
        def step(self, *arrays: np.ndarray) -> None:
            super().step(*arrays)
            self.finished = [(env, score) for env, score in self.finished if env not in endless]

    envs: Any = Endless(4)
    envs.spec = spec
    with pytest.raises(TrainerError, match=rf"of {stuck} of 4 agents have not ended after {most} steps: .* limit"):
        play(make_policy(spec), envs, episodes=800, seed=0, greedy=False)
    assert envs.steps <= most + 2 * DRAIN_STEPS


@pytest.mark.parametrize(("joins", "episodes"), [(10**9, 6), (100, 8)])
def test_an_agent_that_takes_no_part_is_waited_for_as_long_as_the_others_played(
    monkeypatch: pytest.MonkeyPatch, joins: int, episodes: int
) -> None:
    """The others have played at step 64. The last agent acts from `joins` on: never, or after a while."""
    monkeypatch.setattr("protein.trainer.evaluate.ENDLESS_STEPS", 80)
    spec = dataclasses.replace(make_spec((2,)), max_episode_steps=0)

    class Absent(UnevenEnvs):
        @property
        def playing(self) -> np.ndarray:
            return np.array([True, True, True, self.steps >= joins])

        def step(self, *arrays: np.ndarray) -> None:
            super().step(*arrays)
            self.finished = [(env, score) for env, score in self.finished if env < 3 or self.steps >= joins]

    envs: Any = Absent(4)
    envs.spec = spec
    result = play(make_policy(spec), envs, episodes=8, seed=0, greedy=False)
    assert result.episodes == episodes
    assert np.isfinite(result.score)


@pytest.mark.parametrize("last", [8, 40])
def test_what_an_agent_does_after_its_last_episode_that_counts_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    monkeypatch.setattr("protein.trainer.evaluate.ENDLESS_STEPS", 100)
    spec = dataclasses.replace(make_spec((2,)), max_episode_steps=0)

    class StopsEnding(UnevenEnvs):  # the first agent ends its 8 episodes in 8 steps, perhaps some more, then no other
        def step(self, *arrays: np.ndarray) -> None:
            before, self.finished = self.finished, []
            super().step(*arrays)
            self.finished = before + [(env, score) for env, score in self.finished if env or self.steps <= last]

    envs: Any = StopsEnding(4)
    envs.spec = spec
    assert play(make_policy(spec), envs, episodes=32, seed=0, greedy=False).episodes == 32
