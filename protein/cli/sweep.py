"""`protein sweep`: creates a sweep, or resumes the one of this name, and runs it."""

import contextlib
import dataclasses
import math
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from protein import envs_c
from protein.api import backends, stores, trackers, trainer_sweep, warm_start
from protein.api import command_sweep as command_sweeps
from protein.api.definition import create_or_resume
from protein.api.recommended import initial_params, score_range
from protein.api.training import require_device
from protein.cli import INTERRUPTED_CODE, command_sweep, sweep_messages
from protein.cli.arguments import SweepArguments
from protein.cli.parse import Command
from protein.cli.signals import caught
from protein.columns import DOT_FIELDS, dots
from protein.config.layers import Layers
from protein.config.resolve import find_env, load
from protein.config.settings import SweepConfig
from protein.errors import ConfigError, UsageError
from protein.ports import Backend, Designer, Store
from protein.sweep import calibration, continuing, until
from protein.sweep.backends.local import LocalBackend
from protein.sweep.devices import Slots, slots_of_machine
from protein.sweep.job import runs_trainer
from protein.sweep.loop import LoopSettings, run_sweep
from protein.sweep.stop_when import StopWhen
from protein.trainer.machine.cores import usable_cores
from protein.types import SweepSpec
from protein.units import parse_duration, parse_size
from protein.view import tables
from protein.view.terminal import make_watcher


def run(command: Command) -> int:
    arguments: SweepArguments = command.arguments
    budget = None if arguments.max_cost is None else parse_duration(arguments.max_cost, "--max-cost")
    console = tables.make_console()
    spec, settings = define(command)
    designer = _designer(spec, settings)  # before anything is created: a mistake leaves nothing behind
    _check_limits(arguments, budget, settings.max_trial_cost_seconds)
    place = make_place(arguments)
    slots = place.slots(arguments.workers) if place.is_remote else make_slots(arguments, settings)
    tracked_by = trackers.check(arguments.tracker)
    stop_when = None
    if arguments.stop_when is not None:
        _, highest = score_range(spec.env) or (-math.inf, math.inf)
        stop_when = StopWhen.parse(arguments.stop_when, "--stop-when", method=spec.method, highest=highest)
    end = None if arguments.until is None else until.parse(arguments.until, "--until", datetime.now().astimezone())
    stop, trains = threading.Event(), runs_trainer(spec.config)
    with (
        _resumable(console, command),
        caught(stop),
        stores.opened(arguments.store, create=arguments.warm_start is None) as store,
        contextlib.ExitStack() as opened,
    ):
        taken = warm_start.snapshot(store, spec, arguments.warm_start, initial_params(spec))
        if taken:
            spec = dataclasses.replace(spec, warm_start=taken)
            designer = _designer(spec, settings)
        directory = place.directory(stores.artifact_directory(stores.url(arguments.store), spec.name))
        elsewhere = opened.enter_context(
            _elsewhere(console, store, arguments, place, spec, directory, slots.workers, stop)
        )
        sweep, created = create_or_resume(store, spec, budget, accept_changes=arguments.accept_changes)
        budget = sweep.max_cost_seconds if budget is None else budget
        never_continues = continuing.why_never(spec)
        loop_settings = LoopSettings(
            directory=directory,
            workers=slots.workers,
            slots=slots,
            max_cost_seconds=budget,
            max_trial_seconds=settings.max_trial_cost_seconds,
            max_trials=arguments.max_trials,
            max_memory_bytes=settings.max_trial_memory_bytes,
            can_continue=_may_continue(arguments, settings, spec) and never_continues is None,
            stop_when=stop_when,
            until=end,
            on_finish=arguments.on_finish,
            on_trouble=arguments.on_trouble,
            store=stores.shown(arguments.store),
            watched=[file] if (file := stores.file(stores.url(arguments.store))) is not None else [],
        )
        trials = dots(store.columns(sweep.id, fields=DOT_FIELDS))
        cap_given = settings.max_trial_cost_seconds is not None
        sweep_messages.announce(console, sweep, trials, loop_settings, created=created, cap_given=cap_given)
        if text := slots.text():
            console.print(Text(text), soft_wrap=True)
        if never_continues is not None and _expects_continuing(arguments, spec):
            console.print(Text(never_continues), soft_wrap=True)
        if elsewhere is None:
            factor = _speed(console, store, arguments, spec, slots.workers)
        else:  # each machine there has its own
            factor = None
            place.fetch(spec, directory, _unfinished(store, sweep.id), elsewhere.note)
        loop_settings = dataclasses.replace(loop_settings, speed=factor)
        with (
            make_watcher(console, score_range(spec.env)) as watcher,
            trackers.beside(watcher, tracked_by, store=arguments.store, sweep=spec.name) as listener,
        ):
            watched = command_sweep.StopsAtMistake(listener, stop)
            backend: Backend
            if elsewhere is not None:
                backend, elsewhere.note = elsewhere, listener.log
            else:
                backend = LocalBackend() if trains else command_sweep.make_backend(arguments, spec, listener)
            status = run_sweep(
                sweep,
                designer=designer,
                store=store,
                backend=backend,
                settings=loop_settings,
                listener=watched,
                stop=stop,
            )
    if watched.mistake:
        raise UsageError(f"{watched.mistake}. Correct it and run the sweep again, with --accept-changes")
    sweep_messages.conclude(console, status, arguments.store)
    if stop.is_set():
        sweep_messages.print_resume(console, command)
        return INTERRUPTED_CODE
    if status.trouble:
        return 1
    if budget is not None and status.spent_seconds >= budget and len(status.trials) == len(trials):
        sweep_messages.print_larger_budget(console, budget, status.spent_seconds, command)
    return 0


def define(command: Command) -> tuple[SweepSpec, SweepConfig]:
    """Returns what defines the sweep, and how it is run here and now."""
    arguments: SweepArguments = command.arguments
    if command_sweep.asked(arguments):
        settings = _settings(arguments, Layers.defaults())
        return command_sweep.define(command, settings, tables.make_console()), settings
    env = find_env(arguments.environment, arguments.config, envs_c.names())
    layers = load(env, config_file=arguments.config, flags=command.values, for_sweep=True)
    settings = _settings(arguments, layers)
    spec = trainer_sweep.define(env, layers, settings, arguments.name)
    if not backends.Place(backend=arguments.backend).is_remote:  # this machine's devices are not those of the trials
        require_device(layers.run_config().train.device)
    return spec, settings


def make_place(arguments: SweepArguments) -> backends.Place:
    """Returns where trials run. Raises `UsageError` where the flags do not go together."""
    return backends.Place(
        backend=arguments.backend,
        artifacts=arguments.artifacts,
        trial_cores=arguments.trial_cores,
        gpus_per_trial=arguments.gpus_per_trial,
        resources=arguments.resources,
        slurm_options=arguments.slurm_options,
    )


@contextlib.contextmanager
def _elsewhere(
    console: Console,
    store: Store,
    arguments: SweepArguments,
    place: backends.Place,
    spec: SweepSpec,
    directory: Path,
    workers: int,
    stop: threading.Event,
) -> Iterator[backends.Elsewhere | None]:
    """Connects to other machines, which may take a while; None: trials run on this one."""
    if not place.is_remote:
        yield None
        return

    def note(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    note(f"connecting to {place.words()}")
    machines = None if arguments.calibrate is False else store.machines()
    silence = None if arguments.max_silence is None else parse_duration(arguments.max_silence, "--max-silence")
    with backends.elsewhere(
        place,
        spec,
        directory,
        workers=workers,
        silence_seconds=silence,
        note=note,
        machines=machines,
        on_machine=store.add_machine,
        should_stop=stop.is_set,
    ) as found:
        yield found


def _unfinished(store: Store, sweep_id: int) -> list[int]:
    """Returns the numbers of the trials that may be taken up again."""
    return [trial.number for trial in store.trials(sweep_id, curves=False) if not trial.state.finished]


def _designer(spec: SweepSpec, settings: SweepConfig) -> Designer:
    if runs_trainer(spec.config):
        return trainer_sweep.designer(spec, settings)
    return command_sweeps.designer(spec, early_stopping=settings.early_stopping)


def _may_continue(arguments: SweepArguments, settings: SweepConfig, spec: SweepSpec) -> bool:
    """Whether finished trials may go on to more steps: with a command only where the user says that it can."""
    return settings.continue_trials if runs_trainer(spec.config) else bool(arguments.continue_trials)


def _settings(arguments: SweepArguments, layers: Layers) -> SweepConfig:
    """Returns the config files' sweep settings, overridden by the flags that were given."""
    cap, memory, gpu_memory = arguments.max_trial_cost, arguments.max_trial_memory, arguments.max_trial_gpu_memory
    changes: dict[str, Any] = {
        "workers": arguments.workers,
        "method": arguments.method,
        "seed": arguments.seed,
        "early_stopping": arguments.early_stopping,
        "continue_trials": arguments.continue_trials,
        "max_trial_cost_seconds": None if cap is None else parse_duration(cap, "--max-trial-cost"),
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
        raise UsageError(f"--{error}") from error


def make_slots(arguments: SweepArguments, settings: SweepConfig) -> Slots:
    """Returns the places where trials run on this machine. Raises `UsageError` for what this machine does not have."""
    named = arguments.workers is not None or settings.workers != SweepConfig().workers
    return slots_of_machine(
        settings.workers if named else None,
        gpus=settings.gpus,
        gpus_per_trial=settings.gpus_per_trial,
        trials_per_gpu=settings.trials_per_gpu,
        max_gpu_memory_bytes=settings.max_trial_gpu_memory_bytes,
        pin_cores=settings.pin_cores,
    )


def _speed(console: Console, store: Store, arguments: SweepArguments, spec: SweepSpec, workers: int) -> float:
    """Returns what one second of this machine is worth in reference seconds; it calibrates the machine if needed."""
    if arguments.calibrate is False:
        return 1.0
    train = spec.config.get("train", {})  # a program decides itself what it uses
    found = calibration.of_this_machine(
        store,
        threads=train.get("threads") or max(1, usable_cores() // workers),
        device=train.get("device", "cpu"),
        shared=arguments.calibrate is True or stores.file(stores.url(arguments.store)) is None,
        log=lambda line: console.print(Text(line), soft_wrap=True),
    )
    if found is None:
        return 1.0
    if found.factor != 1.0:
        line = f"this machine is {found.factor:.2f} times as fast as the reference machine, in whose seconds costs are"
        console.print(Text(line), soft_wrap=True)
    return found.factor


def _expects_continuing(arguments: SweepArguments, spec: SweepSpec) -> bool:
    """Whether the user asked for continued trials: by the flag, or by the schedule that is made for them."""
    if arguments.continue_trials is not None or not runs_trainer(spec.config):
        return bool(arguments.continue_trials)
    return bool(spec.config["train"]["lr_schedule"] == "wsd")


def _check_limits(arguments: SweepArguments, budget: float | None, cap: float | None) -> None:
    if arguments.max_trials is not None and arguments.max_trials < 1:
        raise UsageError(f"--max-trials {arguments.max_trials} is below the limit of 1; use 1 or more")
    if arguments.max_trial_cost is not None and budget is not None and cap is not None and budget < cap:
        raise UsageError(
            f"--max-cost {arguments.max_cost} is smaller than one trial may cost, --max-trial-cost"
            f" {arguments.max_trial_cost}; raise the budget or lower the cap"
        )


@contextlib.contextmanager
def _resumable(console: Console, command: Command) -> Iterator[None]:
    """Prints how to resume where a second Ctrl-C has killed the sweep at once."""
    try:
        yield
    except KeyboardInterrupt:
        sweep_messages.print_resume(console, command)
        raise
