"""Which kind of run a config, a command line or a name describes."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

import language_runs
import ppo_runs
import pytest

from protein.trainer import kinds
from protein.trainer.errors import ConfigError
from protein.trainer.kinds import LANGUAGE, PPO
from protein.trainer.settings import TrainSettings, is_retired


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

    ppo, language = PPO.types, LANGUAGE.types
    shared = ppo.keys() & language.keys()
    assert {"train.max_seconds", "train.learning_rate", "train.lr_schedule", "train.optimizer"} <= shared
    assert {name: ppo[name] for name in shared} == {name: language[name] for name in shared}


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: str(kind.name))
def test_every_kind_has_the_common_settings(kind: kinds.Kind) -> None:
    train = type(kind.config().train)
    types = {field.name: field.type for field in dataclasses.fields(train)}
    common = get_type_hints(TrainSettings)
    assert {name: types.get(name) for name in common} == common


@pytest.mark.parametrize(("name", "kind"), [("ppo", PPO), ("language", LANGUAGE)])
def test_the_config_of_an_old_checkpoint_is_read_and_written_as_it_was(name: str, kind: kinds.Kind) -> None:
    """Runs of 23 November 2026 wrote the file. Some settings and sections have come since, and some are gone."""
    stored = json.loads((Path(__file__).parents[1] / "assets" / "checkpoint_configs.json").read_text())[name]
    config = kinds.read(stored)
    assert kinds.kind_of_config(config) is kind
    written = config.to_dict()
    assert [section for section in written if section in stored] == list(stored)
    for section, values in stored.items():
        kept = [(key, value) for key, value in values.items() if not is_retired(f"{section}.{key}", value)]
        assert [(key, value) for key, value in written[section].items() if key in values] == kept


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


def loaded_by_runs(configs: Sequence[kinds.Config], directory: Path) -> set[str]:
    """Returns the modules of a process that has made whole runs, one after the other."""
    code = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from protein.trainer import kinds\n"
        "from protein.trainer.run import run\n"
        "for number, config in enumerate(json.loads(sys.argv[1])):\n"
        "    run(kinds.read(config), directory=Path(sys.argv[2]) / str(number), report=lambda event: None)\n"
        "print(*sys.modules)\n"
    )
    arguments = [sys.executable, "-c", code, json.dumps([one.to_dict() for one in configs]), str(directory)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"sympy", "torch._dynamo"}  # a second and 40 MB; 68 MB


def test_runs_of_ppo_load_neither_sympy_nor_torchs_compiler(tmp_path: Path) -> None:
    sections: list[dict[str, Any]] = [
        {},
        {"policy": {"recurrence": "lstm"}},
        {"policy": {"recurrence": "mingru"}, "train": {"optimizer": "muon", "weight_decay": 0.1}},
        {"env": {"name": "snake", "num_envs": 1}, "policy": {"encoder": "cnn"}, "eval": {"num_envs": 1}},
        {"env": {"name": "pendulum"}, "policy": {"separate_value": True}},
        {"train": {"train_fp16": True}},
    ]
    short = {"total_timesteps": 1024}
    configs = [ppo_runs.small(**one | {"train": short | one.get("train", {})}) for one in sections]
    assert not HEAVY & loaded_by_runs(configs, tmp_path)


def test_runs_of_language_models_load_neither_sympy_nor_torchs_compiler(tmp_path: Path) -> None:
    data = language_runs.write_corpus(tmp_path / "data")
    configs = [language_runs.small(data, steps=2, model={"arch": arch}) for arch in ("modern", "gpt2")]
    assert not HEAVY & loaded_by_runs(configs, tmp_path / "runs")
