"""Atari's games: preprocessing against Gymnasium's own, lives, scores, threads and arguments."""

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from batches import Batch

from protein.trainer.environments import resume, spec
from protein.trainer.errors import ConfigError

pytest.importorskip("ale_py")

BREAKOUT = "gym:ALE/Breakout-v5"


def play(steps: int, num_envs: int = 2, seed: int = 1, **options: Any) -> tuple[list[bytes], int, Any]:
    """Returns what was observed, how many ends there were, and the episodes, with scripted actions."""
    batch = Batch(BREAKOUT, num_envs, **options)
    batch.envs.reset(seed, batch.observations)
    seen, ends = [], 0
    draws = np.random.default_rng(0).integers(0, 4, (steps, 8), np.int32)
    for actions in draws[:, :num_envs]:
        batch.step(actions[:, None])
        seen.append(batch.observations[0].tobytes() + batch.rewards[:1].tobytes())
        ends += int(batch.ends.sum())
    episodes = batch.envs.drain_episodes()
    batch.envs.close()
    batch.envs.close()
    return seen, ends, episodes


def test_a_lost_life_ends_nothing_but_the_return_that_training_sees() -> None:
    assert spec(BREAKOUT).observation_shape == (4, 84, 84)
    assert (spec(BREAKOUT).observation_dtype, spec(BREAKOUT).action_sizes) == ("uint8", (4,))
    training, lives, episodes = play(320, training=True)
    evaluation, games, same = play(320)
    assert training == evaluation, "the games are the same"
    assert games == len(episodes) == len(same) >= 2
    assert lives >= 5 * games
    assert episodes.score.tolist() == same.score.tolist() and max(episodes.score) > 0
    assert episodes.length.tolist() == same.length.tolist()


@pytest.mark.parametrize("args", [{"noop_max": 5}, {"noop_max": 30}, {"use_fire_reset": True}])
def test_games_that_begin_with_no_ops_or_with_fire_are_counted_one_by_one(args: dict[str, Any]) -> None:
    _, lives, episodes = play(400, training=True, args=args)
    _, games, same = play(400, args=args)
    assert games == len(episodes) == len(same) >= 2
    assert lives >= 5 * games
    assert episodes.score.tolist() == same.score.tolist() and episodes.length.tolist() == same.length.tolist()


def test_games_depend_on_seed_and_index_and_not_on_threads_or_the_batch() -> None:
    seen, _, _ = play(60, num_envs=1)
    assert play(60, num_envs=3, threads=3)[0] == seen
    assert play(60, num_envs=1, seed=2)[0] != seen
    assert play(60, num_envs=1, first_index=1)[0] != seen
    batch = Batch(BREAKOUT, 2)
    batch.envs.reset(1, batch.observations)
    assert not resume(batch.envs, batch.envs.get_state(), batch.observations)


def test_frames_are_those_of_gymnasiums_own_wrappers() -> None:
    """Without sticky actions a game is the same from its first frame on, whatever the seed."""
    pytest.importorskip("cv2")
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    batch = Batch(BREAKOUT, 1, args={"repeat_action_probability": 0.0})
    batch.envs.reset(1, batch.observations)
    plain = gymnasium.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0.0)
    theirs = FrameStackObservation(AtariPreprocessing(plain, noop_max=0, frame_skip=4), 4, padding_type="zero")
    theirs.reset(seed=1)
    total = 0.0
    for step, action in enumerate(np.random.default_rng(1).integers(0, 4, 200, np.int32)):
        seen, reward, terminal, _, _ = theirs.step(int(action))
        batch.step(np.array([action]))
        assert (batch.rewards[0], batch.ends[0, 0]) == (reward, terminal)
        if terminal:
            break
        if step >= 4:  # the first observation's stack is filled differently
            # The two shrink pictures by different libraries, which round differently.
            np.testing.assert_allclose(batch.observations[0].reshape(4, 84, 84), seen, atol=2)
        total += float(reward)
    assert total > 0


def test_arguments_are_ales() -> None:
    assert spec(BREAKOUT, {"full_action_space": True}).action_sizes == (18,)
    for args, message in (
        ({"frame_skp": 2}, "takes no argument env.args.frame_skp; did you mean 'frameskip'"),
        ({"reward_clipping": True}, "env.args.reward_clipping of 'gym:ALE/Breakout-v5' is given by the trainer"),
        (
            {"frameskip": 0},
            "env.args.frameskip of 'gym:ALE/Breakout-v5' must be a whole number between 1 and 1000, got 0",
        ),
        ({"noop_max": 1.5}, "noop_max .* must be a whole number between 0 and 10000, got 1.5"),
        ({"noop_max": True}, "noop_max .* must be a whole number between 0 and 10000, got True"),
        ({"max_num_frames_per_episode": -7}, "must be a whole number between 1 and 2147483647, got -7"),
        ({"repeat_action_probability": 2}, "repeat_action_probability .* must be a number between 0 and 1, got 2"),
        ({"repeat_action_probability": math.nan}, "must be a number between 0 and 1, got nan"),
        ({"full_action_space": "maybe"}, "full_action_space .* must be true or false, got 'maybe'"),
    ):
        with pytest.raises(ConfigError, match=message):
            spec(BREAKOUT, args)
    with pytest.raises(ConfigError, match=r"cannot make 'gym:ALE/Breakot-v5': .*Did you mean: `Breakout`"):
        spec("gym:ALE/Breakot-v5")
