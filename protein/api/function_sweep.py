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

import dataclasses
import inspect
import os
import threading
from collections.abc import Sequence
from typing import Literal

from protein import validate
from protein.api import stores
from protein.api import trackers as beside_trackers
from protein.api import warm_start as warm_starts
from protein.api.definition import check_name, create_or_resume
from protein.api.function_sweep_lines import Lines
from protein.api.function_sweep_result import SweepResult, result_of
from protein.errors import TrialFailed, UsageError
from protein.ports import Store, SweepStatus
from protein.run.devices import slots_of_machine
from protein.run.function import FunctionBackend, Train
from protein.run.function_processes import FunctionProcesses
from protein.space import Space
from protein.sweep import provenance, source_snapshot
from protein.sweep.loop import LoopSettings, run_sweep
from protein.sweep.methods import make_designer
from protein.sweep.stop_when import StopWhen
from protein.sweep.taking_over import refuse_beside
from protein.types import (
    Params,
    SweepRecord,
    SweepSpec,
)
from protein.units import parse_duration

_DEFAULT_NAME = "sweep"


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
        start: Params | None = None,
        max_trial_cost: str | float | None = None,
        max_trials: int | None = None,
        stop_when: str | None = None,
        warm_start: str | Sequence[str] | None = None,
        method: str = "protein",
        can_continue: bool = False,
        trackers: Sequence[str] = (),
        quiet: bool = False,
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
            start: the initial config, tried first; None: the middle of every range (method "protein").
            max_trial_cost: the cap: what one trial may cost, as `budget` and at most as much; None: a quarter of the
                budget. A trial that reaches it is stopped when it next calls `report`. In a process of its own it is
                ended without a report, where its cost is the wall clock. It is not recommended.
            max_trials: how many trials there may be, failed ones included; None: no limit. Give it for a function that
                costs next to nothing, which would never use up a budget.
            stop_when: end the sweep when more training is expected to raise the best score by less, as in "gain < 0.5
                per hour" (in score units; any duration may stand after "per"); None: spend the budget. It is asked
                after each trial. The sweep can be resumed without it.
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

        Raises:
            UsageError: a value that cannot be used, with its limit.
            SpaceError: `start` is not a point of the space.
        """
        if not isinstance(space, Space):
            raise UsageError(f"space must be a Space, got {validate.shown(space)}; write Space([...])")
        self._name = _DEFAULT_NAME if name is None else name
        self._named = name is not None
        check_name(self._name, "name")
        if not isinstance(store, str | os.PathLike | None):
            raise UsageError(f"store must be a path or a URL, or None for the usual one, got {validate.shown(store)}")
        if start is not None:
            space.validate(start := validate.plain_params(start))
        self._space, self._start, self._seed, self._method = space, start, validate.seed(seed), method
        self._budget_seconds = _seconds(budget, "budget")
        self._max_trial_seconds = _seconds(max_trial_cost, "max_trial_cost")
        if (limit := self._budget_seconds) is not None and limit < (self._max_trial_seconds or 0.0):
            raise UsageError(
                f"budget {budget} is smaller than one trial may cost, max_trial_cost {max_trial_cost}; raise the budget"
                " or lower the cap"
            )
        self._max_trials = validate.most_trials(max_trials)
        self._stop_when = None if stop_when is None else StopWhen.parse(stop_when, "stop_when", method=method)
        self._warm_start = None if warm_start is None else warm_starts.asked(warm_start)
        self._quiet, self._can_continue = quiet, can_continue
        if can_continue and space.cost_parameter is None:
            raise UsageError("can_continue needs a cost_parameter in the space: the parameter that counts the steps")
        if isinstance(trackers, str):
            raise UsageError(f"trackers must be a list of names, got {trackers!r}; write trackers=[{trackers!r}]")
        self._trackers = beside_trackers.check(trackers, "trackers")
        self._store = None if store is None else os.fspath(store)
        self._direction = validate.direction(direction)

    def run(
        self,
        train: Train,
        *,
        workers: int | None = None,
        gpus: str | None = None,
        trials_per_gpu: int = 1,
        start_method: Literal["fork", "spawn"] | None = None,
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

        Raises:
            UsageError: the stored sweep of this name differs (in space, direction, seed, method or start), or another
                process is running it. Or a GPU that is not there, or a function that cannot be run in a process of its
                own. Or a mistake in how `train` is written: its arguments, or a returned or reported
                value that is no number. That ends the sweep at once; the corrected function resumes it with the same
                config.
            TrialFailed: ten trials in a row failed.
            StoreError: the store cannot be used.
        """
        _check_callable(train)
        if not isinstance(gpus, str | None):
            raise UsageError(f"gpus must be ids in a text, as in '0,1', or 'all', got {validate.shown(gpus)}")
        if start_method not in (None, "fork", "spawn"):
            raise UsageError(f"start_method must be 'fork' or 'spawn', or None for the usual one, got {start_method!r}")
        slots = slots_of_machine(validate.workers(workers), gpus=gpus, trials_per_gpu=trials_per_gpu)
        stop = threading.Event()
        backend: FunctionBackend | FunctionProcesses
        place = stores.absolute_url(self._store)  # before the function goes to another working directory
        if slots.workers == 1 and gpus is None and start_method is None:
            backend = FunctionBackend(train, self._direction)
        else:
            backend = FunctionProcesses(train, self._direction, stop, start_method=start_method)
        with stores.opened(place, create=True) as store:
            spec = self._spec(store, train)
            designer = make_designer(
                self._method,
                self._space,
                self._start,
                seed=self._seed,
                warm_start=source_snapshot.observations(spec.warm_start),
            )
            stores.require_unlinked(place, self._name)
            sweep, created = self._create_or_resume(store, spec)
            settings = LoopSettings(
                workers=slots.workers,
                slots=slots,
                directory=stores.artifact_directory(place, self._name),
                max_cost_seconds=self._budget_seconds,
                max_trial_seconds=self._max_trial_seconds,
                max_trials=self._max_trials,
                can_continue=self._can_continue,
                stop_when=self._stop_when,
            )
            watcher = Lines(self._direction, quiet=self._quiet)
            cap_given = self._max_trial_seconds is not None
            watcher.announce(
                sweep, store.trials(sweep.id, curves=False), settings, created=created, cap_given=cap_given
            )
            failure: list[BaseException] = []
            ended: list[SweepStatus] = []
            results: list[SweepResult] = []
            finished = threading.Event()

            def loop() -> None:
                try:
                    with beside_trackers.beside(
                        watcher, self._trackers, store=self._store, sweep=self._name
                    ) as listener:
                        status = run_sweep(
                            sweep,
                            designer=designer,
                            store=store,
                            backend=backend,
                            settings=settings,
                            listener=listener,
                            stop=stop,
                        )
                    ended.append(status)
                except BaseException as error:
                    failure.append(error)
                finally:
                    backend.close()
                try:  # here, so that one more Ctrl-C does not cost the results of a sweep that has ended
                    if ended and not ended[0].trouble:
                        trials = store.trials(sweep.id)
                        results.append(result_of(sweep, trials, self._direction, ended=ended[0], url=place))
                except BaseException as error:
                    failure.append(error)
                finally:
                    finished.set()

            thread = threading.Thread(target=loop, name="protein-sweep", daemon=True)
            thread.start()
            backend.serve(stop)
            # Not `is_alive`: after a KeyboardInterrupt within `join`, Python 3.11 takes a running thread for ended.
            while not finished.is_set():
                try:
                    finished.wait()
                except KeyboardInterrupt:  # once more, while the last facts are stored
                    stop.set()
            for error in failure:
                raise error
            if ended[0].trouble:
                raise TrialFailed(ended[0].ended)
        (result,) = results
        watcher.conclude(result, self._store)
        return result

    def _create_or_resume(self, store: Store, spec: SweepSpec) -> tuple[SweepRecord, bool]:
        try:
            sweep, created = create_or_resume(store, spec, self._budget_seconds)
        except UsageError as error:
            if self._named:
                raise
            raise UsageError(f"{error}; no name was given: choose one with name=") from error
        refuse_beside(store, sweep)
        return sweep, created

    def _spec(self, store: Store, train: Train) -> SweepSpec:
        config = {"own": {"start": None if self._start is None else dict(self._start)}}
        spec = SweepSpec(
            name=self._name,
            env=f"{getattr(train, '__name__', type(train).__name__)}()",
            method=self._method,
            seed=self._seed,
            direction=self._direction,
            space=self._space.to_dict(),
            config=config,
            provenance=provenance.collect(config),
        )
        taken = warm_starts.snapshot(store, spec, self._warm_start, self._start)
        return dataclasses.replace(spec, warm_start=taken)


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
