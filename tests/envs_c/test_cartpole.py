"""Cartpole: its physics against the textbook's equations in float64, and its ends."""

import numpy as np
import numpy.typing as npt
import pytest
from env_buffers import SENTINEL, Stepper

ANGLE_LIMIT, POSITION_LIMIT, MAX_FRAMES = np.pi / 15, 2.4, 500


def one_frame(state: npt.NDArray[np.float64], actions: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """Barto, Sutton and Anderson's equations without friction, one Euler step of 0.02 s."""
    _, velocity, angle, spin = state.T
    force = np.where(actions == 1, 10.0, -10.0)
    push = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
    spin_rate = (9.8 * np.sin(angle) - np.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
    acceleration = push - 0.05 * spin_rate * np.cos(angle) / 1.1
    rates = np.stack([velocity, acceleration, spin, spin_rate], axis=1)
    return state + 0.02 * rates


def balance(observations: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """A linear policy that holds the pole up and the cart near the middle."""
    return (observations @ np.array([0.05, 0.2, 1.0, 0.5], np.float32) > 0).astype(np.int32)


def test_every_frame_follows_the_equations() -> None:
    rng = np.random.default_rng(0)
    stepper = Stepper("cartpole", 128, seed=1)
    compared = ends = 0
    for step in range(300):
        before = stepper.out.observations.astype(float)
        actions = rng.integers(0, 2, 128, dtype=np.int32)
        actions[:64] = balance(stepper.out.observations[:64])
        actions[:16] = step // 8 % 2
        out = stepper.step(actions)
        expected = one_frame(before, actions)
        fell = (np.abs(expected[:, 0]) > POSITION_LIMIT) | (np.abs(expected[:, 2]) > ANGLE_LIMIT)
        assert np.array_equal(out.terminals, fell)
        assert out.observations[~fell] == pytest.approx(expected[~fell], abs=2e-6)
        assert (np.abs(out.observations[fell]) <= 0.05).all()
        assert (out.rewards == 1).all()
        assert (np.abs(out.observations[:, [1, 3]]) < 10).all()
        compared, ends = compared + int((~fell).sum()), ends + int(fell.sum())
    assert compared > 30_000
    assert ends > 300


@pytest.mark.parametrize("frame_skip", [1, 3])
def test_who_balances_is_truncated_at_the_full_score(frame_skip: int) -> None:
    stepper = Stepper("cartpole", 32, seed=2, frame_skip=frame_skip)
    steps = -(-MAX_FRAMES // frame_skip)
    for _ in range(steps - 1):
        out = stepper.step(balance(stepper.out.observations))
        assert not out.terminals.any()
        assert not out.truncations.any()
        assert (out.final_observations == SENTINEL).all()
    last = stepper.out.observations.astype(float)
    actions = balance(stepper.out.observations)
    out = stepper.step(actions)
    assert out.truncations.all()
    assert not out.terminals.any()
    frames = MAX_FRAMES - frame_skip * (steps - 1)
    assert (out.rewards == frames).all()
    for _ in range(frames):
        last = one_frame(last, actions)
    assert out.final_observations == pytest.approx(last, abs=1e-5)
    episodes = stepper.vec.drain_episodes()
    assert episodes.score.tolist() == [500] * 32
    assert episodes.length.tolist() == [steps] * 32


def test_chance_falls_within_some_twenty_frames() -> None:
    rng = np.random.default_rng(3)
    stepper = Stepper("cartpole", 256, seed=3)
    for _ in range(300):
        stepper.step(rng.integers(0, 2, 256, dtype=np.int32))
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 2000
    assert 20 < episodes.score.mean() < 25
    assert np.array_equal(episodes.score, episodes.length)
