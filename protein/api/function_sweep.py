"""`protein.Sweep`: a sweep over your own training function, kept in the same store as all others.

    def train(params, report):
        model = Model(params["width"])
        for epoch in range(params["epochs"]):
            model.fit_one_epoch(lr=params["lr"])
            report(epoch + 1, model.validate())
        return model.validate()

    result = protein.Sweep(space, budget="10m", name="mine").run(train)
    print(result.best.score, result.best.params)

The same call again goes on where the last one stopped: Ctrl-C, `kill -9` and a larger budget included. `protein
status`, `show`, `best` and `pareto` read it. The loop is that of `protein sweep`, in a thread of its own; the function
runs in the caller's thread, one trial after the other, where an interrupt, a debugger and a framework's own threads
find what they expect. Cost is the wall clock of the function, or what it reports. A trial can be stopped only while it
reports.
"""

import dataclasses
import inspect
import os
import re
import threading
import time
from typing import Any, Literal

from protein import validate
from protein.api import source as priors
from protein.api import stores
from protein.api.recommended import recommendation
from protein.direction import shown_trial
from protein.engine import pareto
from protein.errors import UsageError
from protein.ports import Store, SweepStatus
from protein.space import Space
from protein.sweep import provenance
from protein.sweep import source as prior
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
from protein.view import text
from protein.view.progress import progress

_QUIET_SECONDS = 2.0  # nothing is printed before, and at most one line in so many afterwards
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What came of a sweep so far; scores as the training function returned them.

    Attributes:
        name: the sweep's, to ask `protein best NAME` and the like.
        trials: all, by number.
        best: what `protein best` recommends, the complete trial of the best expected score: noise may have flattered
            the one that measured best. None where no trial is complete.
        front: the Pareto front, cheapest first: each trial beats all that cost less.
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


class Sweep:
    """A cost-aware search over a training function of your own. See the head of this file."""

    def __init__(
        self,
        space: Space,
        *,
        budget: str | float | None,
        name: str = "sweep",
        store: str | os.PathLike[str] | None = None,
        seed: int = 0,
        direction: Literal["maximize", "minimize"] = "maximize",
        start: Params | None = None,
        max_trial_cost: str | float | None = None,
        max_trials: int | None = None,
        prior: str | None = None,
        method: str = "protein",
        quiet: bool = False,
    ) -> None:
        """Says what to search; nothing is run or stored yet.

        Args:
            space: what to search. Its `cost_parameter` says what makes a trial dear; without it the engine finds out.
            budget: what all trials together may cost: seconds, or text such as "90s", "10m" or "1h30m"; None: no limit,
                it runs until Ctrl-C.
            name: of the sweep in its store; the same name goes on with the same sweep.
            store: a path or URL; None: $PROTEIN_STORE or runs/protein.db, where the command line looks, too.
            seed: the source of randomness.
            direction: whether a higher score is better, or a lower one.
            start: the config that you have, tried first; None: none.
            max_trial_cost: what one trial may cost, as `budget`; None: a quarter of it.
            max_trials: how many trials there may be, failed ones included; None: no limit. A function that costs next
                to nothing would never use up its budget without it.
            prior: name of another sweep of the store to begin from; it counts until this sweep's trials say otherwise.
            method: "protein"; "random" or one of Optuna's such as "optuna:tpe" for comparison.
            quiet: print nothing.

        Raises:
            UsageError: a value that cannot be used, with its limit.
            SpaceError: `start` is not a point of the space.
        """
        if not isinstance(space, Space):
            raise UsageError(f"space must be a Space, got {validate.shown(space)}; write Space([...])")
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise UsageError(
                f"name {name!r} must be 1 to 64 letters, digits, dots, dashes or underscores; choose another"
            )
        if not isinstance(store, str | os.PathLike | None):
            raise UsageError(f"store must be a path or a URL, or None for the usual one, got {validate.shown(store)}")
        if start is not None:
            space.validate(start := validate.plain_params(start))
        self._space, self._start, self._seed, self._method = space, start, validate.seed(seed), method
        self._budget_seconds = _seconds(budget, "budget")
        self._max_trial_seconds = _seconds(max_trial_cost, "max_trial_cost")
        self._max_trials = validate.most_trials(max_trials)
        self._name, self._prior, self._quiet = name, prior, quiet
        self._store = None if store is None else os.fspath(store)
        self._direction = validate.direction(direction)

    def run(self, train: Train) -> SweepResult:
        """Runs trials until the budget is spent or Ctrl-C, and returns what all trials of the sweep came to.

        Args:
            train: called as `train(params, report)`; returns the score. What it raises ends that trial alone, as
                failed, with the reason and what it cost; the traceback is in the trial's log.

        Raises:
            UsageError: a sweep of this name is another one (space, direction, seed, method or start differ), or another
                process is running it; or a mistake in how `train` is written: its arguments, a returned or reported
                value that is no number. That ends the sweep at once; mended, it goes on, with the same config.
            TrialFailed: ten trials in a row failed.
            StoreError: the store cannot be used.
        """
        _check_callable(train)
        with stores.opened(self._store, create=True) as store:
            spec = self._spec(store, train)
            designer = make_designer(
                self._method, self._space, self._start, seed=self._seed, prior=prior.observations(spec.warm_start)
            )
            sweep = self._create_or_resume(store, spec)
            backend = FunctionBackend(train, self._direction)
            watcher = _Lines(self._direction, quiet=self._quiet)
            stop = threading.Event()
            settings = LoopSettings(
                directory=stores.artifact_directory(stores.url(self._store), self._name),
                max_cost_seconds=self._budget_seconds,
                max_trial_seconds=self._max_trial_seconds,
                max_trials=self._max_trials,
            )
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
            warm_start=priors.of_sweep(store, self._name, self._prior, self._space),
            provenance=provenance.collect(config),
        )

    def _create_or_resume(self, store: Store, spec: SweepSpec) -> SweepRecord:
        found = store.find_sweep(spec.name)
        if found is None:
            return store.create_sweep(spec, self._budget_seconds)
        configs = (found.spec.config, spec.config)
        stored = Space.from_dict(found.spec.space)
        old, new = _parts(stored), _parts(self._space)
        for what, before, now in (
            *((what, old.get(what), new.get(what)) for what in {**old, **new}),
            ("order of parameters", stored.names, self._space.names),  # where that is all that differs
            ("direction", str(found.spec.direction), str(spec.direction)),
            ("start", *(config.get("own", {}).get("start") for config in configs)),
            ("method", found.spec.method, spec.method),
            ("seed", found.spec.seed, spec.seed),
        ):
            if before != now:
                raise UsageError(
                    f"sweep '{spec.name}' exists with another {what}: {before!r:.200} (now {now!r:.200}); choose"
                    " another name, or leave it as it was"
                )
        return found


class _Lines:
    """A listener (see `protein.ports.Listener`): a line now and then, once the sweep takes longer than a moment."""

    def __init__(self, direction: Direction, *, quiet: bool) -> None:
        self._direction, self._quiet = direction, quiet
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
        self._printed = time.monotonic()
        if not self._quiet:
            print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)

    def conclude(self, result: SweepResult, store: str | None) -> None:
        """Says what came of it, in one line."""
        if not result.interrupted and time.monotonic() - self._began < _QUIET_SECONDS:
            return
        best = result.best
        said = "no complete trial" if best is None else f"best {text.score(best.score)} (trial {best.number})"
        ended = "interrupted, run it again to go on" if result.interrupted else result.ended
        words = " ".join(["protein best", result.name, *stores.store_words(store)])
        self.log(f"sweep '{result.name}': {ended}; {len(result.trials)} trials, {said}; see: {words}")


def _result(sweep: SweepRecord, trials: list[TrialRecord], direction: Direction, *, ended: SweepStatus) -> SweepResult:
    complete = any(trial.state is TrialState.COMPLETE for trial in trials)
    best = recommendation(sweep, trials).best.trial if complete else None  # as it is shown
    return SweepResult(
        name=sweep.spec.name,
        trials=tuple(shown_trial(trial, direction) for trial in trials),
        best=best,
        front=tuple(shown_trial(trial, direction) for trial in pareto.front(trials)),
        ended=ended.ended,
        interrupted=ended.stopping,
    )


def _parts(space: Space) -> dict[str, Any]:
    """Returns all that makes two spaces differ, but for an order, by how a message calls it."""
    parameters = {f"parameter '{parameter.name}'": parameter for parameter in space.parameters}
    return {
        **parameters,
        "cost parameter": space.cost_parameter,
        "constraints": space.constraints,
        "fixed values": space.fixed,
    }


def _check_callable(train: Train) -> None:
    """Raises `UsageError` for what cannot be called as the sweep will call it, before anything is stored."""
    if not callable(train):
        raise UsageError(f"train must be a function, called as train(params, report), got {train!r:.80}")
    try:
        signature = inspect.signature(train)
    except (TypeError, ValueError):  # a few written in C have none; their first trial will tell
        return
    try:
        signature.bind({}, None)
    except TypeError as error:
        raise UsageError(f"train must take two arguments, as in train(params, report): {error}") from error


def _seconds(value: str | float | None, what: str) -> float | None:
    return parse_duration(value, what) if isinstance(value, str) else validate.seconds(value, what)
