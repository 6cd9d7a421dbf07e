"""The layers of a language model's configuration, and the shipped file."""

import itertools
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protein.cli.parse import parse
from protein.config.layers import Layers, flatten, value_types
from protein.config.resolve import CONFIG_DIRECTORY, find_env, load, make_space, start_params
from protein.config.write import to_toml
from protein.errors import ConfigError, UsageError
from protein.trainer import kinds
from protein.trainer.kinds import LANGUAGE, PPO
from protein.trainer.language.config import LanguageConfig

SHIPPED = CONFIG_DIRECTORY / "gpt.toml"
ENV = "text/python"


def test_the_shipped_file_names_every_value_once() -> None:
    nested = tomllib.loads(SHIPPED.read_text())
    assert list(nested) == [*LANGUAGE.sections, "sweep", "gpu"]
    assert set(flatten({name: nested[name] for name in LANGUAGE.sections})) == set(value_types(LANGUAGE))


def test_each_range_says_why() -> None:
    lines = SHIPPED.read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        if " min = " in line and not line.startswith("#"):
            assert before.startswith("# "), line


def test_the_shipped_space_searches_what_it_should() -> None:
    space = make_space(load(ENV, for_sweep=True))
    assert space.cost_parameter == "train.total_tokens"
    assert set(space.names) == {
        "model.num_layers",
        "model.width_ratio",
        "model.sequence_length",
        "train.total_tokens",
        "train.batch_tokens",
        "train.learning_rate",
        "train.embedding_learning_rate",
        "train.warmup_fraction",
        "train.decay_fraction",
        "train.weight_decay",
        "train.beta1",
    }


def test_every_point_of_the_shipped_space_can_be_trained() -> None:
    layers = load(ENV, for_sweep=True)
    space = make_space(layers)
    rng = np.random.default_rng(0)
    for params in space.from_unit_many(space.sample(200, rng)):
        config = layers.with_values(params, "a trial").run_config()
        assert isinstance(config, LanguageConfig)
        weights = 12 * config.model.num_layers * config.model.width**2
        assert weights < 80_000_000  # the width is rounded to whole heads, so a little above the constraint's


def test_layers_override_each_other(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[data]\npath = "stories"\n[model]\nnum_layers = 2\n[train]\nlearning_rate = 0.02\n')
    layers = load("text/stories", config_file=own, flags={"train.learning_rate": 0.05})
    assert layers.kind is LANGUAGE
    settings = layers.settings
    assert (settings["data.path"].value, settings["model.num_layers"].value) == ("stories", 2)
    assert (settings["train.learning_rate"].value, settings["train.learning_rate"].source) == (0.05, "the command line")
    assert settings["train.total_tokens"].source.endswith("gpt.toml")
    assert "train.learning_rate" not in start_params(layers)


def test_a_range_is_checked_by_the_rules_of_the_kind(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[model]\nnum_layers = { value = 4, min = 0, max = 8, scale = "linear" }\n')
    with pytest.raises(ConfigError, match=r"model.num_layers must be between 1 and 256, got 0"):
        load(ENV, config_file=own).parameters()


def test_sections_of_the_other_kind_are_named(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[model]\nnum_layers = 4\n[env]\nname = "pong"\n')
    with pytest.raises(ConfigError, match=r"\[env\] is a section of a PPO run, and this is a language model run"):
        load(ENV, config_file=own)


def test_arguments_of_environments_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'env.args.size'"):
        load(ENV, flags={"env.args.size": 3})


@pytest.mark.parametrize(
    ("env", "text", "flags", "found"),
    [
        (ENV, None, (), ENV),
        (None, "[model]\nnum_layers = 3", (), ENV),
        (None, '[data]\npath = "some/stories"', (), "text/stories"),
        (None, '[data]\npath = { value = "stories" }', (), "text/stories"),
        (None, None, ("model.num_layers",), ENV),
        (None, None, ("train.total_tokens",), ENV),
    ],
)
def test_what_is_learnt_is_found(
    env: str | None, text: str | None, flags: tuple[str, ...], found: str, tmp_path: Path
) -> None:
    own = None
    if text is not None:
        own = tmp_path / "own.toml"
        own.write_text(text)
    assert find_env(env, own, ["pong"], flags=flags) == found


def test_contradictions_are_refused(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[data]\npath = "stories"')
    with pytest.raises(UsageError, match=r"--env text/python contradicts .*own.toml, which is for 'text/stories'"):
        find_env(ENV, own, ["pong"])
    with pytest.raises(UsageError, match=r"no environment is named"):
        find_env(None, None, ["pong"], flags=("train.max_seconds", "train.horizon"))


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["train", "--env", ENV, "--train.total-tokens", "5e6"], {"train.total_tokens": 5_000_000}),
        (["train", f"--config={SHIPPED}", "--model.num-layers", "3"], {"model.num_layers": 3}),
        (["sweep", "--config", str(SHIPPED), "--train.max-seconds", "60"], {"train.max_seconds": 60.0}),
        (["train", "--from", "night", "--train.total-tokens", "9"], {"train.total_tokens": 9}),
        (["train", "--data.path", "stories"], {"data.path": "stories"}),
        (["train", "--from", "night", "--train.learning-rate", "0.1"], {"train.learning_rate": 0.1}),
    ],
)
def test_flags_of_a_language_model_are_read(words: list[str], values: dict[str, Any]) -> None:
    assert parse(words).values == values


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["train", "--env", "pong", "--model.num-layers", "3"],
            "'--model.num-layers' is a setting of a language model run, and this is a PPO run; leave it out",
        ),
        (
            ["sweep", "--config", str(SHIPPED), "--train.horizon", "3"],
            "'--train.horizon' is a setting of a PPO run, and this is a language model run; leave it out",
        ),
        (["train", "--env", ENV, "--model.num-layer", "3"], "unknown flag .* did you mean '--model.num-layers'"),
        (["sweep", "--env", ENV, "--train.seed", "3"], "unknown flag '--train.seed'"),
    ],
)
def test_flags_of_the_other_kind_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(words)


def test_help_shows_the_settings_of_the_named_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["sweep", "--env", ENV, "--help"])
    shown = capsys.readouterr().out
    assert "--model.num-layers" in shown
    assert "swept from 1 to 12" in " ".join(shown.replace("│", " ").split())
    assert "--train.horizon" not in shown


def test_a_found_config_is_written_with_its_text() -> None:
    below = load(ENV)
    values = below.values() | {"model.num_layers": 6, "data.path": "python"}
    written = to_toml(values, make_space(below), below, ["found"], found="searched")
    nested = tomllib.loads(written)
    assert nested["data"] == {"path": "python"}
    assert nested["model"] == {"num_layers": {"value": 6}}
    assert "# the text" in written.replace("; ", "  # ").replace("the text", "# the text")


def test_defaults_of_both_kinds_stand_apart() -> None:
    assert Layers.defaults().kind is PPO
    assert set(Layers.defaults(LANGUAGE).settings) == set(value_types(LANGUAGE))


def test_the_shipped_file_says_what_the_dataclasses_say() -> None:
    assert kinds.load(SHIPPED) == LanguageConfig()


def test_the_config_of_a_run_begins_a_sweep(tmp_path: Path) -> None:
    """Its values are kept, its ranges are those of the shipped file, widened to hold them."""
    config = LanguageConfig.from_dict({"model": {"num_layers": 14}, "train": {"seed": 5, "learning_rate": 0.05}})
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    assert find_env(None, tmp_path / "config.json", ["pong"]) == ENV
    trained = load(ENV, config_file=tmp_path / "config.json")
    assert trained.run_config() == config
    swept = load(ENV, config_file=tmp_path / "config.json", for_sweep=True)
    assert (swept.settings["train.seed"].value, swept.settings["train.learning_rate"].value) == (0, 0.05)
    ranges = {parameter.name: parameter for parameter in swept.parameters()}
    assert getattr(ranges["model.num_layers"], "high", None) == 14
