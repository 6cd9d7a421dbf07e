"""From an environment's name, files, stored results and flags to the configuration of a run or a sweep."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import protein
from protein.config.layers import Layers, display_path, flag, read_config_file
from protein.errors import ConfigError, SpaceError, UsageError
from protein.spelling import nearest
from protein.trainer.kinds import LANGUAGE, PPO, Config, kind_of, kind_of_flags, kind_of_subject
from protein.trainer.language.config import BUILT_IN, subject_of_path
from protein.trainer.language.released import read_settings
from protein.trainer.settings import strip_ranges

if TYPE_CHECKING:
    from protein.space import Space  # loads numpy, which the help does not need

CONFIG_DIRECTORY = Path(protein.__file__).parent / "configs"
INIT_FROM = "model.init_from"
_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def find_env(env: str | None, config_file: Path | None, known: list[str], *, flags: Iterable[str] = ()) -> str:
    """Returns what a run learns: the environment of `--env`, or the one in a config file; `text/NAME` for a language
    model.

    For `gym:...` and `python:...` this does not check that the environment exists (see `trainer.environments.spec`).
    Among the flags, `model.num_layers` alone tells that a language model is meant.

    Raises:
        UsageError: none is named, it is unknown, or the flag and the file name different ones.
    """
    named = None if config_file is None else _subject_of(config_file)
    if env is None and not named and kind_of_flags(map(flag, flags)) is LANGUAGE:
        return LANGUAGE.config().subject
    if env is None and not named:
        raise UsageError(f"no environment is named; give --env NAME; known: {', '.join(known)}")
    if env is not None and named and named != env:
        assert config_file is not None
        file = display_path(config_file)
        raise UsageError(f"--env {env} contradicts {file}, which is for '{named}'; drop one of the two")
    name = str(env if env is not None else named)
    if name not in known and ":" not in name and kind_of_subject(name) is PPO:
        raise UsageError(f"unknown environment '{name}'{nearest(name, [*known, LANGUAGE.config().subject])}")
    return name


def _subject_of(path: Path) -> str | None:
    """Returns what the runs of a config file learn; None: it does not say. Raises `ConfigError`."""
    nested = strip_ranges(read_config_file(path))
    kind = kind_of(nested)
    section, key = kind.subject.split(".")
    table = nested.get(section, {})
    value = table.get(key) if isinstance(table, dict) else None
    if kind is PPO:
        return value
    return subject_of_path(value if isinstance(value, str) else BUILT_IN)


def require_subject(env: str | None, config: Config) -> None:
    """Raises `UsageError` where `--env text/NAME` is not what a run would learn."""
    if env not in (None, config.subject):
        raise UsageError(
            f"--env {env} contradicts data.path, whose text is called '{config.subject}'; give"
            f" {flag(LANGUAGE.subject)} FOLDER alone"
        )


def file_name(env: str) -> str:
    """Returns an environment's name as part of a file's: `gym:ALE/Pong-v5` -> `gym-ALE-Pong-v5`."""
    return _FILE_NAME.sub("-", env)


def load(
    env: str,
    *,
    config_file: Path | None = None,
    stored: Mapping[str, Any] | None = None,
    stored_source: str = "",
    flags: Mapping[str, Any] | None = None,
    for_sweep: bool = False,
    gpu: bool = False,
    directory: Path = CONFIG_DIRECTORY,
) -> Layers:
    """Returns all layers of an environment's configuration.

    Args:
        env: the environment, or `text/NAME`, which stands for a language model.
        config_file: a file of the user's own, TOML or a run's `config.json`.
        stored: values of a stored trial by dotted name, which override files.
        stored_source: where `stored` comes from, for messages.
        flags: values of dotted flags, which override everything.
        for_sweep: leave out what a `config.json` holds of one trial alone (see `Layers.with_file`).
        gpu: lay the files' sections [gpu] over them: for a sweep whose trials run on a GPU.
        directory: holds `default.toml` (`gpt.toml` for language models), `python.toml` (for environments in Python,
            Gymnasium's too) and `<env>.toml`, named by `file_name`; any may be missing.

    Raises:
        ConfigError: a file, a value or a range that cannot be used.
    """
    kind = kind_of_subject(env)
    layers = Layers.defaults(kind)
    for name in (kind.defaults, *(["python"] if ":" in env else []), file_name(env)):
        path = directory / f"{name}.toml"
        if path.exists():
            layers = layers.with_file(path, gpu=gpu)
    if config_file is not None:
        below = layers
        layers = layers.with_file(config_file, for_sweep=for_sweep, gpu=gpu)
        layers.parameters()  # a range that no sweep could use is told by every command, before flags fix its value
        if not gpu:
            below.with_file(config_file, for_sweep=for_sweep, gpu=True).parameters()
    if stored:
        layers = layers.with_values(stored, stored_source)
    if kind is PPO:  # the text of a language model is a setting like others, data.path
        layers = layers.with_values({PPO.subject: env}, "--env")
    layers = layers.with_values(flags or {}, "the command line")
    # What is stored of a whole run has the sizes. The weights may be gone: a run that goes on does not need them.
    return layers if kind is PPO or INIT_FROM in (stored or {}) else _with_released_sizes(layers, flags or {})


def _with_released_sizes(layers: Layers, flags: Mapping[str, Any]) -> Layers:
    """Returns the layers with the sizes of the released weights that they name, if any; but flags stay."""
    folder = layers.settings[INIT_FROM].value
    if not folder:
        return layers
    sizes = read_settings(Path(folder)).sizes
    return layers.with_values({name: value for name, value in sizes.items() if name not in flags}, str(folder))


def make_space(layers: Layers) -> "Space":
    """Returns the space that the swept values span, with all others as its fixed values.

    Raises:
        ConfigError: a range, a constraint or the cost parameter is unusable.
        SpaceError: the configured values, which are the initial config, violate a constraint.
    """
    from protein.space import Space

    parameters = layers.parameters()
    if not parameters:
        raise ConfigError("nothing is swept: no value has a range; give one as { value = ..., min = ..., max = ... }")
    # A list or a table, which an argument of an environment may be, is nothing that a constraint can use.
    swept = {parameter.name for parameter in parameters}
    fixed = {
        name: setting.value
        for name, setting in layers.settings.items()
        if name not in swept and not isinstance(setting.value, list | dict)
    }
    try:
        space = Space(
            parameters,
            cost_parameter=layers.sweep.cost_parameter,
            constraints=layers.sweep.constraints,
            fixed=fixed,
        )
    except SpaceError as error:
        raise ConfigError(f"{layers.sweep_source}: {error}") from error
    space.validate(space.only_active(start_params(layers)))
    return space


def start_params(layers: Layers) -> dict[str, Any]:
    """Returns the values with a range as they are configured: the initial config, with what is not active in it."""
    return {name: setting.value for name, setting in layers.settings.items() if setting.range}
