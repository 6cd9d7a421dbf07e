"""Sides: ratings against the closed form and the likelihood, whose turn it is, and games against scripts."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protein import envs_c
from protein.envs_c import VecEnv
from protein.trainer.environments.sides import MARGIN, Anchored, expected, rating, results, take_turns_

PONG2, ARENA = envs_c.spec("pong2"), envs_c.spec("arena")
THREES = {"scripts": ("a", "b", "c"), "script_ratings": (0.0, 150.0, 900.0)}


def of(**fields: object) -> envs_c.EnvSpec:
    return dataclasses.replace(PONG2, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("mean", [0.1, 0.5, 10 / 11, 0.99])
def test_the_rating_against_one_script_is_elos_formula(mean: float) -> None:
    against_one = of(scripts=("it",), script_ratings=(1200.0,))
    assert rating(against_one, mean) == pytest.approx(1200 + 400 * math.log10(mean / (1 - mean)), abs=1e-6)


@settings(max_examples=30)
@given(st.floats(-400, 1800))
def test_the_rating_of_expected_results_is_the_player_s(true: float) -> None:
    spec = of(**THREES)
    mean = expected(true, np.array(spec.script_ratings)).mean()
    if MARGIN < mean < 1 - MARGIN:
        assert rating(spec, mean) == pytest.approx(true, abs=1e-6)


def test_the_rating_is_the_most_likely_one() -> None:
    """Of all ratings on a fine grid, for won games that are unevenly spread over the scripts."""
    spec = of(**THREES)
    won, games = np.array([95.0, 70.0, 12.0]), 100
    grid = np.arange(-500.0, 2000.0, 0.5)
    chances = np.array([expected(one, np.array(spec.script_ratings)) for one in grid])
    likelihood = (won * np.log(chances) + (games - won) * np.log1p(-chances)).sum(axis=1)
    assert rating(spec, won.sum() / (3 * games)) == pytest.approx(grid[likelihood.argmax()], abs=0.5)


def test_a_better_result_is_never_rated_lower_and_the_ends_are_finite() -> None:
    found = [rating(ARENA, mean) for mean in np.linspace(0, 1, 101)]
    assert found == sorted(found)
    assert found[0] == rating(ARENA, MARGIN)
    assert found[-1] == rating(ARENA, 1 - MARGIN) < 3000
    assert rating(of(script_ratings=()), 12.5) == 12.5
    scores = np.array([-21, 0, 21], np.float32)
    assert results(PONG2, scores).tolist() == [0, 0.5, 1]
    assert results(of(script_ratings=()), scores).tolist() == [-21, 0, 21]


@settings(max_examples=25)
@given(st.data(), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_a_player_changes_only_where_its_agents_episode_has_ended(
    data: st.DataObject, groups: int, size: int, together: bool
) -> None:
    """Whether the agents of a group end together or alone; and every group comes to play what was drawn for it."""
    group = np.arange(groups).repeat(size)
    playing, next_ = np.zeros(groups * size, np.int32), np.zeros(groups, np.int32)
    drawn = 0

    def draw(chosen: np.ndarray) -> np.ndarray:
        nonlocal drawn
        drawn += 1
        return np.full(len(chosen), drawn, np.int32)

    for _ in range(12):
        per_group = np.array(data.draw(st.lists(st.booleans(), min_size=groups, max_size=groups)))
        alone = np.array(data.draw(st.lists(st.booleans(), min_size=len(group), max_size=len(group))))
        ended = per_group[group] if together else alone
        before, before_next = playing.copy(), next_.copy()
        take_turns_(playing, next_, group, ended, draw)
        assert (playing == before)[~ended].all()
        assert (playing == next_[group])[ended].all()
        if together:
            assert (playing == next_[group]).all()
        changed = next_ != before_next
        assert not (changed[group] & (before != before_next[group])).any()  # nobody is overtaken


@pytest.mark.parametrize(("name", "frame_skip"), [("pong2", 8), ("arena", 4)])
def test_scripts_take_turns_and_only_one_side_is_shown(name: str, frame_skip: int) -> None:
    """The caller plays by the strongest script, so that each episode says by its result which script it met."""
    games = VecEnv(name, 8, frame_skip=frame_skip)
    envs = Anchored(games)
    whole, agents = games.spec, envs.num_agents
    assert (envs.num_envs, agents) == (8, 8 * whole.agents_per_env // 2)
    assert envs.spec.agents_per_env == whole.agents_per_env // 2
    seen = np.zeros((agents, whole.observation_size), np.float32)
    rewards, ends = np.zeros(agents, np.float32), np.zeros((2, agents), np.bool_)
    envs.reset(3, seen)
    met: list[list[int]] = [[] for _ in range(8)]
    states: list[bytes] = []
    actions = np.zeros((agents, whole.action_components), np.int32)
    for step in range(900):
        script = envs._next.copy()
        envs.step(actions, seen, rewards, *ends)
        for game in np.flatnonzero(ends.any(axis=0).reshape(8, -1)[:, 0]).tolist():
            met[game].append(int(script[game]))
        if step == 450:
            states = [envs.get_state()]
    finished = envs.drain_episodes()
    assert (finished.score >= 0).all() and (finished.score <= 1).all()
    assert len(finished) == sum(map(len, met)) * envs.spec.agents_per_env
    assert set(finished.agent.tolist()) == set(range(agents))
    for game, scripts in enumerate(met):
        assert scripts == [(game + turn) % 4 for turn in range(len(scripts))]
        assert len(scripts) > 1
    envs.set_state(states[0])
    assert envs.get_state() == states[0]
    with pytest.raises(ValueError, match="cut short"):
        envs.set_state(b"")
