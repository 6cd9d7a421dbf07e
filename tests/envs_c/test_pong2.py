"""Pong for two: the rules that its header promises, as each side sees them; what both have in common is in
`test_sides`."""

import numpy as np
from env_buffers import SENTINEL, Stepper

# The header's constants, in frames and court units.
CROSSING, HALF, LIMIT, SPEED, VY_MAX, CHANCE = 60, 0.1875, 0.8125, 0.0078125, 0.04, 0.004
MAX_FRAMES = 16_000


def scripts(stepper: Stepper, *pair: int) -> np.ndarray:
    """Who plays whom, in all games."""
    return np.tile(np.array(pair, np.int32), stepper.vec.num_envs)


def test_every_frame_is_what_the_rules_say_of_the_last_observation() -> None:
    """But for draws: the slope of a serve, and the little that chance adds to a return."""
    stepper = Stepper("pong2", 64, seed=5)
    chosen, actions = scripts(stepper, 2, 3), np.zeros((128, 1), np.int32)
    flown = returned = scored = 0
    for _ in range(800):
        before = stepper.out.observations.astype(float)
        stepper.vec.act(chosen, actions)
        out = stepper.step(actions)
        after = out.observations
        moves = np.array([0, SPEED, -SPEED])[actions[:, 0]]
        own = np.clip(before[:, 0] + moves, -LIMIT, LIMIT)
        x = before[:, 2] + before[:, 4] * 2 / CROSSING
        y = before[:, 3] + before[:, 5] * VY_MAX
        over = np.abs(y) > 1
        y, slope = np.where(over, np.sign(y) * 2 - y, y), np.where(over, -before[:, 5], before[:, 5])
        arrives = x > 1 - 1e-4  # at the own line; the other side's row says the same of its own
        hits = arrives & (np.abs(y - own) <= HALF)
        clear = ~arrives | (np.abs(np.abs(y - own) - HALF) > 1e-4)
        flies = ~(arrives | arrives.reshape(-1, 2)[:, ::-1].ravel())
        expected = np.stack([own, own.reshape(-1, 2)[:, ::-1].ravel(), x, y, before[:, 4], slope], axis=1)
        assert np.abs(after[flies, :6] - expected[flies]).max(initial=0) < 1e-5
        assert (after[hits & clear, 4] == -1).all()
        aimed = (y - own) / HALF
        gap = np.abs(after[:, 5] - aimed)[hits & clear]
        assert (gap <= CHANCE / VY_MAX + 1e-5).all()
        misses = arrives & ~hits & clear
        assert (out.rewards[misses] == -1).all()
        served = misses & ~out.terminals
        assert (after[served][:, [0, 1, 2, 3]] == 0).all()
        total = np.rint((after[:, 6] + after[:, 7]) * 21)
        first = np.where(total % 2 == 0, after[:, 4], -after[:, 4])  # serves alternate
        assert np.array_equal(first[served], first_serves(stepper)[served])
        flown, returned, scored = flown + flies.sum(), returned + hits.sum(), scored + misses.sum()
    assert min(flown / 100, returned, scored) > 300


def first_serves(stepper: Stepper) -> np.ndarray:
    """For each row, +1 where the first serve of the game that is played flew to it, else -1."""
    states = np.frombuffer(stepper.vec.get_state()[80:], np.int32).reshape(stepper.vec.num_envs, -1)
    first = states[:, 10]
    return np.where(first[:, None] == np.arange(2), 1, -1).ravel()


def test_games_end_at_21_points_or_by_the_clock() -> None:
    stepper = Stepper("pong2", 32, seed=6, frame_skip=7)  # 7 does not divide the limit: the last step is shorter
    chosen, actions = scripts(stepper, 3, 3), np.zeros((64, 1), np.int32)
    chosen[:32] = 0
    for _ in range(2 * (MAX_FRAMES // 7 + 1)):
        stepper.vec.act(chosen, actions)
        # Two paddles that know where the ball arrives never miss. In the first eight games they stand still.
        actions[:8] = 0
        out = stepper.step(actions)
        last = out.final_observations[out.truncations]
        assert (np.abs(last[:, 6:] * 21) < 20.5).all()
        assert (out.final_observations[~out.truncations] == SENTINEL).all()
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 64
    by_clock = episodes.length == MAX_FRAMES // 7 + 1
    assert (np.abs(episodes.score[~by_clock]) >= 1).all()
    assert (np.abs(episodes.score) <= 21).all()
    assert np.array_equal(episodes.score, episodes.return_)
