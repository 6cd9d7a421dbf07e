"""A sweep that people cancel or pause from outside."""

import threading
from pathlib import Path

import small_sweep
from sweep_control import AtPoint, found, opened

from protein.engine.budget import limit_reached
from protein.ports import SweepStatus
from protein.types import Request, TrialEnd, TrialState


def test_a_running_trial_is_cancelled_from_outside_and_the_sweep_goes_on(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "hang-0000").write_text("2 saved")
    listener = AtPoint(tmp_path, lambda store, status: store.cancel(status.sweep.id, [0]))
    spec = small_sweep.sweep_spec(behaviour="saves")
    small_sweep.sweep(tmp_path, spec=spec, listener=listener, budget_seconds=None, max_trials=2)
    sweep, [first, second] = found(tmp_path)
    assert (first.state, first.end, first.reason) == (TrialState.FAILED, TrialEnd.INTERRUPTED, "cancelled by hand")
    assert first.cost_seconds > 0 and second.end is TrialEnd.COMPLETE
    assert "trial 0 is cancelled" in listener.lines
    assert sweep.ended == limit_reached(2)


def test_a_waiting_trial_that_is_cancelled_is_not_taken_up(tmp_path: Path) -> None:
    stop = threading.Event()
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "hang-0000").write_text("2 saved")
    spec = small_sweep.sweep_spec(behaviour="saves")
    small_sweep.sweep(tmp_path, spec=spec, listener=AtPoint(tmp_path, lambda *_: stop.set()), stop=stop)
    assert found(tmp_path)[1][0].state is TrialState.WAITING
    store = opened(tmp_path)
    store.cancel(1, [0])
    store.close()
    listener = small_sweep.Lines()
    small_sweep.sweep(tmp_path, listener=listener, budget_seconds=None, max_trials=2)
    assert [trial.number for trial in listener.begun] == [1]
    assert found(tmp_path)[1][0].reason == "cancelled by hand"


def test_a_paused_sweep_says_so_and_starts_nothing_even_of_what_waits(tmp_path: Path) -> None:
    stop = threading.Event()
    spec = small_sweep.sweep_spec(behaviour="hang")
    small_sweep.sweep(tmp_path, spec=spec, listener=AtPoint(tmp_path, lambda *_: stop.set()), stop=stop)
    store = opened(tmp_path)
    store.request(1, Request.PAUSE)
    store.close()
    stop.clear()

    class StopSoon(small_sweep.Lines):
        def update(self, status: SweepStatus) -> None:
            super().update(status)
            if self.updates == 3:
                stop.set()

    listener = StopSoon()
    small_sweep.sweep(tmp_path, spec=spec, listener=listener, stop=stop)
    assert listener.begun == []
