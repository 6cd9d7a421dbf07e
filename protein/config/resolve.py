"""From an environment's name, files, stored results and flags to the configuration of a run or a sweep."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import protein
from protein.config.layers import Layers, display_path, read_config_file
from protein.errors import ConfigError, SpaceError, UsageError
from protein.spelling import nearest

if TYPE_CHECKING:
    from protein.space import Space  # loads numpy, which the help does not need

CONFIG_DIRECTORY = Path(protein.__file__).parent / "configs"
_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def find_env(env: str | None, config_file: Path | None, known: list[str]) -> str:
    """Returns the name of the environment: that of `--env`, or the one in a config file.

    For `gym:...` and `python:...` this does not check that the environment exists (see `trainer.environments.spec`).

    Raises:
        UsageError: none is named, it is unknown, or the flag and the file name different ones.
    """
    named: Any = None
    if config_file is not None:
        section = read_config_file(config_file).get("env")
        named = section.get("name") if isinstance(section, dict) else None
    if env is None and not named:
        raise UsageError(f"no environment is named; give --env NAME; known: {', '.join(known)}")
    if env is not None and named and named != env:
        assert config_file is not None
        file = display_path(config_file)
        raise UsageError(f"--env {env} contradicts {file}, which is for '{named}'; drop one of the two")
    name = str(env if env is not None else named)
    if name not in known and ":" not in name:
        raise UsageError(f"unknown environment '{name}'{nearest(name, known)}")
    return name


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
    directory: Path = CONFIG_DIRECTORY,
) -> Layers:
    """Returns all layers of an environment's configuration.

    Args:
        env: the environment.
        config_file: a file of the user's own, TOML or a run's `config.json`.
        stored: values of a stored trial by dotted name, which override files.
        stored_source: where `stored` comes from, for messages.
        flags: values of dotted flags, which override everything.
        for_sweep: leave out what a `config.json` holds of one trial alone (see `Layers.with_file`).
        directory: holds `default.toml`, `python.toml` (for environments in Python, Gymnasium's too) and `<env>.toml`,
            named by `file_name`; any may be missing.

    Raises:
        ConfigError: a file or value that cannot be used.
    """
    layers = Layers.defaults()
    for name in ("default", *(["python"] if ":" in env else []), file_name(env)):
        path = directory / f"{name}.toml"
        if path.exists():
            layers = layers.with_file(path)
    if config_file is not None:
        layers = layers.with_file(config_file, for_sweep=for_sweep)
    if stored:
        layers = layers.with_values(stored, stored_source)
    layers = layers.with_values({"env.name": env}, "--env")
    return layers.with_values(flags or {}, "the command line")


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
    fixed = {
        name: setting.value
        for name, setting in layers.settings.items()
        if not setting.range and not isinstance(setting.value, list | dict)
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
    space.validate(start_params(layers))
    return space


def start_params(layers: Layers) -> dict[str, Any]:
    """Returns the swept values as they are configured: the initial config."""
    return {name: setting.value for name, setting in layers.settings.items() if setting.range}
