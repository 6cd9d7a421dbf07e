"""The settings of a language model's run: their rules, and what is derived from them."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from protein.trainer.errors import ConfigError
from protein.trainer.language.config import DataConfig, LanguageConfig, ModelConfig


def test_the_default_is_valid_and_makes_the_round_trip() -> None:
    config = LanguageConfig()
    config.validate()
    assert LanguageConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        ("model", {"num_layers": 0}, "model.num_layers must be between 1 and 256, got 0"),
        ("model", {"head_size": 33}, "model.head_size must be even, because positions turn pairs of numbers, got 33"),
        (
            "model",
            {"num_layers": 2, "width_ratio": 4.0, "head_size": 64},
            r"num_layers \* model.width_ratio \(8\) .* model.head_size \(64\) does not divide it",
        ),
        ("model", {"width_ratio": 20_000.0}, "a width of at most 65536, got 80000"),
        ("model", {"arch": "gpt3"}, "model.arch cannot be 'gpt3'"),
        ("train", {"total_tokens": 0}, "train.total_tokens must be at least 1|between 1 and"),
        ("train", {"batch_tokens": 128}, r"train.batch_tokens \(128\) is smaller than one sequence, .* \(256\)"),
        ("train", {"batch_tokens": 1000}, r"train.batch_tokens \(1000\) must be a whole number .*: give 768"),
        ("train", {"learning_rate": 0.0}, "train.learning_rate must be above 0, got 0"),
        ("train", {"embedding_learning_rate": 0.0}, "train.embedding_learning_rate must be above 0"),
        ("train", {"beta1": 1.0}, "train.beta1 must be below 1"),
        ("train", {"weight_decay": float("nan")}, "train.weight_decay must be at least 0 and finite, got nan"),
        ("train", {"warmup_fraction": 0.7, "decay_fraction": 0.6}, "must be at most 1 together, got 1.3"),
        ("train", {"device": "gpu"}, "train.device must be auto, cpu, cuda, cuda:N or mps, got 'gpu'"),
        ("train", {"total_timesteps": 5}, "unknown key 'train.total_timesteps'"),
        ("train", {"seed": "0"}, "train.seed must be an int, got str '0'"),
        ("data", {"path": " "}, "data.path is empty"),
        ("eval", {"tokens": 0}, "eval.tokens must be"),
    ],
)
def test_bad_values_are_refused(section: str, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LanguageConfig.from_dict({section: values})


def test_an_unknown_section_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown section 'policy'"):
        LanguageConfig.from_dict({"policy": {}})


@pytest.mark.parametrize(
    ("layers", "ratio", "head", "heads"), [(4, 32.0, 32, 4), (3, 30.0, 32, 3), (12, 64.0, 64, 12), (1, 17.0, 32, 1)]
)
def test_the_width_is_a_whole_number_of_heads(layers: int, ratio: float, head: int, heads: int) -> None:
    model = ModelConfig(num_layers=layers, width_ratio=ratio, head_size=head)
    assert (model.num_heads, model.width) == (heads, heads * head)


def test_processes_share_sequences_evenly() -> None:
    config = LanguageConfig()
    config.check_processes(2)
    with pytest.raises(ConfigError, match=r"holds 8 sequences, which 3 processes .* give a multiple of 3 \* 256 = 768"):
        config.check_processes(3)


@pytest.mark.parametrize(
    ("path", "subject"), [("python", "text/python"), ("stories", "text/stories"), ("/data/stories/", "text/stories")]
)
def test_the_subject_names_the_text(path: str, subject: str) -> None:
    assert dataclasses.replace(LanguageConfig(), data=DataConfig(path=path)).subject == subject


def test_the_config_loads_no_torch() -> None:
    source = Path(__file__).parents[3] / "trainer" / "language" / "config.py"
    assert "torch" not in [
        line.split()[1].split(".")[0] for line in source.read_text().splitlines() if line[:6] == "import"
    ]
