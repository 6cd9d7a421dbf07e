"""What is left of the budget for a trial that goes on, beside others that wait."""

from pathlib import Path
from typing import Any

import pytest
import store_samples

from protein.storage import open_store
from protein.sweep.limits import next_budget
from protein.types import Measurement

CAP = 25.0


def test_trials_that_wait_leave_the_rest_of_the_budget_to_the_first_of_them(tmp_path: Path) -> None:
    """Each of four may cost a quarter of the budget, and their limits were lost with the process."""
    store = open_store(f"sqlite:///{tmp_path}/p.db")
    sweep = store_samples.new_sweep(store)
    store.finish_trial(store_samples.start(store, sweep), store_samples.complete(8.0))
    for _ in range(4):
        trial = store_samples.start(store, sweep)
        store.add_measurements(trial, [Measurement(steps=1, elapsed_seconds=5.0, score=0.5)], 600.0)
        store.release_trial(trial, "interrupted")
    records = {trial.number: trial for trial in store.trials(sweep.id)}
    store.close()
    whole: dict[str, Any] = {"max_cost_seconds": 100.0, "max_trial_seconds": CAP, "remaining_trials": None}
    goes_on = next_budget(records, {}, **whole, without=1)
    assert goes_on.remaining_seconds == pytest.approx(100.0 - 8.0 - 3 * 5.0)
    assert goes_on.next_trial_seconds == CAP
    new = next_budget(records, {}, **whole)
    assert new.spent, "a new trial leaves them what they may cost"
