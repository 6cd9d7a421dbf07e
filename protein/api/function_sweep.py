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
in the caller's thread, one trial after the other, where interrupts, debuggers and frameworks expect it. Cost is the
wall clock of the function, or what it reports. A trial can be stopped only when it reports.
"""

import dataclasses
import inspect
import os
import threading
import time
import warnings
from typing import Literal

from protein import validate
from protein.api import stores
from protein.api import warm_start as warm_starts
from protein.api.definition import check_name, create_or_resume
from protein.api.recommended import best_cut_short, cut_short_note, recommendation
from protein.api.summary import summary
from protein.direction import shown_trial
from protein.engine import pareto
from protein.errors import UsageError
from protein.ports import Store, SweepStatus
from protein.space import Space
from protein.sweep import provenance, source_snapshot
from protein.sweep.backends.function import FunctionBackend, Train
from protein.sweep.loop import LoopSettings, run_sweep
from protein.sweep.methods import make_designer
from protein.types import (
    Direction,
    Params,
    SweepRecord,
    SweepSpec,
    TrialRecord,
    TrialState,
)
from protein.units import parse_duration
from protein.view import commands, text
from protein.view.progress import progress

_QUIET_SECONDS = 2.0  # nothing is printed before, and then at most one line in this time


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """The results of a sweep so far. Scores are as the training function returned them.

    Attributes:
        name: the sweep's, to ask `protein best NAME` and the like.
        trials: all, by number.
        best: what `protein best` recommends, the complete trial with the best expected score. It need not be the one
            that measured best, whose score noise may have raised. None where no trial is complete.
        front: the Pareto front, cheapest first: each trial measured better than all that cost less.
        summary: what was found, in a sentence, and what to know before using it; "" where no trial is complete.
        ended: why no more trials were started, in words, as in "the budget is spent", "every config of the space was
            tried" or "the limit of 20 trials is reached"; "interrupted" by Ctrl-C.
        interrupted: whether Ctrl-C ended it.
    """

    name: str
    trials: tuple[TrialRecord, ...]
    best: TrialRecord | None
    front: tuple[TrialRecord, ...]
    ended: str
    interrupted: bool
    summary: str


class Sweep:
    """A cost-aware search over your own training function. See the head of this file."""

    def __init__(
        self,
        space: Space,
        *,
        budget: str | float | None = None,
        name: str = "sweep",
        store: str | os.PathLike[str] | None = None,
        seed: int = 0,
        direction: Literal["maximize", "minimize"] = "maximize",
        start: Params | None = None,
        max_trial_cost: str | float | None = None,
        max_trials: int | None = None,
        warm_start: str | None = None,
        method: str = "protein",
        quiet: bool = False,
        prior: str | None = None,
    ) -> None:
        """Defines the sweep; nothing is run or stored yet.

        Args:
            space: what to search. Its `cost_parameter` is the parameter that makes a trial expensive; without one, the
                engine learns what does.
            budget: what all trials together may cost: seconds, or text such as "90s", "10m" or "1h30m"; None: no limit.
                Without `budget` and `max_trials` the sweep runs until Ctrl-C.
            name: of the sweep in its store; the same name resumes the same sweep.
            store: a path or URL; None: $PROTEIN_STORE or runs/protein.db, as for the command line.
            seed: the source of randomness.
            direction: whether a higher score is better, or a lower one.
            start: the initial config, tried first; None: none.
            max_trial_cost: what one trial may cost, as `budget`; None: a quarter of the budget. A trial that reaches it
                is stopped and is not recommended.
            max_trials: how many trials there may be, failed ones included; None: no limit. Give it for a function that
                costs next to nothing, which would never use up a budget.
            warm_start: name of another sweep of the store to learn from, as far as this sweep's own trials agree with
                it.
            method: "protein"; "random" or one of Optuna's such as "optuna:tpe" for comparison.
            quiet: print nothing.
            prior: the old name of `warm_start`.

        Raises:
            UsageError: a value that cannot be used, with its limit.
            SpaceError: `start` is not a point of the space.
        """
        if not isinstance(space, Space):
            raise UsageError(f"space must be a Space, got {validate.shown(space)}; write Space([...])")
        check_name(name, "name")
        if prior is not None:
            warnings.warn("prior= is now called warm_start=", FutureWarning, stacklevel=2)
            warm_start = prior if warm_start is None else warm_start
        if not isinstance(store, str | os.PathLike | None):
            raise UsageError(f"store must be a path or a URL, or None for the usual one, got {validate.shown(store)}")
        if start is not None:
            space.validate(start := validate.plain_params(start))
        self._space, self._start, self._seed, self._method = space, start, validate.seed(seed), method
        self._budget_seconds = _seconds(budget, "budget")
        self._max_trial_seconds = _seconds(max_trial_cost, "max_trial_cost")
        self._max_trials = validate.most_trials(max_trials)
        self._name, self._warm_start, self._quiet = name, warm_start, quiet
        self._store = None if store is None else os.fspath(store)
        self._direction = validate.direction(direction)

    def run(self, train: Train) -> SweepResult:
        """Runs trials until the budget is spent or Ctrl-C, and returns the results of all trials of the sweep.

        Args:
            train: called as `train(params, report)`; returns the score. An exception in it ends only that trial, which
                counts as failed; its reason and cost are stored, and the traceback is in the trial's log.

        Raises:
            UsageError: the stored sweep of this name differs (in space, direction, seed, method or start), or another
                process is running it. Or a mistake in how `train` is written: its arguments, or a returned or reported
                value that is no number. That ends the sweep at once; the corrected function resumes it with the same
                config.
            TrialFailed: ten trials in a row failed.
            StoreError: the store cannot be used.
        """
        _check_callable(train)
        with stores.opened(self._store, create=True) as store:
            spec = self._spec(store, train)
            designer = make_designer(
                self._method,
                self._space,
                self._start,
                seed=self._seed,
                warm_start=source_snapshot.observations(spec.warm_start),
            )
            sweep, _ = create_or_resume(store, spec, self._budget_seconds)
            backend = FunctionBackend(train, self._direction)
            settings = LoopSettings(
                directory=stores.artifact_directory(stores.url(self._store), self._name),
                max_cost_seconds=self._budget_seconds,
                max_trial_seconds=self._max_trial_seconds,
                max_trials=self._max_trials,
            )
            watcher = _Lines(self._name, settings.max_trial_seconds, self._direction, quiet=self._quiet)
            stop = threading.Event()
            failure: list[BaseException] = []
            ended: list[SweepStatus] = []

            def loop() -> None:
                try:
                    status = run_sweep(
                        sweep,
                        designer=designer,
                        store=store,
                        backend=backend,
                        settings=settings,
                        listener=watcher,
                        stop=stop,
                    )
                    ended.append(status)
                except BaseException as error:
                    failure.append(error)
                finally:
                    backend.close()

            thread = threading.Thread(target=loop, name="protein-sweep", daemon=True)
            thread.start()
            backend.serve(stop)
            while thread.is_alive():
                try:
                    thread.join()
                except KeyboardInterrupt:  # once more, while the last facts are stored
                    stop.set()
            for error in (*backend.errors, *failure):
                raise error
            result = _result(sweep, store.trials(sweep.id), self._direction, ended=ended[0])
        watcher.conclude(result, self._store)
        return result

    def _spec(self, store: Store, train: Train) -> SweepSpec:
        config = {"own": {"start": None if self._start is None else dict(self._start)}}
        return SweepSpec(
            name=self._name,
            env=f"{getattr(train, '__name__', type(train).__name__)}()",
            method=self._method,
            seed=self._seed,
            direction=self._direction,
            space=self._space.to_dict(),
            config=config,
            warm_start=warm_starts.snapshot(store, self._name, self._warm_start, self._space),
            provenance=provenance.collect(config),
        )


class _Lines:
    """A listener (see `protein.ports.Listener`): now and then a line, in sweeps that take longer than a moment."""

    def __init__(self, name: str, cap_seconds: float | None, direction: Direction, *, quiet: bool) -> None:
        self._name, self._cap_seconds, self._direction, self._quiet = name, cap_seconds, direction, quiet
        self._began = self._printed = time.monotonic()
        self._spent_before: float | None = None

    def update(self, status: SweepStatus) -> None:
        if self._spent_before is None:
            self._spent_before = sum(trial.cost_seconds for trial in status.trials if trial.state.finished)

    def started(self, trial: TrialRecord) -> None:
        pass

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None:
        if self._spent_before is None:
            before = [t.cost_seconds for t in status.trials if t.state.finished and t.number != trial.number]
            self._spent_before = sum(before)
        if time.monotonic() - self._printed >= _QUIET_SECONDS:
            line = text.outcome_line(shown_trial(trial, self._direction))
            self.log(f"{line}; {progress(status, self._spent_before).line()}")

    def log(self, line: str) -> None:
        if self._cap_seconds is not None:  # once, before the first line
            cap, self._cap_seconds = text.seconds(self._cap_seconds), None
            self.log(f"sweep '{self._name}': at most {cap} for one trial; max_trial_cost changes it")
        self._printed = time.monotonic()
        if not self._quiet:
            print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)

    def conclude(self, result: SweepResult, store: str | None) -> None:
        """Prints the results in one line."""
        if not result.interrupted and time.monotonic() - self._began < _QUIET_SECONDS:
            return
        ended = "interrupted, run it again to resume" if result.interrupted else result.ended
        line = commands.command("best", result.name, *stores.store_words(store))
        found = result.summary or "no complete trial"
        self.log(f"sweep '{result.name}': {ended}; {len(result.trials)} trials; {found}; see: {line}")


def _result(sweep: SweepRecord, trials: list[TrialRecord], direction: Direction, *, ended: SweepStatus) -> SweepResult:
    best, found = None, ""
    if any(trial.state is TrialState.COMPLETE for trial in trials):
        recommended = recommendation(sweep, trials)
        best = recommended.best.trial  # its score is as the function returned it
        found = "; ".join([summary(recommended), *recommended.notes()])
    elif (cut_short := best_cut_short(trials)) is not None:
        found = f"no complete trial; {cut_short_note(shown_trial(cut_short, direction), trains=False)}"
    return SweepResult(
        name=sweep.spec.name,
        trials=tuple(shown_trial(trial, direction) for trial in trials),
        best=best,
        front=tuple(shown_trial(trial, direction) for trial in pareto.front(trials)),
        ended=ended.ended,
        interrupted=ended.stopping,
        summary=found,
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
