"""Environments with sides: to exchange the sides exchanges the results, and scripts are as strong as is said.

The sides of an environment see it alike, so each of these tests holds for any policy that plays them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from env_buffers import GAMES, Stepper

from protein import envs_c

SIDED = [name for name in envs_c.names() if envs_c.spec(name).sides > 1]
SCRIPTED = [name for name in GAMES if envs_c.spec(name).scripts]
PONG2 = np.dtype(
    [
        ("rng", "u8"),
        ("paddles", "f4", 2),
        ("ball", "f4", 2),
        ("to", "i4"),
        ("to_hit", "i4"),
        ("points", "i4", 2),
        ("first", "i4"),
        ("frames", "i4"),
        ("decisions", "i4"),
    ],
    align=True,
)
HEADER, CHECKSUM = 80, slice(72, 80)  # of a state


def exchanged(rows: npt.NDArray[Any], spec: envs_c.EnvSpec) -> npt.NDArray[Any]:
    """Rows of agents with the two sides of each environment exchanged."""
    return rows.reshape(-1, 2, spec.agents_per_env // 2, *rows.shape[1:])[:, ::-1].reshape(rows.shape)


def mix(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def serve_to_the_other_side_(stepper: Stepper) -> None:
    """Exchanges the side of the first serve, in pong for two: the one thing that chance decides between the sides."""
    state = bytearray(stepper.vec.get_state())
    games = np.frombuffer(state, PONG2, offset=HEADER)
    games["to"] ^= 1
    games["first"] ^= 1
    total = len(state) - HEADER
    for word in np.frombuffer(state, "<u8", offset=HEADER).tolist():
        total = mix(total ^ word)
    state[CHECKSUM] = total.to_bytes(8, "little")
    stepper.vec.set_state(bytes(state))


@pytest.mark.parametrize("name", ["arena", "pong2"])
def test_exchanging_the_sides_exchanges_the_whole_game(name: str) -> None:
    """Exactly, and over several episodes: of pong the first."""
    one, other = (Stepper(name, 16, seed=3, frame_skip=8) for _ in range(2))
    spec, rng, ended = one.vec.spec, np.random.default_rng(0), 0
    if name == "pong2":
        serve_to_the_other_side_(other)
    scripts = rng.integers(0, len(spec.scripts), one.vec.num_agents, dtype=np.int32)
    actions = np.zeros((one.vec.num_agents, spec.action_components), np.int32)
    going = np.ones(16, np.bool_)
    for _ in range(500):
        one.vec.act(scripts, actions)
        first, second = one.step(actions), other.step(exchanged(actions, spec))
        shown = going.repeat(spec.agents_per_env)
        over = (first.terminals | first.truncations).reshape(16, -1)[:, 0]
        ended += int((over & going).sum())
        for ours, theirs in zip(first.arrays()[1:4], second.arrays()[1:4], strict=True):
            np.testing.assert_array_equal(exchanged(theirs, spec)[shown], ours[shown])
        if name == "pong2":  # the next episode's first serve is drawn anew, alike in both
            going &= ~over
        shown = going.repeat(spec.agents_per_env)
        np.testing.assert_array_equal(exchanged(second.observations, spec)[shown], first.observations[shown])
    assert ended >= 16


@pytest.mark.parametrize("name", ["arena", "pong2"])
def test_what_one_side_wins_the_other_loses(name: str) -> None:
    stepper = Stepper(name, 16, seed=4, frame_skip=8)
    spec = stepper.vec.spec
    for _ in range(500):
        out = stepper.step()
        if name == "pong2":  # in the arena strikes are rewarded, and cost nobody anything by themselves
            assert (out.rewards[::2] == -out.rewards[1::2]).all()
    episodes = stepper.vec.drain_episodes()
    scores = episodes.score.reshape(-1, 2, spec.agents_per_env // 2)
    assert len(scores) >= 16
    assert (scores[:, 0] == -scores[:, 1]).all()
    assert (scores == scores[:, :, :1]).all()
    assert spec.score_range[0] == -spec.score_range[1] <= scores.min()


@pytest.mark.parametrize("name", SCRIPTED)
def test_scripts_write_only_their_rows_and_change_nothing(name: str) -> None:
    stepper = Stepper(name, 8, seed=5, frame_skip=3)
    spec, rng = stepper.vec.spec, np.random.default_rng(1)
    for _ in range(50):
        scripts = rng.integers(-1, len(spec.scripts), stepper.vec.num_agents).astype(np.int32)
        state = stepper.vec.get_state()
        actions = np.full((stepper.vec.num_agents, spec.action_components), 77, np.int32)
        again = actions.copy()
        stepper.vec.act(scripts, actions)
        stepper.vec.act(scripts, again)
        assert stepper.vec.get_state() == state
        np.testing.assert_array_equal(actions, again)
        assert (actions[scripts < 0] == 77).all()
        assert ((actions[scripts >= 0] >= 0) & (actions[scripts >= 0] < spec.action_sizes)).all()
        actions[scripts < 0] = 0
        stepper.step(actions)
    before = actions.copy()
    for wrong in (-2, len(spec.scripts)):
        scripts[-1] = wrong
        with pytest.raises(ValueError, match=rf"scripts\[{len(scripts) - 1}\] is {wrong}; {name} has"):
            stepper.vec.act(scripts, actions)
    np.testing.assert_array_equal(actions, before)


@pytest.mark.parametrize(("name", "frame_skip"), [("arena", 4), ("pong2", 5)])
def test_ratings_say_how_scripts_play_against_each_other(name: str, frame_skip: int) -> None:
    """Each game's score, brought to 0 (lost by all) to 1 (won by all), is what Elo's ratings expect, but for 0.05."""
    stepper = Stepper(name, 128, seed=6, frame_skip=frame_skip)
    spec, num = stepper.vec.spec, len(envs_c.spec(name).scripts)
    pairs = [(a, b) for a in range(num) for b in range(a)]
    sides = np.array([pairs[game % len(pairs)] for game in range(128)], np.int32)
    sides[64:] = sides[64:, ::-1]
    scripts = sides.repeat(spec.agents_per_env // 2, axis=1).ravel()
    actions = np.zeros((len(scripts), spec.action_components), np.int32)
    results: dict[tuple[int, int], list[float]] = {pair: [] for pair in pairs}
    steps = {"arena": 400, "pong2": 1500}[name]
    for _ in range(steps):
        stepper.vec.act(scripts, actions)
        stepper.step(actions)
    episodes = stepper.vec.drain_episodes()
    per_side = spec.agents_per_env // 2
    for row, score in zip(episodes.agent[::per_side].tolist(), episodes.score[::per_side].tolist(), strict=True):
        game, side = row // spec.agents_per_env, row % spec.agents_per_env // per_side
        pair = int(sides[game, side]), int(sides[game, 1 - side])
        if pair in results:
            results[pair].append(0.5 + score / spec.score_range[1] / 2)
    assert list(spec.script_ratings) == sorted(spec.script_ratings)
    assert spec.script_ratings[0] == 0
    for (a, b), played in results.items():
        expected = 1 / (1 + 10 ** ((spec.script_ratings[b] - spec.script_ratings[a]) / 400))
        assert len(played) > 20
        assert np.mean(played) == pytest.approx(expected, abs=0.05), (a, b)
