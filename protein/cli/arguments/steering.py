"""Arguments of the commands that steer a sweep that runs: pause, resume, stop, cancel."""

import dataclasses
from typing import Annotated

from protein.cli.arguments.shared import StoreArguments, SweepName, shown


@dataclasses.dataclass(frozen=True, kw_only=True)
class PauseArguments(StoreArguments):
    """Start no more trials of a sweep until it is resumed. Its process goes on waiting, and running trials go on."""

    sweep: SweepName = None
    """Name of the sweep."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumeArguments(StoreArguments):
    """Let a paused sweep start trials again. It does not start the sweep's process; protein sweep does."""

    sweep: SweepName = None
    """Name of the sweep."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StopArguments(StoreArguments):
    """End the process that runs a sweep, from any terminal, as its Ctrl-C would. protein sweep resumes it."""

    sweep: SweepName = None
    """Name of the sweep."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CancelArguments(StoreArguments):
    """End trials that run or wait, from any terminal or machine. They count as interrupted and are not tried again."""

    sweep: SweepName = None
    """Name of the sweep."""
    trial: Annotated[str | None, shown("INT[,INT...]", "(required)")] = None
    """Number of the trial, or numbers of several."""
