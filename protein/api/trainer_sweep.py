"""A sweep that runs the trainer: its definition from the layers of configuration, and its designer."""

import contextlib
from pathlib import Path

from protein.api.definition import check_name
from protein.api.training import check_data
from protein.config.layers import Layers, flatten
from protein.config.resolve import file_name, make_space
from protein.config.settings import SweepConfig
from protein.engine.settings import EngineSettings
from protein.engine.warm_start import source_observations
from protein.errors import ConfigError
from protein.names import NAME_LENGTH
from protein.ports import Designer
from protein.space import Space
from protein.sweep import provenance
from protein.sweep.methods import make_designer
from protein.trainer.kinds import LANGUAGE
from protein.trainer.language.config import BUILT_IN
from protein.types import SweepRecord, SweepSpec

PATHS = ("data.path", "eval.hellaswag", "model.init_from")  # settings that may name a file or folder

_DATA_FILE = "data.json"  # of a folder of tokens; written when it is made


def define(layers: Layers, settings: SweepConfig, name: str | None, *, device: str | None = None) -> SweepSpec:
    """Returns what defines the sweep; it has no warm start yet.

    Args:
        layers: the configuration of its runs.
        settings: how to search.
        name: of the sweep; None: that of what is learnt.
        device: where a network of the user's own is tried out; None: on that of its runs.

    Raises:
        UsageError: the name cannot be used.
        ConfigError: a value or a range cannot be used (`trainer.errors.ConfigError` for what the trainer refuses).
    """
    check_data(layers.run_config(), device=device)
    layers = _with_absolute_paths(layers)
    config = layers.run_config()
    space = make_space(layers)
    if name is None:
        name = file_name(config.subject)[:NAME_LENGTH]
    check_name(name, "--name")
    nested = config.to_dict()
    return SweepSpec(
        name=name,
        env=config.subject,
        method=settings.method,
        seed=settings.seed,
        space=space.to_dict(),
        config=nested,
        provenance=provenance.collect(nested),
    )


def _with_absolute_paths(layers: Layers) -> Layers:
    """Returns layers whose files are found from any folder: trials, and later commands, may run in another one.

    Raises:
        ConfigError: such a setting has a range.
    """
    if layers.kind is not LANGUAGE:
        return layers
    given = {name: layers.settings[name] for name in PATHS}
    for name, setting in given.items():
        if setting.range:
            why = ": scores of two texts cannot be compared" if name == LANGUAGE.subject else ""
            raise ConfigError(
                f"{setting.range_source}: {name} names files and cannot be swept{why}; give one value, and each other"
                " one a sweep of its own"
            )
        if setting.value not in ("", BUILT_IN):
            layers = layers.with_values({name: str(Path(setting.value).absolute())}, setting.source)
    return layers


def newer_text(sweep: SweepRecord) -> str:
    """Returns a line to print where the text of a language model's sweep was made after the sweep; else ""."""
    path = sweep.spec.config.get("data", {}).get("path", BUILT_IN)
    with contextlib.suppress(OSError):  # reading the text says what is wrong with it
        if path != BUILT_IN and (Path(path) / _DATA_FILE).stat().st_mtime > sweep.created_at.timestamp():
            return (
                f"the tokens in {path} are newer than this sweep: if their text has changed, scores before and after"
                " cannot be compared; give a new sweep with --name"
            )
    return ""


def designer(spec: SweepSpec, settings: SweepConfig) -> Designer:
    """Returns the designer of a sweep; it tries the configured values first. Raises `UsageError` as `make_designer`."""
    space = Space.from_dict(spec.space)
    values = flatten(spec.config)
    return make_designer(
        spec.method,
        space,
        {name: values[name] for name in space.names},
        seed=spec.seed,
        settings=EngineSettings(early_stopping=settings.early_stopping),
        warm_start=source_observations(spec.warm_start),
    )
