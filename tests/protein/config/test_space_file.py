"""Spaces in files: our own form, sweeps of W&B, and PufferLib's ranges."""

import math
from pathlib import Path

import pytest

from protein.config.space_file import read
from protein.config.space_toml import SpaceFile
from protein.errors import UsageError
from protein.space.parameters import Categorical, Float, Integer
from protein.types import Direction

WANDB = """
program: train.py
method: bayes
metric: {name: val/acc, goal: maximize}
early_terminate: {type: hyperband}
command: ["${env}", "${interpreter}", "-u", "${program}", "--fast", "${args}", "{x}"]
parameters:
  lr: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
  depth: {min: 1, max: 8}
  drop: {min: 0.0, max: 0.5}
  width: {values: [32, 64, 128]}
  layers: {values: [2, 3, 4]}
  odd: {values: [1, 5, 7]}
  opt: {values: [adam, sgd], probabilities: [0.2, 0.8]}
  one: {values: [3]}
  batch-size: {value: 64}
  decay: {distribution: log_uniform, min: -9.210340371976182, max: 0}
  units: {distribution: q_log_uniform_values, min: 8, max: 512, q: 1}
  coarse: {distribution: q_uniform, min: 0, max: 1, q: 0.25}
  batch: {distribution: q_log_uniform_values, min: 32, max: 256, q: 8}
  noise: {distribution: normal, mu: 1, sigma: 0.1}
  inner:
    parameters:
      gamma: {min: 0.9, max: 0.99}
"""
PUFFER = """
[base]
env_name = puffer_breakout
[train]
learning_rate = 0.015
[sweep]
method = Protein
metric = score
goal = minimize
[sweep.train.total_timesteps]
distribution = log_normal
min = 3e7
max = 1e10
mean = 2e8
scale = time
[sweep.train.minibatch_size]
distribution = uniform_pow2
min = 8192
max = 65536
[sweep.train.gamma]
distribution = logit_normal
min = 0.8
max = 0.9999
mean = 0.98
scale = auto
[sweep.vec.num_envs]
distribution = int_uniform
min = 1
max = 16
"""
OWN = """
cost_parameter = "train.steps"
constraints = ["batch <= train.steps"]
direction = "minimize"

[space]
lr = { value = 1e-3, min = 1e-5, max = 1e-1, scale = "log" }
opt = { choices = ["adam", "sgd"] }
ratio = { min = 0, max = 1.5 }
batch = 64
fixed = { value = true }

[space.train]
steps = { value = 100, min = 10, max = 1000, scale = "log" }
"""


def file(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text)
    return path


def parameters(given: SpaceFile) -> dict[str, object]:
    return {parameter.name: parameter for parameter in given.space.parameters}


def test_our_own_form(tmp_path: Path) -> None:
    given = read(file(tmp_path, "space.toml", OWN))
    assert parameters(given) == {
        "lr": Float("lr", 1e-5, 1e-1, "log", 1e-3),
        "opt": Categorical("opt", ("adam", "sgd")),
        "ratio": Float("ratio", 0, 1.5),
        "train.steps": Integer("train.steps", 10, 1000, "log", 100),
    }
    assert given.space.fixed == {"batch": 64, "fixed": True}
    assert (given.space.cost_parameter, given.direction) == ("train.steps", Direction.MINIMIZE)
    assert given.start is not None
    assert (given.start["lr"], given.start["train.steps"], given.start["ratio"]) == (1e-3, 100, 0.75)
    assert (given.command, given.warnings) == (None, ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.toml", "[space]\r\nlr = { min = 1, max = 9 }"),
        ("s.ini", "[sweep.lr]\r\nmin = 1\r\nmax = 9\r\n"),
        ("s.yaml", "parameters:\r\n  lr: {min: 1, max: 9}\r\n"),
    ],
)
def test_a_file_of_an_editor_on_windows_is_read(tmp_path: Path, name: str, text: str) -> None:
    """It begins with a mark of its encoding, and its lines end with two characters."""
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert list(read(tmp_path / name).space.names) == ["lr"]


def test_a_file_of_ranges_alone_needs_no_table_of_the_space(tmp_path: Path) -> None:
    ranges = "[lr]\nmin = 1e-5\nmax = 1e-1\nscale = 'log'\n[train]\nseed = 3\nsteps = { min = 10, max = 1000 }"
    given = read(file(tmp_path, "space.toml", f"cost_parameter = 'train.steps'\n{ranges}"))
    assert parameters(given) == {
        "lr": Float("lr", 1e-5, 1e-1, "log"),
        "train.steps": Integer("train.steps", 10, 1000),
    }
    assert (given.space.fixed, given.space.cost_parameter) == ({"train.seed": 3}, "train.steps")


def test_a_sweep_of_wandb(tmp_path: Path) -> None:
    given = read(file(tmp_path, "sweep.yaml", WANDB))
    assert parameters(given) == {
        "lr": Float("lr", 1e-4, 1e-1, "log"),
        "depth": Integer("depth", 1, 8),
        "drop": Float("drop", 0.0, 0.5),
        "width": Integer("width", 32, 128, "pow2"),
        "layers": Integer("layers", 2, 4),
        "odd": Categorical("odd", (1, 5, 7)),
        "opt": Categorical("opt", ("adam", "sgd")),
        "decay": Float("decay", math.exp(-9.210340371976182), 1.0, "log"),
        "units": Integer("units", 8, 512, "log"),
        "coarse": Float("coarse", 0.0, 1.0),
        "batch": Integer("batch", 32, 256, "log"),
        "noise": Float("noise", 1 - 3 * 0.1, 1 + 3 * 0.1),
        "inner.gamma": Float("inner.gamma", 0.9, 0.99),
    }
    assert given.space.fixed == {"one": 3, "batch_size": 64}
    assert (given.direction, given.start, given.params) == (Direction.MAXIMIZE, None, "dashes")
    assert given.command is not None
    assert given.command.startswith("python -u train.py --fast '--lr={lr}' '--depth={depth}'")
    assert given.command.endswith("'--batch-size={batch_size}' '{{x}}'")
    said = [warning.partition(".yaml: ")[2] for warning in given.warnings]
    assert [line.split(" is not taken over")[0] for line in said[:2]] == [
        "'method: bayes'",
        "'early_terminate: {'type': 'hyperband'}'",
    ]
    assert [line.split(":")[0] for line in said[2:6]] == ["opt", "coarse", "batch", "noise"]
    assert said[6].startswith("the metric 'val/acc' is not read from W&B")


def test_a_metric_of_wandb_without_a_goal_is_minimised(tmp_path: Path) -> None:
    """As W&B does it."""
    text = "metric: {name: val_loss}\nparameters:\n  lr: {min: 0.001, max: 0.1}\n"
    given = read(file(tmp_path, "sweep.yaml", text))
    assert given.direction is Direction.MINIMIZE
    assert "no goal, which means minimize in W&B; --direction, where given, overrides it" in given.warnings[-1]
    assert read(file(tmp_path, "none.yaml", text.partition("\n")[2])).direction is None


def test_the_ranges_of_pufferlib(tmp_path: Path) -> None:
    given = read(file(tmp_path, "breakout.ini", PUFFER))
    assert parameters(given) == {
        "train.total_timesteps": Float("train.total_timesteps", 3e7, 1e10, "log", 2e8),
        "train.minibatch_size": Integer("train.minibatch_size", 8192, 65536, "pow2"),
        "train.gamma": Float("train.gamma", 0.8, 0.9999, "logit", 0.98),
        "vec.num_envs": Integer("vec.num_envs", 1, 16),
    }
    assert (given.space.cost_parameter, given.direction, given.params) == (
        "train.total_timesteps",
        Direction.MINIMIZE,
        "dashes",
    )
    assert given.start is not None and given.start["train.total_timesteps"] == 2e8
    said = [warning.partition(".ini: ")[2] for warning in given.warnings]
    assert said == [
        "'method = Protein' of [sweep] is not taken over",
        "the metric 'score' has to be named with --score-regex or another --score-",
        "'scale' of the ranges is not taken over: the engine learns it",
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "[space]\nlr = { mn = 1, max = 2 }", "unknown key 'mn' in the table of 'lr'; did you mean 'min'?"),
        ("a.toml", "cost_paramter = 'lr'\n[space]\nlr = 1", "unknown key 'cost_paramter'; did you mean"),
        ("a.toml", "[spce]\nlr = 1", "unknown key 'spce'; did you mean 'space'?"),
        ("a.toml", "[space]\nlr = { min = 1 }", "the range of lr has no max; give both min and max"),
        ("a.toml", "[space]\nlr = { min = 2, max = 1 }", "its lowest value 2 is not below its highest 1; swap them"),
        (
            "a.toml",
            "[space]\nlr = { min = 0.1, max = 1.0, value = 5 }",
            "'lr': value 5 is outside its range [0.1, 1.0]",
        ),
        ("a.toml", "[space]\nlr = { choices = [1, 2], min = 1 }", "lr gives both choices and min"),
        ("a.toml", "[spce.lr]\nmin = 1\nmax = 2", "unknown key 'spce'; did you mean 'space'?"),
        ("a.toml", "batch = 64\n[lr]\nmin = 1\nmax = 2", "unknown key 'batch'; known: constraints, cost_parameter,"),
        ("a.toml", "[space]\nlr = 1\n[batch]\nmin = 1\nmax = 2", "parameters belong in [space]"),
        ("a.toml", "[lr]\nmin = 1\nmaxx = 2", "unknown key 'maxx' in the table of 'lr'; did you mean 'max'?"),
        ("a.toml", "[space]\nlr = [1, 2]", "lr = [1, 2] is no value and no range"),
        ("a.toml", "[space]\nlr = 1", "the space has no parameters"),
        ("a.toml", "space = 1", "has no ranges"),
        ("a.toml", "[space", "not valid TOML"),
        ("a.toml", "", "a.toml: is empty; write ranges as [space]"),
        ("a.toml", "a = " + "[" * 2_000, "not valid TOML"),
        ("a.yaml", "# later", "a.yaml: is empty; write the sweep into it"),
        ("a.yaml", "[" * 400, "not valid YAML"),
        ("a.toml", "[space]\nlr = { value = [1, 2] }", "the value [1, 2] of lr is no number, text or boolean"),
        ("a.toml", "cost_parameter = ['lr']\n[space]\nlr = { min = 1, max = 2 }", "cost_parameter must be the name"),
        ("a.yaml", "parameters: {lr: {values: 5}}", "values of 'lr' must be a list, got 5"),
        ("a.yaml", "parameters: {opt: {values: adam}}", "values of 'opt' must be a list, got 'adam'"),
        ("a.yaml", "parameters: {a-b: {values: [1, 2]}, a_b: {values: [3, 4]}}", "'a-b' and 'a_b' would be one"),
        (
            "a.yaml",
            "parameters: {n: {distribution: log_uniform, min: 1, max: 1000}}",
            "n: the bounds of log_uniform are exponents of e, and those from 1 to 1000 are too large; for bounds that"
            " are values write log_uniform_values",
        ),
        ("a.yaml", "command: python a.py\nparameters: {n: {values: [1, 2]}}", "command must be a list of words"),
        ("a.ini", "[sweep.n]\ndistribution = int_uniform\nmin = 1\nmax = 9\nmean = nan", "mean = nan is not finite"),
        ("a.yaml", "parameters: {lr: {mn: 1}}", "unknown key 'mn' of parameter 'lr'; did you mean 'min'?"),
        ("a.yaml", "paramters: {}", "unknown key 'paramters'; did you mean 'parameters'?"),
        ("a.yaml", "parameters: {lr: {min: 1, max: 2, distribution: unifrm}}", "did you mean 'uniform'?"),
        ("a.yaml", "- 1", "holds no W&B sweep, but a list"),
        ("a.yaml", "a: [", "not valid YAML"),
        ("a.ini", "[sweep.train.lr]\nmin = 1\nmx = 2", "unknown key 'mx' in [sweep.train.lr]; did you mean 'max'?"),
        ("a.ini", "[sweep.train.lr]\nmin = 1", "[sweep.train.lr] has no max"),
        ("a.ini", "[train]\nlr = 1", "has no range"),
        ("a.ini", "lr = 1", "not valid INI"),
        ("a.json", "{}", "'.json' is no known kind"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(file(tmp_path, name, text))
    assert message in str(refused.value)
    assert str(refused.value).startswith("--space ") and "\n" not in str(refused.value)


def test_a_command_without_its_program_is_none(tmp_path: Path) -> None:
    text = "command: ['${program}', '${args}']\nparameters: {n: {values: [1, 2]}}"
    assert read(file(tmp_path, "a.yaml", text)).command is None, "python None was run"


def test_a_direction_is_corrected_once(tmp_path: Path) -> None:
    for given, end in (("up", "must be maximize or minimize"), ("maximise", "minimize; did you mean 'maximize'?")):
        with pytest.raises(UsageError) as refused:
            read(file(tmp_path, "a.toml", f"direction = '{given}'\n[space]\nlr = {{ min = 1, max = 2 }}"))
        assert str(refused.value).endswith(end)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file; check the path"):
        read(tmp_path / "none.toml")
