"""Gymnasium environments behind our interface, with ends, seeds and spaces whose numbers are known."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from batches import Batch
from gym_worlds import DEADLY, LIMIT, Counter
from training_parts import make_policy, make_rollout

from protein.trainer.environments import instances, make, resume, spec
from protein.trainer.environments.instances import as_number
from protein.trainer.errors import ConfigError, TrainerError
from protein.trainer.ppo.rollout import Rollout

COUNTER = "gym:gym_worlds:Counter-v0"


@pytest.fixture
def counter() -> Iterator[Batch]:
    batch = Batch(COUNTER, 3, seed=1)
    batch.envs.reset(1, batch.observations)
    yield batch
    batch.envs.close()


def test_the_description_is_the_registrys() -> None:
    described = spec("gym:CartPole-v1")
    assert (described.observation_shape, described.action_sizes) == ((4,), (2,))
    assert (described.solved_score, described.max_episode_steps) == (475.0, 500)
    assert described.score_range == (-np.inf, np.inf)
    pendulum = spec("gym:Pendulum-v1")
    assert (pendulum.action_sizes, pendulum.continuous_actions) == ((), 1)
    assert pendulum.solved_score == np.inf, "the registry has no threshold"
    assert (spec(COUNTER).solved_score, spec(COUNTER).max_episode_steps) == (20.0, 0)


def test_an_end_gives_the_next_episodes_first_observation_at_once(counter: Batch) -> None:
    draws = counter.observations[:, 0].copy()
    for step in range(1, LIMIT + 1):
        # The second ends its first episode by its own action, so its clock is behind that of the others.
        counter.step([[0], [DEADLY if step == 3 else 0], [1]])
        assert counter.terminals.tolist() == [False, step == 3, False]
        assert counter.truncations.tolist() == [step == LIMIT, False, step == LIMIT]
        steps = counter.observations[:, 1].tolist()
        if step == LIMIT:
            assert steps == [0, LIMIT - 3, 0]
            # The last observation of what was cut off, and of that alone; the environment has overwritten its array.
            np.testing.assert_array_equal(counter.finals[0], np.array([draws[0], LIMIT], np.float32))
            assert np.isnan(counter.finals[1]).all()
            assert (counter.observations[[0, 2], 0] != draws[[0, 2]]).all()
        else:
            assert steps == [step, step - 3 if step >= 3 else step, step]
            assert np.isnan(counter.finals).all()
    episodes = counter.envs.drain_episodes()
    whole = LIMIT * (LIMIT + 1) / 2
    assert episodes.agent.tolist() == [1, 0, 2]
    assert episodes.score.tolist() == episodes.return_.tolist() == [6.0, whole, whole]
    assert episodes.length.tolist() == [3, LIMIT, LIMIT]
    assert len(counter.envs.drain_episodes()) == 0


def test_an_end_by_both_is_terminal(counter: Batch) -> None:
    for _ in range(LIMIT - 1):
        counter.step(0)
    counter.step(DEADLY)
    assert counter.terminals.all() and not counter.truncations.any()
    assert np.isnan(counter.finals).all()


def test_frames_are_skipped_inside_an_episode_only() -> None:
    batch = Batch(COUNTER, 2, frame_skip=4)
    batch.envs.reset(0, batch.observations)
    batch.step(0)
    assert batch.rewards.tolist() == [10.0, 10.0]  # 1 + 2 + 3 + 4
    batch.step([[0], [DEADLY]])
    assert batch.rewards.tolist() == [18.0, 5.0]  # 5 + 6 + 7 until the limit; 5 until the end
    assert (batch.terminals.tolist(), batch.truncations.tolist()) == ([False, True], [True, False])
    assert batch.observations[:, 1].tolist() == [0, 0]
    episodes = batch.envs.drain_episodes()
    assert (episodes.score.tolist(), episodes.length.tolist()) == ([28.0, 15.0], [2, 2])


def test_draws_depend_on_seed_and_index_alone() -> None:
    def play(num_envs: int, seed: int, first_index: int = 0) -> np.ndarray:
        batch = Batch(COUNTER, num_envs, first_index=first_index)
        batch.envs.reset(seed, batch.observations)
        seen = [batch.observations[:, 0].copy()]
        for _ in range(LIMIT):
            batch.step(0)
        return np.stack([*seen, batch.observations[:, 0]])

    four = play(4, 3)
    assert len(np.unique(four)) == 8
    np.testing.assert_array_equal(four[:, :2], play(2, 3))
    np.testing.assert_array_equal(four[:, 2:], play(2, 3, first_index=2))
    assert not np.isin(play(4, 4), four).any()


def test_a_resumed_run_begins_new_episodes_that_depend_on_where_it_was() -> None:
    def begin(state: bytes) -> np.ndarray:
        batch = Batch(COUNTER, 2)
        assert not resume(batch.envs, state, batch.observations)
        return batch.observations

    batch = Batch(COUNTER, 2)
    batch.envs.reset(1, batch.observations)
    first, early = batch.observations.copy(), batch.envs.get_state()
    batch.step(0)
    later = batch.envs.get_state()
    np.testing.assert_array_equal(begin(early), begin(early))
    assert (begin(early) != begin(later))[:, 0].all()
    assert (begin(early) != first)[:, 0].all()
    assert (begin(early)[:, 1] == 0).all()
    for other in (make(COUNTER, 3), make("gym:CartPole-v1", 2)):
        with pytest.raises(ValueError, match="the state is not of"):
            other.set_state(early)
    with pytest.raises(ValueError, match="the state is not of"):
        batch.envs.set_state(b"\xff")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gym:CartPool-v1", r"cannot make 'gym:CartPool-v1': .*Did you mean: `CartPole`"),
        ("gym:no_such_module:X-v0", "No module named 'no_such_module'"),
        ("gym:", "cannot make 'gym:'"),
        ("gim:CartPole-v1", "unknown kind of environment 'gim:' .*did you mean 'gym:'"),
        ("gym:gym_worlds:Endless-v0", "its observations have no fixed size"),
        ("gym:gym_worlds:Unbounded-v0", "its action space has no bounds to scale to"),
        ("gym:gym_worlds:Unseeded-v0", "reset of Unseeded takes no seed: write it as reset"),
        ("gym:gym_worlds:Whole-v0", "is neither Discrete, MultiDiscrete, MultiBinary nor a Box of floats"),
        ("gym:gym_worlds:Text-v0", r"Text.* is neither Discrete, .*, nor a Dict or Tuple of these"),
        ("gym:gym_worlds:Void-v0", "its action space .* is empty"),
        ("gym:gym_worlds:Both-v0", "has choices and a Box: a policy's actions are all discrete or all continuous"),
        ("gym:gym_worlds:Batched-v0", "is registered for gymnasium.make_vec alone: .* python:MODULE:CLASS"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(name: str, message: str) -> None:
    for call in (lambda: spec(name), lambda: make(name, 2)):
        with pytest.raises(ConfigError, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)


def test_without_gymnasium_the_remedy_is_named() -> None:
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from protein.trainer.environments import spec\n"
        "from protein.trainer.errors import ConfigError\n"
        "try: spec('gym:CartPole-v1')\n"
        "except ConfigError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'protein-sweep[gymnasium]'" in said


def test_processes_do_as_one_does_and_end_with_the_batch() -> None:
    alone, apart = (
        Batch(COUNTER, 2, frame_skip=2),
        Batch("gym-async" + COUNTER.removeprefix("gym"), 2, frame_skip=2),
    )
    for batch in (alone, apart):
        batch.envs.reset(5, batch.observations)
    for step in range(6):
        actions = [[0], [DEADLY if step == 1 else 1]]
        for batch in (alone, apart):
            batch.step(actions)
        for name in ("observations", "rewards", "terminals", "truncations", "finals"):
            np.testing.assert_array_equal(getattr(alone, name), getattr(apart, name))
    processes = apart.envs.processes  # type: ignore[attr-defined]
    # Ctrl-C, and a sweep that stops a trial, signal the trainer's whole group: it alone is to end in order.
    assert os.getpgrp() not in {os.getpgid(process.pid) for process in processes}
    processes[0].kill()
    with pytest.raises(TrainerError, match="has died"):
        for _ in range(100):
            apart.step(0)
    apart.envs.close()
    apart.envs.close()
    assert all(process.poll() is not None for process in processes)


def test_a_flat_observation_needs_no_copy_of_gymnasiums_own(counter: Batch) -> None:
    """The rows are ours: what the environment does to its own arrays later leaves them as they were."""
    before = counter.observations.copy()
    for instance in counter.envs.instances.envs:  # type: ignore[attr-defined]
        assert isinstance(instance, gymnasium.Wrapper)
        counter_env = instance.unwrapped
        assert isinstance(counter_env, Counter)
        counter_env.now[:] = -1
    np.testing.assert_array_equal(counter.observations, before)


@pytest.mark.parametrize("halves", [1, 2])
def test_a_rollout_that_is_resumed_goes_on_from_new_episodes_first_observations(halves: int) -> None:
    def begin() -> Rollout:
        envs = [make(COUNTER, 4 // halves, first_index=4 // halves * half) for half in range(halves)]
        policy = make_policy(envs[0].spec, recurrence="mingru")
        rollout = make_rollout(envs, policy, LIMIT - 4)
        rollout.reset(1)
        return rollout

    rollout = begin()
    rollout.collect(LIMIT - 4)
    saved = rollout.state()
    first = []
    for _ in range(2):
        resumed = begin()
        resumed.set_state(saved)
        batch = resumed.collect(1)
        first.append(batch.observations.reshape(4, 2).clone())
        assert (first[-1][:, 1] == 0).all(), "no step of the new episode has been taken"
        assert batch.resets.all(), "what was remembered of the old ones is forgotten"
    assert torch.equal(first[0], first[1])
    assert len(first[0][:, 0].unique()) == 4
    assert not torch.isin(first[0][:, 0], saved["observations"][:, 0]).any()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nan", r"instance 1 of 'gym:gym_worlds:Faulty-v0' observed nan in element 1: observations must be finite"),
        ("reward", r"gave an array of shape \(2,\) as reward: a reward is one number"),
        ("word", r"gave 'much' as reward: a reward is one number"),
        ("inf", r"gave a reward of inf: a reward must be a finite number"),
        (
            "shape",
            r"has changed its space: an observation is float32 of shape \(3,\), and its observation_space is Box",
        ),
        ("none", r"has changed its space: an observation is NoneType"),
        ("raise", r"^instance 1 of '.*' failed in step: KeyError: 'door' \(.*gym_worlds.py, line \d+\)$"),
        ("nothing", r"instance 1 of '.*' returned a NoneType from step: Gymnasium's step returns five, observation, r"),
        ("ends", r"^instance 1 of '.*' gave an array of shape \(2,\) as terminated: it must be True or False$"),
        ("cuts", r"^instance 1 of '.*' gave an array of shape \(2,\) as truncated: it must be True or False$"),
        ("four", r"instance 1 of '.*' returned 4 values from step: Gymnasium's step returns five, observation, reward"),
    ],
)
def test_an_environment_that_breaks_its_promise_is_told_in_one_line(fault: str, message: str) -> None:
    batch = Batch("gym:gym_worlds:Faulty-v0", 2, args={"fault": fault})
    batch.envs.reset(0, batch.observations)
    batch.step(0)
    with pytest.raises(TrainerError, match=message) as raised:
        batch.step([[0], [1]])
    assert "\n" not in str(raised.value)
    batch.envs.close()


@pytest.mark.parametrize(
    ("world", "fault", "message"),
    [
        (
            "Limited",
            "four",
            r"Faulty returned 4 values from step to its wrapper TimeLimit: Gymnasium's step .* truncated",
        ),
        (
            "Limited",
            "nothing",
            r"Faulty returned a NoneType from step to its wrapper TimeLimit: Gymnasium's step returns",
        ),
        (
            "Wrapped",
            "four",
            r"Unpacking returned 4 values from step to its wrapper TimeLimit: Gymnasium's step returns",
        ),
        (
            "Wrapped",
            "old",
            r"the wrapper Unpacking takes 4 values from step: Gymnasium's step returns five, .*truncated",
        ),
        ("Wrapped", "raise", r"failed in step: KeyError: 'door'"),
    ],
)
def test_a_wrapper_that_is_given_another_number_of_values_is_told_in_one_line(
    world: str, fault: str, message: str
) -> None:
    batch = Batch(f"gym:gym_worlds:{world}-v0", 1, args={"fault": fault})
    batch.envs.reset(0, batch.observations)
    with pytest.raises(TrainerError, match=rf"^instance 0 of '.*'.* {message}"):
        batch.step(1)
    batch.envs.close()


def test_a_reset_of_the_old_gym_within_a_wrapper_is_told_in_one_line() -> None:
    batch = Batch("gym:gym_worlds:Wrapped-v0", 1, args={"fault": "three"})
    with pytest.raises(
        TrainerError, match=r"Faulty returned more than 2 values from reset to its wrapper Unpacking: .*two"
    ):
        batch.envs.reset(0, batch.observations)
    batch.envs.close()


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (np.array([2.5]), 2.5),
        (np.array([[2.5]], np.float32), 2.5),
        (torch.tensor([3], requires_grad=False), 3.0),
        (torch.tensor([2.5], requires_grad=True), 2.5),
        ([2.5], 2.5),
        ((np.float32(2.5),), 2.5),
        (np.float32(2.5), 2.5),
        (np.array(2.5), 2.5),
        (torch.tensor(2.5), 2.5),
        (True, 1.0),
    ],
)
def test_a_reward_in_an_array_of_one_number_is_that_number(given: Any, value: float) -> None:
    assert as_number(given, "x", is_first=False) == value


@pytest.mark.parametrize(
    "given", [np.zeros(2), np.zeros(0), np.zeros((1, 3)), [1.0, 2.0], [], [[1.0], []], None, "x", {}]
)
def test_a_reward_that_is_not_one_number_is_refused(given: Any) -> None:
    with pytest.raises(TrainerError, match=r"^agent 3 gave .* as reward: a reward is one number$"):
        as_number(given, "agent 3", is_first=True)


def test_the_shape_of_rewards_is_remarked_on_once(capfd: pytest.CaptureFixture[str]) -> None:
    instances._say_once.cache_clear()
    for _ in range(3):
        batch = Batch("gym:gym_worlds:Faulty-v0", 3, args={"fault": "row"})
        batch.envs.reset(0, batch.observations)
        for _ in range(2):
            batch.step(1)
            assert batch.rewards.tolist() == [0.5, 0.5, 0.5]
        batch.envs.close()
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "instance 0 of 'gym:gym_worlds:Faulty-v0' gives its reward in an array of shape (1,): its one number" in said


def test_a_reset_of_the_old_gym_is_told_in_one_line() -> None:
    batch = Batch("gym:gym_worlds:Faulty-v0", 2, args={"fault": "first"})
    with pytest.raises(TrainerError, match=r"instance 0 of '.*' returned a ndarray from reset: .* returns two values"):
        batch.envs.reset(0, batch.observations)
    batch.envs.close()


def test_a_reset_that_raises_is_told_in_one_line() -> None:
    batch = Batch("gym:gym_worlds:Faulty-v0", 2, args={"fault": "begin"})
    with pytest.raises(TrainerError, match=r"^instance 0 of '.*' failed in reset: ConnectionError: no server \(.*py, "):
        batch.envs.reset(0, batch.observations)
    batch.envs.close()


def test_arguments_reach_the_constructor_and_are_checked() -> None:
    assert spec("gym:Pendulum-v1", {"g": 2.0}).name == "gym:Pendulum-v1"
    batch = Batch("gym:Pendulum-v1", 1, args={"g": 2.0, "max_episode_steps": 7})
    assert batch.envs.instances.envs[0].unwrapped.g == 2.0  # type: ignore[attr-defined]
    assert batch.envs.spec.max_episode_steps == 7
    with pytest.raises(
        ConfigError, match=r"'gym:LunarLander-v3' takes no argument env.args.gravty; did you mean 'gravity'"
    ):
        spec("gym:LunarLander-v3", {"gravty": -5.0})
    with pytest.raises(ConfigError, match=r"env.args.render_mode of 'gym:Pendulum-v1' is given by the trainer"):
        spec("gym:Pendulum-v1", {"render_mode": "human"})


def test_an_argument_that_only_a_base_class_refuses_is_named() -> None:
    pytest.importorskip("mujoco")
    with pytest.raises(
        ConfigError, match=r"takes no argument env.args.ctrl_cost_wait; did you mean 'ctrl_cost_weight'"
    ):
        make("gym:HalfCheetah-v5", 1, args={"ctrl_cost_wait": 0.1})


def test_mujocos_warnings_are_said_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    handlers: list[Callable[[str], None]] = []
    monkeypatch.setitem(sys.modules, "mujoco", SimpleNamespace(set_mju_user_warning=handlers.append))
    make(COUNTER, 1).close()
    for warning in ["an attribute is deprecated\n", "an attribute is deprecated\n", "the simulation is unstable"]:
        handlers[-1](warning)
    assert capsys.readouterr().err == "MuJoCo: an attribute is deprecated\nMuJoCo: the simulation is unstable\n"


def test_it_is_closed_once() -> None:
    batch = Batch(COUNTER, 2)
    closed: list[int] = []
    for number, env in enumerate(batch.envs.instances.envs):  # type: ignore[attr-defined]
        env.close = lambda number=number: closed.append(number)
    batch.envs.close()
    batch.envs.close()
    assert sorted(closed) == [0, 1]


def test_all_are_closed_even_if_one_fails() -> None:
    batch = Batch(COUNTER, 3)
    closed: list[int] = []

    def close(number: int) -> None:
        closed.append(number)
        if number:
            raise RuntimeError(f"no simulator {number}")

    for number, env in enumerate(batch.envs.instances.envs):  # type: ignore[attr-defined]
        env.close = functools.partial(close, number)
    with pytest.raises(RuntimeError, match="no simulator 2"):
        batch.envs.close()
    batch.envs.close()
    assert sorted(closed) == [0, 1, 2]
