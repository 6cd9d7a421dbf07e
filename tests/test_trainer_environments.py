"""Environments by name: what every kind of them must do alike, and what a wrong name is told."""

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from event_log import EventLog

from protein import envs_c
from protein.trainer.config import RunConfig
from protein.trainer.environments import VectorEnv, make, playing, resume, spec
from protein.trainer.environments.episodes import EpisodeCounter
from protein.trainer.errors import ConfigError, TrainerError, UsersCodeError
from protein.trainer.run import run

DOCUMENTATION = Path(__file__).parent.parent / "docs" / "environments.md"


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


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the example in docs/environments.md, in a working directory of its own."""
    example = re.search(r"```python\n(.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    assert example is not None
    (tmp_path / "walk_example.py").write_text(example[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "walk_example", raising=False)
    return "python:walk_example:Walk"


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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("arrays[1][1, 0] = np.nan", r"^instance 6 of '.*' observed nan in element 0: observations must be finite"),
        ("arrays[2][2] = np.inf", "^instance 7 of '.*' gave a reward of inf: a reward must be a finite number"),
        ("arrays[3][1] = arrays[4][1] = True", "^instance 6 of '.*' is both terminal and truncated in one step"),
        ("arrays[4][2] = True; arrays[5][2] = np.nan", "^instance 7 of '.*' was truncated, and at last observed nan"),
    ],
)
def test_what_a_python_environment_gets_wrong_is_told_with_its_instance(
    walk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    (tmp_path / "wrong_example.py").write_text(
        "import walk_example, numpy as np\n"
        "class Wrong(walk_example.Walk):\n"
        "    def step(self, *arrays):\n"
        "        super().step(*arrays)\n"
        f"        {line}\n"
    )
    monkeypatch.delitem(sys.modules, "wrong_example", raising=False)
    envs = make("python:wrong_example:Wrong", 3, first_index=5)
    observations, rewards, ends = np.zeros((3, 1), np.float32), np.zeros(3, np.float32), np.zeros((2, 3), np.bool_)
    envs.reset(1, observations)
    with pytest.raises(TrainerError, match=message):
        envs.step(np.ones(3, np.int32), observations, rewards, ends[0], ends[1], observations.copy())


def test_a_python_environment_may_write_only_the_rewards_and_ends_that_there_are(walk: str, tmp_path: Path) -> None:
    (tmp_path / "sparing_example.py").write_text(
        "import walk_example\n"
        "class Sparing(walk_example.Walk):\n"
        "    def step(self, actions, observations, rewards, terminals, truncations, finals):\n"
        "        self.age += 1\n"
        "        observations[:, 0] = self.age\n"
        "        if self.age[0] == 1: rewards[0] = terminals[0] = truncations[1] = 1\n"
    )
    envs = make("python:sparing_example:Sparing", 2)
    observations, rewards, ends = np.zeros((2, 1), np.float32), np.zeros(2, np.float32), np.zeros((2, 2), np.bool_)
    envs.reset(1, observations)
    for _ in range(2):
        envs.step(np.ones(2, np.int32), observations, rewards, ends[0], ends[1])
    assert not rewards.any() and not ends.any(), "nothing of the step before"
    assert envs.drain_episodes().score.tolist() == [1.0, 0.0]


def test_a_python_environment_may_bring_its_own_state_and_scores(walk: str, tmp_path: Path) -> None:
    (tmp_path / "saving_example.py").write_text(
        "import walk_example, numpy as np\n"
        "from protein.envs_c import Episodes\n"
        "class Saving(walk_example.Walk):\n"
        "    closed = False\n"
        "    def get_state(self): return self.place.tobytes()\n"
        "    def set_state(self, state): self.place[:] = np.frombuffer(state)\n"
        "    def close(self): self.closed = True\n"
        "    def drain_episodes(self):\n"
        "        one = np.ones(1, np.int32)\n"
        "        return Episodes(agent=one, length=one, score=np.full(1, 7, np.float32), return_=one)\n"
    )
    envs = make("python:saving_example:Saving", 2)
    observations = np.zeros((2, 1), np.float32)
    envs.reset(1, observations)
    assert envs.drain_episodes().score.tolist() == [7.0]
    kept = observations.copy()
    assert resume(make("python:saving_example:Saving", 2), envs.get_state(), kept)
    np.testing.assert_array_equal(kept, observations)
    plain = make(walk, 2)
    plain.reset(1, kept)
    np.testing.assert_array_equal(kept, observations)
    assert not resume(make(walk, 2), plain.get_state(), kept)
    assert (kept != observations).all()
    envs.close()
    assert envs._envs.closed  # type: ignore[attr-defined]
    for wrong in (5, "state"):
        envs._envs.get_state = lambda wrong=wrong: wrong  # type: ignore[attr-defined]
        with pytest.raises(TrainerError, match=rf"returned a {type(wrong).__name__}: it must return bytes"):
            envs.get_state()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            "def get_state(self): raise KeyError('place')",
            r"failed in get_state: KeyError: 'place' \(failing_.*py, line 4",
        ),
        (
            "def set_state(self, state): int('one')",
            r"failed in set_state: ValueError: invalid .* \(failing_.*py, line 4",
        ),
        ("def render(self): raise RuntimeError('no screen')", r"failed in render: RuntimeError: no screen \(failing_"),
        ("def drain_episodes(self): raise KeyError(5)", r"failed in drain_episodes: KeyError: 5 \(failing_"),
        (
            "def drain_episodes(self): pass",
            r"returned a NoneType: it must return protein.envs_c.Episodes of four arrays",
        ),
        ("def drain_episodes(self): return one(agent=[])", "returned a Episodes: it must return .* of one length"),
        ("def drain_episodes(self): return one(agent=[2])", "gave an episode of agent 2: rows go from 0 to 1"),
        (
            "def drain_episodes(self): return one(score=[np.nan])",
            "gave a score of nan: a score must be a finite number",
        ),
    ],
)
def test_what_other_methods_of_a_python_environment_get_wrong_is_one_line(
    walk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, message: str
) -> None:
    (tmp_path / "failing_example.py").write_text(
        "import walk_example, numpy as np; from protein.envs_c import Episodes\n"
        "class Failing(walk_example.Walk):\n"
        "    get_state, set_state = lambda self: b'', lambda self, state: None\n"
        f"    {method}\n"
        "def one(**given): return Episodes(**{'agent': [0], 'score': [1], 'return_': [1], 'length': [3]} | given)\n"
    )
    monkeypatch.delitem(sys.modules, "failing_example", raising=False)
    envs: Any = make("python:failing_example:Failing", 2)
    observations = np.zeros((2, 1), np.float32)
    envs.reset(1, observations)
    with pytest.raises(TrainerError, match=message):
        if "render" in method:
            envs.render()
        elif "drain" in method:
            envs.drain_episodes()
        else:
            resume(envs, envs.get_state(), observations)


@pytest.mark.parametrize("where", ["file", "made", "reset", "step"])
def test_an_environment_that_ends_the_program_fails_like_any_other(
    walk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """As a script without its `if __name__` does, or a game whose window was closed."""
    ends = {at: "sys.exit()" if where == at else "pass" for at in ("file", "made", "reset", "step")}
    (tmp_path / "ending_example.py").write_text(
        "import sys, walk_example\n"
        f"{ends['file']}\n"
        "class Ending(walk_example.Walk):\n"
        "    def __init__(self, *given, **named):\n"
        f"        super().__init__(*given, **named); {ends['made']}\n"
        "    def reset(self, *given):\n"
        f"        super().reset(*given); {ends['reset']}\n"
        "    def step(self, *given):\n"
        f"        super().step(*given); {ends['step']}\n"
    )
    monkeypatch.delitem(sys.modules, "ending_example", raising=False)
    with pytest.raises(TrainerError, match=r": SystemExit \(ending_example.py, line \d+\)$"):
        run(training("python:ending_example:Ending"), directory=None, report=lambda _: None)


def test_an_environment_that_changes_the_type_of_all_weights_is_told(walk: str, tmp_path: Path) -> None:
    (tmp_path / "double_example.py").write_text(
        "import torch, walk_example\n"
        "class Double(walk_example.Walk):\n"
        "    def __init__(self, *given, **named):\n"
        "        super().__init__(*given, **named)\n"
        "        torch.set_default_dtype(torch.float64)\n"
    )
    try:
        with pytest.raises(ConfigError, match=r"has set torch's default type to torch\.float64"):
            run(training("python:double_example:Double"), directory=None, report=lambda _: None)
    finally:
        torch.set_default_dtype(torch.float32)


def test_an_environment_may_go_to_a_folder_of_its_own(walk: str, tmp_path: Path) -> None:
    (tmp_path / "its_own").mkdir()
    (tmp_path / "going_example.py").write_text(
        "import os, pathlib, walk_example\n"
        "class Going(walk_example.Walk):\n"
        "    def __init__(self, *given, **named):\n"
        "        super().__init__(*given, **named)\n"
        "        os.chdir(pathlib.Path(__file__).parent / 'its_own')\n"
        "    def step(self, *given):\n"
        "        assert pathlib.Path.cwd().name == 'its_own'\n"
        "        super().step(*given)\n"
    )
    spec("python:going_example:Going")
    assert Path.cwd() == tmp_path
    result = run(training("python:going_example:Going"), directory=Path("found"), report=lambda _: None)
    assert Path.cwd() == tmp_path
    assert result.checkpoint == tmp_path / "found" / "checkpoint.safetensors" and result.checkpoint.is_file()


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


def test_a_python_environment_may_say_who_plays(walk: str, tmp_path: Path) -> None:
    """Here the second of two agents rests in every second step. What it does then is no part of its episode."""
    (tmp_path / "resting_example.py").write_text(
        "import walk_example, numpy as np\n"
        "class Resting(walk_example.Walk):\n"
        "    def __init__(self, num_envs, **args):\n"
        "        super().__init__(num_envs, **args)\n"
        "        self.playing = np.ones(num_envs, bool)\n"
        "    def step(self, *arrays):\n"
        "        super().step(*arrays)\n"
        "        self.playing[1:] ^= True\n"
        "class Wrong(walk_example.Walk):\n"
        "    playing = np.ones(3, bool)\n"
    )
    envs = make("python:resting_example:Resting", 2)
    observations, rewards, ends = np.zeros((2, 1), np.float32), np.zeros(2, np.float32), np.zeros((2, 2), np.bool_)
    envs.reset(1, observations)
    for step in range(30):
        rows = playing(envs)
        assert rows is not None and rows.tolist() == [True, step % 2 == 0]
        envs.step(np.ones(2, np.int32), observations, rewards, *ends)
        if step % 2:
            assert not (envs.drain_episodes().agent == 1).any(), "an idle row ends no episode"
    assert playing(make(walk, 2)) is None
    assert run(training("python:resting_example:Resting"), directory=None, report=lambda _: None).steps == 256
    with pytest.raises(ConfigError, match=r"playing must be bool of shape \(1,\), got bool of shape \(3,\)"):
        spec("python:resting_example:Wrong")


def test_who_plays_may_be_a_list(walk: str, tmp_path: Path) -> None:
    (tmp_path / "listing_example.py").write_text(
        "import walk_example\n"
        "class Listing(walk_example.Walk):\n"
        "    playing = property(lambda self: [True] * self.num_envs)\n"
    )
    assert run(training("python:listing_example:Listing"), directory=None, report=lambda _: None).steps == 256


def test_what_idle_agents_earn_is_in_no_episode() -> None:
    """The columns are two agents. The first rests once between two episodes, the second in the middle of one."""
    rewards = np.array([[1, 2], [5, 7], [1, 3], [4, 4]], np.float32)
    playing = np.array([[1, 1], [0, 0], [1, 1], [1, 1]], np.bool_)
    ended = np.array([[1, 0], [0, 0], [1, 1], [1, 1]], np.bool_)
    counter = EpisodeCounter(2)
    for step in zip(rewards, ended, playing, strict=True):
        counter.add(*step)
    episodes = counter.drain()
    assert episodes.agent.tolist() == [0, 0, 1, 0, 1]
    assert episodes.score.tolist() == episodes.return_.tolist() == [1, 1, 5, 4, 4]
    assert episodes.length.tolist() == [1, 1, 2, 1, 1]


def test_an_end_while_idle_is_no_episode_and_carries_nothing_over() -> None:
    counter, yes, no = EpisodeCounter(1), np.ones(1, np.bool_), np.zeros(1, np.bool_)
    counter.add(np.full(1, 3, np.float32), no, yes)
    counter.add(np.full(1, 5, np.float32), yes, no)
    assert len(counter.drain()) == 0
    counter.add(np.full(1, 2, np.float32), yes, yes)
    episodes = counter.drain()
    assert (episodes.score.tolist(), episodes.length.tolist()) == ([2.0], [1])


def test_a_team_reward_counts_only_for_the_agents_that_still_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two agents ends after one of four steps; every step rewards both rows with 1."""
    (tmp_path / "team_example.py").write_text(
        "import numpy as np\n"
        "class Team:\n"
        "    action_sizes, agents_per_env, observation_shape = (2,), 2, (1,)\n"
        "    def __init__(self, num_envs, **args):\n"
        "        self.num_envs, self.playing = num_envs, np.ones(2 * num_envs, bool)\n"
        "    def reset(self, seed, observations): self.age, self.playing[:], observations[:] = 0, True, 0\n"
        "    def step(self, actions, observations, rewards, terminals, truncations, finals):\n"
        "        self.age = (self.age + 1) % 4\n"
        "        observations[:], rewards[:], truncations[:] = self.age, 1, False\n"
        "        terminals[0::2], terminals[1::2] = self.age < 2, self.age == 0\n"
        "        self.playing[0::2] = self.age == 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    envs = make("python:team_example:Team", 1)
    observations, rewards, ends = np.zeros((2, 1), np.float32), np.zeros(2, np.float32), np.zeros((2, 2), np.bool_)
    envs.reset(1, observations)
    for _ in range(8):
        envs.step(np.ones(2, np.int32), observations, rewards, *ends)
    episodes = envs.drain_episodes()
    assert episodes.agent.tolist() == [0, 1, 0, 1]
    assert episodes.score.tolist() == episodes.length.tolist() == [1, 4, 1, 4]


def training(env: str, **train: Any) -> RunConfig:
    sections = {
        "env": {"name": env, "num_envs": 4},
        "policy": {"hidden_size": 8},
        "train": {"total_timesteps": 256, "horizon": 16, "minibatch_size": 32, "threads": 1, "device": "cpu", **train},
        "eval": {"episodes": 4, "num_envs": 4},
    }
    return RunConfig.from_dict(sections)


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
