"""Watching plays the very episodes that an evaluation plays, and shows every one of their decisions."""

import itertools
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from protein import envs_c
from protein.trainer.config import RunConfig
from protein.trainer.errors import CheckpointError, ConfigError
from protein.trainer.evaluate import evaluate
from protein.trainer.run import run
from protein.trainer.watch import Player, make_visible


def train(directory: Path, env: str, *, frame_skip: int = 1, recurrence: str = "none") -> Path:
    """Returns the checkpoint of a run of a few steps."""
    config = RunConfig.from_dict(
        {
            "env": {"name": env, "num_envs": 4, "frame_skip": frame_skip},
            "policy": {"hidden_size": 8, "num_layers": 1, "recurrence": recurrence},
            "train": {"total_timesteps": 64, "horizon": 8, "minibatch_size": 32, "threads": 1, "device": "cpu"},
            "eval": {"episodes": 1, "num_envs": 1},
        }
    )
    result = run(config, directory=directory, report=lambda _: None)
    assert result.checkpoint is not None
    return result.checkpoint


@pytest.mark.parametrize(("env", "recurrence"), [("cartpole", "none"), ("memory", "mingru"), ("pendulum", "none")])
@pytest.mark.parametrize("greedy", [False, True])
def test_it_plays_what_an_evaluation_plays(tmp_path: Path, env: str, recurrence: str, greedy: bool) -> None:
    path = train(tmp_path, env, frame_skip=2, recurrence=recurrence)
    player = Player(path, env=env, episodes=3, seed=7, greedy=greedy)
    scenes = list(player.scenes())
    expected = evaluate(path, env=env, episodes=3, num_envs=1, seed=7, greedy=greedy, threads=1)
    assert tuple(player.scores) == expected.scores
    starts = [index for index, scene in enumerate(scenes) if scene.step == 0]
    assert [scenes[index].episode for index in starts] == [1, 2, 3]
    ends = [index for index, scene in enumerate(scenes) if scene.last]
    assert ends == [*(start - 1 for start in starts[1:]), len(scenes) - 1]
    for before, after in itertools.pairwise(scenes):
        assert after.step == (0 if before.last else before.step + 1)
    # The scene after the last decision has its reward: in these environments the score is the sum of all rewards.
    assert [scenes[index].return_so_far for index in ends] == pytest.approx(player.scores)
    assert all((scenes[index].pixels == scenes[index - 1].pixels).all() for index in ends)
    assert all(scenes[index].return_so_far == 0 for index in starts)
    assert len({scene.pixels.shape for scene in scenes}) == 1
    fps = {"cartpole": 50, "memory": 3, "pendulum": 20}[env]
    assert player.decisions_per_second == fps / 2
    assert not torch.is_inference_mode_enabled()


def test_of_many_agents_the_first_is_followed(tmp_path: Path) -> None:
    path = train(tmp_path, "snake", frame_skip=4)
    player = Player(path, env="snake", episodes=2, seed=1)
    scenes = list(player.scenes())
    assert len(player.scores) == 2
    assert {scene.episode for scene in scenes} == {1, 2}


def test_an_agent_that_takes_no_part_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pair_example.py").write_text(
        "import numpy as np\n"
        "class Pair:\n"
        "    observation_shape, action_sizes, agents_per_env = (1,), (2,), 2\n"
        "    def __init__(self, num_envs, **_):\n"
        "        self.num_envs, self.playing = num_envs, np.arange(2 * num_envs) % 2 == 1\n"
        "    def reset(self, seed, observations): self.age = observations[:] = 0\n"
        "    def step(self, actions, observations, rewards, terminals, truncations, finals):\n"
        "        self.age += 1\n"
        "        observations[:], rewards[1::2], terminals[1::2] = 0, 1, self.age % 5 == 0\n"
        "    def render(self): return np.zeros((2, 2, 3), np.uint8)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    env = "python:pair_example:Pair"
    player = Player(train(tmp_path, env), env=env, episodes=2)
    scenes = list(itertools.islice(player.scenes(), 20))
    assert player.scores == [5.0, 5.0]
    assert [scene.return_so_far for scene in scenes] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] * 2


def test_what_belongs_to_something_else_is_refused(tmp_path: Path) -> None:
    path = train(tmp_path, "cartpole")
    with pytest.raises(CheckpointError, match="it was trained on 'cartpole', not on 'pong'"):
        Player(path, env="pong", episodes=1)
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        Player(tmp_path / "none", env="pong", episodes=1)
    with pytest.raises(ConfigError, match="did you mean 'pong'"):
        Player(path, env="pang", episodes=1)


def test_gymnasiums_are_shown_by_themselves() -> None:
    visible = make_visible("gym:gym_worlds:Counter-v0", seed=0, frame_skip=2)
    observations = np.zeros((1, 2), np.float32)
    visible.envs.reset(0, observations)
    assert visible.decisions_per_second == 6
    rewards, ends = np.zeros(1, np.float32), np.zeros((2, 1), np.bool_)
    for step in range(3):
        np.testing.assert_array_equal(visible.draw(observations), np.full((4, 6, 3), 2 * step, np.uint8))
        visible.envs.step(np.zeros(1, np.int32), observations, rewards, ends[0], ends[1])
    visible.envs.close()
    with pytest.raises(ConfigError, match="'gym:gym_worlds:Many-v0': it has no render mode 'rgb_array', only: none"):
        make_visible("gym:gym_worlds:Many-v0", seed=0, frame_skip=1)
    pong = make_visible("gym:protein.envs_c.gymnasium:protein/pong-v0", seed=0, frame_skip=1)
    first = np.zeros((1, 8), np.float32)
    pong.envs.reset(3, first)
    ours = envs_c.drawing.frame(envs_c.VecEnv("pong", 1), first)
    np.testing.assert_array_equal(pong.draw(first), ours)


def test_a_users_own_may_draw_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documentation = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
    example = re.search(r"```python\n(.*?)```", documentation, re.DOTALL)
    assert example is not None
    (tmp_path / "drawn_example.py").write_text(
        example[1] + "\n\nclass Drawn(Walk):\n    render_fps = 5\n"
        "    def render(self): return np.full((2, 2, 3), 9, np.uint8)\n\n"
        "class Grey(Walk):\n    def render(self): return np.zeros((2, 2))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    visible = make_visible("python:drawn_example:Drawn", seed=0, frame_skip=1)
    observations = np.zeros((1, 1), np.float32)
    assert visible.decisions_per_second == 5
    assert visible.draw(observations).tolist() == [[[9] * 3] * 2] * 2
    with pytest.raises(ConfigError, match="a picture is height x width x 3 of uint8"):
        make_visible("python:drawn_example:Grey", seed=0, frame_skip=1).draw(observations)
    with pytest.raises(ConfigError, match=r"cannot be drawn: it has no render\(\): see docs/environments.md"):
        make_visible("python:drawn_example:Walk", seed=0, frame_skip=1).draw(observations)
