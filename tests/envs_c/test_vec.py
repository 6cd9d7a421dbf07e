"""The vectorised binding, over every environment: what is written, what it depends on, what is refused."""

import dataclasses
import hashlib
import itertools
from typing import Any

import numpy as np
import pytest
from env_buffers import GAMES, SENTINEL, Stepper, num_envs_of, scripted_actions, sentinel
from hypothesis import given, settings
from hypothesis import strategies as st

from protein import envs_c


def steps_of(name: str) -> int:
    """Steps in which episodes end, at frame skip 4 or 8."""
    return 700 if envs_c.spec(name).agents_per_env <= 2 else 150


every_env = pytest.mark.parametrize("name", GAMES)


@every_env
def test_spec_describes_what_steps_return(name: str) -> None:
    spec = envs_c.spec(name)
    assert spec.name == name
    assert spec.description
    assert spec.score_range[0] < spec.solved_score <= spec.score_range[1]
    assert np.prod(spec.observation_shape) == spec.observation_size
    assert bool(spec.action_sizes) != bool(spec.continuous_actions)
    assert all(size > 1 for size in spec.action_sizes)
    vec = envs_c.VecEnv(name, 3)
    assert (vec.spec, vec.num_envs, vec.num_agents) == (spec, 3, 3 * spec.agents_per_env)


def test_an_action_has_as_many_components_as_choices_or_as_real_numbers() -> None:
    assert dataclasses.replace(envs_c.spec("pong"), action_sizes=(3, 2)).action_components == 2
    assert dataclasses.replace(envs_c.spec("pong"), action_sizes=(), continuous_actions=3).action_components == 3


def test_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(envs_c.UnknownEnvError, match="unknown environment 'pongg'; did you mean 'pong'"):
        envs_c.spec("pongg")
    with pytest.raises(envs_c.UnknownEnvError, match=r"known: .*pong"):
        envs_c.VecEnv("xyzzy", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_envs": 0}, "num_envs must be an integer from 1 to 16777216, got 0"),
        ({"num_envs": 2.5}, "num_envs must be an integer .* got 2.5"),
        ({"num_envs": 1, "seed": -1}, "seed must be an integer from 0 to 18446744073709551615, got -1"),
        ({"num_envs": 1, "frame_skip": 0}, "frame_skip must be .* got 0"),
        ({"num_envs": 1, "threads": True}, "threads must be .* got True"),
        ({"num_envs": 1, "first_index": -1}, "first_index must be .* got -1"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        envs_c.VecEnv("pong", **arguments)


@every_env
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    num_agents=st.integers(1, 400),
    frame_skip=st.integers(1, 9),
    threads=st.integers(2, 5),
)
def test_results_do_not_depend_on_threads_or_batch_size(
    name: str, seed: int, num_agents: int, frame_skip: int, threads: int
) -> None:
    num_envs = -(-num_agents // envs_c.spec(name).agents_per_env)
    one = Stepper(name, num_envs, seed=seed, frame_skip=frame_skip)
    many = Stepper(name, num_envs, seed=seed, frame_skip=frame_skip, threads=threads)
    wide = Stepper(name, num_envs + num_envs_of(name, 70), seed=seed, frame_skip=frame_skip, threads=threads)
    agents = one.vec.num_agents
    for step in range(40):
        actions = scripted_actions(step, wide.vec.num_agents, wide.vec.spec)
        a, b, c = one.step(actions[:agents]), many.step(actions[:agents]), wide.step(actions)
        assert a.bytes() == b.bytes()
        for narrow_array, wide_array in zip(a.arrays(), c.arrays(), strict=True):
            assert np.array_equal(narrow_array, wide_array[:agents])
    assert one.vec.get_state() == many.vec.get_state()


@every_env
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    first=st.integers(0, 2**31),
    parts=st.lists(st.tuples(st.integers(1, 120), st.integers(1, 3)), min_size=2, max_size=4),
    frame_skip=st.integers(1, 9),
)
def test_parts_with_a_first_index_each_are_one_whole(
    name: str, seed: int, first: int, parts: list[tuple[int, int]], frame_skip: int
) -> None:
    sizes = [num_envs_of(name, size) for size, _ in parts]
    whole = Stepper(name, sum(sizes), seed=seed, frame_skip=frame_skip, first_index=first)
    steppers = [
        Stepper(name, size, seed=seed, frame_skip=frame_skip, threads=threads, first_index=first + sum(sizes[:i]))
        for i, (size, (_, threads)) in enumerate(zip(sizes, parts, strict=True))
    ]
    edges = [0, *itertools.accumulate(stepper.vec.num_agents for stepper in steppers)]
    for step in range(40):
        actions = scripted_actions(step, whole.vec.num_agents, whole.vec.spec)
        own = [actions[start:end] for start, end in itertools.pairwise(edges)]
        outs = [stepper.step(part).arrays() for stepper, part in zip(steppers, own, strict=True)]
        for array, *pieces in zip(whole.step(actions).arrays(), *outs, strict=True):
            assert np.array_equal(array, np.concatenate(pieces))
    steppers[-1].vec.reset(4, steppers[-1].out.observations)
    whole.vec.reset(4, whole.out.observations)
    assert np.array_equal(steppers[-1].out.observations, whole.out.observations[edges[-2] :])


@every_env
def test_episodes_come_in_order_whatever_the_threads(name: str) -> None:
    one = Stepper(name, num_envs_of(name, 300), frame_skip=8)
    many = Stepper(name, num_envs_of(name, 300), frame_skip=8, threads=4)
    ended: list[int] = []
    for _ in range(steps_of(name)):
        out = one.step()
        many.step()
        ended += np.flatnonzero((out.terminals | out.truncations) & one.played).tolist()
    a, b = one.vec.drain_episodes(), many.vec.drain_episodes()
    assert len(a) > 300
    assert a.agent.tolist() == ended
    for field in ("agent", "score", "return_", "length"):
        assert np.array_equal(getattr(a, field), getattr(b, field)), field
    assert len(one.vec.drain_episodes()) == 0


@every_env
def test_every_output_is_written_and_final_rows_only_at_truncations(name: str) -> None:
    stepper = Stepper(name, num_envs_of(name, 64), frame_skip=8)
    ends = 0
    for _ in range(steps_of(name)):
        out = stepper.step()
        assert np.isfinite(out.observations).all()
        nothing = sentinel(out.observations.dtype)
        assert (out.observations != nothing).all()
        assert (out.rewards != SENTINEL).all()
        assert out.terminals.view(np.uint8).max() <= 1
        assert out.truncations.view(np.uint8).max() <= 1
        assert not (out.terminals & out.truncations).any()
        written = (out.final_observations != nothing).all(axis=1)
        untouched = (out.final_observations == nothing).all(axis=1)
        assert np.array_equal(written, out.truncations)
        assert np.array_equal(untouched, ~out.truncations)
        ends += int(out.terminals.sum() + out.truncations.sum())
    assert ends > 0


@every_env
def test_returns_lengths_and_frames_agree_with_what_was_seen(name: str) -> None:
    stepper = Stepper(name, num_envs_of(name, 8), frame_skip=8)
    agents = stepper.vec.num_agents
    returns, lengths = np.zeros(agents), np.zeros(agents, int)
    seen: list[tuple[int, float, int]] = []
    for _ in range(steps_of(name)):
        out = stepper.step()
        returns += out.rewards
        lengths += stepper.played
        ended = np.flatnonzero((out.terminals | out.truncations) & stepper.played)
        seen += zip(ended.tolist(), returns[ended].tolist(), lengths[ended].tolist(), strict=True)
        returns[ended] = lengths[ended] = 0
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 0
    assert episodes.agent.tolist() == [agent for agent, _, _ in seen]
    assert episodes.return_ == pytest.approx([value for _, value, _ in seen], abs=1e-3)
    assert episodes.length.tolist() == [length for _, _, length in seen]
    low, high = stepper.vec.spec.score_range
    assert ((low <= episodes.score) & (episodes.score <= high)).all()


@every_env
def test_a_new_episode_differs_from_the_one_before(name: str) -> None:
    """Two episodes that begin alike may be rare or common; that all which is seen in them is alike must be rare."""
    stepper = Stepper(name, num_envs_of(name, 16), frame_skip=8)
    agents = stepper.vec.num_agents
    seen, before = [b""] * agents, [b""] * agents
    differs = []
    for _ in range(steps_of(name)):
        seen = [hashlib.sha256(a + b.tobytes()).digest() for a, b in zip(seen, stepper.out.observations, strict=True)]
        out = stepper.step()
        for agent in np.flatnonzero(out.terminals | out.truncations):
            differs.append(seen[agent] != before[agent])
            before[agent], seen[agent] = seen[agent], b""
    assert np.mean(differs) > 0.9


@every_env
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), at=st.floats(0, 1), frame_skip=st.integers(1, 9), threads=st.integers(1, 3))
def test_the_state_of_any_moment_brings_everything_back(
    name: str, seed: int, at: float, frame_skip: int, threads: int
) -> None:
    num_envs = num_envs_of(name, 100)
    original = Stepper(name, num_envs, seed=seed, frame_skip=frame_skip, threads=threads)
    for _ in range(round(at * steps_of(name) / 4)):
        original.step()
    state = original.vec.get_state()
    copy = Stepper(name, num_envs, seed=99, frame_skip=frame_skip)
    copy.vec.set_state(state)
    copy.steps = original.steps
    assert copy.vec.get_state() == state
    for _ in range(60):
        assert original.step().bytes() == copy.step().bytes()
    assert original.vec.get_state() == copy.vec.get_state()  # the finished episodes included
    a, b = original.vec.drain_episodes(), copy.vec.drain_episodes()
    for field in ("agent", "score", "return_", "length"):
        assert np.array_equal(getattr(a, field), getattr(b, field)), field


def test_wrong_states_are_refused_and_change_nothing() -> None:
    vec = envs_c.VecEnv("pong", 4, frame_skip=2)
    state = vec.get_state()
    flipped = bytearray(state)
    flipped[-9] ^= 1
    for wrong, message in [
        (b"", "not a state"),
        (b"x" * 200, "not a state"),
        (state[:-1], "cut short"),
        (state + b"\0", "cut short or too long"),
        (bytes(flipped), "damaged"),
        (envs_c.VecEnv("pong", 5, frame_skip=2).get_state(), "5 environments and frame skip 2, these are pong with 4"),
        (envs_c.VecEnv("pong", 4, frame_skip=3).get_state(), "frame skip 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            vec.set_state(wrong)
        assert vec.get_state() == state


def test_reset_with_the_seed_of_the_beginning_starts_over() -> None:
    stepper = Stepper("pong", 32, seed=5)
    first = stepper.out.observations.copy()
    start = stepper.vec.get_state()
    for _ in range(50):
        stepper.step()
    stepper.vec.reset(5, stepper.out.observations)
    assert stepper.vec.get_state() == start
    assert np.array_equal(stepper.out.observations, first)
    stepper.vec.reset(6, stepper.out.observations)
    assert stepper.vec.get_state() != start
