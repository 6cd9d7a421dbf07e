"""The settings of a sweep: how it searches and what one trial may cost. The `[sweep]` section of a config file."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from protein.errors import ConfigError, ProteinError
from protein.spelling import nearest
from protein.types import Limit, parse_limits
from protein.units import parse_duration, parse_share, parse_size

MAX_CONFIRM_SHARE = 0.5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepConfig:
    """How to search. None means that the file sets no limit."""

    method: str = "protein"
    seed: int = 0
    workers: int | None = None  # trials at the same time; None: as many as GPUs or cluster have room for, or one
    early_stopping: bool = True  # stops expensive trials whose learning curve is worse than those of similar trials
    continue_trials: bool = (
        True  # finished trials may go on to more steps, where the schedule of the step size allows it
    )
    max_trials: int | None = None
    confirm_share: float = 0.0  # of the budget, to run contenders again after the search
    max_trial_seconds: float | None = None
    max_trial_memory_bytes: int | None = None
    min_free_disk_bytes: int | None = None
    # How the machine is shared out among trials that run at the same time: see `protein.run.machine`.
    pin_cores: bool = True
    gpus: str | None = None
    gpus_per_trial: int | None = None  # None: one of those that are named here, and none on other machines
    trials_per_gpu: int = 1
    max_trial_gpu_memory_bytes: int | None = None
    cost_parameter: str | None = None  # the parameter that makes a trial cheap or expensive
    constraints: tuple[str, ...] = ()  # what every trial's values must satisfy
    require: tuple[Limit, ...] | None = None  # what its measured values must keep; None: what the stored sweep has

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ConfigError(f"seed = {self.seed} is below the limit of 0; use 0 or more")
        for name, value in (("workers", self.workers), ("gpus_per_trial", self.gpus_per_trial)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} = {value} is below the limit of 1; use 1 or more")


# key of the section -> (field, what a value must be, type)
_KEYS: Mapping[str, tuple[str, str, type[Any]]] = {
    "method": ("method", "a text", str),
    "seed": ("seed", "a whole number", int),
    "workers": ("workers", "a whole number", int),
    "early_stopping": ("early_stopping", "true or false", bool),
    "continue_trials": ("continue_trials", "true or false", bool),
    "confirm_share": ("confirm_share", 'a text such as "10%"', str),
    "max_trial_cost": ("max_trial_seconds", 'a text such as "2m"', str),
    "max_trial_memory": ("max_trial_memory_bytes", 'a text such as "4GiB"', str),
    "min_free_disk": ("min_free_disk_bytes", 'a text such as "100MiB"', str),
    "pin_cores": ("pin_cores", "true or false", bool),
    "gpus": ("gpus", 'a text such as "0,1" or "all"', str),
    "gpus_per_trial": ("gpus_per_trial", "a whole number", int),
    "trials_per_gpu": ("trials_per_gpu", "a whole number", int),
    "max_trial_gpu_memory": ("max_trial_gpu_memory_bytes", 'a text such as "8GiB"', str),
    "cost_parameter": ("cost_parameter", "a text", str),
    "constraints": ("constraints", "a list of texts", list),
    "require": ("require", "a list of texts", list),
}


def update_sweep(sweep: SweepConfig, table: Mapping[str, Any], source: str) -> SweepConfig:
    """Returns `sweep` with one file's `[sweep]` section laid over it.

    Raises:
        ConfigError: an unknown key, or a value of the wrong type or out of range; names `source` and the key.
    """
    changes: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            raise ConfigError(f"{source}: unknown key 'sweep.{key}'{nearest(key, _KEYS)}")
        field, wanted, kind = _KEYS[key]
        if type(value) is not kind or (kind is list and not all(isinstance(item, str) for item in value)):
            raise ConfigError(f"{source}: sweep.{key} = {value!r} must be {wanted}")
        try:
            changes[field] = _READ[key](value, f"sweep.{key}") if key in _READ else value
            dataclasses.replace(sweep, **changes)
        except ProteinError as error:
            raise ConfigError(f"{source}: {error}") from error
    return dataclasses.replace(sweep, **changes)


_READ: Mapping[str, Callable[[Any, str], Any]] = {
    "confirm_share": lambda text, what: parse_share(text, what, most=MAX_CONFIRM_SHARE),
    "max_trial_cost": parse_duration,
    "max_trial_memory": parse_size,
    "max_trial_gpu_memory": parse_size,
    "min_free_disk": parse_size,
    "constraints": lambda texts, _: tuple(texts),
    "require": parse_limits,
}
