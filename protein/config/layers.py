"""Configuration in layers: each layer overrides the ones before it.

    dataclass defaults < configs/default.toml < configs/<env>.toml < --config FILE < stored trial < flags

For a language model `configs/gpt.toml` takes the place of `default.toml`.

A value that may be swept carries its range beside it, in one table. A later layer may give the whole table, some of its
keys, or a plain value, which is then fixed:

    learning_rate = { value = 0.01, min = 1e-3, max = 0.1, scale = "log" }
    optimizer = { value = "adam", choices = ["adam", "muon"] }
    num_envs = { value = 64, min = 8, max = 256, step = 8 }
    muon_momentum = { value = 0.95, min = 0.8, max = 0.99, when = "train.optimizer == 'muon'" }

`low` and `high` may be written for `min` and `max`. Where the condition of a `when` does not hold, the value stays as
it is configured, and is not searched. A condition on values that a later layer has fixed is decided by them.

In a file `[gpu.env]`, `[gpu.train]` and so on hold what a sweep lays over the file's own sections where its trials run
on a GPU: mostly the ranges of what is best elsewhere there, such as the number of environments. All other commands, and
sweeps on a CPU, leave `[gpu]` out. A later layer overrides both.

A range may also hold what the user believes in (see `protein.space.parameters`): `belief = [0.01, 3]`.

FILE may also be the `config.json` that a trial or a training run leaves in its folder. It holds every value and no
range. Its values replace those of the earlier layers, and the ranges of the earlier layers stay. Where a value lies
outside its range, the range is widened to hold it. A value that the range's scale cannot hold is fixed instead: 0 on a
log scale, or 96 on a pow2 scale, also within the range. So a sweep of such a file begins from that config and searches
what the environment's file searches, without the fixed values.

The sections and keys are the fields of a run's dataclass: that of its kind, see `trainer.kinds`.
"""

import dataclasses
import difflib
import json
import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protein.config.settings import SweepConfig, update_sweep
from protein.errors import ConfigError, SpaceError
from protein.spelling import nearest
from protein.trainer.errors import ConfigError as RunConfigError
from protein.trainer.kinds import KINDS, PPO, Config, Kind
from protein.trainer.settings import has_range, is_retired

if TYPE_CHECKING:
    from protein.space.parameters import Parameter  # loads numpy, which the help does not need

NUMERIC_KEYS = ("min", "max", "scale", "step")
RANGE_KEYS = (*NUMERIC_KEYS, "choices", "belief", "when")
OTHER_NAMES = {"low": "min", "high": "max"}  # of a range's keys, which may be written so, too
_ENDS = (  # what others call min and max
    *(("low", "high"), ("lo", "hi"), ("lower", "upper"), ("lb", "ub"), ("minimum", "maximum"), ("min", "max")),
    *(("start", "stop"), ("start", "end"), ("begin", "end"), ("from", "to"), ("mean", "std"), ("mu", "sigma")),
)
_DISTRIBUTION = frozenset({"distribution", "dist"})
_OF_RANGES = frozenset({"log", "step", "q", "options", "values", "default", "range", "bounds", "type", "prior", "init"})
_SUFFIX = re.compile(r"[_-]?(value|bound|limit|inclusive)$")
_SLIP = 0.75  # likeness from here on is a slip of the pen
GPU = "gpu"  # the section of what a sweep lays over the others for trials on a GPU
ARGS = "env.args"  # the one table of values: arguments of the environment, each a value of its own, `env.args.NAME`
# What a sweep sets anew for each trial. A sweep does not take these from the config.json of one trial.
OF_ONE_TRIAL = frozenset({"train.seed", "train.threads", "train.max_seconds", "train.schedule_end"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value of a run config, its range when it is swept (`{}` when not), and where each was given."""

    value: Any
    source: str = "built-in default"
    range: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    range_source: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """All layers so far, as one. Immutable: every `with_...` returns a new one."""

    settings: Mapping[str, Setting]  # dotted name -> setting, every value of a run config
    sweep: SweepConfig = dataclasses.field(default_factory=SweepConfig)
    sweep_source: str = "built-in default"  # the last file with a [sweep] section
    kind: Kind = PPO  # of the runs that this configures
    notes: tuple[str, ...] = ()  # which ranges a value of a run's config.json has replaced, each in a line
    gpu_sources: tuple[str, ...] = ()  # the files whose [gpu] is laid over these layers

    @classmethod
    def defaults(cls, kind: Kind = PPO) -> "Layers":
        values = flatten(kind.config().to_dict())
        return cls(settings={name: Setting(value=value) for name, value in values.items()}, kind=kind)

    def with_file(self, path: Path, *, for_sweep: bool = False, gpu: bool = False) -> "Layers":
        """Lays a config file over these layers.

        Args:
            path: TOML, or JSON where its name ends in `.json`.
            for_sweep: leave out what a JSON file holds of one trial alone, `OF_ONE_TRIAL`.
            gpu: lay its section [gpu] over the others.

        Raises:
            ConfigError: the file cannot be used, also in a [gpu] that is not laid; names it and the key.
        """
        source, plain = display_path(path), is_json(path)
        sections = read_config_file(path)
        of_gpu = {} if plain else sections.pop(GPU, {})
        if not isinstance(of_gpu, dict):
            raise ConfigError(f"{source}: '{GPU}' must hold sections, such as [{GPU}.train], not {of_gpu!r}")
        below = self._laid(sections, source, plain=plain, for_sweep=for_sweep)
        if not of_gpu:
            return below
        # A mistake there is told on every machine.
        above = below._laid(of_gpu, f"{source} [{GPU}]", plain=False, for_sweep=for_sweep)
        return dataclasses.replace(above, gpu_sources=(*self.gpu_sources, source)) if gpu else below

    def _laid(self, sections: Mapping[str, Any], source: str, *, plain: bool, for_sweep: bool) -> "Layers":
        """Returns these layers below sections of a file; `plain`: they hold values alone."""
        settings, sweep, sweep_source, notes = dict(self.settings), self.sweep, self.sweep_source, list(self.notes)
        for section, table in sections.items():
            if section not in (known := {name.partition(".")[0] for name in settings} | {"sweep"}):
                raise ConfigError(f"{source}: {_unknown_section(section, {*known, GPU}, self.kind)}")
            if not isinstance(table, dict):
                raise ConfigError(f"{source}: '{section}' must be a section, [{section}], not {table!r}")
            if section == "sweep":
                sweep, sweep_source = update_sweep(sweep, table, source), source
                continue
            for name, given in _named(section, table, source):
                if _retired(name, given, source):
                    continue
                if name not in settings and self._takes(name):
                    plainly = Setting(value=given, source=source)
                    settings[name] = plainly if plain else _new_argument(name, given, source)
                    continue
                if name not in settings:
                    raise ConfigError(f"{source}: {_unknown_key(name, settings, self.kind)}")
                if plain and for_sweep and name in OF_ONE_TRIAL:
                    continue
                below = settings[name]
                settings[name] = _with_value(below, given, source) if plain else _override(name, below, given, source)
                if plain and below.range and not settings[name].range:
                    notes.append(
                        f"{source}: {name} = {given} is not a value of the range in {below.range_source}, so it is"
                        " fixed and not searched; to search it, give its range in a TOML file"
                    )
        settings = self._checked(settings, f"{source}: ")
        return dataclasses.replace(self, settings=settings, sweep=sweep, sweep_source=sweep_source, notes=tuple(notes))

    def with_values(self, values: Mapping[str, Any], source: str) -> "Layers":
        """Lays plain values over these layers, by dotted name: they are fixed from now on, and leave the space.

        Raises:
            ConfigError: an unknown name, or a value of the wrong type or out of range.
        """
        settings = dict(self.settings)
        for name, value in values.items():
            if _retired(name, value, source):
                continue
            if name not in settings and not self._takes(name):
                raise ConfigError(f"{source}: {_unknown_key(name, settings, self.kind)}")
            settings[name] = Setting(value=value, source=source)
        return dataclasses.replace(self, settings=self._checked(settings, ""))

    def values(self) -> dict[str, Any]:
        """Returns every value by dotted name."""
        return {name: setting.value for name, setting in self.settings.items()}

    def run_config(self) -> Config:
        """Returns the values as one run config."""
        return _read(self.values(), "", self.kind)

    def parameters(self) -> "list[Parameter]":
        """Returns the swept values as parameters of a space, in the order of the dataclass. Raises `ConfigError`.

        A parameter comes behind those that its condition names.
        """
        values = self.values()
        found = [
            _parameter(name, setting, values, self.kind) for name, setting in self.settings.items() if setting.range
        ]
        return _in_order(self._decided(found))

    def _decided(self, parameters: "list[Parameter]") -> "list[Parameter]":
        """Returns the parameters without conditions on fixed values alone, and without those that these rule out."""
        import numpy as np

        from protein.space.constraints import Condition, Partial

        ruled_out = Partial(np.zeros(1), np.zeros(1, dtype=bool))
        swept = {parameter.name for parameter in parameters}
        known: dict[str, Any] = {name: np.asarray(value) for name, value in self.values().items() if name not in swept}
        kept, num_known = parameters, -1
        while num_known < len(known):
            num_known, left = len(known), kept
            kept = []
            for parameter in left:
                condition = None if parameter.when is None else Condition(parameter.when, "when")
                if condition is None or not condition.names <= known.keys():
                    kept.append(parameter)
                elif condition.holds(known, 1)[0]:
                    kept.append(dataclasses.replace(parameter, when=None))
                else:
                    known[parameter.name] = ruled_out
        return kept

    def _takes(self, name: str) -> bool:
        """Whether a name may be added: an argument of the environment, in a kind of run that has environments."""
        return is_argument(name) and "env" in self.kind.sections

    def _checked(self, settings: Mapping[str, Setting], prefix: str) -> dict[str, Setting]:
        """Returns the settings with their values as the run config keeps them: an int becomes a float where due."""
        values = flatten(
            _read({name: setting.value for name, setting in settings.items()}, prefix, self.kind).to_dict()
        )
        return {name: dataclasses.replace(setting, value=values[name]) for name, setting in settings.items()}


def _retired(name: str, value: Any, source: str) -> bool:
    """Whether a setting is one of an earlier version that changes nothing; raises `ConfigError` where it would.

    A table with a value alone is that value; one with a range is swept, so it would.
    """
    alone = isinstance(value, Mapping) and value.keys() == {"value"}
    try:
        return is_retired(name, value["value"] if alone else value)
    except RunConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def looks_like_range(table: Mapping[str, Any]) -> bool:
    """Whether a table that is no range was meant as one: `{ low = 1e-4, high = 0.1 }`, `{ mn = 1, mx = 9 }`."""
    words = {_SUFFIX.sub("", key.lower()) or key for key, value in table.items() if not isinstance(value, Mapping)}
    if words & _DISTRIBUTION or any(words.issuperset(ends) for ends in _ENDS):
        return True
    known = {"value", *RANGE_KEYS}
    others = words - known - _OF_RANGES - {word for ends in _ENDS for word in ends}
    return bool(words) and all(difflib.get_close_matches(word, known, 1, _SLIP) for word in others)


def with_own_names(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a parameter's table with `low` and `high` called `min` and `max`.

    Raises:
        SpaceError: it has both names of one end.
    """
    for other, own in OTHER_NAMES.items():
        if other in table and own in table:
            raise SpaceError(f"{name} gives {own} and {other}, which are the same; leave one of them out")
    return {OTHER_NAMES.get(key, key): value for key, value in table.items()}


def is_json(path: Path) -> bool:
    """Whether a config file is JSON, as a trial's `config.json` is, and not TOML."""
    return path.suffix.lower() == ".json"


def read_config_file(path: Path) -> dict[str, Any]:
    """Returns what a TOML or JSON file holds. Raises `ConfigError` when it cannot be read or is not valid."""
    source, kind = display_path(path), "JSON" if is_json(path) else "TOML"
    import tomllib  # a tenth of the time of the help, which does not need it

    try:
        content = path.read_text(encoding="utf-8-sig")  # editors on Windows begin a file with a mark
        found = json.loads(content or "{}") if is_json(path) else tomllib.loads(content)
    except FileNotFoundError:
        raise ConfigError(f"{source}: no such config file; check the path") from None
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read ({error.strerror}); check the path and its permissions") from error
    except (ValueError, RecursionError) as error:  # of either parser, or of a file that is not UTF-8
        raise ConfigError(f"{source}: not valid {kind}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{source}: holds a {type(found).__name__}; a config file holds sections of values")
    if not found:
        raise ConfigError(f"{source}: is empty; write sections of values into it, as [train] and gamma = 0.99")
    return found


def _unknown_section(section: str, known: Collection[str], kind: Kind) -> str:
    for other in KINDS:
        if section in other.sections:
            return f"[{section}] is a section of a {other.name} run, and this is a {kind.name} run; leave it out"
    return f"unknown section '{section}'{nearest(section, known)}"


def _unknown_key(name: str, known: Collection[str], kind: Kind) -> str:
    for other in KINDS:
        if name in other.names:
            return f"'{name}' is a setting of a {other.name} run, and this is a {kind.name} run; leave it out"
    return f"unknown key '{name}'{nearest(name, known)}"


def value_types(kind: Kind = PPO) -> dict[str, Any]:
    """Returns the type of every value of a kind's run config, by dotted name, in order."""
    types = kind.types
    types.pop(ARGS, None)
    return types


def is_argument(name: str) -> bool:
    """Whether a dotted name is an argument of the environment, `env.args.NAME`."""
    return name.startswith(f"{ARGS}.")


def flatten(nested: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a nested run config by dotted names."""
    flat = {f"{section}.{key}": value for section, table in nested.items() for key, value in table.items()}
    args = flat.pop(ARGS, {})
    return flat | {f"{ARGS}.{name}": value for name, value in args.items()}


def unflatten(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the nested form of dotted names; the inverse of `flatten`."""
    nested: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        *sections, key = name.split(".")
        table = nested
        for section in sections:
            table = table.setdefault(section, {})
        table[key] = value
    return nested


def flag(name: str) -> str:
    """Returns the flag that sets a value: `train.learning_rate` -> `--train.learning-rate`."""
    return "--" + name.replace("_", "-")


def display_path(path: Path) -> str:
    """Returns a path, relative to the working directory where it lies in it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _named(section: str, table: Mapping[str, Any], source: str) -> list[tuple[str, Any]]:
    """Returns what a section of a file gives, by dotted name. Raises `ConfigError` where [env.args] is no table."""
    found: list[tuple[str, Any]] = []
    for key, given in table.items():
        if f"{section}.{key}" != ARGS:
            found.append((f"{section}.{key}", given))
        elif isinstance(given, dict):
            found += [(f"{ARGS}.{argument}", value) for argument, value in given.items()]
        else:
            raise ConfigError(f"{source}: '{ARGS}' must be a section, [{ARGS}], not {given!r}")
    return found


def _new_argument(name: str, given: Any, source: str) -> Setting:
    """Returns the setting of an argument that no layer below has. A table without a range is a plain value."""
    if not has_range(given):
        return _plain_argument(name, given, source)
    if "value" not in given:
        raise ConfigError(
            f"{source}: {name} has a range and no value to begin with; give it a value, too, or,"
            f" if the table is the argument itself, write {name.removeprefix(f'{ARGS}.')} = {{ value = {{ ... }} }}"
        )
    return _override(name, Setting(value=None), given, source)


def _plain_argument(name: str, given: Any, source: str) -> Setting:
    """Returns the setting of an argument that is no range. Raises `ConfigError` for a table that was meant as one."""
    if isinstance(given, dict) and looks_like_range(given):
        raise ConfigError(
            f"{source}: {name} looks like a range, but has {' and '.join(given)}; a range has value, min and max, or"
            f" choices; if the table is the argument itself, write {name.removeprefix(f'{ARGS}.')} = {{ value ="
            " { ... } }"
        )
    return Setting(value=given, source=source)


def _type(name: str, setting: Setting, kind: Kind) -> Any:
    """Returns a value's type. That of an argument is what it holds: a float where any of its numbers is one."""
    if not is_argument(name):
        return value_types(kind)[name]
    numbers = [setting.value, *(setting.range[bound] for bound in ("min", "max") if bound in setting.range)]
    return float if any(type(number) is float for number in numbers) else type(setting.value)


def _with_value(below: Setting, value: Any, source: str) -> Setting:
    """Returns a setting with the value of a run's config.json, and the range below it, widened to hold the value.

    There is no range, and the value is fixed, where the range's scale or step cannot hold it.
    """
    swept = dict(below.range)
    if "choices" in swept and isinstance(swept["choices"], list) and value not in swept["choices"]:
        swept["choices"] = [*swept["choices"], value]
    if "choices" not in swept and swept and isinstance(value, int | float):
        if not _fits_scale(value, swept):
            return Setting(value=value, source=source)
        swept.update(min=min(swept["min"], value), max=max(swept["max"], value))
    range_source = below.range_source if swept == below.range else source
    return Setting(value=value, source=source, range=swept, range_source=range_source)


def _fits_scale(value: float, swept: Mapping[str, Any]) -> bool:
    """Whether a range of this scale and step can hold a value."""
    scale, step = swept.get("scale"), swept.get("step") or 0
    if isinstance(step, int | float) and step > 0 and math.isfinite(value):
        steps = (value - swept["min"]) / step
        if abs(steps - round(steps)) > 1e-9:
            return False
    if scale == "logit":
        return 0 < value < 1
    if scale == "pow2":
        return value > 0 and math.frexp(value)[0] == 0.5
    return value > 0 or scale != "log"


def _override(name: str, below: Setting, given: Any, source: str) -> Setting:
    """Returns one setting of a file laid over the setting below it."""
    if not isinstance(given, dict):
        return Setting(value=given, source=source)
    if is_argument(name) and not has_range(given):
        return _plain_argument(name, given, source)
    try:
        given = with_own_names(name, given)
    except SpaceError as error:
        raise ConfigError(f"{source}: {error}") from error
    for key in given:
        if key not in (known := ("value", *RANGE_KEYS)):
            raise ConfigError(f"{source}: unknown key '{key}' in the table of '{name}'{nearest(key, known)}")
    swept = dict(below.range)
    if "choices" in given:
        if clash := [key for key in NUMERIC_KEYS if key in given]:
            raise ConfigError(f"{source}: {name} gives both choices and {clash[0]}; give either choices or min and max")
        swept = {"choices": given["choices"], **{key: swept[key] for key in ("when",) if key in swept}}
    elif any(key in given for key in NUMERIC_KEYS):
        swept.pop("choices", None)
        swept.update({key: given[key] for key in NUMERIC_KEYS if key in given})
        for key in ("min", "max"):
            if key not in swept:
                raise ConfigError(f"{source}: the range of {name} has no {key}; give both min and max")
    if "belief" in given:
        if not swept:
            raise ConfigError(f"{source}: {name} has a belief and no range; give min and max, or choices, too")
        swept["belief"] = given["belief"]
    if "when" in given:
        if not swept:
            raise ConfigError(f"{source}: {name} has a condition and no range; give it min and max, or choices")
        swept["when"] = given["when"]
    value, value_source = below.value, below.source
    if "value" in given:
        value, value_source = given["value"], source
    touched = any(key in given for key in RANGE_KEYS)
    return Setting(
        value=value,
        source=value_source,
        range=swept,
        range_source=source if touched else below.range_source,
    )


def _parameter(name: str, setting: Setting, values: Mapping[str, Any], run: Kind) -> "Parameter":
    """Returns a swept value as a parameter. `values` are all values of the run config, by dotted name; `run`: its
    kind."""
    from protein.space.constraints import Condition
    from protein.space.parameters import Categorical, Float, Integer

    kind, source, given = _type(name, setting, run), setting.range_source, setting.range
    listed = given["choices"] if "choices" in given else [given["min"], given["max"]]
    if not isinstance(listed, list):
        raise ConfigError(f"{source}: {name}: choices = {listed!r} must be a list")
    if "choices" not in given and kind not in (int, float):
        raise ConfigError(f"{source}: {name} is not a number, so it has no min and max; give choices = [...]")
    parameter: Parameter
    try:
        if isinstance(when := given.get("when"), str):
            Condition(when, f"parameter '{name}': when")  # that it can be read
        if "choices" in given:
            parameter = Categorical(name, tuple(listed), when=when)
        elif kind is int:
            _check_bounds(name, given, source)
            ends, scale = (listed[0], listed[1]), given.get("scale", "linear")
            parameter = Integer(name, *ends, scale, step=given.get("step"), when=when)
        else:
            _check_bounds(name, given, source)
            low, high = (float(bound) if type(bound) is int else bound for bound in listed)
            scale = given.get("scale", "linear")
            parameter = Float(name, low, high, scale, step=given.get("step"), when=when)
        parameter = dataclasses.replace(parameter, belief=given.get("belief"))
    except SpaceError as error:
        raise ConfigError(f"{source}: {error}") from error
    for bound in listed:  # the trainer must take every value that a trial may get
        _read({**values, name: bound}, f"{source}: ", run)
    try:
        value: Any = float(setting.value) if kind is float and type(setting.value) is int else setting.value
        parameter.check(value, "value ")
    except SpaceError as error:
        at = "" if setting.source == source else f" (given in {source})"
        raise ConfigError(f"{setting.source}: {error}{at}; change the value or the range") from error
    return dataclasses.replace(parameter, default=value)


def _in_order(parameters: "list[Parameter]") -> "list[Parameter]":
    """Returns the parameters as they stand, but each behind those that its condition names, as far as that can be."""
    from protein.space.constraints import Condition

    waiting = list(parameters)
    found: list[Parameter] = []
    while waiting:
        names = {parameter.name for parameter in waiting}
        parents = [set() if p.when is None else Condition(p.when, "when").names & names for p in waiting]
        free = next((i for i, needed in enumerate(parents) if not needed), 0)  # 0: in a circle, which the space refuses
        found.append(waiting.pop(free))
    return found


def _check_bounds(name: str, given: Mapping[str, Any], source: str) -> None:
    """Checks what the space would call low and high, in the words of the file. Raises `ConfigError`."""
    low, high = given["min"], given["max"]
    if not all(type(bound) in (int, float) for bound in (low, high)):
        return  # the parameter's own check reports it
    if not low < high:
        raise ConfigError(
            f"{source}: parameter '{name}': min {low} is not below max {high}; widen the range or fix the value"
        )
    if given.get("scale") == "log" and low <= 0:
        raise ConfigError(
            f"{source}: parameter '{name}': min {low} of a log range must be above 0; raise it or use linear"
        )


def _read(values: Mapping[str, Any], prefix: str, kind: Kind) -> Config:
    try:
        return kind.config.from_dict(unflatten(values))
    except RunConfigError as error:
        raise ConfigError(f"{prefix}{error}") from error
