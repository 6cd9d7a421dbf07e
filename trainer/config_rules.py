"""What the settings of every kind of run share: texts, choices and limits, and the rules that they keep.

Which limits hold is said beside each kind's dataclasses (`config.py`, `language/config.py`). A config here is a frozen
dataclass of sections, each a dataclass of values.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from protein.spelling import nearest

from .errors import ConfigError

Limits = Mapping[str, Mapping[str, tuple[float, float]]]  # section -> key -> the lowest and the highest value

# Inclusive bounds. Counts are bounded so that products of them stay valid indices; coefficients by their meaning.
COUNT = (1, 2**31 - 1)
POSITIVE = (0, math.inf)
UNIT = (0, 1)


Precision = Literal["auto", "fp32", "tf32", "bf16", "fp16"]
OptimizerName = Literal["adamw", "muon"]
LRSchedule = Literal["cosine", "linear", "constant", "wsd"]

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
