"""What the flags of `protein sweep` mean: read and checked before a store is opened or anything is made."""

import dataclasses
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Console

from protein import envs_c
from protein.api import backends, trainer_sweep
from protein.api import command_sweep as command_sweeps
from protein.api.recommended import score_range
from protein.api.training import require_device
from protein.cli import command_sweep
from protein.cli.arguments import SweepArguments
from protein.cli.parse import Command
from protein.config.layers import Layers
from protein.config.resolve import find_env, load, require_subject
from protein.config.settings import SweepConfig
from protein.errors import ConfigError, UsageError
from protein.ports import Designer
from protein.run.devices import Slots, slots_of_machine
from protein.run.job import runs_trainer
from protein.sweep import resuming
from protein.sweep.stop_conditions import StopWhen, parse_moment
from protein.trackers.tracker import check_trackers
from protein.types import SweepSpec
from protein.units import parse_duration, parse_size


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A sweep as the user wants it, and how it is to run here and now.

    Attributes:
        arguments: the flags as they were given.
        spec: what defines the sweep. Its warm start is added when the store is open.
        settings: the config files' settings of sweeps, overridden by flags.
        budget_seconds: that the user gave; None: the stored one, or none.
        place: where trials run.
        slots: the places for trials there.
        trackers: names of the trackers that are told.
        stop_when: `--stop-when`.
        until: `--until`.
    """

    arguments: SweepArguments
    spec: SweepSpec
    settings: SweepConfig
    budget_seconds: float | None
    place: backends.Place
    slots: Slots
    trackers: Sequence[str]
    stop_when: StopWhen | None
    until: datetime | None

    def designer(self) -> Designer:
        """Returns what chooses the trials' params. Raises `UsageError` where the method cannot search this space."""
        if runs_trainer(self.spec.config):
            return trainer_sweep.designer(self.spec, self.settings)
        return command_sweeps.designer(self.spec, early_stopping=self.settings.early_stopping)

    @property
    def may_continue(self) -> bool:
        """Whether finished trials may go on to more steps: with a command only where the user says that it can."""
        if resuming.why_never_continued(self.spec) is not None:
            return False
        if runs_trainer(self.spec.config):
            return self.settings.continue_trials
        return bool(self.arguments.continue_trials)

    @property
    def asks_to_continue(self) -> bool:
        """Whether the user asked for continued trials: by the flag, or by the schedule that is made for them."""
        if self.arguments.continue_trials is not None or not runs_trainer(self.spec.config):
            return bool(self.arguments.continue_trials)
        return bool(self.spec.config["train"]["lr_schedule"] == "wsd")

    @property
    def why_not_continued(self) -> str | None:
        """Why no trial is ever continued although the user asks for that; None: trials are, or nobody asks."""
        return resuming.why_never_continued(self.spec) if self.asks_to_continue else None


def read(command: Command, console: Console) -> Plan:
    """Returns what the flags mean. Nothing is made: a mistake leaves nothing behind.

    Args:
        command: as it was given.
        console: where notes about a space file are printed.

    Raises:
        UsageError: a flag that cannot be, or does not go with another; a place where no trial can run.
    """
    arguments: SweepArguments = command.arguments
    budget = None if arguments.max_cost is None else parse_duration(arguments.max_cost, "--max-cost")
    spec, settings = define(command, console)
    _check_limits(arguments, budget, settings.max_trial_seconds)
    place = make_place(arguments, settings)
    slots = make_slots_elsewhere(place, arguments, settings) if place.is_remote else make_slots(arguments, settings)
    plan = Plan(
        arguments=arguments,
        spec=spec,
        settings=settings,
        budget_seconds=budget,
        place=place,
        slots=slots,
        trackers=check_trackers(arguments.tracker),
        stop_when=_stop_when(arguments, spec),
        until=None
        if arguments.until is None
        else parse_moment(arguments.until, "--until", datetime.now().astimezone()),
    )
    plan.designer()
    place.check()
    return plan


def define(command: Command, console: Console) -> tuple[SweepSpec, SweepConfig]:
    """Returns what defines the sweep, and how it is run here and now."""
    arguments: SweepArguments = command.arguments
    if command_sweep.asked(arguments):
        settings = _settings(arguments, Layers.defaults())
        return command_sweep.define(command, settings, console), settings
    env = find_env(arguments.environment, arguments.config, envs_c.names(), flags=command.values)
    layers = load(env, config_file=arguments.config, flags=command.values, for_sweep=True)
    config = layers.run_config()
    require_subject(arguments.environment, config)
    settings = _settings(arguments, layers)
    remote = backends.Place(backend=arguments.backend).is_remote  # this machine's devices are not those of the trials
    spec = trainer_sweep.define(layers, settings, arguments.name, device="cpu" if remote else None)
    if not remote:
        require_device(config.train.device)
    return spec, settings


def _settings(arguments: SweepArguments, layers: Layers) -> SweepConfig:
    """Returns the config files' sweep settings, overridden by the flags that were given."""
    cap, memory, gpu_memory = arguments.max_trial_cost, arguments.max_trial_memory, arguments.max_trial_gpu_memory
    changes: dict[str, Any] = {
        "workers": arguments.workers,
        "method": arguments.method,
        "seed": arguments.seed,
        "early_stopping": arguments.early_stopping,
        "continue_trials": arguments.continue_trials,
        "max_trial_seconds": None if cap is None else parse_duration(cap, "--max-trial-cost"),
        "max_trial_memory_bytes": None if memory is None else parse_size(memory, "--max-trial-memory"),
        "pin_cores": arguments.pin_cores,
        "gpus": arguments.gpus,
        "gpus_per_trial": arguments.gpus_per_trial,
        "trials_per_gpu": arguments.trials_per_gpu,
        "max_trial_gpu_memory_bytes": None if gpu_memory is None else parse_size(gpu_memory, "--max-trial-gpu-memory"),
    }
    try:
        return dataclasses.replace(layers.sweep, **{key: value for key, value in changes.items() if value is not None})
    except ConfigError as error:
        raise UsageError(f"--{error}".replace("_", "-")) from error


def _check_limits(arguments: SweepArguments, budget: float | None, cap: float | None) -> None:
    if arguments.max_trials is not None and arguments.max_trials < 1:
        raise UsageError(f"--max-trials {arguments.max_trials} is below the limit of 1; use 1 or more")
    if arguments.max_trial_cost is not None and budget is not None and cap is not None and budget < cap:
        raise UsageError(
            f"--max-cost {arguments.max_cost} is smaller than one trial may cost, --max-trial-cost"
            f" {arguments.max_trial_cost}; raise the budget or lower the cap"
        )


def make_place(arguments: SweepArguments, settings: SweepConfig) -> backends.Place:
    """Returns where trials run. Raises `UsageError` where the flags do not go together."""
    return backends.Place(
        backend=arguments.backend,
        artifacts=arguments.artifacts,
        trial_cores=arguments.trial_cores,
        gpus_per_trial=settings.gpus_per_trial,
        resources=arguments.resources,
        slurm_options=arguments.slurm_options,
    )


def make_slots_elsewhere(place: backends.Place, arguments: SweepArguments, settings: SweepConfig) -> Slots:
    """Returns the places where trials run on other machines. Raises `UsageError` for flags that are for this one."""
    for flag, given in (
        ("--gpus", arguments.gpus),
        ("--trials-per-gpu", arguments.trials_per_gpu),
        ("--pin-cores", arguments.pin_cores),
    ):
        if given is not None:
            raise UsageError(f"{flag} is for trials on this machine: leave it out with --backend {place.kind}")
    return place.slots(settings.workers, max_gpu_memory_bytes=settings.max_trial_gpu_memory_bytes)


def make_slots(arguments: SweepArguments, settings: SweepConfig) -> Slots:
    """Returns the places where trials run on this machine. Raises `UsageError` for what this machine does not have."""
    return slots_of_machine(
        settings.workers,
        gpus=settings.gpus,
        gpus_per_trial=1 if settings.gpus_per_trial is None else settings.gpus_per_trial,
        trials_per_gpu=settings.trials_per_gpu,
        max_gpu_memory_bytes=settings.max_trial_gpu_memory_bytes,
        pin_cores=settings.pin_cores,
    )


def _stop_when(arguments: SweepArguments, spec: SweepSpec) -> StopWhen | None:
    if arguments.stop_when is None:
        return None
    _, highest = score_range(spec.env) or (-math.inf, math.inf)
    return StopWhen.parse(arguments.stop_when, "--stop-when", method=spec.method, highest=highest)
