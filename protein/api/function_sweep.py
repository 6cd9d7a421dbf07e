"""`protein.Sweep`: a sweep over your own training function, kept in the same store as all others.

    def train(params, report):
        model = Model(params["width"])
        for epoch in range(params["epochs"]):
            model.fit_one_epoch(lr=params["lr"])
            report(epoch + 1, model.validate())
        return model.validate()

    result = protein.Sweep(space, budget="10m", name="mine").run(train)
    print(result.best.score, result.best.params)

The same call again resumes the sweep: after Ctrl-C, after `kill -9`, and with a larger budget. `protein status`,
`show`, `best` and `pareto` read it. The loop is that of `protein sweep` and runs in its own thread. The function runs
in the caller's thread, one trial after the other, where interrupts, debuggers and frameworks expect it. With
`run(train, workers=4)` it runs in four processes at once. Cost is the wall clock of the function, or what it reports. A
trial is stopped when it reports.

Unless `quiet`, it prints: at the start one line with the limits, then lines for finished trials, one every 2 seconds
at most, and at the end why it ended, what was found, and the command that shows the recommended config.
"""

import contextlib
import dataclasses
import html
import inspect
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from protein import validate
from protein.api import by_hand, stores
from protein.api.answers import at_the_end, summary
from protein.api.backends import Place
from protein.api.definition import Options, check_name, differences, require_room_for_a_trial
from protein.api.plan import Beginning, Plan, asked
from protein.api.plan import run as run_plan
from protein.api.recommended import best_cut_short, cut_short_note
from protein.config.settings import MAX_CONFIRM_SHARE
from protein.direction import shown_trial
from protein.engine import pareto
from protein.engine.warm_start import described_sources
from protein.errors import ProteinError, StoreError, StoreMissing, TrialFailed, UsageError
from protein.ports import SweepStatus
from protein.run.function import FunctionBackend, FunctionProcesses, Train, name_of
from protein.run.machine import Slots, slots_of_machine
from protein.space import Space
from protein.spelling import counted
from protein.sweep import provenance
from protein.sweep.confirming import Confirm
from protein.sweep.stop_conditions import parse_stop_when
from protein.sweep.trouble import MIN_FREE_DISK_OF_STORE_BYTES
from protein.trackers.tracker import check_trackers
from protein.types import Direction, Params, SweepSpec, TrialRecord, TrialState, parse_limits, spent_seconds, unbroken
from protein.units import parse_duration, parse_share
from protein.view import commands, data, text
from protein.view.terminal import progress, spent_at_start

if TYPE_CHECKING:
    import pandas

    from protein.api.notebook import Page

_DEFAULT_NAME = "sweep"
_MAX_LINE = 150  # characters of a line of `repr`
_QUIET_SECONDS = 2.0  # after a printed line, no line for a finished trial in this time
_MIN_OVERRUN = 1.05  # times the cap; the cost of a trial that reports often exceeds its cap by less


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SweepResult:
    """The results of a sweep so far. Scores are as the training function returned them.

    Attributes:
        name: the sweep's, to ask `protein best NAME` and the like.
        trials: all, by number.
        best: what `protein best` recommends, the complete trial with the best expected score. It need not be the one
            that measured best, whose score noise may have raised. None where no trial is complete.
        front: the Pareto front, cheapest first: each trial measured better than all that cost less.
        summary: what was found, and what to know before using it, one sentence a line; "" where no trial is complete
            and none was stopped at a limit of cost.
        ended: why no more trials were started, in words, as in "the budget is spent", "every config of the space was
            tried" or "the limit of 20 trials is reached"; "interrupted" by Ctrl-C; with `stop_when` the gain that was
            expected.
        interrupted: whether Ctrl-C ended it.
        store: the URL of the store that holds the sweep, with which `protein.plots` finds it.
    """

    name: str
    trials: tuple[TrialRecord, ...]
    best: TrialRecord | None
    front: tuple[TrialRecord, ...]
    ended: str
    interrupted: bool
    summary: str
    store: str  # it may hold a password

    def __repr__(self) -> str:
        """Returns five lines: how far it is, why it ended, what was found, the front, and where more is."""
        far = data.progress(self.trials)
        counts = ", ".join([_count(far.counts.total), *far.counts.ends()])
        first, last = (self.front[0], self.front[-1]) if self.front else (None, None)
        found = "no complete trial" if first is None or last is None else _count(len(self.front))
        if first is not None and last is not None:
            found += f", score {text.score(first.score)} in {text.seconds(first.run_seconds)}"
            found += f" to {text.score(last.score)} in {text.seconds(last.run_seconds)}"
        lines = (
            f"SweepResult {self.name!r}: {counts}; {text.seconds(far.spent_seconds)} spent{far.confirmed()}",
            f"  ended: {'interrupted' if self.interrupted else self.ended}",
            f"  best: {(self.summary or 'no complete trial').splitlines()[0]}",
            f"  front: {found}",
            "  see: .frame, .best, .front, .trials, .summary, .view()",
        )
        return "\n".join(text.shorten(text.cleaned(line, text.MAX_TEXT), _MAX_LINE) for line in lines)

    def _repr_html_(self) -> str:
        from protein.api import notebook  # late: it loads what draws pictures

        try:
            return notebook.found_html(self.name, self.store)
        except ProteinError:  # the sweep was removed, or its store is gone
            return f"<pre>{html.escape(repr(self))}</pre>"

    @property
    def frame(self) -> "pandas.DataFrame":
        """The trials as a pandas data frame, one row a trial, as `protein.load(name).trials` reads them.

        Raises:
            UsageError: pandas is not installed, or the sweep was removed.
            StoreError: the store cannot be read.
        """
        from protein.api.loading import load

        return load(self.name, self.store).trials

    def view(self, *, height: int = 760) -> "Page":
        """Shows the pages of `protein view` in a notebook, `height` pixels high; elsewhere, in the browser.

        They show the moment when they were made, which takes some seconds.

        Raises:
            UsageError: the sweep was removed.
            StoreError: the store cannot be read.
            TrialFailed: the pages could not be made.
        """
        from protein.api import notebook

        return notebook.view(self.name, self.store, height=height)


class Sweep:
    """A cost-aware search over your own training function. See the head of this file."""

    def __init__(
        self,
        space: Space,
        *,
        budget: str | float | None = None,
        name: str | None = None,
        store: str | os.PathLike[str] | None = None,
        seed: int = 0,
        direction: Literal["maximize", "minimize"] = "maximize",
        score_range: Sequence[float | None] | None = None,
        start: Params | None = None,
        max_trial_cost: str | float | None = None,
        max_trials: int | None = None,
        require: Mapping[str, str] | Sequence[str] | str | None = None,
        confirm_share: str | float = 0.0,
        stop_when: str | None = None,
        warm_start: str | Sequence[str] | None = None,
        method: str = "protein",
        can_continue: bool = False,
        trackers: Sequence[str] = (),
        quiet: bool = False,
        on_trial: Callable[[TrialRecord], object] | None = None,
    ) -> None:
        """Defines the sweep; nothing is run or stored yet.

        Args:
            space: what to search. Its `cost_parameter` is the parameter that makes a trial expensive; without one, the
                engine learns what does.
            budget: what all trials together may cost: seconds, or text such as "90s", "10m" or "1h30m"; None: no limit.
                Without `budget` and `max_trials` the sweep runs until Ctrl-C.
            name: of the sweep in its store; the same name resumes the same sweep. None: "sweep".
            store: a path or URL; None: $PROTEIN_STORE or runs/protein.db, as for the command line.
            seed: the source of randomness.
            direction: whether a higher score is better, or a lower one.
            score_range: the lowest and the highest possible score, as in (0, 1) for an accuracy, with None for an open
                end; None: not known. Predictions stay inside. A sweep that is resumed keeps it, or takes another one.
            start: the initial config, tried first; None: the middle of every range (method "protein").
            max_trial_cost: the cap: what one trial may cost, as `budget` and at most as much; None: a quarter of the
                budget. A trial that reaches it is stopped when it next calls `report`. In a process of its own it is
                ended without a report, where its cost is the wall clock. It is not recommended.
            max_trials: how many trials there may be, failed ones included; None: no limit. Give it for a function that
                costs next to nothing, which would never use up a budget.
            require: limits on what trials report beside the score, as in ["memory_gb <= 8"] or {"memory_gb": "<= 8"}.
                The search keeps them, and so does what is recommended, with a probability that is told. None: those
                that the stored sweep has; []: none.
            confirm_share: keep this share of the budget, as in "10%" or 0.1, to run the best contenders again when the
                search is over (see `confirm`); at most 50 %.
            stop_when: end the sweep once a finished trial meets a condition, as in "score >= 20" or "cost < 60 and
                loss < 0.1" (its score, its cost in seconds, parameters, metrics; `trials` is how many have finished).
                Or when more training is expected to raise the best score by less, as in "gain < 0.5 per hour" (in score
                units; any duration may stand after "per"). None: spend the budget. It is asked after each trial. The
                sweep can be resumed without it.
            warm_start: name of another sweep of the store to learn from, as far as this sweep's own trials agree with
                it; names of several, or "all": of them it uses the one that predicts its trials best so far.
            method: "protein"; "random" or one of Optuna's such as "optuna:tpe" for comparison.
            can_continue: the function keeps what a longer run needs in `report.directory`, and goes on from
                `report.continues` where that is not None. Then a finished trial may go on to a larger value of the
                space's `cost_parameter`, at the cost of the rest.
            trackers: tools that the trials are also written to, each by a process of its own: "mlflow", "neptune",
                "wandb", "tensorboard", "trackio". Each needs its package: pip install 'protein-sweep[mlflow]'.
            quiet: print nothing. Otherwise the start and the end are printed, and in between lines for finished trials,
                one every 2 seconds at most.
            on_trial: called with each trial that has ended, once it is stored; scores are as the function returned
                them. It runs in a thread of its own, one trial after the other, so that no trial waits for it. An
                exception in it is one line, and ends nothing. What it has not done a minute after the end of the sweep
                is left out.

        Raises:
            UsageError: a value that cannot be used, with its limit.
            SpaceError: `start` is not a point of the space.
        """
        self._name = _DEFAULT_NAME if name is None else name
        self._is_named = name is not None
        check_name(self._name, "name")
        if not isinstance(store, str | os.PathLike | None):
            raise UsageError(f"store must be a path or a URL, or None for the usual one, got {validate.shown(store)}")
        if isinstance(trackers, str):
            raise UsageError(f"trackers must be a list of names, got {trackers!r}; write trackers=[{trackers!r}]")
        self._score_range = validate.score_range(score_range)
        self._options = Options(
            method=method,
            seed=seed,
            direction=validate.direction(direction),
            start=start,
            budget_seconds=_seconds(budget, "budget"),
            max_trial_seconds=_seconds(max_trial_cost, "max_trial_cost"),
            max_trials=max_trials,
            confirm_share=parse_share(confirm_share, "confirm_share", most=MAX_CONFIRM_SHARE),
            min_free_disk_bytes=MIN_FREE_DISK_OF_STORE_BYTES,
            can_continue=can_continue,
            require=parse_limits(require, "require"),
            warm_start=None if warm_start is None else asked(warm_start),
            trackers=check_trackers(trackers, "trackers"),
            on_trial=on_trial,
        )
        self._options.check(space)
        if stop_when is not None:
            how: dict[str, Any] = {
                "method": method,
                "direction": self._options.direction,
                "parameters": space.parameters,
            }
            self._options = dataclasses.replace(self._options, stop_when=parse_stop_when(stop_when, "stop_when", **how))
        costs = self._options.budget_seconds, self._options.max_trial_seconds
        require_room_for_a_trial(*costs, f"budget {budget}", f"max_trial_cost {max_trial_cost}")
        self._space, self._quiet = space, quiet
        self._queued: list[Params] = []  # until the sweep is stored
        self._store = None if store is None else os.fspath(store)

    def enqueue(self, configs: Params | Sequence[Params], *, skip_if_exists: bool = False) -> list[int]:
        """Queues configs of your own, all of them or none. They come before what the engine would try.

        A sweep that runs, in this process or another, starts them at the next free worker. They are marked "by hand".

        Args:
            configs: one config, or a list of them; values by name. What is not given is as in the initial config.
            skip_if_exists: leave out those that a trial has already, rather than refuse them. For a script that is run
                again to resume its sweep.

        Returns:
            The numbers of their trials; none for a sweep that is not stored yet, which takes them at its start.

        Raises:
            UsageError: a trial has this config, or it is given twice.
            SpaceError: an unknown name, a value out of its range, or a constraint that is broken.
            StoreError: the store cannot be used.
        """
        points = by_hand.points_of(configs)
        own = self._spec("")
        whole = [by_hand.completed(own, one) for one in points]
        with contextlib.suppress(StoreMissing), stores.opened(stores.absolute_url(self._store)) as store:
            if (sweep := store.find_sweep(self._name)) is not None:
                if found := differences(sweep.spec, own):
                    raise UsageError(f"sweep '{self._name}' exists with {found[0]}; leave that as it was")
                return by_hand.queue(store, sweep, points, skip_if_exists=skip_if_exists)
        queued = {self._space.key(one): one for one in self._queued}
        for one in whole:
            if self._space.key(one) in queued and not skip_if_exists:
                raise UsageError(f"this config is queued already: {one}; give each config once")
            queued.setdefault(self._space.key(one), one)
        self._queued = list(queued.values())
        return []

    def run(
        self,
        train: Train,
        *,
        workers: int | None = None,
        gpus: str | None = None,
        trials_per_gpu: int = 1,
        start_method: Literal["fork", "spawn"] | None = None,
        backend: str | None = None,
    ) -> SweepResult:
        """Runs trials until the budget is spent or Ctrl-C, and returns the results of all trials of the sweep.

        Args:
            train: called as `train(params, report)`; returns the score. An exception in it ends only that trial, which
                counts as failed; its reason and cost are stored, and the traceback is in the trial's log.
            workers: how many trials run at once; None: as many as the GPUs have room for, or one where none is named.
                One runs in the caller's thread. Several run in a process each, on cores of their own; what a function
                changes there is seen by nobody else.
            gpus: ids as for CUDA_VISIBLE_DEVICES, as in "0,1", or "all": each trial gets one of them. It then runs in a
                process of its own.
            trials_per_gpu: how many trials may share a GPU.
            start_method: how processes begin: "fork" (the default, but on macOS) is fast and takes any function.
                "spawn" takes only functions at the top level of a module, but these may use CUDA and several threads of
                torch, whatever the program did before.
            backend: "folder:DIR" for trials on machines that join by `protein worker DIR`, `workers` of them at most.
                They import the function by its name, so it must be at the top level of a module that they have, too,
                and not of the program itself. None: this machine.

        Raises:
            UsageError: the stored sweep of this name differs (in space, direction, seed, method or start), or another
                process is running it. Or a GPU that is not there, or a function that cannot be run in a process of its
                own. Or a mistake in how `train` is written: its arguments, or a returned or reported
                value that is no number. That ends the sweep at once; the corrected function resumes it with the same
                config.
            TrialFailed: ten trials in a row failed.
            StoreError: the store cannot be used.
        """
        if not isinstance(gpus, str | None):
            raise UsageError(f"gpus must be ids in a text, as in '0,1', or 'all', got {validate.shown(gpus)}")
        if start_method not in (None, "fork", "spawn"):
            raise UsageError(f"start_method must be 'fork' or 'spawn', or None for the usual one, got {start_method!r}")
        place = Place() if backend is None else Place(backend=backend)
        if place.kind not in ("local", "folder"):
            raise UsageError(f"backend must be 'folder:DIR', or None for this machine, got {backend!r:.80}")
        if place.is_remote:
            for what, given in (("gpus", gpus), ("start_method", start_method)):
                if given is not None:
                    raise UsageError(f"{what} is for trials on this machine: leave it out with backend={backend!r}")
            return self._run(train, place.slots(validate.workers(workers)), None, in_processes=False, place=place)
        slots = slots_of_machine(validate.workers(workers), gpus=gpus, trials_per_gpu=trials_per_gpu)
        return self._run(train, slots, start_method, in_processes=gpus is not None or start_method is not None)

    def view(self, *, height: int = 760) -> "Page":
        """Shows the pages of the stored sweep; see `SweepResult.view`."""
        from protein.api import notebook

        return notebook.view(self._name, self._store, height=height)

    def confirm(
        self,
        train: Train,
        *,
        contenders: int | None = None,
        max_cost: str | float | None = None,
        under: str | float | None = None,
    ) -> SweepResult:
        """Runs the best contenders of the stored sweep again, until one is best with 90 %, and returns all results.

        The contenders are run one at a time, on fresh seeds, in the caller's thread, each the one that tells most. The
        runs are kept as trials. They count neither as trials nor as cost of the search. `ended` of the result says what
        they have shown. The same call again goes on from there.

        Args:
            train: as in `run`; it must give other scores in other runs, or the same ones where there is no luck.
            contenders: how many; None: those with a chance to be the best, five at most.
            max_cost: what the runs may cost together, as `budget`; None: a tenth of what the search has cost, and at
                least two runs.
            under: only configs that are expected to cost at most this, as `budget`.

        Raises:
            UsageError: no sweep of this name is stored, or it differs, or another process is running it.
            TrialFailed, StoreError: as `run`.
        """
        confirm = Confirm(
            seconds=_seconds(max_cost, "max_cost"),
            num=validate.contenders(contenders),
            under_seconds=math.inf if under is None else _seconds(under, "under") or math.inf,
        )
        return self._run(train, slots_of_machine(1), None, in_processes=False, confirm=confirm)

    def _run(
        self,
        train: Train,
        slots: Slots,
        start_method: Literal["fork", "spawn"] | None,
        *,
        in_processes: bool,
        confirm: Confirm | None = None,
        place: Place | None = None,
    ) -> SweepResult:
        _check_callable(train)
        stop = threading.Event()
        options = self._options
        if confirm is not None:  # the stored budget stays
            options = dataclasses.replace(options, budget_seconds=None, confirm_share=0.0, max_trials=None)
        backend: FunctionBackend | FunctionProcesses = FunctionBackend(train, options.direction)
        if place is None and (slots.workers > 1 or in_processes):
            backend = FunctionProcesses(train, options.direction, stop, start_method=start_method)
        plan = Plan(
            spec=self._spec(getattr(train, "__name__", type(train).__name__)),
            queued=() if confirm is not None else tuple(self._queued),
            options=options,
            store=self._store,
            url=stores.absolute_url(self._store),  # before the function goes to another working directory
            slots=slots,
            place=place or Place(),
            function=None if place is None else name_of(train),
            calibrate=False,
            keeps_budget=confirm is not None,
            is_named=self._is_named,
            makes_store=confirm is None,
            confirm=confirm,
        )
        lines = _Lines(options.direction, quiet=self._quiet)
        if confirm is None and (line := stores.new_folder(self._store)) is not None:
            lines.note(line)

        def work() -> SweepResult:
            status = run_plan(plan, lines, stop, backend)
            if confirm is None:
                self._queued = []  # these are stored now
            if status.trouble:
                raise TrialFailed(status.ended)
            with contextlib.suppress(StoreError), stores.opened(plan.url) as store:  # whole curves, and notes of others
                status = dataclasses.replace(status, trials=store.trials(status.sweep.id))
            return result_of(status, plan.url)  # here, so that one more Ctrl-C does not cost the results

        result = _beside(work, backend, stop)
        lines.conclude(result, self._store)
        return result

    def _spec(self, called: str) -> SweepSpec:
        """Returns what defines the sweep over a function that is called so."""
        options = self._options
        own: dict[str, Any] = {"start": None if options.start is None else dict(options.start)}
        if self._score_range is not None:
            own["score_range"] = self._score_range
        config = {"own": own}
        return SweepSpec(
            name=self._name,
            env=f"{called}()",
            method=options.method,
            seed=options.seed,
            direction=options.direction,
            space=self._space.to_dict(),
            config=config,
            provenance=provenance.collect(config),
        )


def _beside(
    work: Callable[[], SweepResult], backend: FunctionBackend | FunctionProcesses, stop: threading.Event
) -> SweepResult:
    """Returns what `work` returns, which runs in a thread of its own. Meanwhile the caller's thread runs the trials."""
    found: list[SweepResult] = []
    failed: list[BaseException] = []
    finished = threading.Event()

    def call() -> None:
        try:
            found.append(work())
        except BaseException as error:  # whatever it is, the caller's thread raises it
            failed.append(error)
        finally:
            backend.close()
            finished.set()

    threading.Thread(target=call, name="protein-sweep", daemon=True).start()
    backend.serve(stop)
    # Not `is_alive`: after a KeyboardInterrupt within `join`, Python 3.11 takes a running thread for ended.
    while not finished.is_set():
        try:
            finished.wait()
        except KeyboardInterrupt:  # once more, while the last facts are stored
            stop.set()
    if failed:
        raise failed[0]
    return found[0]


def result_of(status: SweepStatus, url: str) -> SweepResult:
    """Returns the results of a sweep whose loop has ended.

    `url` is where the store is, whatever the working directory: the function may have changed it.
    """
    trials, direction = status.trials, status.sweep.spec.direction
    best, found = None, ""
    if any(trial.state is TrialState.COMPLETE and not trial.excluded for trial in trials):
        recommended = at_the_end(status.sweep, trials, url)
        number = recommended.best.trial.number  # which was read without what it left
        best = next(shown_trial(trial, direction) for trial in trials if trial.number == number)
        found = "\n".join([summary(recommended), *recommended.notes()])
    elif (cut_short := best_cut_short(trials)) is not None:
        found = f"no complete trial\n{cut_short_note(shown_trial(cut_short, direction), trains=False)}"
    return SweepResult(
        name=status.sweep.spec.name,
        trials=tuple(shown_trial(trial, direction) for trial in trials),
        best=best,
        front=tuple(
            shown_trial(trial, direction) for trial in pareto.front(unbroken(trials, status.sweep.spec.limits))
        ),
        ended=status.ended,
        interrupted=status.stopping,
        summary=found,
        store=url,
    )


def _check_callable(train: Train) -> None:
    """Raises `UsageError`, before anything is stored, for what cannot be called as the sweep will call it."""
    if not callable(train):
        raise UsageError(f"train must be a function, called as train(params, report), got {train!r:.80}")
    try:
        signature = inspect.signature(train)
    except (TypeError, ValueError):  # some C functions have no signature; a mistake shows in the first trial
        return
    try:
        signature.bind({}, None)
    except TypeError as error:
        raise UsageError(f"train must take two arguments, as in train(params, report): {error}") from error


def _seconds(value: str | float | None, what: str) -> float | None:
    return parse_duration(value, what) if isinstance(value, str) else validate.seconds(value, what)


class _Lines:
    """A listener (see `protein.ports.Listener`) that prints the start, the end and, now and then, a finished trial."""

    def __init__(self, direction: Direction, *, quiet: bool) -> None:
        self._direction, self._quiet = direction, quiet
        self._printed = time.monotonic()
        self._spent_before: float | None = None
        self._told_of_overrun = False

    def note(self, line: str) -> None:
        self.log(line)

    def begin(self, beginning: Beginning) -> None:
        """Prints what begins now, and its limits."""
        limits, budget = _limits(beginning), beginning.settings.max_cost_seconds
        name, warm_start = beginning.sweep.spec.name, beginning.sweep.spec.warm_start
        if beginning.created:
            first = [] if budget is None else [f"budget {text.seconds(budget)}"]
            line = f"sweep '{name}': {', '.join([*first, *limits])}"
            if warm_start:
                line += f"; warm start from {described_sources(warm_start)}"
        else:
            of = "" if budget is None else f" of {text.seconds(budget)}"
            spent = f"{text.seconds(beginning.spent_seconds)}{of} spent"
            far = ", ".join([f"{_count(beginning.num_trials)} so far", spent, *limits])
            line = f"sweep '{name}' is resumed: {far}"
        self.log(line)

    def update(self, status: SweepStatus) -> None:
        if self._spent_before is None:
            self._spent_before = spent_at_start(status)

    def started(self, trial: TrialRecord) -> None:
        pass

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None:
        if self._spent_before is None:
            before = (t for t in status.trials if t.state.finished and t.number != trial.number)
            self._spent_before = spent_seconds(before)
        if time.monotonic() - self._printed >= _QUIET_SECONDS:
            line = text.outcome_line(shown_trial(trial, self._direction))
            self.log(f"{line}; {progress(status, self._spent_before).line()}")
        cap = status.max_trial_seconds
        if cap is not None and trial.cost_seconds > _MIN_OVERRUN * cap and not self._told_of_overrun:
            self._told_of_overrun = True
            self.log(
                f"trial {trial.number} took {text.seconds(trial.cost_seconds)}, above the cap of {text.seconds(cap)}:"
                " a function can be stopped only when it calls report; max_trial_cost changes the cap"
            )

    def log(self, line: str) -> None:
        self._printed = time.monotonic()
        self._print(f"{time.strftime('%H:%M:%S')} {line}")

    def conclude(self, result: SweepResult, store: str | None) -> None:
        """Prints why the sweep ended, what was found, and the command that shows it."""
        ended = "interrupted, run it again to resume" if result.interrupted else result.ended
        far = data.progress(result.trials)
        counted = ", ".join(far.counts.ends())
        trials = _count(far.counts.total) + (f" ({counted})" if counted else "")
        spent = f"{text.seconds(far.spent_seconds)} spent{far.confirmed()}"
        self._print(f"sweep '{result.name}': {ended}; {trials}; {spent}")
        for line in result.summary.splitlines() or ["no complete trial"]:
            self._print(line)
        view = "show" if result.best is None else "best"  # `protein best` needs a complete trial
        self._print(f"see: {commands.command(view, result.name, *stores.store_words(store))}")

    def _print(self, line: str) -> None:
        if self._quiet:
            return
        try:
            try:
                print(line, flush=True)
            except UnicodeEncodeError:  # it can write no more than ASCII, say
                print(line.encode("ascii", "backslashreplace").decode(), flush=True)
        except (OSError, ValueError):  # its reader is gone, or it is closed: the sweep goes on
            self._quiet = True


def _limits(beginning: Beginning) -> list[str]:
    """Returns the limits besides the budget in words."""
    settings = beginning.settings
    limits, cap, unlimited = [], settings.max_trial_seconds, settings.max_cost_seconds is None
    if unlimited and settings.max_trials is not None:
        limits.append("no budget")
    if cap is not None:
        why = "" if beginning.cap_given else " (a quarter of the budget; max_trial_cost changes it)"
        limits.append(f"at most {text.seconds(cap)} for one trial{why}")
    if settings.max_trials is not None:
        limits.append(f"at most {_count(settings.max_trials)}")
    elif unlimited:
        other = "" if cap is None else "other "
        limits.append(f"no {other}limit: it runs until Ctrl-C; budget or max_trials end it")
    return limits


def _count(count: int) -> str:
    return counted(count, "trial")
