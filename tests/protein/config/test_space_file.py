"""Spaces in files: what all forms have in common, and our own form."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from protein.config import space_toml
from protein.config.layers import Layers
from protein.config.space_file import read
from protein.config.space_toml import SpaceFile
from protein.errors import ConfigError, UsageError
from protein.space.parameters import Categorical, Float, Integer
from protein.types import Direction

OWN = """
cost_parameter = "train.steps"
constraints = ["batch <= train.steps"]
direction = "minimize"
require = ["eval/gb <= 8", "1 <= ms"]

[space]
lr = { value = 1e-3, min = 1e-5, max = 1e-1, scale = "log" }
opt = { choices = ["adam", "sgd"] }
ratio = { min = 0, max = 1.5 }
width = { value = 64, low = 32, high = 500, step = 32 }
drop = { min = 0, high = 0.5, step = 0.05 }
batch = 64
fixed = { value = true }
layers = { value = [32, 32] }
clip = { value_json = "null" }
sizes = { choices = [[32], [64, 64], "none"] }
depth = { choices_json = '[3, null, {"a": 1}]', value_json = "null" }

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
        "sizes": Categorical("sizes", ([32], [64, 64], "none")),
        "depth": Categorical("depth", (3, None, {"a": 1})),
        "width": Integer("width", 32, 480, default=64, step=32),
        "drop": Float("drop", 0, 0.5, step=0.05),
        "train.steps": Integer("train.steps", 10, 1000, "log", 100),
    }
    assert given.space.fixed == {"batch": 64, "fixed": True, "layers": [32, 32], "clip": None}
    assert (given.space.cost_parameter, given.direction) == ("train.steps", Direction.MINIMIZE)
    assert given.require is not None and list(map(str, given.require)) == ["eval/gb <= 8", "ms >= 1"]
    assert given.start is not None
    assert (given.start["lr"], given.start["train.steps"], given.start["ratio"]) == (1e-3, 100, 0.75)
    assert given.start["depth"] is None
    assert (given.command, given.warnings) == (None, ())


def test_beliefs_in_our_own_form(tmp_path: Path) -> None:
    text = (
        '[space]\nlr = { min = 1e-5, max = 0.1, scale = "log", belief = [3e-4, 3] }\n'
        'opt = { choices = ["adam", "sgd"], belief = ["adam", 0.7] }\n'
        "n = { low = 8, high = 64, step = 8, belief = [16, 8] }\n"
    )
    assert parameters(read(file(tmp_path, "space.toml", text))) == {
        "lr": Float("lr", 1e-5, 1e-1, "log", belief=(3e-4, 3)),
        "opt": Categorical("opt", ("adam", "sgd"), belief=("adam", 0.7)),
        "n": Integer("n", 8, 64, step=8, belief=(16, 8)),
    }
    with pytest.raises(UsageError, match=r"'lr': the centre of the belief, 1\.0 is outside its range"):
        read(file(tmp_path, "space.toml", text.replace("3e-4", "1.0")))


def test_a_range_may_have_a_condition_and_the_initial_config_lacks_what_is_not_active(tmp_path: Path) -> None:
    text = """
        [space]
        model = { value = "tree", choices = ["svc", "tree"] }
        C = { value = 2.0, min = 1e-3, max = 1e3, scale = "log", when = "model == 'svc'" }
        kernel = { choices = ["linear", "rbf"], when = "model == 'svc'" }
        depth = { value = 4, min = 1, max = 20, when = "model == 'tree'" }
        [space.rbf]
        gamma = { low = 1e-4, high = 1.0, scale = "log", when = "kernel == 'rbf'" }
    """
    given = read(file(tmp_path, "space.toml", text))
    assert parameters(given)["C"] == Float("C", 1e-3, 1e3, "log", 2.0, when="model == 'svc'")
    assert parameters(given)["kernel"] == Categorical("kernel", ("linear", "rbf"), when="model == 'svc'")
    assert parameters(given)["depth"] == Integer("depth", 1, 20, default=4, when="model == 'tree'")
    assert parameters(given)["rbf.gamma"] == Float("rbf.gamma", 1e-4, 1.0, "log", when="kernel == 'rbf'")
    assert given.start == {"model": "tree", "depth": 4}


def test_a_file_may_give_the_possible_scores(tmp_path: Path) -> None:
    text = "score_range = [0, 1]\n[space]\nlr = { min = 0.1, max = 1.0 }\n"
    assert read(file(tmp_path, "space.toml", text)).score_range == [0.0, 1.0]
    assert read(file(tmp_path, "space.toml", text.replace("1]", "inf]"))).score_range == [0.0, None]
    for given, said in (("[1, 0]", "1.0 is not below"), ('"0,1"', "must be the lowest and the"), ("[0, true]", "no")):
        with pytest.raises(UsageError, match=f"space.toml: score_range.*{said}"):
            read(file(tmp_path, "space.toml", text.replace("[0, 1]", given)))


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
        ("a.toml", "require = ['gb']\n[lr]\nmin = 1\nmax = 2", "a.toml: require 'gb' is no limit; write a metric's"),
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
        ("a.toml", "[space]\nlr = [1, 2]", "or { value = [...] } for a fixed list"),
        ("a.toml", "[space]\nlr = { value = 2026-01-01 }", "the value 2026-01-01 of lr is no value of JSON"),
        ("a.toml", "[space]\nlr = { value = nan }", "the value nan of lr is no value of JSON"),
        ("a.toml", "[space.opt]\nlr = -inf", 'reads it from a flag, write the text "-inf"'),
        ("a.toml", "[space]\nlr = { value = [1.0, nan] }", "of lr is no value of JSON"),
        ("a.toml", "[space]\nx = { choices_json = 'null, 1' }", "choices_json of x must be a text that holds JSON, as"),
        ("a.toml", "[space]\nx = { choices_json = '{}', choices = [1, 2] }", "x gives both choices and choices_json"),
        ("a.toml", "[space]\nx = { choices_json = '5' }", "choices must be a list, got 5"),
        ("a.toml", "cost_parameter = ['lr']\n[space]\nlr = { min = 1, max = 2 }", "cost_parameter must be the name"),
        (
            "a.toml",
            "[space]\nlr = { low = 1e-4, min = 1e-4, high = 0.1 }",
            "lr gives min and low, which are the same; leave one of them out",
        ),
        ("a.toml", "[space]\nlr = 'tag(log, interval(1e-4, .1))'", 'interval(1e-4, .1))" looks like a range; write'),
        ("a.toml", "[space]\nlr = 'loguniform(1e-4, .1)'", 'a fixed text as { value = "loguniform(1e-4, .1)" }'),
        ("a.toml", "[space]\nlr = 'tune.choice([1, 2])'", "looks like a range"),
        ("a.toml", "[space]\nm = { choices = [1, 2] }\nC = { when = 'm == 1' }", "the range of C has no min"),
        (
            "a.toml",
            "[space]\nm = { choices = [1, 2] }\nC = { value = 3, when = 'm == 1' }",
            "the range of C has no min",
        ),
        (
            "a.toml",
            "[space]\nC = { min = 1, max = 2, when = 'm == 1' }\nm = { choices = [1, 2] }",
            "a.toml: parameter 'C': when 'm == 1' depends on 'm', which is listed after it; list 'm' first",
        ),
        ("a.toml", "[space]\nm = 1\nC = { min = 1, max = 2, when = 'm == 1' }", "when 'm == 1' is always true"),
        (
            "a.toml",
            "[space]\nm = 1\nC = { min = 1, max = 2, when = true }",
            "when = True is no condition; write a text",
        ),
        ("a.ini", "[sweep.a.b]\nlow = 1\nmin = 1\nhigh = 2", "a.b gives min and low, which are the same"),
        ("a.txt", "{}", "'.txt' is no known kind"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(file(tmp_path, name, text))
    assert message in str(refused.value)
    assert str(refused.value).startswith("--space ") and "\n" not in str(refused.value)


LIKE_RANGES = [
    {"lo": 1, "hi": 2},
    {"lower_bound": 1, "upper_bound": 2},
    {"min_value": 1, "max_value": 2, "note": "a"},
    {"Minimum": 1, "Maximum": 2},
    {"start": 1, "stop": 9, "step": 2},
    {"from": 1, "to": 2},
    {"mn": 1, "mx": 2},
    {"low": 1},
    {"distribution": "uniform", "a": 1},
    {"mu": 0.1, "sigma": 0.3},
    {"values": "a"},
]
SECTIONS = [{"max_steps": 3}, {"name": "a", "seed": 3}, {"type": "adam", "size": 3}, {"clip_low": 1, "clip_high": 2}]


@pytest.mark.parametrize("table", LIKE_RANGES, ids=str)
def test_a_table_that_looks_like_a_range_is_not_read_as_fixed_values(tmp_path: Path, table: dict[str, object]) -> None:
    """It would be passed as `--lr.low`, and the value would never be searched."""
    text = f"[space.lr]\n{toml(table)}\n[space.d]\nmin = 1\nmax = 2\n"
    with pytest.raises(
        UsageError, match=r"^f: 'lr' looks like a range, but has .*; fixed values are written as \w+ = "
    ):
        space_toml.read(text, "f")
    wrapped = {key: {"value": value} for key, value in table.items()}
    kept = space_toml.read(f"[space.d]\nmin = 1\nmax = 2\n[space.lr]\n{toml(wrapped)}", "f").space.fixed
    assert kept == {f"lr.{key}": value for key, value in table.items()}, "the remedy works"
    path = file(tmp_path, "args.toml", f"[env.args]\nspan = {{ {toml(table, ', ')} }}\n")
    with pytest.raises(ConfigError, match="span looks like a range, but has"):
        Layers.defaults().with_file(path)


def test_a_text_that_looks_like_a_range_may_be_said_to_be_none() -> None:
    given = space_toml.read("[space]\nd = { min = 1, max = 2 }\na = { value = 'range(3)' }\nb = 'f(range)'", "f")
    assert given.space.fixed == {"a": "range(3)", "b": "f(range)"}


@pytest.mark.parametrize("table", SECTIONS, ids=str)
def test_a_section_of_fixed_values_stays_one(table: dict[str, object]) -> None:
    given = space_toml.read(f"[space.d]\nmin = 1\nmax = 2\n[space.env]\n{toml(table)}\n", "f")
    assert given.space.fixed == {f"env.{key}": value for key, value in table.items()}


def toml(table: Mapping[str, object], between: str = "\n") -> str:
    def text(value: object) -> str:
        return f"{{ {toml(value, ', ')} }}" if isinstance(value, dict) else json.dumps(value)

    return between.join(f"{key} = {text(value)}" for key, value in table.items())


def test_a_direction_is_corrected_once(tmp_path: Path) -> None:
    for given, end in (("up", "must be maximize or minimize"), ("maximise", "minimize; did you mean 'maximize'?")):
        with pytest.raises(UsageError) as refused:
            read(file(tmp_path, "a.toml", f"direction = '{given}'\n[space]\nlr = {{ min = 1, max = 2 }}"))
        assert str(refused.value).endswith(end)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file; check the path"):
        read(tmp_path / "none.toml")
