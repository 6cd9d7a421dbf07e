"""Template: the rules that its header promises, and that it is worth learning: hard for chance, clear for good play."""

import numpy as np
import numpy.typing as npt
import pytest
from env_buffers import SENTINEL, Stepper

LEFT, RIGHT = 0, 1
MAX_FRAMES = 20


def play_well(observations: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """Walks towards the target: from the observation alone, as a policy must."""
    return np.where(observations[:, 1] > observations[:, 0], RIGHT, LEFT).astype(np.int32)


@pytest.mark.parametrize("frame_skip", [1, 2])
def test_good_play_solves_it(frame_skip: int) -> None:
    stepper = Stepper("template", 64, seed=1, frame_skip=frame_skip)
    for _ in range(200):
        stepper.step(play_well(stepper.out.observations))
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 500
    assert episodes.score.mean() >= stepper.vec.spec.solved_score


def test_chance_does_not() -> None:
    rng = np.random.default_rng(0)
    stepper = Stepper("template", 256, seed=2)
    for _ in range(200):
        stepper.step(rng.integers(0, 2, 256, dtype=np.int32))
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 1000
    assert 0.6 < episodes.score.mean() < 0.8


def test_every_frame_follows_the_rules() -> None:
    """Each step against the rules as the header's head tells them, written down a second time."""
    rng = np.random.default_rng(3)
    stepper = Stepper("template", 128, seed=3)
    walls = 0
    for _ in range(300):
        before = np.rint(stepper.out.observations * 4).astype(int)
        actions = rng.integers(0, 2, 128, dtype=np.int32)
        out = stepper.step(actions)
        expected = np.clip(before[:, 0] + np.where(actions == RIGHT, 1, -1), -4, 4)
        walls += int((expected == before[:, 0]).sum())
        found = expected == before[:, 1]
        assert np.array_equal(out.terminals, found)
        assert np.array_equal(out.rewards, found)
        assert (np.abs(out.observations) <= 1).all()
        after = np.rint(out.observations * 4).astype(int)
        going = ~out.terminals & ~out.truncations
        assert np.array_equal(after[going, 0], expected[going])
        assert np.array_equal(after[going, 1], before[going, 1])
        assert (after[~going, 0] == 0).all()  # the next episode's first observation
        assert (after[~going, 1] != 0).all()
    assert walls > 100


def test_the_clock_truncates_and_leaves_the_last_observation() -> None:
    stepper = Stepper("template", 64, seed=4)
    truncated = 0
    for _ in range(100):
        target = stepper.out.observations[:, 1]
        away = np.where(target < 0, RIGHT, LEFT).astype(np.int32)
        out = stepper.step(away)
        assert (out.final_observations[~out.truncations] == SENTINEL).all()
        assert (out.rewards == 0).all()
        assert not out.terminals.any()
        last = out.final_observations[out.truncations]
        assert (np.abs(last[:, 0]) == 1).all()
        truncated += len(last)
    episodes = stepper.vec.drain_episodes()
    assert truncated == len(episodes) == 64 * 5
    assert (episodes.length == MAX_FRAMES).all()
    assert (episodes.score == 0).all()
