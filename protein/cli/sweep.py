"""`protein sweep`: creates a sweep, or resumes the one of this name, and runs it."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from protein.api import backends, stores, trackers, trainer_sweep, warm_start
from protein.api.definition import create_or_resume
from protein.api.recommended import initial_params, score_range
from protein.cli import INTERRUPTED_CODE, command_sweep, sweep_messages, sweep_plan
from protein.cli.parse import Command
from protein.cli.signals import caught
from protein.cli.sweep_plan import Plan
from protein.columns import DOT_FIELDS, Dot, dots
from protein.errors import StoreMissing
from protein.ports import Backend, Listener, Store, SweepStatus
from protein.run import speed
from protein.run.fleet import Fleet
from protein.run.job import runs_trainer
from protein.run.trainer import LocalBackend
from protein.sweep.loop import LoopSettings, run_sweep
from protein.sweep.ownership import refuse_beside
from protein.trainer.machine.cores import usable_cores
from protein.types import Machine, SweepRecord, TrialRecord
from protein.units import parse_duration
from protein.view import tables
from protein.view.terminal import make_watcher


def run(command: Command) -> int:
    console = tables.make_console()
    plan = sweep_plan.read(command, console)
    try:
        return _run(command, console, plan)
    except KeyboardInterrupt:  # a second Ctrl-C has killed the sweep at once
        sweep_messages.print_resume(console, command)
        return INTERRUPTED_CODE


def _run(command: Command, console: Console, plan: Plan) -> int:
    url, stop = plan.arguments.store, threading.Event()
    if plan.arguments.warm_start is not None:
        stores.check(stores.url(url))
    stores.require_unlinked(stores.url(url), plan.spec.name, plan.place.folder)
    directory = plan.place.directory(stores.artifact_directory(stores.url(url), plan.spec.name))
    with (
        caught(stop),
        _elsewhere(console, plan, directory, stop) as elsewhere,
        # Only now, so that a place where no trial can run leaves no store behind.
        stores.opened(url, create=plan.arguments.warm_start is None) as store,
    ):
        if elsewhere is not None:
            elsewhere.machines.keep_in(store)
        plan = _warmly_started(plan, store)
        sweep, created = _created_or_resumed(store, plan)
        before = dots(store.columns(sweep.id, fields=DOT_FIELDS))
        settings = _loop_settings(plan, sweep, directory)
        settings = _with_speed(console, store, plan, settings, elsewhere)
        if elsewhere is not None:
            plan.place.fetch(plan.spec, directory, _unfinished(store, sweep.id), elsewhere.backend.note)

        def announce() -> None:
            _announce(console, plan, sweep, before, settings, created=created)

        try:
            status = _run_trials(console, store, plan, sweep, settings, elsewhere, stop, announce)
        except KeyboardInterrupt:
            sweep_messages.print_counts(console, sweep, store.trials(sweep.id, curves=False))
            raise
    sweep_messages.conclude(console, status, url)
    if stop.is_set():
        sweep_messages.print_resume(console, command)
        return INTERRUPTED_CODE
    if status.trouble:
        return 1
    budget = settings.max_cost_seconds
    if budget is not None and status.spent_seconds >= budget and len(status.trials) == len(before):
        sweep_messages.print_larger_budget(console, budget, status.spent_seconds, command)
    return 0


def _warmly_started(plan: Plan, store: Store) -> Plan:
    """Returns the plan with what the sweep learns from others, if it does."""
    taken = warm_start.snapshot(store, plan.spec, plan.arguments.warm_start, initial_params(plan.spec))
    return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, warm_start=taken)) if taken else plan


class _Machines:
    """Machines that were calibrated: the known ones, and those found before the store is open."""

    def __init__(self, url: str | None) -> None:
        self.known: list[Machine] = []
        self._found: list[Machine] = []
        self._store: Store | None = None
        with contextlib.suppress(StoreMissing), stores.opened(url) as store:
            self.known = store.machines()

    def add(self, machine: Machine) -> None:
        if self._store is None:
            self._found.append(machine)
        else:
            self._store.add_machine(machine)

    def keep_in(self, store: Store) -> None:
        """Stores what was found so far, and from now on what is found."""
        self._store = store
        while self._found:
            store.add_machine(self._found.pop(0))


@dataclasses.dataclass(frozen=True, slots=True)
class _Elsewhere:
    """Other machines that trials run on, and how fast they are."""

    backend: Fleet
    machines: _Machines


@contextlib.contextmanager
def _elsewhere(console: Console, plan: Plan, directory: Path, stop: threading.Event) -> Iterator[_Elsewhere | None]:
    """Connects to other machines, which may take a while; None: trials run on this one. No store is made."""
    if not plan.place.is_remote:
        yield None
        return

    def note(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    machines = _Machines(plan.arguments.store)
    note(f"connecting to {plan.place.words()}")
    silence = plan.arguments.max_silence
    with backends.connected(
        plan.place,
        plan.spec,
        directory,
        workers=plan.slots.workers,
        silence_seconds=None if silence is None else parse_duration(silence, "--max-silence"),
        note=note,
        machines=None if plan.arguments.calibrate is False else machines.known,
        on_machine=machines.add,
        should_stop=stop.is_set,
    ) as backend:
        yield _Elsewhere(backend, machines)


def _created_or_resumed(store: Store, plan: Plan) -> tuple[SweepRecord, bool]:
    """Returns the sweep, and whether it is new. Raises `UsageError` where it is another one, or a process runs it."""
    if (known := store.find_sweep(plan.spec.name)) is not None:
        refuse_beside(store, known)  # before its config is changed
    sweep, created = create_or_resume(
        store, plan.spec, plan.budget_seconds, accept_changes=plan.arguments.accept_changes
    )
    refuse_beside(store, sweep)
    return sweep, created


def _loop_settings(plan: Plan, sweep: SweepRecord, directory: Path) -> LoopSettings:
    arguments, settings = plan.arguments, plan.settings
    file = stores.file(stores.url(arguments.store))
    return LoopSettings(
        directory=directory,
        workers=plan.slots.workers,
        slots=plan.slots,
        max_cost_seconds=sweep.max_cost_seconds if plan.budget_seconds is None else plan.budget_seconds,
        max_trial_seconds=settings.max_trial_seconds,
        max_trials=arguments.max_trials,
        max_memory_bytes=settings.max_trial_memory_bytes,
        can_continue=plan.may_continue,
        stop_when=plan.stop_when,
        until=plan.until,
        on_finish=arguments.on_finish,
        on_trouble=arguments.on_trouble,
        store=stores.shown(arguments.store),
        watched=[] if file is None else [file],
    )


def _announce(
    console: Console, plan: Plan, sweep: SweepRecord, trials: Sequence[Dot], settings: LoopSettings, *, created: bool
) -> None:
    """Prints what begins, where, and what of the user's wishes cannot be."""
    cap_given = plan.settings.max_trial_seconds is not None
    sweep_messages.announce(console, sweep, trials, settings, created=created, cap_given=cap_given)
    speed_text = ""
    if settings.speed not in (None, 1.0):
        speed_text = (
            f"this machine is {settings.speed:.2f} times as fast as the reference machine, in whose seconds costs are"
        )
    newer_text = "" if created else trainer_sweep.newer_text(sweep)
    for line in (newer_text, plan.slots.text(), plan.why_not_continued, speed_text):
        if line:
            console.print(Text(line), soft_wrap=True)


def _with_speed(
    console: Console, store: Store, plan: Plan, settings: LoopSettings, elsewhere: _Elsewhere | None
) -> LoopSettings:
    """Returns the settings with what one second of this machine is worth in reference seconds.

    This machine is calibrated if needed. Of other machines each has its own speed.
    """
    if elsewhere is not None:
        return dataclasses.replace(settings, speed=None)
    if plan.arguments.calibrate is False:
        return settings
    train = plan.spec.config.get("train", {})  # a program decides itself what it uses
    found = speed.speed_of_this_machine(
        store,
        threads=train.get("threads") or max(1, usable_cores() // plan.slots.workers),
        device=train.get("device", "cpu"),
        shared=plan.arguments.calibrate is True or stores.file(stores.url(plan.arguments.store)) is None,
        log=lambda line: console.print(Text(line), soft_wrap=True),
    )
    return settings if found is None else dataclasses.replace(settings, speed=found.factor)


def _unfinished(store: Store, sweep_id: int) -> list[int]:
    """Returns the numbers of the trials that may be taken up again."""
    return [trial.number for trial in store.trials(sweep_id, curves=False) if not trial.state.finished]


def _run_trials(
    console: Console,
    store: Store,
    plan: Plan,
    sweep: SweepRecord,
    settings: LoopSettings,
    elsewhere: _Elsewhere | None,
    stop: threading.Event,
    announce: Callable[[], None],
) -> SweepStatus:
    """Runs the sweep, shown in the terminal and told to trackers. `announce` prints what begins now."""
    with (
        make_watcher(console, score_range(plan.spec.env)) as watcher,
        trackers.beside(watcher, plan.trackers, store=plan.arguments.store, sweep=plan.spec.name) as beside,
    ):
        listener = _Announcing(beside, announce)
        status = run_sweep(
            sweep,
            designer=plan.designer(),
            store=store,
            backend=_backend(plan, elsewhere, listener),
            settings=settings,
            listener=listener,
            stop=stop,
        )
        listener.begin()
        return status


class _Announcing:
    """A listener that says what begins once no other process runs the sweep, and then passes everything on.

    A sweep with trials is announced when it is taken over. A new one waits for its first trial, at once: of two
    processes that begin it at the same moment, only the one that starts the first trial runs it.
    """

    def __init__(self, listener: Listener, announce: Callable[[], None]) -> None:
        self._listener, self._announce = listener, announce
        self._begun = False

    def begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._announce()

    def update(self, status: SweepStatus) -> None:
        self.begin()
        self._listener.update(status)

    def started(self, trial: TrialRecord) -> None:
        self.begin()
        self._listener.started(trial)

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None:
        self.begin()
        self._listener.finished(trial, status)

    def log(self, line: str) -> None:
        self.begin()
        self._listener.log(line)


def _backend(plan: Plan, elsewhere: _Elsewhere | None, listener: Listener) -> Backend:
    """Returns what runs the trials. From now on the listener takes what it has to say."""
    if elsewhere is not None:
        elsewhere.backend.note = listener.log
        return elsewhere.backend
    if runs_trainer(plan.spec.config):
        return LocalBackend()
    return command_sweep.make_backend(plan.arguments, plan.spec, listener)
