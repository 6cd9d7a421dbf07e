"""The kinds of training runs, and which one a config describes.

The sections of a config tell its kind: `[data]` or `[model]` is a language model's, anything else PPO's. This module
loads no torch, so that a config can be read at once; the training itself is loaded by `run`.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .config import RunConfig
from .language.config import SUBJECT, LanguageConfig
from .settings import read_file

Config = RunConfig | LanguageConfig


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of training run."""

    name: str  # in messages
    config: type[RunConfig] | type[LanguageConfig]
    subject: str  # dotted name of the setting that says what is learnt
    total_steps: str  # dotted name of the setting that makes a run cheap or expensive
    unit: str  # what a step is, in the plural
    held_out: str  # what the score is measured on
    score_means: str  # what the score is, where that is not clear by itself
    memory: str  # the settings that a run out of memory should lower
    defaults: str  # name of the shipped file with all its values and ranges, without `.toml`

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections of its config."""
        config: Any = self.config
        return tuple(field.name for field in dataclasses.fields(config))

    @property
    def types(self) -> dict[str, Any]:
        """The types of its settings by dotted name, in their order."""
        config: Any = self.config
        return {
            f"{section.name}.{field.name}": field.type
            for section in dataclasses.fields(config)
            for field in dataclasses.fields(section.type)  # type: ignore[arg-type]
        }

    @property
    def names(self) -> frozenset[str]:
        """The dotted names of its settings."""
        return frozenset(self.types)


PPO = Kind(
    name="PPO",
    config=RunConfig,
    subject="env.name",
    total_steps="train.total_timesteps",
    unit="steps",
    held_out="new episodes",
    score_means="",
    memory="env.num_envs, train.horizon, train.minibatch_size or policy.hidden_size",
    defaults="default",
)
LANGUAGE = Kind(
    name="language model",
    config=LanguageConfig,
    subject="data.path",
    total_steps="train.total_tokens",
    unit="tokens",
    held_out="validation text",
    score_means="minus bits per byte",
    memory="train.micro_batch, model.sequence_length, model.num_layers or model.width_ratio",
    defaults="gpt",
)
KINDS = (PPO, LANGUAGE)
_OF_LANGUAGE = frozenset({"data", "model"})


def kind_of(sections: Iterable[str]) -> Kind:
    """Returns the kind of a run, by the sections of its config (a config in nested form is one, too)."""
    return PPO if _OF_LANGUAGE.isdisjoint(sections) else LANGUAGE


def kind_of_config(config: Config) -> Kind:
    """Returns the kind of a run by its config."""
    return LANGUAGE if isinstance(config, LanguageConfig) else PPO


def kind_of_flags(words: Iterable[str]) -> Kind | None:
    """Returns the kind of a run by the dotted flags of a command line, such as `--train.total-tokens`.

    None: no flag is a setting of one kind alone.
    """
    names = {word.partition("=")[0].removeprefix("--").replace("-", "_") for word in words if word.startswith("--")}
    for kind, other in ((LANGUAGE, PPO), (PPO, LANGUAGE)):
        if any(name in kind.names and name not in other.names for name in names):
            return kind
    return None


def kind_of_subject(subject: str) -> Kind:
    """Returns the kind of a run by what it learns: the name of an environment, or `text/NAME`."""
    return LANGUAGE if subject.startswith(SUBJECT) else PPO


def read(nested: Mapping[str, Any]) -> Config:
    """Returns the config of a run of either kind. Raises `ConfigError` as `from_dict` of its class does."""
    return kind_of(nested).config.from_dict(nested)


def load(path: Path) -> Config:
    """Returns the config in a file, of a run of either kind. Raises `ConfigError` as `read_file` does."""
    return read_file(path, read)
