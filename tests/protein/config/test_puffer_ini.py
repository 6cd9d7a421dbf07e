"""PufferLib's files: small ones of our own in the forms that those of its history have."""

import importlib.util
import sys
from pathlib import Path

import pytest

from protein.config import puffer_ini, space_file
from protein.config.space_toml import SpaceFile
from protein.errors import UsageError
from protein.space.parameters import Float, Integer, Parameter
from protein.types import Direction

DEFAULT = """
[base]
env_name = None
max_suggestion_cost = 3600

[policy]
num_layers = 4
[vec]
num_buffers = 2
[train]
total_timesteps = 10_000_000
learning_rate = 0.015
vf_coef = 2
gamma = 0.995

[sweep]
method = Protein 
metric = score
goal = maximize
max_runs = 1200
match_enemy_model_path = ''
match_num_games = 1024

[sweep.train.total_timesteps]
distribution = log_normal
min = 3e7
max = 1e11
scale = time
[sweep.policy.num_layers]
distribution = uniform
min = 1
max = 8
scale = auto
[sweep.train.learning_rate]
distribution = log_normal
min = 0.00001
max = 0.1
scale = 0.5
[sweep.train.vf_coef]
distribution = uniform
min = 0.0
max = 5.0
scale = auto
[sweep.train.gamma]
distribution = logit_normal
min = 0.8
max = 0.9999
mean = 0.98
scale = auto
"""  # noqa: W291 (its own file has such a space)
OVER = """
[base]
env_name = lock
[train]
learning_rate = 0.012  # found by hand
[sweep]
metric = perf
goal = minimize ; of the loss
max_runs = 50
[sweep.train.total_timesteps]
distribution = log_normal
min = 100_000_000
max = 200_000_000   # a smaller one
mean = 150_000_000
scale = time
[sweep.train.learning_rate]
mean = 0.02
[sweep.vec.num_buffers]
distribution = uniform
min = 1
max = 4
"""
BEFORE_3 = """
[base]
env_name = pong breakout
[env]
frameskip = 4
[sweep]
method = bayes
name = sweep
[sweep.metric]
goal = minimize
name = environment/episode_length
min = 0
[sweep.parameters.env.parameters.frameskip]
distribution = uniform
min = 1
max = 10
[sweep.parameters.train.parameters.total_timesteps]
distribution = log_uniform_values
min = 20_000_000
max = 80_000_000
[sweep.parameters.train.parameters.optimizer]
values = ['adam', 'muon']
[sweep.parameters.train.parameters.bptt_horizon]
value = 16
"""


def read(path: Path, text: str) -> SpaceFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return space_file.read(path)


def parameters(given: SpaceFile) -> dict[str, Parameter]:
    return {parameter.name: parameter for parameter in given.space.parameters}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder with a default, in which no PufferLib is installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "default.ini").write_text(DEFAULT)
    return tmp_path / "config"


def test_a_file_is_laid_over_the_default_beside_it(config: Path) -> None:
    given = read(config / "lock.ini", OVER)
    assert parameters(given) == {
        "train.total_timesteps": Integer("train.total_timesteps", 10**8, 2 * 10**8, "log", 150_000_000),
        "policy.num_layers": Integer("policy.num_layers", 1, 8, "linear", 4),
        "train.learning_rate": Float("train.learning_rate", 1e-5, 0.1, "log", 0.02),
        "train.vf_coef": Float("train.vf_coef", 0.0, 5.0, "linear", 2.0),
        "train.gamma": Float("train.gamma", 0.8, 0.9999, "logit", 0.98),
        "vec.num_buffers": Integer("vec.num_buffers", 1, 4, "linear", 2),
    }
    assert (given.space.cost_parameter, given.direction, given.params, given.max_trials) == (
        "train.total_timesteps",
        Direction.MINIMIZE,
        "dashes",
        50,
    )
    assert given.start is not None and given.start["train.learning_rate"] == 0.02
    said = [warning.partition("lock.ini: ")[2] for warning in given.warnings]
    assert said[0].startswith("laid over ") and said[0].endswith("config/default.ini")
    assert said[1:] == [
        "the metric 'perf' has to be named with --score-regex or another --score-",
        "method = Protein of [sweep] not taken over: the engine searches in its own way",
        "max_suggestion_cost = 3600 is not taken over: --max-trial-cost 3600s caps a trial",
        "'scale' of the ranges is not taken over: the engine learns it",
    ]


def test_the_default_may_stand_in_a_folder_above(config: Path) -> None:
    """A folder's own `default.ini`, of environments that it names, is none; nor is a file of another program."""
    (config / "ocean").mkdir()
    (config / "ocean" / "default.ini").write_text(f"{BEFORE_3}\n[sweep.train.x]\nmin = 1\nmax = 2")
    (config / "ocean" / "deep").mkdir()
    (config / "ocean" / "deep" / "default.ini").write_text("[mysqld]\nport = 1")
    given = read(config / "ocean" / "deep" / "env.ini", "[base]\nenv_name = a\n[sweep]\nmetric = jad_kill_rate")
    assert list(parameters(given)) == list(parameters(read(config / "default.ini", DEFAULT)))
    assert "train.gamma" in parameters(space_file.read(config / "ocean" / "default.ini")), "it is laid over, too"


def test_a_default_is_laid_over_no_other(config: Path) -> None:
    given = read(config / "mine" / "default.ini", "[sweep.train.gamma]\nmin = 0.5\nmax = 0.9")
    assert parameters(given) == {"train.gamma": Float("train.gamma", 0.5, 0.9)}


@pytest.mark.parametrize("place", ["pufferlib/config", "config"])
def test_the_default_may_be_that_of_an_installed_pufferlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    package = tmp_path / "site" / "pufferlib"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('it is not imported')")
    folder = tmp_path / "site" / place
    folder.mkdir(exist_ok=True)
    (folder / "default.ini").write_text(DEFAULT)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    given = read(tmp_path / "work" / "lock.ini", OVER)
    assert len(parameters(given)) == 6


def test_without_a_default_a_file_with_whole_ranges_is_read_alone(config: Path, tmp_path: Path) -> None:
    alone = OVER.replace("[sweep.train.learning_rate]\nmean = 0.02\n", "")
    given = read(tmp_path / "alone" / "lock.ini", alone)
    assert list(parameters(given)) == ["train.total_timesteps", "vec.num_buffers"]
    assert "no default.ini of PufferLib was found" in given.warnings[0]
    with pytest.raises(UsageError, match=r"\[sweep.train.learning_rate\] has no min, and no default.ini of PufferLib"):
        read(tmp_path / "alone" / "lock.ini", OVER)


def test_the_form_before_3_is_that_of_wandb(config: Path, tmp_path: Path) -> None:
    given = read(tmp_path / "old" / "pong.ini", BEFORE_3)
    assert parameters(given) == {
        "env.frameskip": Integer("env.frameskip", 1, 10, "linear", 4),
        "train.total_timesteps": Float("train.total_timesteps", 2e7, 8e7, "log"),
        "train.optimizer": parameters(given)["train.optimizer"],
    }
    assert (given.space.fixed, given.direction) == ({"train.bptt_horizon": 16}, Direction.MINIMIZE)
    mixed = parameters(read(config / "pong.ini", BEFORE_3))
    assert mixed["train.total_timesteps"] == Integer("train.total_timesteps", 20_000_000, 80_000_000, "log", 20_000_000)
    assert "train.gamma" in mixed


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("learning_rate", ["train.learning_rate"]),
        ("'num_layers, gamma'", ["policy.num_layers", "train.gamma"]),
        ("train.gamma,policy/num_layers", ["policy.num_layers", "train.gamma"]),
        ("['coef']", ["train.vf_coef"]),  # a part of a name is enough, as there
        ("", ["train.total_timesteps", "policy.num_layers", "train.learning_rate", "train.vf_coef", "train.gamma"]),
    ],
)
def test_only_what_the_sweep_names_is_searched(config: Path, given: str, names: list[str]) -> None:
    assert list(parameters(read(config / "a.ini", f"[sweep]\nsweep_only = {given}"))) == names


@pytest.mark.parametrize(
    ("value", "low", "high", "kind"),
    [
        ("3", "1", "8", Integer),
        ("3", "1e0", "0x8", Integer),
        ("3", "1", "8.5", Float),
        ("3", "0.0", "5.0", Float),  # written as a number with a fraction
        ("3.0", "1", "8", Float),
        ("True", "1", "8", Float),
        ("auto", "1", "8", Float),
        ("1_000", "1_0", "1_00  # comment", Integer),
    ],
)
def test_a_range_whose_own_value_is_whole_is_whole(
    tmp_path: Path, value: str, low: str, high: str, kind: type[Parameter]
) -> None:
    text = f"[p]\nn = {value}\n[sweep.p.n]\ndistribution = uniform\nmin = {low}\nmax = {high}"
    assert type(parameters(puffer_ini.read(text, "f"))["p.n"]) is kind


def test_powers_of_two_are_those_that_pufferlib_would_try() -> None:
    text = "[sweep.p.n]\ndistribution = uniform_pow2\nmin = 100\nmax = 1000\nmean = 300\n"
    assert parameters(puffer_ini.read(text, "f"))["p.n"] == Integer("p.n", 128, 1024, "pow2", 256)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[sweep.n]\ndistribution = int_uniform\nmin = 1\nmax = 9\nmean = 1e999", "mean = 1e999 is not finite"),
        ("[sweep.n]\ndistribution = int_uniform\nmin = 1\nmax = 9.5", "int_uniform from 1 to 9.5 needs whole ends"),
        ("[sweep.n]\ndistribution = normal\nmin = 1\nmax = 9", "has the unknown distribution 'normal'"),
        ("[sweep.n]\nmin = 2**3\nmax = 9", "min = 2**3 is no number"),
        ("[sweep.train.lr]\nmin = 1\nmx = 2", "unknown key 'mx' in [sweep.train.lr]; did you mean 'max'?"),
        ("[sweep.train.lr]\nmin = 1", "[sweep.train.lr] has no max"),
        ("[train]\nlr = 1", "has no range"),
        ("lr = 1", "not valid INI"),
        ("[sweep]\nsweep_only = gama\n[sweep.gamma]\nmin = 1\nmax = 2", "no range is called so; did you mean 'gamma'?"),
        (
            "[sweep]\nsweep_onyl = x\n[sweep.gamma]\nmin = 1\nmax = 2",
            "unknown key 'sweep_onyl' of [sweep]; did you mean",
        ),
        ("[sweep]\nmax_runs = 0\n[sweep.gamma]\nmin = 1\nmax = 2", "max_runs = 0 must be a whole number from 1"),
        ("[sweep]\nmatch_enemy_model_path = a.bin\n[sweep.x]\nmin = 1\nmax = 2", "scores trials by matches"),
        ("[Sweep.train.lr]\ndistribution = uniform\nmin = 1\nmax = 2", "[Sweep.train.lr] looks like a range"),
        ("[sweeps.train.lr]\nmin = 1\nmax = 2", "[sweeps.train.lr] looks like a range"),
        ("[sweep.a-b]\nmin = 1\nmax = 2\n[sweep.a_b]\nmin = 1\nmax = 2", "would be one flag; rename one"),
        ("[sweep.parameters.a.parameters.b]\nlo = 1\nhigh = 2", "unknown key 'lo' of parameter 'a.b'"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        puffer_ini.read(text, "f.ini")
    assert message in str(refused.value)
    assert str(refused.value).startswith("f.ini: ") and "\n" not in str(refused.value)


def test_a_default_that_cannot_be_read_is_named(config: Path) -> None:
    (config / "default.ini").write_text("[base\n")
    with pytest.raises(UsageError, match=r"default.ini: not valid INI"):
        read(config / "lock.ini", OVER)
