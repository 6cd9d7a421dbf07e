"""Breakout: the rules that its header promises, and that it is worth learning: hard for chance, clear for good play."""

import numpy as np
import numpy.typing as npt
import pytest
from env_buffers import SENTINEL, Stepper

Floats = npt.NDArray[np.float64]

LINES, HALF, LIMIT = 32, 0.15625, 0.84375
PADDLE_SPEED, BALL_VX_MAX = 0.03125, 0.03
MAX_FRAMES = 20_000
STAY, LEFT, RIGHT = 0, 1, 2


def landing_x(observations: npt.NDArray[np.float32]) -> Floats:
    """Where a falling ball will be on the paddle's line, as the walls fold its straight flight; bricks aside."""
    straight = observations[:, 1] + observations[:, 3] * BALL_VX_MAX * (observations[:, 2].astype(float) + 1) * LINES
    folded: Floats = (straight + 1) % 4
    landing: Floats = np.where(folded > 2, 4 - folded, folded) - 1
    return landing


def meet(observations: npt.NDArray[np.float32], frame_skip: int, offset: float) -> npt.NDArray[np.int32]:
    """Waits under the ball while it rises, then goes to where it will come down, `offset` half paddles aside."""
    falling = observations[:, 4] < 0
    target = np.where(falling, landing_x(observations) - offset * HALF, observations[:, 1])
    error = target - observations[:, 0]
    near = PADDLE_SPEED * frame_skip / 2
    return np.where(error > near, RIGHT, np.where(error < -near, LEFT, STAY)).astype(np.int32)


def test_who_meets_the_ball_clears_the_wall() -> None:
    stepper = Stepper("breakout", 32, seed=1, frame_skip=4)
    for _ in range(5000):
        stepper.step(meet(stepper.out.observations, 4, 0.0))
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) >= 32
    assert episodes.score.mean() >= stepper.vec.spec.solved_score


def test_chance_breaks_a_few_bricks() -> None:
    rng = np.random.default_rng(0)
    stepper = Stepper("breakout", 256, seed=2, frame_skip=4)
    for _ in range(400):
        stepper.step(rng.integers(0, 3, 256, dtype=np.int32))
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 1000
    assert 0.5 < episodes.score.mean() < 2


def test_observations_stay_in_range_and_bricks_are_what_is_scored() -> None:
    low = np.concatenate([[-LIMIT, -1, -1, -1, -1], np.zeros(73)]).astype(np.float32)
    high = np.concatenate([[LIMIT, 1, 1, 1, 1], np.ones(73)]).astype(np.float32)
    stepper = Stepper("breakout", 100, seed=3, frame_skip=3)
    lowest, highest = np.full(78, np.inf, np.float32), np.full(78, -np.inf, np.float32)
    rng = np.random.default_rng(3)
    for step in range(2500):
        before = stepper.out.observations.copy()
        actions = meet(before, 3, 0.8)
        if step % 500 > 400:
            actions = rng.integers(0, 3, 100, dtype=np.int32)
        actions[:10] = 1 + (np.arange(10) + step // 80) % 2  # drives paddles against the walls
        out = stepper.step(actions)
        after = out.observations
        assert (low <= after).all()
        assert (after <= high).all()
        lowest, highest = np.minimum(lowest, after.min(axis=0)), np.maximum(highest, after.max(axis=0))
        assert np.isin(after[:, 6:], (0, 1)).all()
        going = ~(out.terminals | out.truncations)
        assert (after[going, 6:] <= before[going, 6:]).all()  # nothing is built up again
        assert np.array_equal((before[:, 6:] - after[:, 6:]).sum(axis=1)[going], out.rewards[going])
        fresh = after[~going]
        assert (fresh[:, 6:] == 1).all()
        assert (fresh[:, 5] == 1).all()
        # A ball is lost one by one, and the next is served from the middle.
        lost = going & (after[:, 5] < before[:, 5])
        assert after[lost, 5] == pytest.approx(before[lost, 5] - 1 / 3, abs=1e-6)
    assert lowest == pytest.approx(np.where(np.arange(78) == 5, 1 / 3, low), abs=0.02)
    assert highest == pytest.approx(high, abs=0.02)
    assert len(stepper.vec.drain_episodes()) > 30


def test_the_ball_is_never_inside_a_brick_and_turns_where_it_hits_one() -> None:
    stepper = Stepper("breakout", 64, seed=4)
    turned_up_or_down = turned_aside = 0
    for _ in range(6000):
        before = stepper.out.observations.copy()
        out = stepper.step(meet(before, 1, 0.9))
        after = out.observations
        line = np.rint(after[:, 2] * LINES).astype(int)
        row = (line - 8) // 2
        column = np.minimum(((after[:, 1] + np.float32(1)) * np.float32(6)).astype(int), 11)
        within = (line >= 8) & (row < 6)
        brick = after[np.arange(64), 6 + 12 * np.where(within, row, 0) + column]
        assert (brick[within] == 0).all()
        hit = (out.rewards == 1) & ~out.terminals & ~out.truncations
        assert np.array_equal(after[hit, 1:3], before[hit, 1:3])  # it stays where it was for that frame
        up_or_down = hit & (after[:, 4] == -before[:, 4])
        aside = hit & (after[:, 4] == before[:, 4])
        bounced = np.abs(before[:, 1] + before[:, 3] * BALL_VX_MAX) > 1 - 1e-6  # off a side wall in the same frame
        assert (after[:, 3] == -before[:, 3])[aside & ~bounced].all()
        assert (after[:, 3] == before[:, 3])[up_or_down & ~bounced].all()
        turned_up_or_down += int(up_or_down.sum())
        turned_aside += int(aside.sum())
    assert turned_up_or_down > 1000
    assert turned_aside > 50


@pytest.mark.parametrize("frame_skip", [2, 5])
def test_a_step_is_its_frames_one_by_one(frame_skip: int) -> None:
    held, single = Stepper("breakout", 64, seed=5, frame_skip=frame_skip), Stepper("breakout", 64, seed=5)
    for _ in range(300):
        actions = meet(held.out.observations, frame_skip, 0.3)
        out = held.step(actions)
        rewards = np.zeros(64, np.float32)
        for _ in range(frame_skip):
            rewards += single.step(actions).rewards
        assert not out.terminals.any()
        assert out.observations.tobytes() == single.out.observations.tobytes()
        assert out.rewards.tobytes() == rewards.tobytes()


def test_the_clock_truncates_and_leaves_the_last_observation() -> None:
    """Play that always meets the ball with the same spot of the paddle ends in a loop that meets no brick."""
    stepper = Stepper("breakout", 64, seed=6, frame_skip=1)
    broken = np.zeros(64)
    truncated = 0
    for _ in range(MAX_FRAMES):
        out = stepper.step(meet(stepper.out.observations, 1, 0.0))
        broken += out.rewards
        for env in np.flatnonzero(out.truncations):
            last = out.final_observations[env]
            assert broken[env] == 72 - last[6:].sum()
            assert out.observations[env, 6:].tolist() == [1] * 72
        assert (out.final_observations[~out.truncations] == SENTINEL).all()
        truncated += int(out.truncations.sum())
        broken[out.terminals | out.truncations] = 0
    episodes = stepper.vec.drain_episodes()
    by_clock = episodes.length == MAX_FRAMES
    assert truncated == by_clock.sum() > 4
    assert (episodes.score[by_clock] < 72).all()
