"""Environments by name: what every kind of them must do alike, and what a wrong name is told."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from event_log import EventLog
from walk_env import training, walk_example  # noqa: F401 (a fixture)

from protein import envs_c
from protein.trainer.environments import VectorEnv, make, resume, spec
from protein.trainer.errors import ConfigError, UsersCodeError
from protein.trainer.run import run


def test_a_native_name_makes_the_native_environment() -> None:
    envs = make("pong", 3, seed=5, frame_skip=4, threads=1)
    direct = envs_c.VecEnv("pong", 3, seed=5, frame_skip=4)
    assert envs.spec == spec("pong") == direct.spec
    assert (envs.num_envs, envs.num_agents) == (3, 3)
    ours, theirs = np.zeros((2, 3, 8), np.float32)
    envs.reset(7, ours)
    direct.reset(7, theirs)
    np.testing.assert_array_equal(ours, theirs)
    envs.close()
    envs.close()


def test_native_environments_are_resumed_where_they_were() -> None:
    def step(envs: VectorEnv, observations: np.ndarray) -> None:
        rewards, ends = np.zeros(2, np.float32), np.zeros((2, 2), np.bool_)
        envs.step(np.ones(2, np.int32), observations, rewards, ends[0], ends[1])

    envs, observations = make("pong", 2), np.zeros((2, 8), np.float32)
    envs.reset(1, observations)
    state, saved = envs.get_state(), observations.copy()
    step(envs, observations)
    other = make("pong", 2)
    current = saved.copy()
    assert resume(other, state, current)
    np.testing.assert_array_equal(current, saved)
    step(other, current)
    np.testing.assert_array_equal(current, observations)


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'pong'"):
        spec("pang")
    with pytest.raises(ConfigError, match="did you mean 'pong'"):
        make("pang", 1)


def test_the_documented_environment_keeps_the_contract(walk: str) -> None:
    described = spec(walk)
    assert (described.observation_size, described.action_sizes, described.agents_per_env) == (1, (2,), 1)
    assert (described.solved_score, described.max_episode_steps) == (0.95, 100)

    def play(num_envs: int, first_index: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns all observations, and each row's final ones; row i goes right, then left, ..., in turns of i + 1."""
        envs = make(walk, num_envs, frame_skip=2, first_index=first_index)
        observations, finals = np.zeros((2, num_envs, 1), np.float32)
        rewards, terminals, truncations = np.zeros(num_envs, np.float32), *np.zeros((2, num_envs), np.bool_)
        envs.reset(3, observations)
        seen, cut = [observations.copy()], []
        rows = np.arange(first_index, first_index + num_envs)
        for step in range(120):
            finals[:] = np.nan
            turn = (step // (rows + 1) % 2).astype(np.int32)
            envs.step(turn, observations, rewards, terminals, truncations, finals)
            assert not (terminals & truncations).any()
            np.testing.assert_array_equal(np.isnan(finals[:, 0]), ~truncations)
            seen.append(observations.copy())
            cut.append(finals.copy())
        episodes = envs.drain_episodes()
        assert set(episodes.score.tolist()) <= {0.0, 1.0}
        assert episodes.length.max() == 50  # 100 frames of two a step
        assert len(episodes) == sum(np.isfinite(c).sum() for c in cut) + (episodes.length < 50).sum()
        envs.close()
        return np.stack(seen), np.stack(cut)

    whole, (left, right) = play(6), (play(4), play(2, first_index=4))
    for of_whole, of_left, of_right in zip(whole, left, right, strict=True):
        np.testing.assert_array_equal(of_whole, np.concatenate([of_left, of_right], axis=1))


def test_a_python_environment_that_lacks_something_is_told_what(walk: str, tmp_path: Path) -> None:
    (tmp_path / "lacking_example.py").write_text(
        "from types import SimpleNamespace\n"
        "import walk_example\n"
        "class Neither(walk_example.Walk): action_sizes = ()\n"
        "class Both(walk_example.Walk): continuous_actions = 2\n"
        "class Fewer(walk_example.Walk):\n"
        "    def __init__(self, num_envs, **kwargs): super().__init__(num_envs + 1, **kwargs)\n"
        "def nothing(num_envs, **_): return SimpleNamespace(num_envs=num_envs)\n"
        "number = 5\n"
        "class Unset(walk_example.Walk): action_sizes = None\n"
        "class Alone(walk_example.Walk): action_sizes = 2\n"
        "class Negative(walk_example.Walk): observation_shape = (-1,)\n"
        "class Number(walk_example.Walk): observation_shape = 4\n"
        "class Shapeless(walk_example.Walk): observation_shape = ()\n"
        "class Typeless(walk_example.Walk): observation_dtype = 'bits'\n"
        "class Ranges(walk_example.Walk): score_range = 1.0\n"
        "class Solved(walk_example.Walk): solved_score = 'high'\n"
        "class Long(walk_example.Walk): max_episode_steps = 'long'\n"
        "class Nobody(walk_example.Walk): agents_per_env = 0\n"
        "class Dark(walk_example.Walk): observation_dtype, observation_high = 'uint8', 0\n"
        "class Backwards(walk_example.Walk): action_sizes, continuous_actions = None, -1\n"
        "class Half(walk_example.Walk): action_sizes, continuous_actions = None, 1.5\n"
        "class Nothing(walk_example.Walk):\n"
        "    score_range = solved_score = max_episode_steps = agents_per_env = observation_dtype = None\n"
    )
    (tmp_path / "calendar.py").write_text("class Walk: pass\n")
    assert spec("python:lacking_example:Nothing").max_episode_steps == 0, "None: as if it were not there"
    for name, message in {
        "python:walk_example": "must be python:package.module:factory",
        "python::Walk": "must be python:package.module:factory",
        "python:no_such_module:Walk": "No module named 'no_such_module'",
        "python:walk_example.py:Walk": "'walk_example.py' is a file: give its module, .*, such as walk_example$",
        "python:./a/walk.py:Walk": "'./a/walk.py' is a file: give its module, .*, such as a.walk$",
        "python:calendar:Walk": r"calendar has no function or class 'Walk'.*; it is .*, not the calendar.py here",
        "python:walk_example:Wlak": "module walk_example has no function or class 'Wlak'",
        "python:lacking_example:number": "has no function or class 'number'",
        "python:lacking_example:nothing": "made a SimpleNamespace without observation_shape, reset, step",
        "python:lacking_example:Neither": "must have either action_sizes or continuous_actions",
        "python:lacking_example:Both": "must have either action_sizes or continuous_actions",
        "python:lacking_example:Unset": r"must have either action_sizes or continuous_actions, got \(\)",
        "python:lacking_example:Alone": r"action_sizes must be a tuple of whole numbers above 0, as in \(2,\), got 2",
        "python:lacking_example:Negative": r"observation_shape must be .* got \(-1,\): see docs/environments.md",
        "python:lacking_example:Number": r"observation_shape must be .* as in \(4,\) .* got 4",
        "python:lacking_example:Shapeless": r"observation_shape must name at least one length",
        "python:lacking_example:Typeless": "has observation_dtype 'bits'; it must be float32 or uint8",
        "python:lacking_example:Ranges": "each of score_range must be a number, got 1.0",
        "python:lacking_example:Solved": "solved_score must be a number, got 'high'",
        "python:lacking_example:Long": "max_episode_steps must be a whole number, 0 or more, got 'long'",
        "python:lacking_example:Nobody": "agents_per_env must be a whole number, 1 or more, got 0",
        "python:lacking_example:Dark": "observation_high must be a number above 0, got 0",
        "python:lacking_example:Backwards": "continuous_actions must be a whole number, 0 or more, got -1",
        "python:lacking_example:Half": "continuous_actions must be a whole number, 0 or more, got 1.5",
        "python:lacking_example:Fewer": "made 2 environments, 1 were asked for",
    }.items():
        with pytest.raises(ConfigError, match=message):
            spec(name)


def test_episodes_of_a_python_environment_may_be_lists(walk: str, tmp_path: Path) -> None:
    (tmp_path / "lists_example.py").write_text(
        "import walk_example; from protein.envs_c import Episodes\n"
        "class Lists(walk_example.Walk):\n"
        "    def drain_episodes(self): return Episodes(agent=[1], score=[2], return_=[3.0], length=[4])\n"
    )
    episodes = make("python:lists_example:Lists", 2).drain_episodes()
    assert (episodes.agent.dtype.name, episodes.score.dtype.name) == ("int32", "float32")
    assert [column.tolist() for column in dataclasses.astuple(episodes)] == [[1], [2.0], [3.0], [4]]


def test_a_python_environment_may_keep_its_actions(walk: str, tmp_path: Path) -> None:
    """Here the reward is whether the action has changed. The caller's own array is the same in each step."""
    (tmp_path / "keeping_example.py").write_text(
        "import walk_example\n"
        "class Keeping(walk_example.Walk):\n"
        "    last = None\n"
        "    def step(self, actions, observations, rewards, *ends):\n"
        "        super().step(actions, observations, rewards, *ends)\n"
        "        rewards[:] = self.last is not None and (actions != self.last)\n"
        "        self.last = actions\n"
    )
    envs, observations, actions = (
        make("python:keeping_example:Keeping", 1),
        np.zeros((1, 1), np.float32),
        np.zeros(1, np.int32),
    )
    rewards, ends = np.zeros(1, np.float32), np.zeros((2, 1), np.bool_)
    envs.reset(1, observations)
    for step, gained in enumerate([0, 1, 1]):
        actions[:] = step % 2
        envs.step(actions, observations, rewards, ends[0], ends[1])
        assert rewards.tolist() == [gained]


def test_who_plays_has_to_be_known_before_the_first_reset(walk: str, tmp_path: Path) -> None:
    (tmp_path / "late_example.py").write_text(
        "import walk_example, numpy as np\n"
        "class Late(walk_example.Walk):\n"
        "    def reset(self, *arguments):\n"
        "        super().reset(*arguments)\n"
        "        self.playing = np.ones(self.num_envs, bool)\n"
    )
    with pytest.raises(ConfigError, match=r"playing is there only after reset: .* create it in the constructor"):
        make("python:late_example:Late", 2).reset(1, np.zeros((2, 1), np.float32))


def test_a_resumed_episode_counts_what_it_earned_before(walk: str, tmp_path: Path) -> None:
    (tmp_path / "kept_example.py").write_text(
        "import pickle, walk_example\n"
        "class Kept(walk_example.Walk):\n"
        "    def step(self, *arrays):\n"
        "        super().step(*arrays)\n"
        "        arrays[2][:] += 1\n"
        "    def get_state(self): return pickle.dumps((self.place, self.age, self.draws))\n"
        "    def set_state(self, state): self.place, self.age, self.draws = pickle.loads(state)\n"
    )
    rewards, ends = np.zeros(3, np.float32), np.zeros((2, 3), np.bool_)

    def step(envs: VectorEnv, observations: np.ndarray, steps: int) -> None:
        for t in range(steps):
            envs.step(np.full(3, t % 2, np.int32), observations, rewards, ends[0], ends[1], observations.copy())

    envs, other = (make("python:kept_example:Kept", 3) for _ in range(2))
    observations = np.zeros((3, 1), np.float32)
    envs.reset(1, observations)
    step(envs, observations, 60)
    state, kept = envs.get_state(), observations.copy()
    assert resume(other, state, kept)
    for one, shown in ((envs, observations), (other, kept)):
        step(one, shown, 50)
        episodes = one.drain_episodes()
        assert episodes.score.tolist() == [100.0] * 3 and episodes.length.tolist() == [100] * 3
    other.set_state(envs._envs.get_state())  # type: ignore[attr-defined]
    np.testing.assert_array_equal(other._envs.place, envs._envs.place, "a state of an earlier version")  # type: ignore[attr-defined]


def test_new_episodes_of_a_resumed_run_have_a_seed_that_every_generator_takes(walk: str, tmp_path: Path) -> None:
    (tmp_path / "legacy_example.py").write_text(
        "import numpy as np, walk_example\n"
        "class Legacy(walk_example.Walk):\n"
        "    def reset(self, seed, observations):\n"
        "        np.random.RandomState(seed)\n"
        "        super().reset(seed, observations)\n"
    )
    envs, observations = make("python:legacy_example:Legacy", 2), np.zeros((2, 1), np.float32)
    for seed in range(3):
        envs.reset(seed, observations)
        assert not resume(envs, envs.get_state(), observations)


def test_the_documented_environment_can_be_trained(walk: str) -> None:
    result = run(training(walk), directory=None, report=lambda _: None)
    assert result.steps == 256 and result.score is not None


def test_a_python_environment_gets_continuous_actions_within_their_range(walk: str, tmp_path: Path) -> None:
    (tmp_path / "continuous_example.py").write_text(
        "import walk_example, numpy as np\n"
        "class Slide(walk_example.Walk):\n"
        "    action_sizes = ()\n"
        "    continuous_actions = 1\n"
        "    def step(self, actions, *arrays):\n"
        "        assert actions.shape == (self.num_envs,) and np.abs(actions).max() <= 1.0\n"
        "        super().step((actions > 0).astype(np.int32), *arrays)\n"
    )
    result = run(training("python:continuous_example:Slide"), directory=None, report=lambda _: None)
    assert result.score is not None


def test_an_environment_that_raises_ends_the_run_as_failed_with_what_it_cost(walk: str, tmp_path: Path) -> None:
    (tmp_path / "raising_example.py").write_text(
        "import walk_example\n"
        "class Raising(walk_example.Walk):\n"
        "    calls = 0\n"
        "    def step(self, *arrays):\n"
        "        self.calls += 1\n"
        "        if self.calls > 40: raise ZeroDivisionError('no ground')\n"
        "        super().step(*arrays)\n"
    )
    events = EventLog()
    with pytest.raises(UsersCodeError) as raised:
        quick = training("python:raising_example:Raising", normalize_observations="off", reward_scaling="off")
        run(quick, directory=None, report=events.record)  # no random play before it
    last = events[-1]
    told = "'python:raising_example:Raising' failed in step: ZeroDivisionError: no ground (raising_example.py, line 6)"
    assert (last["event"], last["reason"], last["message"]) == ("failed", "environment", told)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert last["steps"] == 2 * 16 * 4 and last["elapsed_seconds"] > 0


def test_an_environment_that_fails_in_close_costs_no_result(
    walk: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "closing_example.py").write_text(
        "import walk_example\n"
        "class Stuck(walk_example.Walk):\n"
        "    def close(self): raise OSError('the window is gone')\n"
    )
    name = "python:closing_example:Stuck"
    assert run(training(name), directory=None, report=lambda _: None).score is not None
    told = f"warning: '{name}' failed in close: OSError: the window is gone (closing_example.py, line 3)\n"
    assert capsys.readouterr().err == 2 * told, "of the training and of the evaluation"
    with pytest.raises(ConfigError, match=f"cannot close '{name}': OSError: the window is gone"):
        spec(name)


def test_arguments_reach_a_python_environments_factory(walk: str, tmp_path: Path) -> None:
    (tmp_path / "sloped_example.py").write_text(
        "import walk_example\n"
        "class Sloped(walk_example.Walk):\n"
        "    def __init__(self, num_envs, *, slope=0.0, **rest):\n"
        "        super().__init__(num_envs, **rest)\n"
        "        self.slope = slope\n"
        "        self.closed = 0\n"
        "    def close(self): self.closed += 1\n"
    )
    name = "python:sloped_example:Sloped"
    envs = make(name, 2, args={"slope": 0.5})
    assert envs._envs.slope == 0.5  # type: ignore[attr-defined]
    envs.close()
    envs.close()
    assert envs._envs.closed == 1, "closed once"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=f"'{name}' takes no argument env.args.slop; did you mean 'slope'"):
        spec(name, {"slop": 1})
    with pytest.raises(ConfigError, match=f"'{walk}' takes no arguments, got env.args.slope: remove it"):
        spec(walk, {"slope": 1})
    with pytest.raises(ConfigError, match=r"env.args.seed of .* is given by the trainer"):
        make(name, 2, args={"seed": 1})
    with pytest.raises(ConfigError, match=r"'pong' is written in C and takes no arguments, got env.args.speed"):
        spec("pong", {"speed": 2})


def test_a_python_environment_may_observe_bytes(walk: str, tmp_path: Path) -> None:
    (tmp_path / "bytes_example.py").write_text(
        "import walk_example\n"
        "class Bytes(walk_example.Walk):\n"
        "    observation_dtype, observation_high = 'uint8', 15\n"
        "class Wide(walk_example.Walk):\n"
        "    observation_dtype = 'float64'\n"
    )
    envs = make("python:bytes_example:Bytes", 2)
    assert (envs.spec.observation_dtype, envs.spec.observation_high) == ("uint8", 15.0)
    envs.reset(0, np.zeros((2, 1), np.uint8))
    with pytest.raises(ConfigError, match="has observation_dtype float64; it must be float32 or uint8"):
        spec("python:bytes_example:Wide")
