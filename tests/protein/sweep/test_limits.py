"""What is left of the budget for a trial that goes on, and a budget that is too small for one."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import small_sweep
import store_samples

from protein.errors import UsageError
from protein.storage import open_store
from protein.sweep.limits import next_budget, require_a_complete_trial
from protein.types import Measurement, Provenance, SuggestionKind, SweepRecord, TrialEnd, TrialRecord

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


# A budget that is too small: what the line says that a trial needs.


def sweep(**train: Any) -> SweepRecord:
    return SweepRecord(id=1, spec=small_sweep.sweep_spec(**train), max_cost_seconds=24.0, created_at=datetime.now(UTC))


def cut_short(*curve: tuple[int, float]) -> TrialRecord:
    """Returns a trial that its cap has ended at the last of these steps and seconds."""
    steps, seconds = curve[-1]
    return TrialRecord(
        id=0,
        sweep_id=1,
        number=0,
        params={"train.score": 0.5, "train.cost": 0.5},
        seed=0,
        owner="",
        kind=SuggestionKind.SEARCH,
        origin="",
        state=TrialEnd.CAPPED.state,
        end=TrialEnd.CAPPED,
        steps=steps,
        cost_seconds=seconds,
        curve=tuple(Measurement(steps=at, elapsed_seconds=after, score=0.1) for at, after in curve),
        suggest_seconds=0.0,
        provenance=Provenance(version="", git_commit="", machine="", config_hash=""),
        started_at=datetime.now(UTC),
    )


def refusal(trial: TrialRecord) -> str:
    with pytest.raises(UsageError) as caught:
        require_a_complete_trial(sweep(total_timesteps=101), [trial], 24.0, 6.0)
    return str(caught.value)


def test_what_setting_up_took_is_not_counted_again_for_every_step() -> None:
    said = refusal(cut_short((1, 5.0), (11, 6.0)))  # 90 further steps of .1 s
    assert said.endswith("trial 0 was stopped at 6s and needs about 15s; use --max-cost 1m or more")


def test_what_is_told_by_a_start_of_less_than_a_second_is_called_a_guess() -> None:
    said = refusal(cut_short((1, 0.01)))
    assert said.endswith(
        "trial 0 was stopped at 0.01s, too early to tell its pace; a first guess is 1.01s, so try --max-cost 4.04s"
    )
