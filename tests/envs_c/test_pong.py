"""Pong: the rules that its header promises, and that it is worth learning: hard for chance, 21:0 for whoever aims."""

import numpy as np
import numpy.typing as npt
import pytest
from env_buffers import SENTINEL, Stepper

Floats = npt.NDArray[np.float64]

# The header's constants, in frames and court units.
CROSSING = 60
HALF, LIMIT = 0.1875, 0.8125
PLAYER_SPEED, OPPONENT_SPEED = 0.015625, 0.01171875
BALL_VY_MAX = 0.04
MAX_FRAMES = 16_000
STAY, UP, DOWN = 0, 1, 2


def landing_y(observations: npt.NDArray[np.float32]) -> Floats:
    """Where the ball will be on the player's line, as the walls fold its straight flight."""
    x, y, slope = observations[:, 2].astype(float), observations[:, 3], observations[:, 5]
    straight = y + slope * BALL_VY_MAX * (1 - x) / 2 * CROSSING
    folded: Floats = (straight + 1) % 4
    landing: Floats = np.where(folded > 2, 4 - folded, folded) - 1
    return landing


def aim(observations: npt.NDArray[np.float32], frame_skip: int, offset: float) -> npt.NDArray[np.int32]:
    """Meets the ball at `offset` half paddles from the middle, so that it leaves towards the farther wall."""
    landing = landing_y(observations)
    side = np.where(landing > 0, 1, -1)
    target = np.where(observations[:, 4] > 0, landing + side * offset * HALF, 0)
    error = target - observations[:, 0]
    near = PLAYER_SPEED * frame_skip / 2
    return np.where(error > near, UP, np.where(error < -near, DOWN, STAY)).astype(np.int32)


@pytest.mark.parametrize("frame_skip", [1, 4, 8])
def test_who_aims_wins_by_at_least_20(frame_skip: int) -> None:
    stepper = Stepper("pong", 24, seed=1, frame_skip=frame_skip)
    for _ in range(10_000 // frame_skip):
        stepper.step(aim(stepper.out.observations, frame_skip, 0.5))
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) >= 24
    assert episodes.score.mean() >= 20
    assert episodes.score.max() == 21


@pytest.mark.parametrize("frame_skip", [1, 4, 8])
def test_chance_loses_clearly_but_scores_now_and_then(frame_skip: int) -> None:
    rng = np.random.default_rng(0)
    stepper = Stepper("pong", 256, seed=2, frame_skip=frame_skip)
    for _ in range(6000 // frame_skip):
        stepper.step(rng.integers(0, 3, 256, dtype=np.int32))
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 256
    assert -21 < episodes.score.mean() < -17
    assert episodes.length.mean() * frame_skip == pytest.approx(2200, rel=0.05)


def test_observations_and_scores_stay_in_the_stated_ranges() -> None:
    low = np.array([-LIMIT, -LIMIT, -1, -1, -1, -1, 0, 0], np.float32)
    rng = np.random.default_rng(3)
    stepper = Stepper("pong", 200, seed=3, frame_skip=3)
    lowest, highest = np.full(8, np.inf, np.float32), np.full(8, -np.inf, np.float32)
    points = np.zeros(200)
    for _ in range(1600):
        # Half of them keep a direction for long, so that paddles are driven against the walls.
        actions = rng.integers(0, 3, 200, dtype=np.int32)
        actions[:100] = 1 + (np.arange(100) + stepper.steps // 40) % 2
        before = stepper.out.observations.copy()
        out = stepper.step(actions)
        after = out.observations
        assert (low <= after).all()
        assert (after <= np.where(low < 0, -low, 1)).all()
        assert np.isin(after[:, 4], (-1, 1)).all()
        lowest, highest = np.minimum(lowest, after.min(axis=0)), np.maximum(highest, after.max(axis=0))
        # Points are whole, and their difference is the sum of the rewards.
        going = ~(out.terminals | out.truncations)
        gained = np.rint((after[:, 6:] - before[:, 6:]) * 21)
        assert np.array_equal((gained[:, 0] - gained[:, 1])[going], out.rewards[going])
        points = np.where(going, points + out.rewards, 0)
        assert after[:, 6:] * 21 == pytest.approx(np.rint(after[:, 6:] * 21), abs=1e-5)
        assert (np.abs(points) < 21).all()
    assert lowest[:5] == pytest.approx(low[:5], abs=1e-3)
    assert highest[:5] == pytest.approx(-low[:5], abs=1e-3)
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 200
    assert np.array_equal(episodes.score, episodes.return_)
    assert ((episodes.score >= -21) & (episodes.score <= 21)).all()


@pytest.mark.parametrize("frame_skip", [2, 7, 8])
def test_a_step_is_its_frames_one_by_one(frame_skip: int) -> None:
    rng = np.random.default_rng(4)
    held, single = Stepper("pong", 64, seed=4, frame_skip=frame_skip), Stepper("pong", 64, seed=4)
    for _ in range(150):
        actions = rng.integers(0, 3, 64, dtype=np.int32)
        out = held.step(actions)
        rewards = np.zeros(64, np.float32)
        for _ in range(frame_skip):
            rewards += single.step(actions).rewards
        assert not out.terminals.any()
        assert out.observations.tobytes() == single.out.observations.tobytes()
        assert out.rewards.tobytes() == rewards.tobytes()


def test_the_observation_is_all_that_the_next_one_depends_on() -> None:
    """Predicts every frame from the last observation alone, but for draws: after a point and after a return."""
    rng = np.random.default_rng(5)
    stepper = Stepper("pong", 64, seed=5)
    predicted = 0
    for _ in range(1000):
        before = stepper.out.observations.astype(float)
        actions = rng.integers(0, 3, 64, dtype=np.int32)
        after = stepper.step(actions).observations
        player = np.clip(before[:, 0] + np.array([0, PLAYER_SPEED, -PLAYER_SPEED])[actions], -LIMIT, LIMIT)
        gap = np.clip(before[:, 3], -LIMIT, LIMIT) - before[:, 1]
        opponent = before[:, 1] + np.clip(gap, -OPPONENT_SPEED, OPPONENT_SPEED)
        x = before[:, 2] + before[:, 4] * 2 / CROSSING
        y = before[:, 3] + before[:, 5] * BALL_VY_MAX
        over = np.abs(y) > 1
        y, slope = np.where(over, np.sign(y) * 2 - y, y), np.where(over, -before[:, 5], before[:, 5])
        at_player, at_opponent = x > 1 - 1e-4, x < -1 + 1e-4
        returned = at_player & (np.abs(y - player) <= HALF)
        slope = np.where(returned, (y - player) / HALF, slope)
        direction = np.where(returned, -1, before[:, 4])
        known = ~(at_player & ~returned) & ~at_opponent & (np.abs(np.abs(y - player) - HALF) > 1e-4)
        expected = np.stack([player, opponent, x, y, direction, slope, before[:, 6], before[:, 7]], axis=1)
        assert after[known] == pytest.approx(expected[known], abs=1e-5)
        predicted += int(known.sum())
    assert predicted > 60_000


def test_the_clock_truncates_and_leaves_the_last_observation() -> None:
    """Whoever returns every ball with the middle of the paddle seldom scores: such games end by the clock."""
    stepper = Stepper("pong", 16, seed=6, frame_skip=7)  # 7 does not divide the limit: the last step is shorter
    rewards = np.zeros(16)
    truncated = 0
    for _ in range(-(-MAX_FRAMES // 7)):
        out = stepper.step(aim(stepper.out.observations, 7, 0.0))
        rewards += out.rewards
        ended = out.terminals | out.truncations
        for env in np.flatnonzero(out.truncations):
            last = out.final_observations[env]
            assert rewards[env] == pytest.approx((last[6] - last[7]) * 21, abs=1e-4)
            assert out.observations[env, [0, 1, 2, 3, 6, 7]].tolist() == [0] * 6
        assert (out.final_observations[~out.truncations] == SENTINEL).all()
        truncated += int(out.truncations.sum())
        rewards[ended] = 0
    assert truncated >= 4
    episodes = stepper.vec.drain_episodes()
    by_clock = episodes.length == -(-MAX_FRAMES // 7)
    assert by_clock.sum() == truncated
    assert (np.abs(episodes.score[by_clock]) < 21).all()
    assert (np.abs(episodes.score[~by_clock]) <= 21).all()
