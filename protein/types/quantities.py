"""Scores and costs: which way a score is better, their bounds, a predicted and a measured one."""

import dataclasses
import math
from collections.abc import Mapping
from enum import StrEnum


class Direction(StrEnum):
    """Whether a higher score is better, or a lower one."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


MAX_SCORE = 1e300  # the largest size of a score: differences of larger ones overflow
MAX_COST_SECONDS = 1e9  # 31 years: a larger cost of a trial is garbage, and would hide all others


def is_score(value: float) -> bool:
    """Whether a number can be a trial's score: not NaN, not infinite, not beyond `MAX_SCORE`."""
    return -MAX_SCORE <= value <= MAX_SCORE


Z80 = 1.2816  # the central 80 % interval of a normal distribution, in standard deviations to either side


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A predicted quantity: its median and a central 80 % interval, `low <= value <= high`."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"an estimate needs low <= value <= high, got {self.low}, {self.value}, {self.high}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One point of a trial's learning curve. `score` is None before the first episode has finished."""

    steps: int
    elapsed_seconds: float
    score: float | None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.steps < 0 or not (math.isfinite(self.elapsed_seconds) and self.elapsed_seconds >= 0):
            raise ValueError(
                f"a measurement needs steps >= 0 and finite seconds >= 0, got {self.steps}, {self.elapsed_seconds}"
            )
        if self.score is not None and not math.isfinite(self.score):
            raise ValueError(f"a measurement's score must be finite or None, got {self.score}")
