"""Which kind of run a config, a command line or a name describes."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from protein.trainer import kinds
from protein.trainer.config import RunConfig
from protein.trainer.errors import ConfigError
from protein.trainer.kinds import LANGUAGE, PPO
from protein.trainer.language.config import LanguageConfig


@pytest.mark.parametrize(
    ("sections", "kind"),
    [
        (["data"], LANGUAGE),
        (["model", "train"], LANGUAGE),
        (["env"], PPO),
        (["policy", "train", "eval"], PPO),
        (["train"], PPO),
        ([], PPO),
    ],
)
def test_sections_tell_the_kind(sections: list[str], kind: kinds.Kind) -> None:
    assert kinds.kind_of(sections) is kind


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: str(kind.name))
def test_a_config_is_read_as_its_kind(kind: kinds.Kind, tmp_path: Path) -> None:
    config = kind.config()
    assert kinds.kind_of_config(config) is kind
    assert kinds.kind_of_subject(config.subject) is kind
    assert kinds.kind_of(config.to_dict()) is kind
    assert kinds.read(config.to_dict()) == config
    (tmp_path / "run.json").write_text(json.dumps(config.to_dict()))
    assert kinds.load(tmp_path / "run.json") == config


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: str(kind.name))
def test_named_settings_exist(kind: kinds.Kind) -> None:
    assert {kind.subject, kind.total_steps, *kind.memory.replace(" or ", ", ").split(", ")} <= kind.names
    values = kind.config().to_dict()
    section, key = kind.total_steps.split(".")
    assert kind.config().total_steps == values[section][key]


def test_settings_of_both_kinds_are_read_alike() -> None:
    """A command line may have them before it is known which kind of run it means."""

    def types(config: Any) -> dict[str, object]:
        return {
            f"{section.name}.{field.name}": field.type
            for section in dataclasses.fields(config)
            for field in dataclasses.fields(section.type)  # type: ignore[arg-type]
        }

    ppo, language = types(RunConfig), types(LanguageConfig)
    shared = ppo.keys() & language.keys()
    assert {"train.max_seconds", "train.learning_rate", "train.lr_schedule", "train.optimizer"} <= shared
    assert {name: ppo[name] for name in shared} == {name: language[name] for name in shared}


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["--train.total-tokens", "5"], LANGUAGE),
        (["--model.num_layers=3"], LANGUAGE),
        (["--train.horizon", "5"], PPO),
        (["--train.max-seconds", "5"], None),
        (["total_tokens", "--from", "model"], None),
    ],
)
def test_flags_tell_the_kind(words: list[str], kind: kinds.Kind | None) -> None:
    assert kinds.kind_of_flags(words) is kind


def test_sections_of_two_kinds_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown section 'env'"):
        kinds.read({"data": {}, "env": {"name": "pong"}})
