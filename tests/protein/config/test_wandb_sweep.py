"""Sweep files of W&B: what is searched, and that a program gets the very words that W&B's agent would give it."""

import json
import math
import string
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from protein.config import wandb_sweep
from protein.config.space_toml import SpaceFile
from protein.errors import SpaceError, UsageError
from protein.run.command import CommandSettings, command_line, style_of
from protein.run.template import as_tables
from protein.space.parameters import Categorical, Float, Integer
from protein.types import Direction, Params

SWEEP = """
program: train.py
method: bayes
metric: {name: val/acc, goal: maximize}
early_terminate: {type: hyperband}
run_cap: 20
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
  sizes: {values: [null, [32, 32], {a: 0.5}]}
  clip: {value: null}
  decay: {distribution: log_uniform, min: -9.210340371976182, max: 0}
  units: {distribution: q_log_uniform_values, min: 8, max: 512, q: 1}
  batch: {distribution: q_log_uniform_values, min: 30, max: 257, q: 8}
  rate: {distribution: q_uniform, low: 0.1, high: 0.5, q: 0.05}
  cut: {distribution: q_log_uniform_values, min: 1, max: 99, q: 8.0}
  heads: {values: [10, 6, 2]}
  alpha: {values: [0.3, 0.4, 0.5]}
  beta: {values: [0.25, 0.5, 1.0]}
  mixed: {values: [0, 0.5, 1]}
  noise: {mu: 1, sigma: 0.1}
  inner:
    parameters:
      gamma: {min: 0.9, max: 0.99}
      weight-decay: {min: 0, max: 3}
"""


def read(text: str) -> SpaceFile:
    return wandb_sweep.read(text, "f.yaml")


def words(given: SpaceFile, params: Params, command: str | None = None, style: str | None = None) -> list[str]:
    """Returns the command line of a trial."""
    text = given.command if command is None else command
    assert text is not None
    names = (*given.space.names, *given.space.fixed)
    one = CommandSettings(text=text, params=style_of(text, names, style), fixed=given.space.fixed, called=given.called)
    one.check(names)
    # As it is stored.
    again = CommandSettings.from_config({"command": json.loads(json.dumps(one.to_dict()))})
    return command_line(again, params, seed=5, directory="/trial")


def test_what_is_searched() -> None:
    given = read(SWEEP)
    assert {parameter.name: parameter for parameter in given.space.parameters} == {
        "lr": Float("lr", 1e-4, 1e-1, "log"),
        "depth": Integer("depth", 1, 8),
        "drop": Float("drop", 0.0, 0.5),
        "width": Integer("width", 32, 128, "pow2"),
        "layers": Integer("layers", 2, 4),
        "odd": Categorical("odd", (1, 5, 7)),
        "opt": Categorical("opt", ("adam", "sgd")),
        "sizes": Categorical("sizes", (None, [32, 32], {"a": 0.5})),
        "decay": Float("decay", math.exp(-9.210340371976182), 1.0, "log"),
        "units": Integer("units", 8, 512, "log"),
        "batch": Integer("batch", 32, 256, "log", step=8),
        "rate": Float("rate", 0.1, 0.5, step=0.05),
        "cut": Integer("cut", 0, 96, step=8),
        "heads": Integer("heads", 2, 10, step=4),
        "alpha": Float("alpha", 0.3, 0.5, step=0.1),
        "beta": Float("beta", 0.25, 1.0, "pow2"),
        "mixed": Categorical("mixed", (0, 0.5, 1)),
        "noise": Float("noise", 1 - 3 * 0.1, 1 + 3 * 0.1),
        "inner.gamma": Float("inner.gamma", 0.9, 0.99),
        "inner.weight_decay": Integer("inner.weight_decay", 0, 3),
    }
    assert given.space.fixed == {"one": 3, "batch_size": 64, "clip": None}
    assert (given.direction, given.start, given.max_trials) == (Direction.MAXIMIZE, None, 20)
    assert given.command == "python -u train.py --fast '{*args}' '{{x}}'"
    said = [warning.partition("f.yaml: ")[2] for warning in given.warnings]
    assert [line.split(" is not taken over")[0] for line in said[:2]] == [
        "'method: bayes'",
        "'early_terminate: {'type': 'hyperband'}'",
    ]
    assert said[2].startswith("the metric 'val/acc' is not read from W&B")
    assert [line.split(":")[0] for line in said[3:]] == ["opt", "cut", "noise"]


def test_a_metric_without_a_goal_is_minimised() -> None:
    """As W&B does it."""
    text = "metric: {name: val_loss}\nparameters:\n  lr: {min: 0.001, max: 0.1}\n"
    given = read(text)
    assert given.direction is Direction.MINIMIZE
    assert "no goal, which means minimize in W&B; --direction, where given, overrides it" in given.warnings[-1]
    assert read(text.partition("\n")[2]).direction is None


def test_keys_that_are_not_of_the_search_are_noted() -> None:
    given = read("scheduler: {job: a/b}\nour_team: vision\nparameters: {lr: {min: 0.1, max: 1.0}}")
    assert [line.partition(" is not taken over: ")[::2] for line in given.warnings] == [
        ("f.yaml: 'scheduler: {'job': 'a/b'}'", "it is W&B's own"),
        ("f.yaml: 'our_team: vision'", "it is no key of a sweep"),
    ]


ALL = {"lr": {"min": 0.001, "max": 0.1}, "amp": {"values": [True, False]}, "opt": {"values": ["a b", "sgd"]}}
MACROS = [
    (["${env}", "${interpreter}", "${program}"], ["python", "t.py"]),
    (["${env}", "A=1", "python", "t.py"], ["/usr/bin/env", "A=1", "python", "t.py"]),
    (["${env}", "-i", "python"], ["/usr/bin/env", "-i", "python"]),
    (["p", "${args}"], ["p", "--lr=0.01", "--amp=True", "--opt=a b"]),
    (["p", "${args_no_hyphens}"], ["p", "lr=0.01", "amp=True", "opt=a b"]),
    (["p", "${args_no_equals}"], ["p", "--lr", "0.01", "--amp", "True", "--opt", "a b"]),
    (["p", "${args_no_boolean_flags}"], ["p", "--lr=0.01", "--amp", "--opt=a b"]),
    (["p", "${args_json}"], ["p", '{"lr": 0.01, "amp": true, "opt": "a b"}']),
    (["p", "${args_json_file}"], ["p", "/trial/params.json"]),
    (["p", "${envvar:DATA}", 5, True], ["p", "/srv/my data", "5", "True"]),
    # Inside words.
    (["p", "--data=${envvar:DATA}/${envvar:SET}"], ["p", "--data=/srv/my data/x"]),
    (
        ["p", "--cfg=${args_json_file}", "at-${program}", "{${interpreter}}"],
        ["p", "--cfg=/trial/params.json", "at-t.py", "{python}"],
    ),
    (["bash", "-c", "python t.py ${args}"], ["bash", "-c", "python t.py --lr=0.01 --amp=True '--opt=a b'"]),
    (
        ["bash", "-c", "${env} t ${args_json}"],
        ["bash", "-c", """/usr/bin/env t '{"lr": 0.01, "amp": true, "opt": "a b"}'"""],
    ),
]


@pytest.mark.parametrize(("command", "expected"), MACROS)
def test_every_macro_becomes_what_the_agent_makes_of_it(
    monkeypatch: pytest.MonkeyPatch, command: list[object], expected: list[str]
) -> None:
    monkeypatch.setenv("DATA", "/srv/my data")
    monkeypatch.setenv("SET", "x")
    given = read(yaml.safe_dump({"program": "t.py", "command": command, "parameters": ALL}))
    assert words(given, {"lr": 0.01, "amp": True, "opt": "a b"}, style="json") == expected


def test_a_false_boolean_is_left_out_where_booleans_are_switches() -> None:
    tables = {"amp": {"values": [True, False]}, "norm": {"value": False}, "mixed": {"values": [True, False, "auto"]}}
    given = read(yaml.safe_dump({"command": ["p", "${args_no_boolean_flags}"], "parameters": tables}))
    assert words(given, {"amp": False, "mixed": "auto"}) == ["p", "--mixed=auto"]
    assert words(given, {"amp": True, "mixed": False}) == ["p", "--amp"]


KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12) | st.text(
    string.ascii_letters + "+-_./:=@ {}|?*'$", min_size=1, max_size=12
)
VALUES = (
    st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.sampled_from(["adam", "a b", "", "--x", "{y}", "$Z"])
)
TABLES = st.recursive(
    VALUES.map(lambda value: {"value": value}),
    lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=3).map(lambda tables: {"parameters": tables}),
    max_leaves=5,
)


def plain(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config that W&B makes of fixed values."""
    return {key: plain(one["parameters"]) if "parameters" in one else one["value"] for key, one in tables.items()}


def flat(config: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in config.items():
        found += flat(value, f"{above}{key}.") if isinstance(value, dict) else [(f"{above}{key}", value)]
    return found


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(KEYS, TABLES, min_size=1, max_size=4))
def test_any_key_reaches_the_command_line_as_it_is_written(tables: dict[str, Any]) -> None:
    """The forms are those of W&B's `create_sweep_command_args`; parameters in a table have its name before theirs."""
    found = wandb_sweep.Parameters("f.yaml")
    found.add(tables)
    pairs = flat(plain(tables))
    switches = [f"--{key}" if value is True else f"--{key}={value}" for key, value in pairs if value is not False]
    expected = {
        "{*args}": [f"--{key}={value}" for key, value in pairs],
        "{*args_no_hyphens}": [f"{key}={value}" for key, value in pairs],
        "{*args_no_equals}": [word for key, value in pairs for word in (f"--{key}", str(value))],
        "{*args_no_boolean_flags}": switches,
    }
    assert len(found.fixed) == len(pairs), "two keys never become one parameter"
    for form, args in expected.items():
        one = CommandSettings(text=f"p {form}", params="placeholders", fixed=found.fixed, called=found.called)
        assert [same(word) for word in command_line(one, {}, seed=0, directory="d")] == ["p", *map(same, args)]
    one = CommandSettings(text="p {*args_json}", params="placeholders", fixed=found.fixed, called=found.called)
    assert json.loads(command_line(one, {}, seed=0, directory="d")[1]) == plain(tables)
    assert as_tables(found.fixed, found.called) == plain(tables), "the file of ${args_json_file} holds it, too"


def same(word: str) -> str:
    """Returns a word with its number in one spelling: -1e-05 is written -0.00001 here, for argparse."""
    before, equals, value = word.rpartition("=")
    try:
        return f"{before}{equals}{float(value)}"
    except ValueError:
        return word


def test_names_survive_with_a_command_of_the_users() -> None:
    given = read("parameters:\n  batch-size: {value: 8}\n  learning_rate: {min: 0.1, max: 1.0}\n  a/b: {value: x}")
    params = {"learning_rate": 0.5}
    expected = ["p", "--learning_rate", "0.5", "--batch-size", "8", "--a/b", "x"]
    assert sorted(words(given, params, "p", "flags")) == sorted(expected)
    assert words(given, params, "p {batch_size} {*args_no_hyphens}")[1:] == [
        "8", "batch-size=8", "a/b=x", "learning_rate=0.5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr: {values: 5}", "values of 'lr' must be a list, got 5"),
        ("opt: {values: adam}", "values of 'opt' must be a list, got 'adam'"),
        ("lr: {mn: 1}", "unknown key 'mn' of parameter 'lr'; did you mean 'min'?"),
        ("lr: {min: 1, max: 2, distribution: unifrm}", "did you mean 'uniform'?"),
        ("lr: {low: 1, min: 1, high: 2}", "lr gives min and low, which are the same; leave one of them out"),
        ("lr: {}", "parameter 'lr' must hold value, values or min and max, got {}"),
        ("lr: 0.1", "parameter 'lr' must hold value, values or min and max, got 0.1"),
        ("lr: {min: 1}", "lr: the range has no max; give both"),
        ("lr: {min: true, max: 2}", "min of lr is True, which is no finite number"),
        ("lr: {min: .nan, max: 2}", "min of lr is nan, which is no finite number"),
        ("lr: {values: [1, 2], min: 1, max: 2}", "lr: 'min' does not go with categorical, which has values"),
        ("lr: {distribution: uniform, mu: 1, min: 1, max: 2}", "'mu' does not go with uniform, which has min and max"),
        ("lr: {distribution: constant}", "lr: constant needs value; give it"),
        ("lr: {distribution: int_uniform, min: 1.5, max: 8}", "1.5 is no whole number, as int_uniform needs"),
        ("a: {parameters: {b: {value: 1}}, value: 3}", "'a' holds parameters and value; give one of them"),
        # What would change the runs, and cannot be done yet.
        ("b: {distribution: q_uniform, q: 8, min: 0, max: 3}", "with steps of 8 (q) 0 to 3 has one value; lower q"),
        ("b: {distribution: q_uniform, q: 0, min: 0, max: 3}", "q = 0 must be above 0"),
        ("b: {distribution: q_uniform, q: 1e-300, min: 0, max: 3}", "steps of 1e-300 (q) are too small for 0 to 3"),
        ("x: {values: [2026-01-01, 0.5]}", "none of JSON; for a program that reads it from a flag, write the text '20"),
        ("x: {value: {1: 2}}", "the value {1: 2} of 'x' is none of JSON"),
        ("x: {value: .nan}", "the value nan of 'x' is none of JSON"),
        ("x: {values: [1, .inf]}", "the value inf of 'x' is none of JSON"),
        ('x: {value: [{a: "b\\0"}]}', "has a character that no program can be given"),
        ('"a\\0b": {value: 1}', "has a character that no program can be given"),
        ("n: {distribution: log_uniform, min: 1, max: 1000}", "for bounds that are values write log_uniform_values"),
    ],
)
def test_a_parameter_that_cannot_be_is_one_line(text: str, message: str) -> None:
    with pytest.raises((UsageError, SpaceError)) as refused:
        read(f"parameters:\n  {text}")
    assert message in str(refused.value)
    assert str(refused.value).startswith("f.yaml: ") == isinstance(refused.value, UsageError) and "\n" not in str(
        refused.value
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("paramters: {}", "unknown key 'paramters'; did you mean 'parameters'?"),
        ("metric: {name: a, gaol: maximize}", "unknown key 'gaol' of the metric; did you mean 'goal'?"),
        ("metric: accuracy", "metric must hold a name and a goal, got 'accuracy'"),
        ("metric: {goal: up}", "goal = 'up' must be maximize or minimize"),
        ("run_cap: many", "run_cap = 'many' must be a whole number from 1"),
        ("- 1", "holds no W&B sweep, but a list"),
        ("a: [", "not valid YAML"),
        ("d: 2024-13-45", "not valid YAML: month must be in 1..12"),
        ("command: python a.py", "command must be a list of words"),
        ("command: [p, [a]]", "command must be a list of words"),
        ("command: [p, '${arg}']", "${arg} in the command is no macro of W&B's; did you mean 'args'?"),
        ("command: [p, 'x=${HOME}']", "${HOME} in the command is no macro of W&B's"),
        ("command: [p, '${envvar}']", "${envvar} in the command is no macro"),
        ("command: [p, '${envvar:}']", "${envvar:} in the command is no macro"),
        ("command: [p, '${args']", "is not closed; write ${args}"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(text if text.startswith(("-", "a", "param")) else f"{text}\nparameters: {{lr: {{min: 1, max: 2}}}}")
    assert message in str(refused.value)
    assert str(refused.value).startswith("f.yaml: ") and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "level", ["&a{i} [*a{j}, *a{j}]", "&a{i} {{x: *a{j}, y: *a{j}}}", "&a{i} {{<<: [*a{j}, *a{j}]}}"]
)
def test_aliases_of_aliases_are_one_line(level: str) -> None:
    lines = ["p0: &a0 {z: 1}", *(f"p{i}: " + level.format(i=i, j=i - 1) for i in range(1, 60))]
    for text in ("\n".join(lines), "parameters: &a {lr: *a}", "&a [*a]"):
        with pytest.raises(UsageError, match=r"f\.yaml: not valid YAML: its aliases stand for more values") as refused:
            read(text)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["\0", "a: \x07", "!!int ''", "!!float ''", "!!bool maybe", "!!timestamp x", "[" * 9999]
)
def test_what_no_yaml_holds_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"f\.yaml: not valid YAML: \S") as refused:
        read(text)
    assert "\n" not in str(refused.value)


def test_aliases_of_a_person_are_read() -> None:
    given = read("x: &x {min: 0.0, max: 1.0}\nparameters: {a: *x, b: {<<: *x, max: 2.0}}")
    assert given.space.parameters == (Float("a", 0.0, 1.0), Float("b", 0.0, 2.0))


def test_a_variable_that_is_not_set_is_refused_before_anything_runs() -> None:
    given = read("command: [p, '--data=${envvar:NOT_SET_ANYWHERE}']\nparameters: {lr: {value: 1}, x: {min: 1, max: 2}}")
    with pytest.raises(UsageError, match="needs the environment variable NOT_SET_ANYWHERE, which is not set; export"):
        words(given, {"x": 1})


def test_a_command_without_its_program_is_none() -> None:
    text = "command: ['${program}', '${args}']\nparameters: {n: {values: [1, 2]}}"
    assert read(text).command is None, "python None was run"
