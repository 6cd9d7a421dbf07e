"""Procgen's games behind our interface: against Procgen's own play, and the same levels whatever the batch is."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from batches import Batch

from protein.trainer.environments import make, resume, spec
from protein.trainer.environments.instances import instance_seed
from protein.trainer.errors import ConfigError

pytest.importorskip("procgen")

COINRUN = "procgen:coinrun"
EASY = {"distribution_mode": "easy"}


def scripted(num_envs: int) -> np.ndarray:
    """Actions of 400 steps; mostly to the right, so that games end. The first instances' are the same in any batch."""
    generator = np.random.default_rng(0)
    return np.where(generator.random((400, 8)) < 0.7, 7, generator.integers(0, 15, (400, 8)))[:, :num_envs]


def play(num_envs: int = 1, seed: int = 1, **options: Any) -> tuple[list[bytes], list[float]]:
    """Returns what the first instance observed and was rewarded with in every step, and all scores."""
    batch = Batch(COINRUN, num_envs, args=EASY, **options)
    batch.envs.reset(seed, batch.observations)
    seen = [batch.observations[0].tobytes()]
    for actions in scripted(num_envs):
        batch.step(actions)
        seen.append(batch.observations[0].tobytes() + batch.rewards[:1].tobytes() + batch.terminals[:1].tobytes())
        assert not batch.truncations.any()
    scores = batch.envs.drain_episodes().score.tolist()
    batch.envs.close()
    batch.envs.close()
    return seen, scores


def test_games_are_those_of_procgen() -> None:
    from procgen import ProcgenGym3Env

    assert (spec(COINRUN).observation_shape, spec(COINRUN).observation_dtype) == ((3, 64, 64), "uint8")
    batch = Batch(COINRUN, 2, args=EASY)
    batch.envs.reset(3, batch.observations)
    theirs = [ProcgenGym3Env(num=1, env_name="coinrun", rand_seed=instance_seed(3, i), **EASY) for i in range(2)]
    ends, total = 0, 0.0
    for actions in scripted(2):
        batch.step(actions)
        for row, (game, action) in enumerate(zip(theirs, actions, strict=True)):
            game.act(np.array([action]))
            reward, seen, first = game.observe()
            assert (batch.rewards[row], batch.terminals[row]) == (reward[0], first[0])
            np.testing.assert_array_equal(batch.observations[row].reshape(3, 64, 64), seen["rgb"][0].transpose(2, 0, 1))
            ends, total = ends + int(first[0]), total + float(reward[0])
    episodes = batch.envs.drain_episodes()
    assert len(episodes) == ends >= 2 and total > 0
    assert episodes.score.sum() == total


def test_games_depend_on_seed_and_index_and_not_on_threads_or_the_batch() -> None:
    seen, scores = play()
    assert scores, "a game has ended"
    assert play(3, threads=3)[0] == seen
    assert play(seed=2)[0] != seen
    assert play(first_index=1)[0] != seen


def test_a_resumed_run_goes_on_with_the_same_games() -> None:
    batch, other = Batch(COINRUN, 2, args=EASY), Batch(COINRUN, 2, args=EASY)
    batch.envs.reset(5, batch.observations)
    actions = scripted(2)
    for row in actions[:50]:
        batch.step(row)
    batch.envs.drain_episodes()
    assert resume(other.envs, batch.envs.get_state(), other.observations)
    for row in actions[50:]:
        batch.step(row)
        other.step(row)
        np.testing.assert_array_equal(batch.observations, other.observations)
    (ours, theirs) = (one.envs.drain_episodes() for one in (batch, other))
    assert ours.length.tolist() == theirs.length.tolist() != []
    assert ours.score.tolist() == theirs.score.tolist()
    for wrong in (make(COINRUN, 3, args=EASY), make("procgen:maze", 2)):
        with pytest.raises(ValueError, match="the state is not of"):
            wrong.set_state(batch.envs.get_state())
    with pytest.raises(ValueError, match="bytes where"):
        other.envs.set_state(batch.envs.get_state()[:-1])


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("procgen:coinrum", {}, "Procgen has no game 'coinrum'; did you mean 'coinrun'"),
        (COINRUN, {"num_level": 3}, "takes no argument env.args.num_level; did you mean 'num_levels'"),
        (COINRUN, {"rand_seed": 3}, "takes no argument env.args.rand_seed"),
        (COINRUN, {"num_levels": -1}, "num_levels of .* must be a whole number from 0 to 2147483647, got -1"),
        (COINRUN, {"num_levels": True}, "num_levels of .* must be a whole number from 0"),
        (COINRUN, {"use_backgrounds": 1}, "use_backgrounds of .* must be true or false, got 1"),
        (COINRUN, {"distribution_mode": "memory"}, 'must be one of "easy", "hard", "exploration", got \'memory\''),
        (COINRUN, {"distribution_mode": ["easy"]}, "must be one of .* got "),
        (COINRUN, {"distribution_mode": "exploration", "start_level": 3}, "start_level of .* is fixed in the mode"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(name: str, args: dict[str, Any], message: str) -> None:
    for call in (lambda: spec(name, args), lambda: make(name, 2, args=args)):
        with pytest.raises(ConfigError, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)


def test_actions_cannot_be_repeated() -> None:
    with pytest.raises(ConfigError, match=r"cannot repeat actions, got env.frame_skip = 2: set it to 1"):
        make(COINRUN, 2, frame_skip=2)


def test_the_modes_that_are_refused_are_those_that_procgen_ends_the_process_for() -> None:
    code = "import procgen, sys; procgen.ProcgenGym3Env(num=1, env_name='{}', distribution_mode='{}')"
    for game, mode, works in [("maze", "memory", True), ("maze", "extreme", False), ("chaser", "extreme", True)]:
        done = subprocess.run([sys.executable, "-c", code.format(game, mode)], capture_output=True, check=False)
        assert (done.returncode == 0) == works
        if works:
            spec(f"procgen:{game}", {"distribution_mode": mode})
        else:
            with pytest.raises(ConfigError, match="must be one of"):
                spec(f"procgen:{game}", {"distribution_mode": mode})
