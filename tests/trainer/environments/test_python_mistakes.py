"""Environments of the user's own: what they get wrong is one line, and costs no more than it must."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from walk_env import training, walk_example  # noqa: F401 (a fixture)

from protein.trainer.environments import make, resume, spec
from protein.trainer.errors import ConfigError, TrainerError
from protein.trainer.run import run


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


@pytest.mark.parametrize("method", ["reset", "step"])
def test_arrays_that_are_returned_are_read_by_nobody(
    walk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    (tmp_path / "returning_example.py").write_text(
        "import walk_example\n"
        "class Returning(walk_example.Walk):\n"
        "    def reset(self, seed, observations):\n"
        "        super().reset(seed, observations)\n"
        f"        return observations{'.copy()' if method == 'reset' else ''}, {{}}\n"
        "    def step(self, actions, *arrays):\n"
        "        super().step(actions, *arrays)\n"
        "        return arrays[0].copy(), *arrays[1:4], {}\n"
    )
    monkeypatch.delitem(sys.modules, "returning_example", raising=False)
    envs = make("python:returning_example:Returning", 3)
    observations, rewards, ends = np.zeros((3, 1), np.float32), np.zeros(3, np.float32), np.zeros((2, 3), np.bool_)
    with pytest.raises(ConfigError, match=f"Returning': {method} returned arrays of its own: it must write into those"):
        envs.reset(1, observations)
        envs.step(np.ones(3, np.int32), observations, rewards, ends[0], ends[1])


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
    with pytest.raises(TrainerError, match=message):
        envs.reset(1, observations)  # which drains earlier episodes, too
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
