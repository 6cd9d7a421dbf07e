"""What people ask of a running sweep from outside: a pause, a stop, exclusions. With real processes and SQLite."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import small_sweep

from protein import storage
from protein.engine.designer import RandomDesigner
from protein.ports import Store, SweepStatus
from protein.sweep.loop import POLL_SECONDS
from protein.types import Budget, Observation, Params, Request, Suggestion, TrialEnd, TrialRecord, TrialState


class Outside(small_sweep.Lines):
    """Does something to the store, as another process would, when a trial has started or ended."""

    def __init__(
        self,
        folder: Path,
        *,
        on_start: Callable[[Store, int, int], None] = lambda *_: None,
        on_end: Callable[[Store, int, int], None] = lambda *_: None,
    ) -> None:
        super().__init__()
        self._url, self._on_start, self._on_end = f"sqlite:///{folder}/protein.db", on_start, on_end
        self.statuses: list[SweepStatus] = []

    def started(self, trial: TrialRecord) -> None:
        super().started(trial)
        self._call(self._on_start, trial)

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None:
        super().finished(trial, status)
        self.statuses.append(status)
        self._call(self._on_end, trial)

    def _call(self, what: Callable[[Store, int, int], None], trial: TrialRecord) -> None:
        store = storage.open_store(self._url)
        what(store, trial.sweep_id, trial.number)
        store.close()


def found(folder: Path) -> tuple[Request, list[TrialRecord]]:
    store = storage.open_store(f"sqlite:///{folder}/protein.db")
    [sweep] = store.list_sweeps()
    trials = store.trials(sweep.id)
    store.close()
    return sweep.requested, trials


def test_a_paused_sweep_starts_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    resumed_at: list[float] = []
    clocks: list[float] = []  # the wall clock, without what the sweep says of its own

    def pause(store: Store, sweep_id: int, number: int) -> None:
        if number == 0:  # it runs now, and goes on to its end
            store.request(sweep_id, Request.PAUSE)

    class Patient(Outside):
        def update(self, status: SweepStatus) -> None:
            super().update(status)
            if status.sweep.requested is Request.PAUSE and len(status.trials) == 1 and status.trials[0].finished_at:
                self.waited = getattr(self, "waited", 0) + 1
                clocks.append(time.monotonic() - status.elapsed_seconds)
                if self.waited == 4:
                    store = storage.open_store(self._url)
                    store.request(status.sweep.id, Request.RUN)
                    store.close()
                    resumed_at.append(time.monotonic())

    listener = Patient(tmp_path, on_start=pause)
    status = small_sweep.sweep(tmp_path, listener=listener, max_trials=3, budget_seconds=None)
    assert len(resumed_at) == 1
    assert clocks[3] - clocks[0] >= 3 * POLL_SECONDS, "a pause is no overhead of the sweep"
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE] * 3
    assert [line for line in listener.lines if "sweep 's'" in line] == [
        "sweep 's' is paused: trials that run go on, and none starts until protein resume s",
        "sweep 's' goes on: trials start again",
    ]
    assert found(tmp_path)[0] is Request.RUN


def test_a_pause_outlives_the_process_and_a_stop_ends_the_pause(tmp_path: Path) -> None:
    def pause(store: Store, sweep_id: int, number: int) -> None:
        store.request(sweep_id, Request.PAUSE)

    stop = threading.Event()

    class StopWhenPaused(Outside):
        def update(self, status: SweepStatus) -> None:
            if status.sweep.requested is Request.PAUSE and status.trials and status.trials[-1].finished_at:
                stop.set()

    status = small_sweep.sweep(tmp_path, listener=StopWhenPaused(tmp_path, on_end=pause), stop=stop)
    assert (status.ended, len(status.trials)) == ("interrupted", 1)
    assert found(tmp_path)[0] is Request.PAUSE

    class StopFromOutside(Outside):
        def update(self, status: SweepStatus) -> None:
            store = storage.open_store(self._url)
            store.request(status.sweep.id, Request.STOP)
            store.close()

    listener = StopFromOutside(tmp_path)
    again = small_sweep.sweep(tmp_path, listener=listener)
    assert (again.ended, again.stopping, listener.begun) == ("stopped from outside", True, [])
    assert found(tmp_path)[0] is Request.RUN


def test_a_stop_from_outside_interrupts_what_runs_and_does_not_stop_the_next_start(tmp_path: Path) -> None:
    listener = Outside(tmp_path, on_start=lambda store, sweep_id, _: store.request(sweep_id, Request.STOP))
    spec = small_sweep.sweep_spec(behaviour="hang")
    status = small_sweep.sweep(tmp_path, spec=spec, listener=listener)
    assert status.stopping
    requested, [trial] = found(tmp_path)
    assert (trial.state, trial.reason, trial.score) == (TrialState.WAITING, "interrupted", None)
    assert requested is Request.RUN
    assert listener.lines == [
        "the sweep was asked to stop from outside: running trials are interrupted",
        "trial 0 waits to be taken up again: interrupted",
    ]


def test_a_stop_that_came_too_late_is_forgotten(tmp_path: Path) -> None:
    small_sweep.sweep(tmp_path, max_trials=1)
    store = storage.open_store(f"sqlite:///{tmp_path}/protein.db")
    store.request(1, Request.STOP)
    store.close()
    status = small_sweep.sweep(tmp_path, max_trials=2)
    assert (len(status.trials), status.stopping) == (2, False)
    assert found(tmp_path)[0] is Request.RUN


class Remembering(RandomDesigner):
    """Keeps which trials each suggestion learnt from, and which counted as excluded."""

    def __init__(self) -> None:
        super().__init__(small_sweep.space(), None)
        self.seen: list[tuple[list[int | None], list[int | None]]] = []

    def suggest(
        self, history: Sequence[Observation], running: Sequence[Params], budget: Budget, seed: int
    ) -> Suggestion | None:
        learnt = [one.number for one in history if not one.excluded]
        self.seen.append((learnt, [one.number for one in history if one.excluded]))
        return super().suggest(history, running, budget, seed)


def test_an_exclusion_reaches_the_next_suggestion_and_is_undone_as_easily(tmp_path: Path) -> None:
    def change(store: Store, sweep_id: int, number: int) -> None:
        if number in (1, 2):
            store.annotate(sweep_id, 0, excluded=number == 1)

    designer, listener = Remembering(), Outside(tmp_path, on_end=change)
    status = small_sweep.sweep(tmp_path, designer=designer, listener=listener, max_trials=4, budget_seconds=None)
    assert designer.seen == [([], []), ([0], []), ([1], [0]), ([0, 1, 2], [])]
    assert [line for line in listener.lines if line.startswith("trial 0")] == [
        "trial 0 is excluded: the engine ignores it from the next suggestion on",
        "trial 0 counts again: the engine learns from it from the next suggestion on",
    ]
    assert listener.statuses[2].trials[0].excluded
    assert not any(trial.excluded for trial in status.trials)


def test_a_resumed_sweep_knows_what_was_excluded(tmp_path: Path) -> None:
    before = small_sweep.sweep(tmp_path, max_trials=2, budget_seconds=None)
    store = storage.open_store(f"sqlite:///{tmp_path}/protein.db")
    store.annotate(before.sweep.id, 1, excluded=True)
    store.close()
    designer = Remembering()
    after = small_sweep.sweep(tmp_path, designer=designer, max_trials=3, budget_seconds=None)
    assert designer.seen == [([0], [1])]
    assert [trial.excluded for trial in after.trials] == [False, True, False]
    assert after.trials[1].score == before.trials[1].score
    assert after.spent_seconds == pytest.approx(sum(trial.cost_seconds for trial in after.trials))
