"""One way to start a sweep: a `Plan` says what and how, and `run` creates the sweep or resumes it, and runs its trials.

`protein sweep`, `protein sweep --command` and `protein.Sweep` only make plans. So what a plan can say works for all.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from protein.api import backends, by_hand, command_sweep, stores, trackers
from protein.api.backends import Place
from protein.api.definition import Options, create_or_resume, differences
from protein.api.recommended import initial_params
from protein.config.layers import flatten
from protein.direction import stored_range
from protein.engine.settings import EngineSettings
from protein.engine.warm_start import (
    MAX_SNAPSHOT_TRIALS,
    num_usable_configs,
    snapshot_of,
    source_names,
    source_observations,
)
from protein.errors import ProteinError, StoreError, StoreMissing, UsageError
from protein.ports import Backend, Designer, Listener, Store, SweepStatus
from protein.run.command import SILENCE_SECONDS, CommandBackend, CommandSettings
from protein.run.fleet import Fleet
from protein.run.machine import Slots, crowded, slots_of_machine
from protein.run.speed import speed_of_this_machine
from protein.run.trainer import TrainerBackend
from protein.space import Space
from protein.sweep import resuming
from protein.sweep.confirming import Confirm, Confirmer
from protein.sweep.loop import LoopSettings, run_sweep
from protein.sweep.methods import USE_LIMITS, make_designer
from protein.sweep.ownership import refuse_beside
from protein.sweep.trouble import MIN_FREE_DISK_BYTES
from protein.trainer.errors import TrainerError
from protein.trainer.kinds import kind_of
from protein.trainer.machine.cores import usable_cores
from protein.types import IMPORTED, Machine, Params, SweepRecord, SweepSpec, runs_command, runs_trainer


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A sweep as the user wants it, and how it is to run here and now.

    Attributes:
        spec: what defines the sweep. Its warm start is added when the store is open.
        options: how to search and where to end.
        store: the user's own word for the store; None: the usual one.
        url: of the store; it stays right where a function goes to another working directory.
        place: where trials run.
        slots: the places for trials there.
        silence_seconds: a command that prints nothing for so long hangs; None: the default.
        function: the name by which other machines import the function that is swept; None: none runs there.
        calibrate: whether costs are in seconds of the reference machine; None: where that is needed.
        accept_changes: whether a command may be run and read in another way from now on.
        keeps_budget: where no budget is given, that of the stored sweep holds.
        is_named: whether the user has named the sweep.
        makes_store: whether a store is made where there is none.
        queued: configs by hand, which come first. Those that a trial of the sweep has already are left out.
        confirm: contenders of a stored sweep are run again, and nothing is searched; None: it is searched.
        otherwise: what defines the sweep where its trials run on a GPU and `spec` is for a CPU, or the other way round.
    """

    spec: SweepSpec
    options: Options
    store: str | None
    url: str
    slots: Slots
    place: Place = dataclasses.field(default_factory=Place)
    silence_seconds: float | None = None
    function: str | None = None
    calibrate: bool | None = None
    accept_changes: bool = False
    keeps_budget: bool = True
    is_named: bool = True
    makes_store: bool = True
    queued: Sequence[Params] = ()
    confirm: Confirm | None = None
    otherwise: Callable[[], SweepSpec] | None = None

    def designer(self) -> Designer:
        """Returns what chooses the trials' params. Raises `UsageError` where the method cannot search this space."""
        if self.confirm is not None:
            return Confirmer(self.spec, self.confirm)
        return make_designer(
            self.spec.method,
            Space.from_dict(self.spec.space),
            initial_params(self.spec),
            seed=self.spec.seed,
            settings=EngineSettings(
                early_stopping=self.options.early_stopping,
                score_range=stored_range(self.spec.score_range, self.spec.direction),
            ),
            warm_start=source_observations(self.spec.warm_start),
            limits=self.spec.limits,
        )

    @property
    def may_continue(self) -> bool:
        """Whether finished trials may go on to more steps."""
        return self.options.can_continue and resuming.why_never_continued(self.spec) is None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What begins: the sweep as it is stored, how many trials it has, what these have cost, and how it is run.

    `created`: whether the sweep is new. `cap_given`: whether the user gave the cap on one trial's cost.
    """

    sweep: SweepRecord
    num_trials: int
    spent_seconds: float
    settings: LoopSettings
    created: bool
    cap_given: bool


class PlanListener(Listener, Protocol):
    """A listener that is also told what comes before the first trial."""

    def note(self, line: str) -> None:
        """Called with what a person should know before the sweep begins, as one line."""
        ...

    def begin(self, beginning: Beginning) -> None:
        """Called when the sweep is stored, before the loop begins. Another process may still have it."""
        ...


def run(plan: Plan, listener: PlanListener, stop: threading.Event, backend: Backend | None = None) -> SweepStatus:
    """Creates the sweep of a plan or resumes it, and runs its trials until it ends (`protein.sweep.loop.run_sweep`).

    `backend` runs the trials of a function; None: trials of the trainer and of commands, at the plan's place.

    Raises:
        UsageError: the stored sweep of this name is another one, or another process runs it; or no trial can run.
        StoreError: the store cannot be used.
        TrialFailed: this machine could not be calibrated.
    """
    if not plan.makes_store:
        stores.check(plan.url)
    stores.require_unlinked(plan.url, plan.spec.name, plan.place.folder)
    directory = plan.place.directory(stores.artifact_directory(plan.url, plan.spec.name))
    with (
        _other_machines(plan, directory, listener.note, stop) as others,
        # Only now, so that a place where no trial can run leaves no store behind.
        stores.opened(plan.url, create=plan.makes_store) as store,
    ):
        plan = as_begun(store.find_sweep(plan.spec.name), plan, listener.note)
        taken = snapshot(store, plan.spec, plan.options.warm_start, initial_params(plan.spec))
        limits = plan.options.require
        if limits is None:
            stored = store.find_sweep(plan.spec.name)
            limits = () if stored is None else stored.spec.limits
        plan = dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, warm_start=taken).with_limits(limits))
        designer = plan.designer()
        sweep, created = _created_or_resumed(store, plan, listener.note)
        if sweep.spec != plan.spec:  # a resumed sweep keeps its own possible scores, and choices that are a range today
            plan = dataclasses.replace(plan, spec=sweep.spec)
            designer = plan.designer()
        if limits and plan.spec.method not in USE_LIMITS:
            listener.note(f"method '{plan.spec.method}' searches without limits; what is recommended keeps them")
        if plan.queued:
            by_hand.queue(store, sweep, plan.queued, skip_if_exists=True)
        known = store.summaries([sweep.id])[sweep.id]
        if others is not None:
            others.keep_in(store)
            speed = None  # each of the other machines has its own
            plan.place.fetch(plan.spec, directory, [*known.running, *known.waiting], listener.note)
        else:
            speed = _speed_of_this_machine(store, plan, listener.note)
        settings = _loop_settings(plan, sweep, directory, speed)
        cap_given = plan.options.max_trial_seconds is not None
        if others is None and not plan.slots.gpus and (line := crowded(plan.slots.workers)) is not None:
            listener.note(line)
        believed = [one.name for one in Space.from_dict(plan.spec.space).parameters if one.belief is not None]
        if believed and plan.spec.method != "protein":
            listener.note(f"method '{plan.spec.method}' does not use the belief about {', '.join(believed)}")
        listener.begin(
            Beginning(
                sweep=sweep,
                num_trials=sum(known.ends.values()),
                spent_seconds=known.spent_seconds,
                settings=settings,
                created=created,
                cap_given=cap_given,
            )
        )
        with trackers.run_trackers(listener, plan.options.trackers, store=plan.store, sweep=plan.spec.name) as told:
            if others is not None:
                others.backend.note = told.log
                backend = others.backend
            return run_sweep(
                sweep,
                designer=designer,
                store=store,
                backend=backend or _backend_of_this_machine(plan, told),
                settings=settings,
                listener=told,
                stop=stop,
            )


def as_begun(stored: SweepRecord | None, plan: Plan, note: Callable[[str], None]) -> Plan:
    """Returns the plan with the ranges with which a stored sweep began: for a CPU, or for a GPU."""
    if stored is None or plan.otherwise is None or not runs_trainer(stored.spec.config):
        return plan
    with contextlib.suppress(ProteinError, TrainerError):  # then it is another sweep, and what differs is told
        if differences(stored.spec, plan.spec) and not differences(stored.spec, other := plan.otherwise()):
            note(f"sweep '{plan.spec.name}' keeps the ranges with which it began; [gpu] of files is for new sweeps")
            return dataclasses.replace(plan, spec=other)
    return plan


def _created_or_resumed(store: Store, plan: Plan, note: Callable[[str], None]) -> tuple[SweepRecord, bool]:
    """Returns the sweep, and whether it is new. Raises `UsageError` where it is another one, or a process runs it."""
    known = stores.find(store, plan.spec.name) if plan.confirm is not None else store.find_sweep(plan.spec.name)
    if known is not None:
        refuse_beside(store, known)  # before its config is changed
    try:
        sweep, created = create_or_resume(
            store, plan.spec, plan.options.budget_seconds, accept_changes=plan.accept_changes
        )
    except UsageError as error:
        if plan.is_named:
            raise
        raise UsageError(f"{error}; no name was given: choose one with name=") from error
    refuse_beside(store, sweep)
    if known is not None and known.spec.limits != sweep.spec.limits:
        before, now = (", ".join(map(str, spec.limits)) or "nothing" for spec in (known.spec, sweep.spec))
        note(f"sweep '{plan.spec.name}' requires {now} from now on, and required {before} before")
    return sweep, created


def _loop_settings(plan: Plan, sweep: SweepRecord, directory: Path, speed: float | None) -> LoopSettings:
    options, file = plan.options, stores.file(plan.url)
    budget = options.budget_seconds
    if budget is None and plan.keeps_budget:
        budget = sweep.max_cost_seconds
    return LoopSettings(
        directory=directory,
        workers=plan.slots.workers,
        slots=plan.slots,
        max_cost_seconds=budget,
        max_trial_seconds=options.max_trial_seconds,
        max_trials=options.max_trials,
        max_memory_bytes=options.max_memory_bytes,
        min_free_disk_bytes=MIN_FREE_DISK_BYTES if options.min_free_disk_bytes is None else options.min_free_disk_bytes,
        speed=speed,
        confirm=plan.confirm or (Confirm(share=options.confirm_share) if options.confirm_share else None),
        can_continue=plan.may_continue,
        stop_when=options.stop_when,
        until=options.until,
        on_trial=options.on_trial,
        on_finish=options.on_finish,
        on_trouble=options.on_trouble,
        store=stores.shown(plan.url),
        watched=[] if file is None else [file],
    )


def _speed_of_this_machine(store: Store, plan: Plan, note: Callable[[str], None]) -> float:
    """Returns what one second of this machine is worth in reference seconds. It is calibrated where that is needed."""
    if plan.calibrate is False:
        return 1.0
    train = plan.spec.config.get("train", {})  # a program decides itself what it uses
    found = speed_of_this_machine(
        store,
        threads=train.get("threads") or max(1, usable_cores() // plan.slots.workers),
        device=train.get("device", "cpu"),
        shared=plan.calibrate is True or stores.file(plan.url) is None,
        log=note,
    )
    return 1.0 if found is None else found.factor


def _backend_of_this_machine(plan: Plan, listener: Listener) -> Backend:
    if runs_trainer(plan.spec.config):
        return TrainerBackend()
    silence = plan.silence_seconds or SILENCE_SECONDS
    return CommandBackend(plan.spec.direction, silence_seconds=silence, note=listener.log)


class _OtherMachines:
    """Other machines that trials run on, and their calibrations: kept until the store is open, and then in it."""

    backend: Fleet

    def __init__(self, url: str) -> None:
        self._url = url
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

    def keep(self) -> None:
        """Stores what was found before the plan was refused, where there is a store."""
        if self._found:
            with contextlib.suppress(StoreError), stores.opened(self._url) as store:
                self.keep_in(store)


@contextlib.contextmanager
def _other_machines(
    plan: Plan, directory: Path, note: Callable[[str], None], stop: threading.Event
) -> Iterator[_OtherMachines | None]:
    """Connects to other machines, which may take a while; None: trials run on this one. No store is made."""
    if not plan.place.is_remote:
        yield None
        return
    machines = _OtherMachines(plan.url)
    note(f"connecting to {plan.place.words()}")
    try:
        with backends.connected(
            plan.place,
            plan.spec,
            directory,
            workers=plan.slots.workers,
            silence_seconds=plan.silence_seconds,
            function=plan.function,
            note=note,
            machines=None if plan.calibrate is False else machines.known,
            on_machine=machines.add,
            should_stop=stop.is_set,
        ) as machines.backend:
            yield machines
    finally:
        machines.keep()


def to_confirm(store: Store, sweep: SweepRecord, confirm: Confirm, *, word: str | None) -> Plan:
    """Returns the plan that runs contenders of a stored sweep again, here; `word` is the user's for the store.

    Raises:
        UsageError: another process runs it, another tool has run it, or its trials cannot be run: it is a sweep over a
            Python function, or its command's program is gone.
    """
    spec, name = sweep.spec, sweep.spec.name
    if spec.method == IMPORTED:
        raise UsageError(f"sweep '{name}' was imported: another tool has run its trials, so none can be run again here")
    if not runs_trainer(spec.config) and not runs_command(spec.config):
        raise UsageError(
            f"sweep '{name}' ran a Python function, which is not in the store; confirm it in Python, with the same"
            f" space: protein.Sweep(space, name={name!r}, ...).confirm({spec.env.removesuffix('()')})"
        )
    refuse_beside(store, sweep)
    if runs_command(spec.config):
        command_sweep.require_files(CommandSettings.from_config(spec.config))
    return Plan(
        spec=spec,
        options=Options(method=spec.method, seed=spec.seed, direction=spec.direction),
        store=word,
        url=stores.url(word),
        slots=slots_of_machine(1),
        makes_store=False,
        confirm=confirm,
    )


# The warm start: a snapshot of other sweeps of the store, taken once, when the new sweep is created.

ALL = "all"
MAX_SOURCES = 10  # of one warm start: each makes every suggestion take a little longer
_MIN_CONFIGS = 2  # in the new space; sweeps with fewer are left out of "all"
Asked = str | list[str]  # `ALL`, or names of sweeps


def asked(wanted: str | Sequence[str]) -> Asked:
    """Returns what is asked for: `ALL`, or names of sweeps, each once and in order.

    The word "all" alone means every sweep. In a list, or before a comma, it is a sweep's name.

    Raises:
        UsageError: it names no sweep, or more than `MAX_SOURCES`.
    """
    if wanted == ALL:
        return ALL
    listed = wanted.split(",") if isinstance(wanted, str) else wanted
    if not isinstance(listed, Sequence) or not all(isinstance(name, str) for name in listed):
        raise UsageError(f"warm_start must be a sweep's name, a list of names or 'all', got {wanted!r}")
    names = sorted({name.strip() for name in listed} - {""})
    if not 1 <= len(names) <= MAX_SOURCES:
        raise UsageError(f"a warm start takes 1 to {MAX_SOURCES} sweeps, got {len(names)}; name others, or 'all'")
    return names


def snapshot(
    store: Store, spec: SweepSpec, wanted: str | Sequence[str] | None, start: Params | None
) -> Mapping[str, Any]:
    """Returns the snapshot of the source sweeps: the stored one if the sweep exists, else a new one.

    The sources are ordered: those of the same environment first, then those with the most configs in this space. Of
    "all", the first `MAX_SOURCES` are taken.

    Args:
        store: holds all of them.
        spec: of the sweep that is created or resumed; its warm start does not count.
        wanted: see `asked`; None: no warm start, or the one that the stored sweep had.
        start: values of parameters that a source sweep lacks.

    Returns:
        The snapshot (see `protein.engine.warm_start`), empty without a warm start.

    Raises:
        UsageError: the stored sweep had another warm start; or a source sweep is the sweep itself, is not in the store,
            is of another kind of training, or has no score in this space; or of "all" none has two.
    """
    now = None if wanted is None else asked(wanted)
    stored = store.find_sweep(spec.name)
    if stored is not None:
        _check_unchanged(spec.name, stored.spec.warm_start, now)
        return stored.spec.warm_start
    if now is None:
        return {}
    space = Space.from_dict(spec.space)
    found: list[tuple[tuple[bool, int, str], SweepRecord]] = []
    for source in _sources(store, spec.name, now):
        if _other_kind(source.spec, spec):
            if now == ALL:
                continue
            raise UsageError(
                f"the source sweep '{source.spec.name}' trained {source.spec.env}, and this one trains {spec.env}:"
                " nothing is learned between an agent and a language model; start warm from other sweeps"
            )
        taken = _taken(store, source, space)
        configs = num_usable_configs(taken, space, start)
        if now != ALL and not configs:
            raise UsageError(
                f"no trial of the source sweep '{source.spec.name}' has a score and lies in this space; start warm from"
                " other sweeps, or drop the warm start"
            )
        if now != ALL or configs >= _MIN_CONFIGS:
            found.append(((source.spec.env != spec.env, -configs, source.spec.name), source))
    if not found:
        raise UsageError(
            f"no other sweep of the store has {_MIN_CONFIGS} scores in this space; drop the warm start, or name a sweep"
        )
    best = [source for _, source in sorted(found, key=lambda one: one[0])[:MAX_SOURCES]]
    share = MAX_SNAPSHOT_TRIALS // len(best)
    return {"asked": now, "sources": [_taken(store, source, space, share) for source in best]}


def _other_kind(one: SweepSpec, other: SweepSpec) -> bool:
    """Whether one sweep trains agents and the other language models: settings of the same name mean other things."""
    if not (runs_trainer(one.config) and runs_trainer(other.config)):
        return False
    return kind_of(one.config) is not kind_of(other.config)


def _check_unchanged(name: str, held: Mapping[str, Any], now: Asked | None) -> None:
    """Raises `UsageError` where the stored sweep `name` began from another warm start than it is given now."""
    names = source_names(held)
    if now is None or (held and now in (sorted(names), held.get("asked"))):
        return
    given = now if isinstance(now, str) else ",".join(now)
    if held:
        before = held.get("asked", names)
        differs = f"exists with a warm start from {_quoted(before)} (now {_quoted(now)})"
    else:
        differs = f"was started without a warm start; now --warm-start {given} is given"
    raise UsageError(f"sweep '{name}' {differs}; choose another name, or leave it as it was")


def _sources(store: Store, name: str, now: Asked) -> list[SweepRecord]:
    """Returns the source sweeps that are asked for, without the sweep `name` itself."""
    if now == ALL:
        return [sweep for sweep in store.list_sweeps() if sweep.spec.name != name]
    if name in now:
        raise UsageError(f"sweep '{name}' cannot start warm from itself; choose another name")
    return [stores.find(store, source) for source in now]


def _taken(store: Store, source: SweepRecord, space: Space, most: int = MAX_SNAPSHOT_TRIALS) -> Mapping[str, Any]:
    trials = store.trials(source.id, curves=False)
    # Those of a command or a function stand in its space alone.
    fixed = {**source.spec.space.get("fixed", {}), **flatten(source.spec.config)}
    return snapshot_of(source.spec.name, trials, space=space, fixed=fixed, most=most)


def _quoted(now: Asked) -> str:
    return ", ".join(f"'{name}'" for name in ([now] if isinstance(now, str) else now))
