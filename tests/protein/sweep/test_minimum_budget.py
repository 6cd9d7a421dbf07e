"""A budget that is too small: what the line says that a trial needs."""

from datetime import UTC, datetime
from typing import Any

import pytest
import small_sweep

from protein.errors import UsageError
from protein.sweep.limits import require_a_complete_trial
from protein.types import Measurement, Provenance, SuggestionKind, SweepRecord, TrialEnd, TrialRecord


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
