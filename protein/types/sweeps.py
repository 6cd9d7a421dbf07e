"""A sweep, what people and agents ask of it, and the machines that run its trials."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from protein.types.limits import REQUIRE, Limit, parse_limits
from protein.types.quantities import Direction

IMPORTED = "imported"  # the method of a sweep whose trials another tool has run


TAGS = "tags"  # a sweep's tags in its stored space
ARCHIVED = "archived"  # the tag of sweeps that lists leave out

T = TypeVar("T")


def later(default: T) -> T:
    """A field that stores did not have from the beginning: what was exported before holds this value."""
    found: T = dataclasses.field(default=default, metadata={"later": True})
    return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a result comes from: enough to run it again."""

    version: str  # of this package
    git_commit: str  # of the working directory; "" outside a repository, "-dirty" appended when it has changes
    machine: str  # host, processor, cores
    config_hash: str  # SHA-256 of the canonical JSON of the whole run config


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """Everything that defines a sweep and never changes after its creation (a budget may grow; it is not here).

    `space` is `Space.to_dict()`, with the texts of the limits under `REQUIRE` and the sweep's tags under `TAGS` where
    there are any; tags define nothing, and may change at any time. `config` is the
    nested run config whose values the space overrides, `direction` that of the scores as the user knows them, and
    `warm_start` a snapshot of the source sweeps (`protein.engine.warm_start`).
    """

    name: str
    env: str
    method: str
    seed: int
    direction: Direction = Direction.MAXIMIZE
    space: Mapping[str, Any]
    config: Mapping[str, Any]
    warm_start: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # empty: none
    provenance: Provenance

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits on what its trials measure. They may change when it is resumed."""
        return parse_limits(self.space.get(REQUIRE), f"sweep '{self.name}': {REQUIRE}") or ()

    def with_limits(self, limits: Sequence[Limit]) -> "SweepSpec":
        """Returns the definition with other limits, or none."""
        space = {name: value for name, value in self.space.items() if name != REQUIRE}
        if limits:
            space[REQUIRE] = list(map(str, limits))
        return dataclasses.replace(self, space=space)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that people have given to the sweep, each once."""
        return tuple(self.space.get(TAGS, ()))

    def without_tags(self) -> "SweepSpec":
        """Returns what defines the sweep, and nothing else."""
        return dataclasses.replace(self, space={name: value for name, value in self.space.items() if name != TAGS})

    @property
    def score_range(self) -> tuple[float, float] | None:
        """The possible scores that the user gave, as the user knows them, perhaps infinite; None: none were given."""
        given = self.config.get("own", {}).get("score_range")
        return None if given is None else with_open_ends(given)


def with_open_ends(score_range: Sequence[float | None]) -> tuple[float, float]:
    """Returns the lowest and the highest possible score. An open end is None, since JSON has no infinite number."""
    low, high = score_range
    return -math.inf if low is None else low, math.inf if high is None else high


class Request(StrEnum):
    """What a person has asked of a sweep from outside; the process that runs the sweep follows it."""

    RUN = "run"  # nothing: it goes on as it would
    PAUSE = "pause"  # start no more trials until it is asked to run; those that run go on
    STOP = "stop"  # end, as on Ctrl-C: running trials are interrupted. Starting the sweep again takes it back


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """A stored sweep. `max_cost_seconds` is the budget most recently asked for (None: unlimited)."""

    id: int
    spec: SweepSpec
    max_cost_seconds: float | None
    created_at: datetime
    requested: Request = Request.RUN
    ended: str = later("")  # why its last run ended, in words for people; "" while it runs, and before it has


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine that has run trials of a store. The first one of a store is the reference for its costs."""

    name: str
    facts: Mapping[str, Any]  # processor, cores, GPUs and the like, as plain JSON
    calibration_seconds: float  # what a fixed piece of work takes here
    measured_at: datetime  # UTC, timezone-aware

    def __post_init__(self) -> None:
        if not (math.isfinite(self.calibration_seconds) and self.calibration_seconds > 0):
            raise ValueError(f"calibration_seconds must be finite and above 0, got {self.calibration_seconds}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall:
    """A call by which an agent changed something, or tried to (`protein mcp`).

    Attributes:
        number: counts the calls of a store from 0.
        made_at: UTC, timezone-aware.
        client: what the agent's program calls itself; nothing vouches for it.
        tool: that was called.
        arguments: of the call, as plain JSON.
        sweep: name of the sweep that the call is about.
        sweep_id: of that sweep, also of one that the call has started; None: there is none, or it is not known yet.
        max_cost_seconds: what the whole sweep may cost since this call; None: the call changed no budget.
        max_trials: how many trials the whole sweep may have since this call; None: any number.
        workers: trials of the sweep that run at the same time.
        owner: the process that the call has started, as an owner of trials; until then that of the server.
        outcome: what came of it, in words; "": it has not ended.
    """

    number: int = 0
    made_at: datetime
    client: str
    tool: str
    arguments: Mapping[str, Any]
    sweep: str
    sweep_id: int | None = None
    max_cost_seconds: float | None = None
    max_trials: int | None = None
    workers: int = 0
    owner: str
    outcome: str = ""


def runs_trainer(config: Mapping[str, Any]) -> bool:
    """Whether a sweep of this config runs our trainer, and not a function or a command of the user's."""
    return "train" in config


def runs_command(config: Mapping[str, Any]) -> bool:
    """Whether a sweep of this config runs a command line."""
    return "command" in config


def max_trial_seconds(config: Mapping[str, Any]) -> float | None:
    """Returns what a trial whose job has this config may cost; None: no limit."""
    limit: float | None = config.get("train", config)["max_seconds"]
    return limit or None
