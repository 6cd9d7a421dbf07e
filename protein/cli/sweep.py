"""`protein sweep`: what its flags mean, as a plan that creates the sweep or resumes it, and what it prints."""

import contextlib
import dataclasses
import math
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from protein import envs_c
from protein.api import backends, command_sweep, definition, stores
from protein.api.answers import Answers, at_the_end, summary
from protein.api.definition import Options, require_room_for_a_trial
from protein.api.keeping import picture
from protein.api.overview import findings
from protein.api.plan import Beginning, Plan, asked
from protein.api.plan import run as run_plan
from protein.api.recommended import Recommendation, best_cut_short, cut_short_note, score_range
from protein.api.training import require_device, with_checkpoints
from protein.cli import INTERRUPTED_CODE, overview
from protein.cli.arguments import SweepArguments
from protein.cli.help import SWEEP_GROUPS
from protein.cli.output import writing
from protein.cli.parse import Command
from protein.cli.signals import caught
from protein.config import space_file
from protein.config.layers import Layers, display_path
from protein.config.resolve import find_env, load, require_subject
from protein.config.settings import MAX_CONFIRM_SHARE, SweepConfig
from protein.direction import shown_trial, stored_range
from protein.engine import pareto
from protein.engine.warm_start import described_sources
from protein.errors import ConfigError, ProteinError, UsageError
from protein.ports import Listener, SweepStatus
from protein.run.machine import Slots, slots_of_machine, trains_on_gpu
from protein.space import Space
from protein.spelling import counted
from protein.sweep import resuming
from protein.sweep.stop_conditions import Met, StopWhen, parse_moment, parse_stop_when
from protein.trackers.tracker import check_trackers
from protein.trainer.config import RunConfig
from protein.types import (
    SweepRecord,
    SweepSpec,
    TrialRecord,
    parse_limits,
    runs_command,
    runs_trainer,
    unbroken,
)
from protein.units import format_duration, parse_duration, parse_share, parse_size
from protein.view import data, tables, text
from protein.view.figures.front import front
from protein.view.figures.style import save
from protein.view.scatter import LEGEND_EXPECTED, scatter
from protein.view.terminal import make_watcher

PLOT_HEIGHT = 16
MAX_PLOT_WIDTH = 110
NUM_ENVS = "env.num_envs"
_MIN_WALL_SECONDS = 10.0  # the engine's share of less says little
_MAX_FIXED = 12  # values that the first line names
_MIN_GROWTH = 1.5  # a larger budget is at least this many times what was spent
# Fields of the flags that need --command.
_CONFIRMING = (
    "each run has all cores and GPUs of this machine: which of them the sweep's trials had, and their limit of memory,"
    " is not stored"
)
_OF_COMMANDS = [name for name in SWEEP_GROUPS["any-program"] if name not in ("command", "accept_changes")]


def run(command: Command) -> int:
    console = tables.make_console()
    return carry_out(command, make_plan(command, console), console)


def carry_out(command: Command, plan: Plan, console: Console) -> int:
    """Creates the sweep of a plan or resumes it, shows it, and returns the exit code."""
    if plan.makes_store:
        allow_new_folder(console, plan.store)
    stop = threading.Event()
    asks = asks_to_continue(command.arguments, plan.spec)
    terminal = SweepTerminal(
        console,
        plan,
        resuming.why_never_continued(plan.spec) if asks else None,
        is_verbose=command.arguments.verbose,
    )
    try:
        with caught(stop), terminal:
            status = run_plan(plan, terminal, stop)
            terminal.announce()
    except KeyboardInterrupt:  # a second Ctrl-C has killed the sweep at once
        if (beginning := terminal.beginning) is not None:
            with stores.opened(plan.url) as store:
                _print_counts(console, beginning.sweep, store.trials(beginning.sweep.id, curves=False))
        _print_resume(console, command)
        return INTERRUPTED_CODE
    _conclude(console, status, plan.store)
    if stop.is_set():
        _print_resume(console, command)
        return INTERRUPTED_CODE
    if status.trouble or status.never_scored is not None:
        return 1
    assert terminal.beginning is not None
    budget, before = terminal.beginning.settings.max_cost_seconds, terminal.beginning.num_trials
    if budget is not None and status.spent_seconds >= budget and data.counts(status.trials).total == before:
        _print_larger_budget(console, budget, status.spent_seconds, command)
    return 0


def allow_new_folder(console: Console, store: str | None) -> None:
    """Says that a store is made in a new folder; on a terminal it asks. Raises `UsageError` where that is denied."""
    if (line := stores.new_folder(store)) is None:
        return
    if not (console.is_terminal and sys.stdin.isatty()):
        console.print(line, soft_wrap=True)
        return
    answer = ""
    with contextlib.suppress(EOFError):
        answer = input(f"{line}. Make it? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was made; name the store's file with --store")


def make_plan(command: Command, console: Console) -> Plan:
    """Returns what the flags mean. Nothing is made: a mistake leaves nothing behind.

    Raises:
        UsageError: a flag that cannot be, or does not go with another; a place where no trial can run.
    """
    arguments: SweepArguments = command.arguments
    budget = _duration(arguments.max_cost, "--max-cost")
    spec, settings, otherwise = define(command, console)
    if arguments.max_trials is not None and arguments.max_trials < 1:
        raise UsageError(f"--max-trials {arguments.max_trials} is below the limit of 1; use 1 or more")
    if settings.confirm_share and budget is None:
        raise UsageError("--confirm-share is a share of the budget, and there is none; give --max-cost, too")
    cap = settings.max_trial_seconds
    if arguments.max_trial_cost is not None:  # a file's cap may be above the budget
        given = f"--max-cost {arguments.max_cost}", f"--max-trial-cost {arguments.max_trial_cost}"
        require_room_for_a_trial(budget, cap, *given)
    place = make_place(arguments, settings)
    slots = make_remote_slots(place, arguments, settings) if place.is_remote else make_slots(settings)
    now = datetime.now().astimezone()
    can_continue = settings.continue_trials if runs_trainer(spec.config) else bool(arguments.continue_trials)
    options = Options(
        method=spec.method,
        seed=spec.seed,
        direction=spec.direction,
        budget_seconds=budget,
        max_trial_seconds=cap,
        max_trials=settings.max_trials,
        max_memory_bytes=settings.max_trial_memory_bytes,
        min_free_disk_bytes=settings.min_free_disk_bytes,
        early_stopping=settings.early_stopping,
        can_continue=can_continue,
        trackers=check_trackers(arguments.tracker),
        require=parse_limits(arguments.require, "--require") if arguments.require else settings.require,
        stop_when=_stop_when(arguments, spec),
        confirm_share=settings.confirm_share,
        until=None if arguments.until is None else parse_moment(arguments.until, "--until", now),
        warm_start=None if arguments.warm_start is None else asked(arguments.warm_start),
        on_trial=arguments.on_trial,
        on_finish=arguments.on_finish,
        on_trouble=arguments.on_trouble,
    )
    plan = Plan(
        spec=spec,
        options=options,
        store=arguments.store,
        url=stores.url(arguments.store),
        place=place,
        slots=slots,
        silence_seconds=_duration(arguments.max_silence, "--max-silence"),
        calibrate=arguments.calibrate,
        accept_changes=arguments.accept_changes,
        makes_store=arguments.warm_start is None,
        otherwise=otherwise,
    )
    plan.designer()
    place.check()
    return plan


def define(command: Command, console: Console) -> tuple[SweepSpec, SweepConfig, Callable[[], SweepSpec] | None]:
    """Returns what defines the sweep, how it is run here and now, and what defines it without a GPU, or with one."""
    arguments: SweepArguments = command.arguments
    if _runs_command(arguments):
        settings = _settings(arguments, Layers.defaults())
        return *_define_command_sweep(command, settings, console), None
    env = find_env(arguments.environment, arguments.config, envs_c.names(), flags=command.values)

    def loaded(*, gpu: bool) -> Layers:
        found = load(env, config_file=arguments.config, flags=command.values, for_sweep=True, gpu=gpu)
        found = with_checkpoints(found, arguments.store, command.values, for_sweep=True)
        return _for_processes(found, _settings(arguments, found).gpus_per_trial or 1)

    layers = loaded(gpu=False)
    settings, device = _settings(arguments, layers), layers.run_config().train.device
    remote = backends.Place(backend=arguments.backend).is_remote  # this machine's devices are not those of the trials
    given = settings.gpus is not None or settings.gpus_per_trial is not None
    if gpu := trains_on_gpu(device, given=given, remote=remote):
        layers = loaded(gpu=True)
        settings = _settings(arguments, layers)
    for line in layers.notes:
        console.print(Text(line), soft_wrap=True)
    config = layers.run_config()
    require_subject(arguments.environment, config)
    spec = definition.define_trainer_sweep(layers, settings, arguments.name, device="cpu" if remote else None)
    if layers.gpu_sources:
        files = " and ".join(Path(source).name for source in layers.gpu_sources)
        console.print(Text(f"trials run on a GPU, so [gpu] of {files} holds"), soft_wrap=True)
    if not remote:
        require_device(config.train.device)

    def otherwise() -> SweepSpec:
        return definition.define_trainer_sweep(loaded(gpu=not gpu), settings, spec.name, device="cpu")

    return spec, settings, otherwise


def _for_processes(layers: Layers, processes: int) -> Layers:
    """Returns layers of which each trial's processes share the environments evenly.

    Raises:
        trainer.errors.ConfigError: some trial's could not.
    """
    config = layers.run_config()
    config.check_processes(processes)
    swept = layers.settings[NUM_ENVS].range if NUM_ENVS in layers.settings else {}
    if processes == 1 or "min" not in swept or not isinstance(config, RunConfig):
        return layers
    if swept.get("scale") == "pow2" and processes & (processes - 1) == 0:
        few = f"{NUM_ENVS} >= {processes}"  # all others are multiples of it
        sweep = dataclasses.replace(layers.sweep, constraints=(*layers.sweep.constraints, few))
        return layers if swept["min"] >= processes else dataclasses.replace(layers, sweep=sweep)
    for number in (swept["min"], swept["min"] + (swept.get("step") or 1)):  # then all of its steps are
        env = dataclasses.replace(config.env, num_envs=number)
        dataclasses.replace(config, env=env).check_processes(processes)
    return layers


def _runs_command(arguments: SweepArguments) -> bool:
    """Whether a command is to be swept. Raises `UsageError` where a flag for commands stands without one."""
    if arguments.command is not None or arguments.space is not None:
        for flag, value in (("--env", arguments.environment), ("--config", arguments.config)):
            if value is not None:
                raise UsageError(f"{flag} is for our trainer, --command for another program; give one of them")
        return True
    for name in _OF_COMMANDS:
        if getattr(arguments, name):
            raise UsageError(f"--{name.replace('_', '-')} goes with --command; give the program to run")
    return False


def _define_command_sweep(command: Command, settings: SweepConfig, console: Console) -> tuple[SweepSpec, SweepConfig]:
    """Returns what defines a sweep over a command, and prints what of the space file is not taken over."""
    arguments: SweepArguments = command.arguments
    if command.values:
        flag = next(iter(command.values)).replace("_", "-")
        raise UsageError(f"--{flag} is a value of our trainer; a fixed value of your program stands in the space file")
    given = command.space
    if given is None:
        if arguments.space is None:
            raise UsageError(
                "--command needs --space FILE: the ranges, as in [space] and lr = { min = 1e-4, max = 0.1 }"
            )
        given = space_file.read(arguments.space)
    fields = dataclasses.fields(command_sweep.CommandOptions)
    how = command_sweep.CommandOptions(**{field.name: getattr(arguments, field.name) for field in fields})
    spec = command_sweep.define(how, given, settings, name=arguments.name, direction=arguments.direction)
    for line in given.warnings:
        console.print(Text(f"note: {line}"), soft_wrap=True)
    if given.require is not None:
        settings = dataclasses.replace(settings, require=given.require)
    if given.max_trials is not None and settings.max_trials is None:
        settings = dataclasses.replace(settings, max_trials=given.max_trials)
        console.print(f"note: {given.max_trials} trials at most, as the space file says (--max-trials)", soft_wrap=True)
    return spec, settings


def _settings(arguments: SweepArguments, layers: Layers) -> SweepConfig:
    """Returns the config files' sweep settings, overridden by the flags that were given."""
    changes: dict[str, Any] = {
        "workers": arguments.workers,
        "max_trials": arguments.max_trials,
        "confirm_share": _share(arguments.confirm_share, "--confirm-share"),
        "method": arguments.method,
        "seed": arguments.seed,
        "early_stopping": arguments.early_stopping,
        "continue_trials": arguments.continue_trials,
        "max_trial_seconds": _duration(arguments.max_trial_cost, "--max-trial-cost"),
        "max_trial_memory_bytes": _size(arguments.max_trial_memory, "--max-trial-memory"),
        "min_free_disk_bytes": _size(arguments.min_free_disk, "--min-free-disk"),
        "pin_cores": arguments.pin_cores,
        "gpus": arguments.gpus,
        "gpus_per_trial": arguments.gpus_per_trial,
        "trials_per_gpu": arguments.trials_per_gpu,
        "max_trial_gpu_memory_bytes": _size(arguments.max_trial_gpu_memory, "--max-trial-gpu-memory"),
    }
    try:
        return dataclasses.replace(layers.sweep, **{key: value for key, value in changes.items() if value is not None})
    except ConfigError as error:
        raise UsageError(f"--{error}".replace("_", "-")) from error


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


def make_remote_slots(place: backends.Place, arguments: SweepArguments, settings: SweepConfig) -> Slots:
    """Returns the places where trials run on other machines. Raises `UsageError` for flags that are for this one."""
    for flag, given in (
        ("--gpus", arguments.gpus),
        ("--trials-per-gpu", arguments.trials_per_gpu),
        ("--pin-cores", arguments.pin_cores),
    ):
        if given is not None:
            instead = "; protein worker has --gpus" if (place.kind, flag) == ("folder", "--gpus") else ""
            raise UsageError(f"{flag} is for trials on this machine: leave it out with --backend {place.kind}{instead}")
    return place.slots(settings.workers, max_gpu_memory_bytes=settings.max_trial_gpu_memory_bytes)


def make_slots(settings: SweepConfig) -> Slots:
    """Returns the places where trials run on this machine. Raises `UsageError` for what this machine does not have."""
    return slots_of_machine(
        settings.workers,
        gpus=settings.gpus,
        gpus_per_trial=1 if settings.gpus_per_trial is None else settings.gpus_per_trial,
        trials_per_gpu=settings.trials_per_gpu,
        max_gpu_memory_bytes=settings.max_trial_gpu_memory_bytes,
        pin_cores=settings.pin_cores,
    )


def _stop_when(arguments: SweepArguments, spec: SweepSpec) -> StopWhen | Met | None:
    if arguments.stop_when is None:
        return None
    _, highest = stored_range(score_range(spec), spec.direction) or (-math.inf, math.inf)
    how: dict[str, Any] = {"method": spec.method, "direction": spec.direction, "highest": highest}
    return parse_stop_when(arguments.stop_when, "--stop-when", parameters=Space.from_dict(spec.space).parameters, **how)


def _duration(text: str | None, flag: str) -> float | None:
    return None if text is None else parse_duration(text, flag)


def _share(text: str | None, flag: str) -> float | None:
    return None if text is None else parse_share(text, flag, most=MAX_CONFIRM_SHARE)


def _size(text: str | None, flag: str) -> int | None:
    return None if text is None else parse_size(text, flag)


def asks_to_continue(arguments: SweepArguments, spec: SweepSpec) -> bool:
    """Whether the user asked for continued trials: by the flag, or by the schedule that is made for them."""
    if arguments.continue_trials is not None or not runs_trainer(spec.config):
        return bool(arguments.continue_trials)
    return bool(spec.config["train"]["lr_schedule"] == "wsd")


class SweepTerminal(contextlib.ExitStack):
    """The listener of a sweep: says what begins once no other process runs it, and then shows it in the terminal.

    A sweep with trials is announced when it is taken over. A new one waits for its first trial, at once: of two
    processes that begin it at the same moment, only the one that starts the first trial runs it.
    """

    def __init__(self, console: Console, plan: Plan, why_not_continued: str | None, *, is_verbose: bool) -> None:
        super().__init__()
        self._is_verbose = is_verbose
        self.beginning: Beginning | None = None
        self._console, self._plan, self._why_not_continued = console, plan, why_not_continued
        self._announced = False

    def note(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    def begin(self, beginning: Beginning) -> None:
        self.beginning = beginning
        self._watcher: Listener = self.enter_context(
            make_watcher(self._console, score_range(beginning.sweep.spec), is_verbose=self._is_verbose)
        )

    def announce(self) -> None:
        """Prints what begins, where, and what of the user's wishes cannot be; not twice."""
        if self._announced or self.beginning is None:
            return
        self._announced = True
        self.note(_announcement(self.beginning) if self._plan.confirm is None else _CONFIRMING)
        sweep, speed = self.beginning.sweep, self.beginning.settings.speed
        newer_text = "" if self.beginning.created else definition.newer_text(sweep)
        faster = ""
        if speed not in (None, 1.0):
            faster = f"this machine is {speed:.2f} times as fast as the reference machine, in whose seconds costs are"
        for line in (newer_text, self._plan.slots.text(), self._why_not_continued, faster):
            if line:
                self.note(line)

    def update(self, status: SweepStatus) -> None:
        self.announce()
        self._watcher.update(status)

    def started(self, trial: TrialRecord) -> None:
        self.announce()
        self._watcher.started(trial)

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None:
        self.announce()
        self._watcher.finished(trial, status)

    def log(self, line: str) -> None:
        self.announce()
        self._watcher.log(line)


def _announcement(beginning: Beginning) -> str:
    """Returns what begins now, and its limits."""
    name, limits = beginning.sweep.spec.name, _limits(beginning)
    if beginning.created:
        spec = beginning.sweep.spec
        space = Space.from_dict(spec.space)
        number = len(space.names)
        line = f"sweep '{name}': {counted(number, 'value is', 'values are')} searched, {limits}"
        line += f"; searched: {', '.join(map(text.searched, space.parameters))}"
        if spec.limits:
            line += f"; required: {', '.join(map(str, spec.limits))}"
        if space.fixed and runs_command(spec.config):
            shown = [f"{key} {value}" for key, value in space.fixed.items()][:_MAX_FIXED]
            more = len(space.fixed) - len(shown)
            line += f"; fixed: {', '.join(shown)}" + (f" and {more} more" if more else "")
        if taken := beginning.sweep.spec.warm_start:
            line += f"; warm start from {described_sources(taken)}"
        return line
    number, spent = beginning.num_trials, text.seconds(beginning.spent_seconds)
    return f"sweep '{name}' is resumed: {counted(number, 'trial')} so far, {spent} {limits}"


def _limits(beginning: Beginning) -> str:
    """Returns the budget and the cap on one trial in words; for a sweep that goes on, they follow what it has spent."""
    budget, cap = beginning.settings.max_cost_seconds, beginning.settings.max_trial_seconds
    if beginning.created:
        limits = "no budget set" if budget is None else f"budget {text.seconds(budget)}"
    else:
        limits = "spent, no budget set" if budget is None else f"of {text.seconds(budget)} spent"
    if cap is None:
        return limits
    why = "" if beginning.cap_given else " (a quarter of the budget; --max-trial-cost changes it)"
    return f"{limits}, the cap on one trial is {text.seconds(cap)}{why}"


def _conclude(console: Console, status: SweepStatus, store: str | None) -> None:
    """Prints the summary, draws the front, and prints the command that trains the recommended config."""
    spec, trials = status.sweep.spec, status.trials
    ended = "" if status.stopping else status.ended  # the last line tells of Ctrl-C
    if status.never_scored is not None:
        _print_counts(console, status.sweep, trials, ended)
        return
    _print_counts(console, status.sweep, trials, ended)
    if status.elapsed_seconds >= _MIN_WALL_SECONDS and data.counts(trials).finished:
        share = status.engine_seconds / status.elapsed_seconds
        console.print(
            f"the engine took {text.seconds(status.engine_seconds)} of {text.seconds(status.elapsed_seconds)}"
            f" of wall clock ({100 * share:.1f} %)"
        )
    if not pareto.front(unbroken(trials, spec.limits)):
        if pareto.front(trials):
            broke = ", ".join(map(str, spec.limits))
            console.print(f"no complete trial keeps {broke}, so there is no front yet", soft_wrap=True)
            _print_recommended(console, at_the_end(status.sweep, trials, store))
            return
        console.print("no trial was trained to its end, so there is no front yet")
        if (cut_short := best_cut_short(trials)) is not None:
            console.print(cut_short_note(shown_trial(cut_short, spec.direction), trains=True), soft_wrap=True)
        return
    found = at_the_end(status.sweep, trials, store)
    _print_front(console, status, found, store)
    console.print()
    with contextlib.suppress(ProteinError), stores.opened(store) as opened:
        answers = Answers(opened, status.sweep)
        overview.show(console, findings(answers, status.sweep, store))
        return
    _print_recommended(console, found)  # the store is gone


def _print_recommended(console: Console, found: Recommendation) -> None:
    for line in (summary(found), *found.notes()):
        console.print(line, soft_wrap=True)


def _print_counts(console: Console, sweep: SweepRecord, trials: Sequence[TrialRecord], ended: str = "") -> None:
    """Prints in one line how the trials have ended, what they cost, and why no more were started, if that is known."""
    far = data.progress(trials)
    counted = ", ".join(far.counts.ends()) or "none finished"
    line = f"\nsweep '{sweep.spec.name}': {counted}; {text.seconds(far.spent_seconds)} spent{far.confirmed()}"
    console.print(Text(f"{line}; {ended}" if ended else line, style="bold"), soft_wrap=True)


def _print_front(console: Console, status: SweepStatus, found: Recommendation, store: str | None) -> None:
    """Prints the front as a plot and a table, and draws it into the sweep's folder."""
    name, trials = status.sweep.spec.name, status.trials
    width = min(console.width, MAX_PLOT_WIDTH)
    direction = status.sweep.spec.direction
    plot = scatter(trials, width - 1, PLOT_HEIGHT, best=found.best.trial.number, direction=direction)
    console.print("\n" + "\n".join(plot), soft_wrap=True)
    console.print(text.shorten(LEGEND_EXPECTED, width) + "\n", soft_wrap=True)
    kept = unbroken(trials, status.sweep.spec.limits)
    shown = [shown_trial(trial, direction) for trial in pareto.front(kept)]
    console.print(tables.front(shown, console.width, found.marks()))
    try:
        path = picture(stores.url(store), name, "pareto.png")
        with writing(path):
            save(front([(status.sweep, trials)], **found.drawn()), path, "png")
        console.print(f"\nplot: {display_path(path)}", soft_wrap=True)
    except UsageError as error:  # the results are in the store, so a picture that fails ends nothing
        console.print(f"\nno plot: {error}", soft_wrap=True)


def _print_resume(console: Console, command: Command) -> None:
    """Prints how to resume an interrupted sweep."""
    console.print(f"\ninterrupted; resume with\n  {command.again()}", soft_wrap=True)


def _print_larger_budget(console: Console, budget: float, spent_seconds: float, command: Command) -> None:
    """Prints how to resume a sweep that had nothing left to spend."""
    larger = 2 * budget
    while larger < _MIN_GROWTH * spent_seconds:
        larger *= 2
    console.print(
        f"\nthe budget of {text.seconds(budget)} is spent ({text.seconds(spent_seconds)}); resume with a larger one:\n"
        f"  {command.again(format_duration(larger))}",
        soft_wrap=True,
    )
