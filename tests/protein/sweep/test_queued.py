"""Trials that people queue: before a sweep runs, while it runs, and at the moment at which it starts another one."""

import threading
from pathlib import Path
from typing import Any

import small_sweep
from sweep_control import AtPoint, found, opened

from protein.api import by_hand
from protein.engine.designer import RandomDesigner
from protein.ports import Store, SweepStatus
from protein.sweep.methods import make_designer
from protein.types import Params, Suggestion, SuggestionKind, TrialEnd, TrialRecord, TrialState

HAND = {"train.score": 0.25, "train.cost": 0.125}
OTHER = {"train.score": 0.75, "train.cost": 0.125}
SPEC = small_sweep.sweep_spec(score=0.5, cost=0.5)
START = {"train.score": 0.5, "train.cost": 0.5}


def queue(folder: Path, *points: Params) -> list[int]:
    store = opened(folder)
    try:
        record = small_sweep.find_or_create(store, SPEC)
        return by_hand.queue(store, record, points)
    finally:
        store.close()


def kinds(trials: Any) -> list[str]:
    return [str(trial.kind) for trial in trials]


def test_what_is_queued_before_comes_first_and_the_search_begins_with_its_initial_config(tmp_path: Path) -> None:
    assert queue(tmp_path, HAND, OTHER) == [0, 1]
    listener = small_sweep.Lines()
    status = small_sweep.sweep(
        tmp_path,
        spec=SPEC,
        designer=make_designer("random", small_sweep.space(), START),
        listener=listener,
        budget_seconds=None,
        max_trials=4,
    )
    assert [trial.params for trial in status.trials[:3]] == [HAND, OTHER, START]
    assert kinds(status.trials) == ["by_hand", "by_hand", "initial_config", "random"]
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE] * 4
    assert [trial.number for trial in listener.begun] == [0, 1, 2, 3]
    hashes = {trial.provenance.config_hash for trial in status.trials}
    assert len(hashes) == 4, "of what was run, and not of what was there when it was queued"

    class Asked(RandomDesigner):
        """Keeps what it was told runs or waits."""

        running: Any = None

        def suggest(self, history: Any, running: Any, *more: Any) -> Suggestion | None:
            self.running = [one.params for one in history] + list(running)
            return super().suggest(history, running, *more)

    designer = Asked(small_sweep.space(), START)
    small_sweep.sweep(tmp_path, spec=SPEC, designer=designer, budget_seconds=None, max_trials=5)
    assert HAND in designer.running and OTHER in designer.running, "so that it does not repeat them"


def test_a_running_sweep_takes_it_up_next_and_no_other_trial_is_changed(tmp_path: Path) -> None:
    plain = small_sweep.sweep(tmp_path / "plain", spec=SPEC, budget_seconds=None, max_trials=4).trials

    def act(store: Store, status: SweepStatus) -> None:
        by_hand.queue(store, status.sweep, [HAND])

    listener = AtPoint(tmp_path, act)
    status = small_sweep.sweep(tmp_path, spec=SPEC, listener=listener, budget_seconds=None, max_trials=4)
    assert kinds(status.trials) == ["random", "by_hand", "random", "random"]
    assert status.trials[1].params == HAND
    assert [one.params for one in status.trials if one.number != 1] == [one.params for one in plain if one.number != 1]
    assert "queued by hand: 1 trial, 1" in listener.lines


def test_one_that_is_queued_while_another_is_chosen_is_run_too(tmp_path: Path) -> None:
    class Interrupted(RandomDesigner):
        """While it thinks for the first time, somebody queues a trial: the number that it thinks for is taken."""

        asked = 0

        def suggest(self, *arguments: Any) -> Suggestion | None:
            self.asked += 1
            if self.asked == 1:
                queue(tmp_path, HAND)
            return super().suggest(*arguments)

    designer = Interrupted(small_sweep.space(), None)
    status = small_sweep.sweep(tmp_path, spec=SPEC, designer=designer, budget_seconds=None, max_trials=3, workers=2)
    assert kinds(status.trials) == ["by_hand", "random", "random"]
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE] * 3


def test_a_spent_budget_keeps_it_queued_and_says_so_and_more_budget_runs_it(tmp_path: Path) -> None:
    first = small_sweep.sweep(tmp_path, spec=SPEC, budget_seconds=0.5)
    number = len(first.trials)
    assert queue(tmp_path, HAND) == [number]
    again = small_sweep.sweep(tmp_path, spec=SPEC, budget_seconds=0.9 * first.spent_seconds)
    assert again.trials[number].is_queued and len(again.trials) == number + 1
    assert f"; trial {number}, queued by hand, has not run, and waits for the next run of the sweep" in again.ended
    more = small_sweep.sweep(tmp_path, spec=SPEC, budget_seconds=None, max_trials=number)
    assert more.trials[number].end is TrialEnd.COMPLETE, "although the limit of trials is reached"


def test_ctrl_c_keeps_it_queued_and_cancel_removes_it(tmp_path: Path) -> None:
    stop = threading.Event()

    class StopSoon(small_sweep.Lines):
        def started(self, trial: TrialRecord) -> None:
            queue(tmp_path, HAND, OTHER)
            stop.set()

    small_sweep.sweep(tmp_path, spec=SPEC, listener=StopSoon(), stop=stop, budget_seconds=None, max_trials=2)
    record, trials = found(tmp_path)
    assert [trial.is_queued for trial in trials] == [False, True, True]
    store = opened(tmp_path)
    store.cancel(record.id, [1])
    store.close()
    status = small_sweep.sweep(tmp_path, spec=SPEC, budget_seconds=None, max_trials=2)
    assert (status.trials[1].end, status.trials[2].end) == (TrialEnd.INTERRUPTED, TrialEnd.COMPLETE)
    assert status.trials[1].state is TrialState.FAILED and not status.trials[1].cost_seconds
    assert status.trials[2].kind is SuggestionKind.BY_HAND
