"""Arguments of the commands about this machine: envs, doctor."""

import dataclasses
from typing import Annotated

from protein.cli.arguments.shared import StoreArguments, Switch, shown
from protein.cli.values import value_spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvsArguments:
    """List the environments."""

    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoctorArguments(StoreArguments):
    """Check that this machine has what is needed, and whether something slows it down."""

    calibrate: Switch = False
    """Measure how fast this machine trains, in about ten seconds, and keep the result in the store."""
    workers: Annotated[int, value_spec(int, "--workers"), shown("INT", "(default: 1)")] = 1
    """Trials that will run here at the same time: the calibration uses the cores that each of them gets."""
    device: Annotated[str, shown("DEVICE", "(default: auto)")] = "auto"
    """Device of the trials, as in train.device."""
    json: Switch = False
    """Print JSON."""
