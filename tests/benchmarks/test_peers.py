"""The benchmark against other trainers: peers learn as published, and every method is measured in one way."""

import json
import math
from pathlib import Path
from typing import Any

import gymnasium
import machine
import measured_run
import numpy as np
import pytest
import solve
import torch
from curves import draw
from goals import GOALS, goal
from peers import clean, worlds
from peers.recording import WINDOW, Recording
from peers.settings import CLEAN, RUST, STABLE

from protein.trainer.environments import spec


def test_the_goal_of_an_environment_is_its_own_unless_another_is_stated() -> None:
    assert goal("pong") == spec("pong").solved_score == 20
    assert goal("gym:CartPole-v1") == 475
    assert goal("gym:HalfCheetah-v5") == GOALS["gym:HalfCheetah-v5"] == 3000


def test_both_peers_have_settings_for_the_same_environments() -> None:
    assert STABLE.keys() == CLEAN.keys()
    for stable in STABLE.values():  # the library would warn of a last minibatch that is smaller
        assert stable.num_envs * stable.arguments["n_steps"] % stable.arguments["batch_size"] == 0
    assert not any(CLEAN[name].normalize or CLEAN[name].network != "mlp" for name in RUST)
    for settings in CLEAN.values():
        assert settings.num_envs * settings.num_steps % settings.num_minibatches == 0


def test_a_recording_ends_at_the_goal_and_knows_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    recording = Recording(goal=10.0, max_seconds=math.inf)
    recording.begin()
    for _ in range(WINDOW):
        recording.episode(0.0)
    assert not recording.step(4)
    for _ in range(WINDOW - 1):
        recording.episode(10.0)
    assert not recording.step(4)  # the mean is 9.9
    recording.episode(10.0)
    assert recording.step(4)
    recording.finish()
    result = json.loads(capsys.readouterr().out)
    assert (result["solved_steps"], result["steps"], result["score"]) == (12, 12, 10.0)
    assert 0 <= result["solved_seconds"] == result["seconds"]
    assert result["waited_seconds"] >= 0


def test_a_recording_ends_at_the_limit_without_a_score(capsys: pytest.CaptureFixture[str]) -> None:
    recording = Recording(goal=10.0, max_seconds=0.0)
    recording.begin()
    recording.episode(50.0)  # one episode is no mean of a hundred
    assert recording.step(1)
    recording.finish()
    result = json.loads(capsys.readouterr().out)
    assert result["solved_seconds"] is None
    assert result["curve"] == []


class Rewarding(gymnasium.Env[Any, Any]):
    """Three steps an episode, with rewards 5, 6 and 7."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(1, np.float32), 4.0 + self.steps, self.steps == 3, False, {}


def test_scores_are_those_of_the_game_below_clipped_rewards() -> None:
    scores: list[float] = []
    clipped = gymnasium.wrappers.TransformReward(
        worlds.Scored(Rewarding(), scores.append), lambda r: min(float(r), 1.0)
    )
    for _ in range(2):
        clipped.reset()
        assert sum(float(clipped.step(0)[1]) for _ in range(3)) == 3.0
    assert scores == [18.0, 18.0]


def test_our_own_games_are_one_batch_whose_scores_are_told() -> None:
    envs = worlds.make_own("pong", 64)
    envs.reset(seed=0)
    scores = []
    for _ in range(2000):
        scores += worlds.own_scores(envs.step(np.zeros(64, np.int64))[4])
    assert len(scores) >= 64
    assert all(-21 <= score <= 21 for score in scores)


def test_advantages_are_sums_of_discounted_errors() -> None:
    settings = CLEAN["gym:CartPole-v1"]
    generator = torch.Generator().manual_seed(0)
    steps, envs = 7, 3
    rewards, values = (torch.randn(steps, envs, generator=generator) for _ in range(2))
    ends = (torch.rand(steps, envs, generator=generator) < 0.3).float()
    last = torch.randn(envs, generator=generator)
    got = clean.advantages_of(rewards, values, ends, last, settings)
    after = torch.cat([values[1:], last.unsqueeze(0)])
    for env in range(envs):
        for t in range(steps):
            want, weight = 0.0, 1.0
            for k in range(t, steps):
                alive = 1.0 - float(ends[k, env])
                error = float(rewards[k, env]) + settings.gamma * float(after[k, env]) * alive - float(values[k, env])
                want += weight * error
                weight *= settings.gamma * settings.gae_lambda * alive
            assert float(got[t, env]) == pytest.approx(want, abs=1e-5)


def test_the_written_peer_trains(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    recording = Recording(goal=-math.inf, max_seconds=math.inf)  # any hundred episodes end it
    try:
        clean.train("gym:CartPole-v1", 0, recording)
    finally:
        torch.set_num_threads(threads)
    recording.finish()
    result = json.loads(capsys.readouterr().out)
    settings = CLEAN["gym:CartPole-v1"]
    assert result["steps"] > 2 * settings.num_envs * settings.num_steps  # it has made updates
    assert 15 < result["score"] < 60  # of random play, and a little learnt


def test_the_librarys_peer_takes_the_published_settings(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("stable_baselines3")
    from peers import stable

    for name in ("gym:CartPole-v1", "pong"):
        recording = Recording(goal=math.inf, max_seconds=0.0)
        stable.train(name, 0, recording)
        recording.finish()
        assert json.loads(capsys.readouterr().out)["steps"] == STABLE[name].num_envs


def test_the_modular_librarys_peer_makes_updates(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("skrl")
    from peers import modular

    recording = Recording(goal=-math.inf, max_seconds=math.inf)  # any hundred episodes end it
    modular.train("gym:CartPole-v1", 0, recording, str(tmp_path))
    recording.finish()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    settings = CLEAN["gym:CartPole-v1"]
    assert result["steps"] > 2 * settings.num_envs * settings.num_steps
    assert not list(tmp_path.iterdir()), "it writes nothing"


def test_our_games_behind_the_librarys_interface_bootstrap_only_what_was_cut_off() -> None:
    pytest.importorskip("stable_baselines3")
    from peers import stable

    scores: list[float] = []
    envs = stable.Native("cartpole", 4, scores.append)
    envs.seed(0)
    envs.reset()
    ended = 0
    for _ in range(300):
        _, _, dones, infos = envs.step(np.ones(4, np.int64))
        for row in range(4):
            assert ("terminal_observation" in infos[row]) == bool(dones[row])
            if dones[row]:
                assert infos[row]["TimeLimit.truncated"] is False  # the pole fell
                ended += 1
    assert len(scores) == ended > 4


def test_a_configuration_is_told_by_everything_but_its_seed() -> None:
    settings = measured_run.settings_of("pong", 1)
    other_seed = {**settings, "train": {**settings["train"], "seed": 7}}
    other_rate = {**settings, "train": {**settings["train"], "learning_rate": 0.5}}
    assert measured_run.digest(settings) == measured_run.digest(other_seed) != measured_run.digest(other_rate)


def test_a_setting_that_was_added_later_makes_no_other_configuration() -> None:
    settings = measured_run.settings_of("pong", 1)
    before = {key: value for key, value in settings["policy"].items() if key != "activation"}
    assert measured_run.digest({**settings, "policy": before}) == measured_run.digest(settings)
    used = {**settings, "policy": {**settings["policy"], "activation": "tanh"}}
    assert measured_run.digest(used) != measured_run.digest(settings)


def test_curves_are_drawn_also_where_a_run_has_none(tmp_path: Path) -> None:
    ours = {"environment": "pong", "method": "ours", "goal": 20.0, "curve": [[64, 0.5, -3.0], [128, 1.0, 4.0]]}
    draw(tmp_path / "a.png", [ours, {**ours, "method": "peer", "curve": []}], {"ours": "blue", "peer": "red"}, log=True)
    draw(tmp_path / "b.png", [ours], {"ours": "blue"})
    pictures = [(tmp_path / name).read_bytes() for name in ("a.png", "b.png")]
    assert all(picture.startswith(b"\x89PNG") for picture in pictures) and pictures[0] != pictures[1]


def test_runs_are_kept_one_by_one_and_only_missing_ones_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "RESULTS", tmp_path)
    drawn: list[int] = []
    monkeypatch.setattr(solve, "draw", lambda path, runs, colors: drawn.append(len(runs)))
    config = measured_run.digest(measured_run.settings_of("pong", 1))
    old = {"environment": "pong", "config": "old", "seed": 0, "target": 20.0}
    other = {"environment": "snake", "seed": 0, "target": 20.0}  # of a release that kept no digest
    machine.write_result("solve", [old, other])
    assert solve.kept("pong", 1, [0, 1]) == []
    for seed in (1, 0, 1):
        solve.keep({"environment": "pong", "config": config, "seed": seed, "target": 20.0})
    assert drawn == [2, 3, 3]
    assert [(run["environment"], run["seed"]) for run in solve.rows()] == [("pong", 0), ("pong", 1), ("snake", 0)]
    assert {run["seed"] for run in solve.kept("pong", 1, [0, 1])} == {0, 1}
    assert {run["seed"] for run in solve.kept("pong", 1, [1])} == {1}
