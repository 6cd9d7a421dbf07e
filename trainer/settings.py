"""What the configs of every kind of run share: how they are read, their common settings, and the rules that they keep.

A config here is a frozen dataclass of sections, each a dataclass of values. Which limits hold is said beside the
dataclasses of each kind (`config.py`, `language/config.py`).

Reading is strict. Values are not converted: `"false"` is not a bool and `"64"` is not an int. An unknown key is an
error. An int is accepted for a float, because TOML and JSON writers drop the `.0`.

A configuration file may carry a sweep's range beside a value, `{ value = 0.01, min = 1e-3, max = 0.1, scale = "log" }`,
a `[sweep]` section, and one for sweeps on a GPU, `[gpu]`. One run needs none of them, so reading a file keeps only the
values.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args, get_origin

from protein.spelling import nearest

from .errors import ConfigError

Limits = Mapping[str, Mapping[str, tuple[float, float]]]  # section -> key -> the lowest and the highest value
Precision = Literal["auto", "fp32", "tf32", "bf16", "fp16"]
UpdatePrecision = Literal["same", "auto", "fp32", "tf32", "bf16", "fp16"]
Graphs = Literal["auto", "on", "off"]
OptimizerName = Literal["adamw", "muon"]
LRSchedule = Literal["cosine", "linear", "constant", "wsd"]
Config = TypeVar("Config")
# Inclusive bounds. Counts are bounded so that products of them stay valid indices; coefficients by their meaning.
COUNT = (1, 2**31 - 1)
POSITIVE = (0, math.inf)
UNIT = (0, 1)
TRAIN_LIMITS: Mapping[str, tuple[float, float]] = {
    "max_seconds": POSITIVE,
    "seed": (0, 2**63 - 1),
    "threads": (0, 1024),
    "learning_rate": POSITIVE,
    "warmup_fraction": UNIT,
    "decay_fraction": UNIT,
    "weight_decay": POSITIVE,
    "beta1": UNIT,
    "beta2": UNIT,
    "adam_eps": POSITIVE,
    "max_grad_norm": POSITIVE,
    "checkpoint_seconds": POSITIVE,
}  # of the numbers in `TrainSettings`
# The keys of a value that carries a sweep's range; one of `_MARKS`, or both ends, are needed to tell it from a table.
RANGE_KEYS = frozenset({"value", "min", "max", "low", "high", "scale", "step", "choices", "belief", "when"})
_MARKS = frozenset({"value", "min", "max", "scale", "choices", "belief"})
OF_SWEEPS = frozenset({"sweep", "gpu"})  # sections of a file that one run does not read
# Settings of earlier versions, and the value with which they changed nothing; None: whatever their value is.
RETIRED: dict[str, object] = {
    "train.prio_alpha": 0.0,
    "train.prio_beta": None,  # counted only beside a prio_alpha above 0
    "train.advantage": "gae",
    "train.rho_clip": 1.0,
    "train.c_clip": 1.0,
    "train.vf_clip_coef": 0.0,
}
GONE = "is not supported any more: it paid in no environment (docs/options.md); leave it out"
_ARTICLE = {bool: "true or false", int: "an int", float: "a number", str: "a string"}


class TrainSettings:
    """The settings in `[train]` that every kind of run has, with those help texts that are the same in all.

    It is no dataclass. So the `TrainConfig` of each kind declares these settings where they belong among its own, which
    is their order in `--help` and in files, and inherits the texts.
    """

    max_seconds: float
    seed: int
    threads: int
    device: str
    """`auto` (CUDA, then MPS, then CPU), `cpu`, `cuda`, `cuda:N` or `mps`."""
    precision: Precision
    compile: bool
    """Compiles the network with torch.compile; its seconds are reported separately. Falls back to eager execution."""
    graphs: Graphs
    """Records what a GPU computes again and again as CUDA graphs, to the same results: `auto`, where it can. `on`: the
    run ends with an error where it cannot. `off`: never."""
    optimizer: OptimizerName
    learning_rate: float
    lr_schedule: LRSchedule
    decay_fraction: float
    warmup_fraction: float
    weight_decay: float
    beta1: float
    beta2: float
    """Adam's decay of the squared gradient's running mean."""
    adam_eps: float
    """Adam's epsilon, which is added to its denominator."""
    max_grad_norm: float
    checkpoint_seconds: float
    """Seconds of training between checkpoints (one is always written at the end); 0: only at the end. They lie further
    apart where writing one takes more than 1 % of this time. In a sweep they are at most 10 seconds apart."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SectionedConfig:
    """A config whose fields are its sections, each a dataclass of values."""

    @classmethod
    def from_dict(cls, nested: Mapping[str, Any]) -> Self:
        """Reads `{section: {key: value}}`; what is missing keeps its default.

        Raises:
            ConfigError: an unknown section or key, a value of the wrong type, or one that `validate` refuses.
        """
        config = read_sections(cls, nested)
        config.validate()
        return config

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Returns the nested form that `from_dict` reads: the exact round trip."""
        return dataclasses.asdict(self)

    def validate(self) -> None:
        """Raises `ConfigError` for a value out of range or values that contradict each other."""
        raise NotImplementedError


def read_file(path: Path, read: Callable[[dict[str, Any]], Config]) -> Config:
    """Returns what `read` makes of a `.toml` or `.json` file; ranges and the `[sweep]` section are left out.

    Raises:
        ConfigError: the file is missing, unreadable, not TOML or JSON, or its content is refused by `read`.
    """
    if path.suffix not in (".toml", ".json"):
        raise ConfigError(f"cannot read {path}: the name of a configuration file ends in .toml or .json")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    import tomllib  # a tenth of the time of the help, which does not need it

    try:
        nested = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if not isinstance(nested, dict):
        raise ConfigError(f"cannot read {path}: it must hold sections such as 'train', got {type(nested).__name__}")
    try:
        return read(strip_ranges(nested, of_args=path.suffix == ".toml"))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def read_sections(kind: type[Config], nested: Mapping[str, Any]) -> Config:
    """Returns a config, an instance of the dataclass `kind`, whose fields are sections; what is missing is default.

    Raises:
        ConfigError: an unknown section or key, or a value of the wrong type.
    """
    sections: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in nested:
        if name not in sections:
            raise ConfigError(f"unknown section '{name}'{nearest(name, sections)}")
    return kind(**{name: read_section(name, default, nested.get(name, {})) for name, default in sections.items()})


def read_section(section: str, kind: Any, values: Any) -> Any:
    """Returns a section, an instance of the dataclass `kind`; what its values leave out keeps its default.

    Raises:
        ConfigError: an unknown key, or a value of the wrong type.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"section '{section}' must hold keys and values, got {type(values).__name__} {values!r}")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    read: dict[str, Any] = {}
    for key, value in values.items():
        if is_retired(name := f"{section}.{key}", value):
            continue
        if key not in fields:
            raise ConfigError(f"unknown key '{name}'{nearest(key, fields)}")
        read[key] = _read_value(f"{section}.{key}", fields[key].type, value)
    return kind(**read)


def strip_ranges(nested: Mapping[str, Any], *, of_args: bool = True) -> dict[str, Any]:
    """Returns the sections without `[sweep]` and `[gpu]`, each value that carries a range reduced to the value itself.

    A table of range keys without a `value` keeps the default, as in a file that only narrows a range. `of_args`: also
    those of `[env.args]`. In the JSON of a run there are none, and a table there is the argument itself.
    """
    plain: dict[str, Any] = {}
    for section, values in nested.items():
        if section in OF_SWEEPS:
            continue
        if not isinstance(values, Mapping):
            plain[section] = values
            continue
        plain[section] = _values_of(values)
        if section == "env" and isinstance(values.get("args"), Mapping):
            plain[section]["args"] = _values_of(values["args"]) if of_args else dict(values["args"])
    return plain


def has_range(value: Any) -> bool:
    """Whether a value of a file is a table that carries a sweep's range."""
    if not isinstance(value, Mapping) or not RANGE_KEYS.issuperset(value):
        return False
    return not _MARKS.isdisjoint(value) or {"low", "high"} <= value.keys()


def is_retired(name: str, value: object) -> bool:
    """Whether a setting is one of an earlier version and changes nothing, so that its files can still be read.

    Raises:
        ConfigError: it is one, and it would have changed the run.
    """
    if name not in RETIRED:
        return False
    neutral = RETIRED[name]
    if neutral is not None and value != neutral:
        raise ConfigError(f"{name} = {value!r} {GONE}")
    return True


def check_limits(config: Any, limits: Limits) -> None:
    """Raises `ConfigError` for a value outside its limits."""
    for section, of_section in limits.items():
        for key, (low, high) in of_section.items():
            value = getattr(getattr(config, section), key)
            if not (low <= value <= high):
                allowed = f"between {low} and {high}" if high < math.inf else f"at least {low:g} and finite"
                raise ConfigError(f"{section}.{key} must be {allowed}, got {value}")


def check_open_ends(train: TrainSettings, *, above_zero: Sequence[str], below_one: Sequence[str]) -> None:
    """Raises `ConfigError` for a value of section `train` at an end of its limits that it may only come near to."""
    for key in above_zero:
        if getattr(train, key) == 0.0:
            raise ConfigError(f"train.{key} must be above 0, got 0")
    for key in below_one:
        if getattr(train, key) == 1.0:
            raise ConfigError(f"train.{key} must be below 1, got 1")


def check_choices(config: Any) -> None:
    """Raises `ConfigError` for a text that is not one of its choices, and for a number that is not finite."""
    for section in dataclasses.fields(config):
        for field in dataclasses.fields(getattr(config, section.name)):
            value = getattr(getattr(config, section.name), field.name)
            if get_origin(field.type) is Literal and value not in get_args(field.type):
                choices = get_args(field.type)
                raise ConfigError(f"{section.name}.{field.name} cannot be '{value}'{nearest(str(value), choices)}")
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{section.name}.{field.name} must be finite, got {value}")


def check_schedule(train: TrainSettings) -> None:
    """Raises `ConfigError` where the step size would rise and fall at the same time."""
    both = train.warmup_fraction + train.decay_fraction
    if train.lr_schedule == "wsd" and both > 1:
        raise ConfigError(f"train.warmup_fraction and train.decay_fraction must be at most 1 together, got {both:g}")


def check_device(name: str) -> None:
    """Raises `ConfigError` for what is no device's name. Whether this machine has it is checked later."""
    device, _, index = name.partition(":")
    if device not in ("auto", "cpu", "cuda", "mps") or (index and not (device == "cuda" and index.isdigit())):
        raise ConfigError(f"train.device must be auto, cpu, cuda, cuda:N or mps, got '{name}'")


def _read_value(name: str, kind: Any, value: Any) -> Any:
    """Checks one value against its field's type. A `bool` is no int here, and only an int may stand for a float."""
    expected = str if get_origin(kind) is Literal else kind
    if expected is float and type(value) is int:
        return float(value)
    if get_origin(expected) is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{name} must be a table of arguments, got {type(value).__name__} {value!r}")
        return dict(value)
    if type(value) is not expected:
        raise ConfigError(f"{name} must be {_ARTICLE[expected]}, got {type(value).__name__} {value!r}")
    return value


def _values_of(table: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in table.items():
        if not has_range(value):
            plain[key] = value
        elif "value" in value:
            plain[key] = value["value"]
    return plain
