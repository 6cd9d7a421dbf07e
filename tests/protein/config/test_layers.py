"""Layers of configuration: which wins, what leaves the space, and what is written."""

import dataclasses
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from config_files import DEFAULT, agents_config, config_folder, load_with  # noqa: F401 (a fixture)

from protein.config.layers import flatten, unflatten, value_types
from protein.config.resolve import CONFIG_DIRECTORY, file_name, find_env, load, make_space, start_params
from protein.config.settings import SweepConfig
from protein.config.write import to_toml
from protein.errors import ConfigError, UsageError
from protein.space.parameters import Categorical, Float, Integer
from protein.sweep.limits import trial_config
from protein.trainer.config import RunConfig
from protein.trainer.config import load as trainers_load


def test_each_layer_overrides_the_ones_before(folder: Path) -> None:
    (folder / "pong.toml").write_text("[train]\nhorizon = 16\nbeta1 = 0.8\nbeta2 = 0.95\nvf_coef = 1\n")
    (folder / "own.toml").write_text("[train]\nbeta1 = 0.7\nbeta2 = 0.96\nvf_coef = 2\n")
    layers = load(
        "pong",
        config_file=folder / "own.toml",
        stored={"train.beta2": 0.97, "train.vf_coef": 3},
        stored_source="trial 3",
        flags={"train.vf_coef": 4},
        directory=folder,
    )
    train = agents_config(layers).train
    assert train.update_epochs == RunConfig().train.update_epochs  # the dataclass
    assert train.gamma == 0.99  # default.toml
    assert train.horizon == 16  # pong.toml
    assert train.beta1 == 0.7  # --config
    assert train.beta2 == 0.97  # the stored trial
    assert train.vf_coef == 4.0  # the flag
    assert isinstance(train.vf_coef, float)
    sources = {name: layers.settings[f"train.{name}"].source for name in ("horizon", "beta1", "beta2", "vf_coef")}
    assert sources == {"horizon": "pong.toml", "beta1": "own.toml", "beta2": "trial 3", "vf_coef": "the command line"}


def test_an_environment_without_a_file_uses_the_defaults(folder: Path) -> None:
    layers = load("breakout", directory=folder)
    assert agents_config(layers).env.name == "breakout"
    assert agents_config(layers).train.gamma == 0.99


def test_ranges_become_parameters_and_plain_values_are_fixed(folder: Path) -> None:
    space = make_space(load("pong", directory=folder))
    assert set(space.parameters) == {
        Float("train.learning_rate", 1e-4, 0.1, "log", 0.003),
        Integer("train.minibatch_size", 512, 65536, "pow2", 8192),
        Float("train.gamma", 0.9, 0.999, "logit", 0.99),
        Categorical("train.precision", ("fp32", "bf16"), "fp32"),
    }
    assert set(space.fixed) == set(value_types()) - set(space.names)
    assert space.fixed["env.name"] == "pong"
    assert space.constraints == ("train.minibatch_size <= env.num_envs * train.horizon",)


def test_a_later_layer_gives_a_plain_value_a_whole_table_or_some_keys(folder: Path) -> None:
    layers = load_with(
        folder,
        "[train]\ngamma = 0.95\nlearning_rate = { max = 0.01 }\nminibatch_size = { value = 1024 }\n"
        'precision = { choices = ["fp32", "bf16"] }\nhorizon = { value = 64, min = 32, max = 128, scale = "pow2" }\n',
    )
    space = make_space(layers)
    assert "train.gamma" not in space.names
    assert space.fixed["train.gamma"] == 0.95
    assert space.parameter("train.learning_rate") == Float("train.learning_rate", 1e-4, 0.01, "log", 0.003)
    assert space.parameter("train.minibatch_size") == Integer("train.minibatch_size", 512, 65536, "pow2", 1024)
    assert space.parameter("train.horizon") == Integer("train.horizon", 32, 128, "pow2", 64)
    assert start_params(layers)["train.minibatch_size"] == 1024


def test_choices_and_a_numeric_range_replace_each_other(folder: Path) -> None:
    layers = load_with(folder, "[train]\ngamma = { choices = [0.9, 0.99] }\n")
    assert make_space(layers).parameter("train.gamma") == Categorical("train.gamma", (0.9, 0.99), 0.99)
    (folder / "default.toml").write_text(
        DEFAULT.replace('{ value = 0.99, min = 0.9, max = 0.999, scale = "logit" }', "{ choices = [0.9, 0.99] }")
    )
    layers = load_with(folder, "[train]\ngamma = { min = 0.9, max = 0.99 }\n")
    assert make_space(layers).parameter("train.gamma") == Float("train.gamma", 0.9, 0.99, "linear", 0.99)


def test_a_belief_stands_beside_a_range_and_is_written_with_it(folder: Path) -> None:
    own = folder / "own.toml"
    own.write_text("[train]\nlearning_rate = { belief = [1e-3, 3] }\nprecision = { belief = ['bf16', 0.8] }\n")
    layers = load("pong", config_file=own, directory=folder)
    space = make_space(layers)
    assert space.parameter("train.learning_rate").belief == (1e-3, 3)
    assert space.parameter("train.precision").belief == ("bf16", 0.8)
    written = folder / "written.toml"
    below = load("pong", directory=folder)
    written.write_text(to_toml(layers.values(), space, below, ["a head"], found="searched"))
    assert make_space(load("pong", config_file=written, directory=folder)) == space
    for text, said in (
        ("learning_rate = { belief = [1, 3] }", "own.toml: .*centre of the belief, 1 is outside its range"),
        ("beta1 = { belief = [0.9, 0.1] }", "own.toml: train.beta1 has a belief and no range; give min and max"),
    ):
        own.write_text(f"[train]\n{text}\n")
        with pytest.raises(ConfigError, match=said):
            make_space(load("pong", config_file=own, directory=folder))


@pytest.mark.parametrize("value", [0.003, 0.01])
def test_a_flag_takes_a_value_out_of_the_space_even_when_it_is_the_default(folder: Path, value: float) -> None:
    space = make_space(load("pong", flags={"train.learning_rate": value}, directory=folder))
    assert "train.learning_rate" not in space.names
    assert space.fixed["train.learning_rate"] == value


def test_the_cost_parameter_may_be_fixed_by_a_flag() -> None:
    space = make_space(load("pong"))
    assert space.cost_parameter == "train.total_timesteps"
    assert make_space(load("pong", flags={"train.total_timesteps": 1_000_000})).cost_parameter is None


def test_the_sweep_section_is_read(folder: Path) -> None:
    assert load("pong", directory=folder).sweep == SweepConfig(
        workers=3,
        max_trial_seconds=5400.0,
        max_trial_memory_bytes=4 << 30,
        constraints=("train.minibatch_size <= env.num_envs * train.horizon",),
    )


def test_the_shipped_files_can_be_swept() -> None:
    assert {path.name for path in CONFIG_DIRECTORY.glob("*.toml")} >= {"default.toml", "pong.toml"}
    for path in CONFIG_DIRECTORY.glob("*.toml"):
        if path.name != "default.toml":
            layers = load("text/python" if path.stem == "gpt" else path.stem)
            assert make_space(layers).is_valid(start_params(layers))


@pytest.mark.parametrize("for_sweep", [False, True])
@pytest.mark.parametrize(
    ("name", "value"), [("train.ent_coef", 0.0), ("policy.hidden_size", 96), ("train.gamma", 1.0)], ids=str
)
def test_a_runs_config_may_hold_a_value_that_its_range_cannot(
    name: str, value: float, for_sweep: bool, tmp_path: Path
) -> None:
    """Which has a scale. The value is fixed then."""
    file = tmp_path / "config.json"
    run = load("pong", flags={name: value}).run_config()
    file.write_text(json.dumps(run.to_dict()))
    layers = load("pong", config_file=file, for_sweep=for_sweep)
    assert layers.run_config() == run
    assert name not in make_space(layers).names


def test_settings_that_are_gone_are_passed_over_where_they_changed_nothing(folder: Path) -> None:
    """In files and in the stored configs of sweeps that an earlier version has made."""
    without = agents_config(load("pong", directory=folder))
    given = "[train]\nprio_alpha = { value = 0.0 }\nprio_beta = 0.2\n"
    assert agents_config(load_with(folder, given)) == without
    stored = {"train.prio_alpha": 0.0, "train.prio_beta": 0.4}
    assert agents_config(load("pong", stored=stored, stored_source="trial 3", directory=folder)) == without
    for mistake in ("prio_alpha = 0.5", "prio_alpha = { value = 0.0, min = 0.0, max = 1.0 }"):
        with pytest.raises(ConfigError, match=r"^own.toml: train.prio_alpha = .* is not supported any more"):
            load_with(folder, f"[train]\n{mistake}\n")
    with pytest.raises(ConfigError, match=r"^trial 3: train.prio_alpha = 0.5 is not supported any more"):
        load("pong", stored={"train.prio_alpha": 0.5}, stored_source="trial 3", directory=folder)


def test_values_that_only_fit_together_may_come_in_one_layer(folder: Path) -> None:
    assert agents_config(load_with(folder, "[eval]\nepisodes = 100\nnum_envs = 50\n")).eval.episodes == 100
    with pytest.raises(ConfigError, match=r"^own.toml: eval.episodes \(100\) must be a multiple of eval.num_envs"):
        load_with(folder, "[eval]\nepisodes = 100\n")


def test_the_environment_is_the_flags_or_the_files(folder: Path) -> None:
    (folder / "own.toml").write_text('[env]\nname = "pong"\n')
    own = folder / "own.toml"
    assert find_env("pong", None, ["pong"]) == "pong"
    assert find_env(None, own, ["pong"]) == "pong"
    assert find_env("pong", own, ["pong"]) == "pong"
    with pytest.raises(UsageError, match=r"^no environment is named; give --env NAME; known: go, pong$"):
        find_env(None, folder / "default.toml", ["go", "pong"])
    with pytest.raises(UsageError, match=r"^unknown environment 'pung'; did you mean 'pong'\?$"):
        find_env("pung", None, ["go", "pong"])
    with pytest.raises(UsageError, match=r"^--env go contradicts own.toml, which is for 'pong'; drop one of the two$"):
        find_env("go", own, ["go", "pong"])


def test_environments_in_python_have_names_with_a_kind_and_a_file_of_their_own(folder: Path) -> None:
    assert find_env("gym:ALE/Pong-v5", None, ["pong"]) == "gym:ALE/Pong-v5"
    assert file_name("gym:ALE/Pong-v5") == "gym-ALE-Pong-v5"
    assert file_name("python:my.module:Env") == "python-my.module-Env"
    (folder / "python.toml").write_text("[env]\nnum_envs = 32\nframe_skip = 2\n")
    (folder / "gym-ALE-Pong-v5.toml").write_text("[env]\nframe_skip = 4\n")
    values = {env: load(env, directory=folder).values() for env in ("gym:ALE/Pong-v5", "python:my:Env", "breakout")}
    assert [(of["env.num_envs"], of["env.frame_skip"]) for of in values.values()] == [(32, 4), (32, 2), (1024, 1)]
    assert [of["env.name"] for of in values.values()] == list(values)


def test_an_environment_without_a_file_can_be_swept_where_it_is_in_python() -> None:
    space = make_space(load("gym:CartPole-v1"))
    assert {"train.total_timesteps", "train.learning_rate", "train.minibatch_size"} < set(space.names)


def test_a_written_config_holds_what_differs_and_reads_back_to_the_same_values_and_space(folder: Path) -> None:
    flags = {"train.beta2": 0.1 + 0.2, "env.num_envs": 64, "train.minibatch_size": 512}
    layers = load("pong", flags=flags, directory=folder)
    space = make_space(layers)
    params = {**space.default(), "train.learning_rate": 0.0123456}
    values = {**layers.values(), **params, "train.precision": "bf16"}
    below = load("pong", directory=folder)
    (folder / "best.toml").write_text(to_toml(values, space, below, ["trial 3:\nscore 5", "more"], found="searched"))
    read = load("pong", config_file=folder / "best.toml", directory=folder)
    assert flatten(agents_config(read).to_dict()) == values
    assert {p.name: p for p in make_space(read).parameters} == {
        p.name: dataclasses.replace(p, default=values[p.name]) for p in space.parameters
    }
    assert make_space(read).constraints == space.constraints
    text = (folder / "best.toml").read_text()
    assert text.startswith("# trial 3: score 5\n# more\n")
    written = tomllib.loads(text)
    assert {f"{section}.{key}" for section, table in written.items() for key in table} == {
        "env.name", *flags, "train.learning_rate", "train.precision"
    }  # fmt: skip
    assert written["train"]["learning_rate"] == {"value": 0.0123456}  # its range is that of the file below


def test_a_written_config_keeps_the_ranges_and_constraints_that_the_files_below_do_not_have(folder: Path) -> None:
    (folder / "mine.toml").write_text(
        '[train]\nlearning_rate = { value = 0.02, min = 1e-3, max = 0.5, scale = "log" }\n'
        'optimizer = { value = "adamw", choices = ["adamw", "muon"] }\n'
        "ent_coef = { value = 0.15, low = 0.05, high = 0.5, scale = 'linear', step = 0.05 }\n"
        '[sweep]\nconstraints = ["train.horizon <= 128"]\n'
    )
    layers = load("pong", config_file=folder / "mine.toml")
    space, below = make_space(layers), load("pong")
    written = to_toml({**layers.values(), "train.learning_rate": 0.3}, space, below, [], found="searched")
    (folder / "best.toml").write_text(written)
    read = load("pong", config_file=folder / "best.toml")
    again = make_space(read)
    assert again.parameter("train.learning_rate") == Float("train.learning_rate", 1e-3, 0.5, "log", 0.3)
    assert again.parameter("train.ent_coef") == Float("train.ent_coef", 0.05, 0.5, default=0.15, step=0.05)
    assert again.parameter("train.optimizer") == space.parameter("train.optimizer")
    assert again.constraints == space.constraints != make_space(below).constraints


def test_a_runs_json_brings_its_values_and_leaves_the_ranges(folder: Path) -> None:
    config = RunConfig.from_dict({"train": {"learning_rate": 0.01, "beta1": 0.8, "seed": 7, "max_seconds": 2.5}})
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    trained = load("pong", config_file=folder / "config.json", directory=folder)
    assert agents_config(trained) == config
    swept = load("pong", config_file=folder / "config.json", directory=folder, for_sweep=True)
    assert make_space(swept).parameter("train.learning_rate") == Float("train.learning_rate", 1e-4, 0.1, "log", 0.01)
    assert make_space(swept).names == make_space(load("pong", directory=folder)).names
    assert start_params(swept)["train.learning_rate"] == 0.01
    assert agents_config(swept).train.beta1 == 0.8
    # What the trial alone had: a sweep gives each trial its own seed, threads and cap.
    assert (agents_config(swept).train.seed, agents_config(swept).train.max_seconds) == (0, 0.0)


@pytest.mark.parametrize(
    "table", [{"min": 1, "max": 2}, {"low": 1, "high": 2}, {"scale": 0.5}, {"value": 3}, {"left arm": 1, "": 2}]
)
def test_an_argument_that_is_a_table_like_a_range_stays_one_in_every_file(
    folder: Path, table: dict[str, float]
) -> None:
    env, name = "python:walk:Walk", "env.args.reward"
    given = load(env, flags={name: table}, directory=folder)
    config = agents_config(given)
    assert config.env.args == {"reward": table}
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    below = load(env, directory=folder)
    written = to_toml(given.values(), make_space(given), below, [], found="searched")
    (folder / "best.toml").write_text(written)
    for file in ("config.json", "best.toml"):
        assert agents_config(load(env, config_file=folder / file, directory=folder)) == config
    assert trainers_load(folder / "best.toml").env.args == config.env.args


def test_a_value_of_a_runs_json_widens_a_range_that_does_not_hold_it(folder: Path) -> None:
    (folder / "config.json").write_text('{"train": {"learning_rate": 0.5, "minibatch_size": 256, "horizon": 16}}')
    space = make_space(load("pong", config_file=folder / "config.json", directory=folder, for_sweep=True))
    assert space.parameter("train.learning_rate") == Float("train.learning_rate", 1e-4, 0.5, "log", 0.5)
    assert space.parameter("train.minibatch_size") == Integer("train.minibatch_size", 256, 65536, "pow2", 256)
    (folder / "config.json").write_text('{"train": {"minibatch_size": 300}}')
    layers = load("pong", config_file=folder / "config.json", directory=folder, for_sweep=True)
    assert "train.minibatch_size" not in make_space(layers).names, "it is fixed: its range is one of powers of two"
    assert re.fullmatch(r".*: train\.minibatch_size = 300 is not a value of the range in .*", "".join(layers.notes))
    (folder / "grid.toml").write_text("[train]\nent_coef = { value = 0.1, min = 0.05, max = 0.5, step = 0.05 }\n")
    (folder / "config.json").write_text('{"train": {"ent_coef": 0.07, "learning_rate": 0.5}}')
    layers = load("pong", config_file=folder / "grid.toml", directory=folder).with_file(folder / "config.json")
    assert layers.values()["train.ent_coef"] == 0.07 and "train.ent_coef" not in make_space(layers).names
    assert re.fullmatch(r".*: train\.ent_coef = 0\.07 is not a value of the range in .*", "".join(layers.notes))


ARGS = """
[env]
name = "gym:LunarLander-v3"

[env.args]
gravity = { value = -10.0, min = -12, max = -1, scale = "linear" }
enable_wind = { value = false, choices = [false, true] }
turbulence_power = 1.5
choices = ["of", "the", "environment"]
"""


def test_arguments_of_the_environment_are_values_like_any_other(folder: Path) -> None:
    (folder / "mine.toml").write_text(ARGS)
    layers = load("gym:LunarLander-v3", config_file=folder / "mine.toml", directory=folder)
    assert agents_config(layers).env.args == {
        "gravity": -10.0,
        "enable_wind": False,
        "turbulence_power": 1.5,
        "choices": ["of", "the", "environment"],
    }
    parameters = {parameter.name: parameter for parameter in layers.parameters()}
    assert parameters["env.args.gravity"] == Float("env.args.gravity", -12.0, -1.0, default=-10.0)
    assert parameters["env.args.enable_wind"] == Categorical("env.args.enable_wind", (False, True), default=False)
    config = agents_config(layers).to_dict()
    assert RunConfig.from_dict(config).to_dict() == config
    trial = trial_config(config, {"env.args.gravity": -3.0}, seed=1, threads=1, max_trial_seconds=None)
    assert (trial["env"]["args"]["gravity"], config["env"]["args"]["gravity"]) == (-3.0, -10.0)
    fixed = layers.with_values({"env.args.gravity": -2.0, "env.args.new": 1}, "the command line")
    assert agents_config(fixed).env.args["gravity"] == -2.0 and agents_config(fixed).env.args["new"] == 1
    assert "env.args.gravity" not in {parameter.name for parameter in fixed.parameters()}
    assert unflatten(flatten(config)) == config


def test_a_written_config_has_the_arguments_of_the_environment(folder: Path) -> None:
    (folder / "mine.toml").write_text(ARGS)
    layers = load("gym:LunarLander-v3", config_file=folder / "mine.toml", directory=folder)
    below = load("gym:LunarLander-v3", directory=folder)
    values = {**layers.values(), "env.args.gravity": -4.5}
    (folder / "found.toml").write_text(to_toml(values, make_space(layers), below, [], found="searched"))
    again = load("gym:LunarLander-v3", config_file=folder / "found.toml", directory=folder)
    assert again.values() == values
    assert make_space(again).names == make_space(layers).names


CONDITIONAL = """
[train]
beta2 = { value = 0.99, min = 0.9, max = 0.999, when = "train.optimizer == 'muon' and train.ent_coef < 0.1" }
optimizer = { value = "adamw", choices = ["adamw", "muon"] }
ent_coef = { value = 0.15, min = 0.05, max = 0.5, when = "train.optimizer == 'muon'" }
"""


def test_a_condition_may_name_values_that_the_run_config_has_later(folder: Path) -> None:
    (folder / "mine.toml").write_text(CONDITIONAL)
    layers = load("pong", config_file=folder / "mine.toml")
    space = make_space(layers)
    assert space.parameter("train.ent_coef").when == "train.optimizer == 'muon'"
    assert space.names.index("train.optimizer") < space.names.index("train.ent_coef") < space.names.index("train.beta2")
    start = space.only_active(start_params(layers))
    assert start["train.optimizer"] == "adamw"
    assert "train.ent_coef" not in start and "train.beta2" not in start
    (folder / "best.toml").write_text(to_toml(layers.values(), space, load("pong"), [], found="searched"))
    assert make_space(load("pong", config_file=folder / "best.toml")) == space


@pytest.mark.parametrize(
    ("fixed", "conditions"),
    [
        ({"train.optimizer": "muon"}, {"train.ent_coef": None, "train.beta2": CONDITIONAL.split('"')[1]}),
        ({"train.optimizer": "adamw"}, {}),
        ({"train.optimizer": "muon", "train.ent_coef": 0.01}, {"train.beta2": None}),
        ({"train.optimizer": "muon", "train.ent_coef": 0.2}, {}),
    ],
)
def test_values_that_are_fixed_decide_conditions(
    folder: Path, fixed: dict[str, Any], conditions: dict[str, str | None]
) -> None:
    (folder / "mine.toml").write_text(CONDITIONAL)
    space = make_space(load("pong", config_file=folder / "mine.toml", flags=fixed))
    found = {name: space.parameter(name).when for name in ("train.ent_coef", "train.beta2") if name in space.names}
    assert found == conditions
    assert {**space.fixed, **fixed} == space.fixed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('seed = { when = "train.gamma > 0.95" }\n', "train.seed has a condition and no range"),
        (
            "gamma = { when = \"train.optimizer = 'muon'\" }\n",
            "mine.toml: parameter 'train.gamma': when .* does not parse",
        ),
        ("gamma = { when = 3 }\n", "mine.toml: parameter 'train.gamma': when = 3 is no condition"),
        ('gamma = { when = "train.nothing == 3" }\n', "when 'train.nothing == 3' mentions unknown parameter"),
        ('gamma = { when = "train.gamma > 0.9" }\n', "makes 'train.gamma' depend on itself"),
    ],
)
def test_a_condition_that_cannot_be_used_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "mine.toml").write_text("[train]\n" + text)
    with pytest.raises(ConfigError, match=message):
        make_space(load("pong", config_file=folder / "mine.toml"))
