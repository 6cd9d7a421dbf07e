"""Pendulum: the published equations and reward, and that a swing-up solves it while chance does not."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from env_buffers import SENTINEL, Stepper

from protein import envs_c

MAX_FRAMES = 200
Floats = npt.NDArray[np.float64]


def one_frame(angle: Floats, spin: Floats, actions: Floats) -> tuple[Floats, Floats, Floats]:
    """The next angle (unwrapped) and spin, and the reward, in float64 and with numpy's own functions."""
    torque = 2 * np.clip(actions, -1, 1)
    reward = -(angle**2 + 0.1 * spin**2 + 0.001 * torque**2)
    spin = np.clip(spin + (15 * np.sin(angle) + 3 * torque) * 0.05, -8, 8)
    return angle + spin * 0.05, spin, reward


def swing_up(observations: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Pumps energy until the rod has what it needs to stand, then holds it; shape `agents`."""
    cosine, sine, spin = observations.T.astype(float)
    energy = spin**2 / 6 + 5 * cosine  # 5 upright and at rest
    pump = np.sign(spin + 1e-9) * np.sign(5 - energy)
    hold = -8 * np.arctan2(sine, cosine) - 2 * spin
    torque: Floats = np.clip(np.where(cosine > 0.85, hold, pump), -1, 1)
    return torque.astype(np.float32)


def test_every_frame_follows_the_equations() -> None:
    rng = np.random.default_rng(0)
    stepper = Stepper("pendulum", 256, seed=1)
    turns = clipped = 0
    for step in range(400):
        before = stepper.out.observations.astype(float)
        actions = rng.uniform(-1.5, 1.5, 256).astype(np.float32)
        actions[:64] = swing_up(stepper.out.observations[:64])
        actions[64:128] = np.sign(before[64:128, 2])  # up to full speed and round and round
        angle = np.arctan2(before[:, 1], before[:, 0])
        angle, spin, reward = one_frame(angle, before[:, 2], actions.astype(float))
        out = stepper.step(actions)
        assert out.rewards == pytest.approx(reward, abs=2e-5)
        assert not out.terminals.any()
        assert (out.truncations == ((step + 1) % MAX_FRAMES == 0)).all()
        after = out.final_observations if out.truncations.any() else out.observations
        expected = np.stack([np.cos(angle), np.sin(angle), spin], axis=1)
        assert after == pytest.approx(expected, abs=3e-6)
        assert np.hypot(after[:, 0], after[:, 1]) == pytest.approx(1, abs=5e-7)
        assert (np.abs(after[:, :2]) <= 1).all()
        assert (np.abs(after[:, 2]) <= 8).all()
        turns += int((np.abs(angle) > np.pi).sum())
        clipped += int((np.abs(spin) == 8).sum())
    assert turns > 1000
    assert clipped > 1000


@pytest.mark.parametrize("frame_skip", [1, 3])
def test_a_swing_up_solves_it_within_its_200_frames(frame_skip: int) -> None:
    stepper = Stepper("pendulum", 256, seed=2, frame_skip=frame_skip)
    steps = -(-MAX_FRAMES // frame_skip)
    for _ in range(steps - 1):
        out = stepper.step(swing_up(stepper.out.observations))
        assert not out.truncations.any()
        assert (out.final_observations == SENTINEL).all()
    out = stepper.step(swing_up(stepper.out.observations))
    assert out.truncations.all()
    assert (out.final_observations[:, 0] > 0.99).mean() > 0.95  # they stand
    episodes = stepper.vec.drain_episodes()
    assert episodes.length.tolist() == [steps] * 256
    assert episodes.score.mean() >= stepper.vec.spec.solved_score
    assert episodes.score.max() < 0
    assert episodes.score.tolist() == episodes.return_.tolist()


def test_chance_and_rest_do_not() -> None:
    rng = np.random.default_rng(3)
    draws: tuple[Callable[[], npt.NDArray[np.float32]], ...] = (
        lambda: rng.uniform(-1, 1, 256).astype(np.float32),
        lambda: np.zeros(256, np.float32),
    )
    for draw in draws:
        stepper = Stepper("pendulum", 256, seed=3)
        for _ in range(MAX_FRAMES):
            stepper.step(draw())
        assert -1400 < stepper.vec.drain_episodes().score.mean() < -1000


def test_episodes_begin_anywhere() -> None:
    stepper = Stepper("pendulum", 4096, seed=4)
    cosine, sine, spin = stepper.out.observations.T
    angle = np.arctan2(sine, cosine)
    assert np.abs(np.histogram(angle, 8, (-np.pi, np.pi))[0] - 512).max() < 100
    assert np.abs(np.histogram(spin, 8, (-1, 1))[0] - 512).max() < 100


def test_what_is_beyond_the_range_is_clipped_and_what_is_no_number_refused() -> None:
    clipped, full = Stepper("pendulum", 8, seed=5), Stepper("pendulum", 8, seed=5)
    signs = np.array([1, -1] * 4, np.float32)
    for _ in range(50):
        assert clipped.step(signs * np.float32(3e38)).bytes() == full.step(signs).bytes()
    before = clipped.vec.get_state()
    for wrong in (np.nan, np.inf, -np.inf):
        actions = np.zeros(8, np.float32)
        actions[[5, 6]] = wrong
        with pytest.raises(ValueError, match=rf"actions\[5\] is {wrong}; pendulum takes finite numbers, -1 to 1$"):
            clipped.vec.step(actions, *clipped.out.arrays())
        assert clipped.vec.get_state() == before
    with pytest.raises(ValueError, match=r"float32 array of shape \(8,\), got dtype int32"):
        clipped.vec.step(np.zeros(8, np.int32), *clipped.out.arrays())


def test_the_spec_says_that_it_is_continuous() -> None:
    spec = envs_c.spec("pendulum")
    assert (spec.action_sizes, spec.continuous_actions, spec.action_components) == ((), 1, 1)
