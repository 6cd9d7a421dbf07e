"""How a trial ended is data: what the ends say, and how observations that earlier versions kept are read."""

import dataclasses
import json
from datetime import UTC, datetime

import pytest

from protein.types import (
    Budget,
    Estimate,
    Observation,
    Outcome,
    Provenance,
    Suggestion,
    SuggestionKind,
    Trial,
    TrialEnd,
    TrialRecord,
    TrialState,
    end_of,
)

PARAMS = {"x": 0.5}


def record() -> TrialRecord:
    return TrialRecord.begun(
        Trial(id=7, sweep_id=1, number=3, params=PARAMS, seed=11, owner="me"),
        Suggestion(
            params=PARAMS,
            kind=SuggestionKind.SEARCH,
            origin="improving the front near 4 s",
            predicted_score=Estimate(value=1.0, low=0.5, high=2.0),
        ),
        suggest_seconds=0.25,
        provenance=Provenance(version="1", git_commit="", machine="", config_hash=""),
    )


@pytest.mark.parametrize("end", TrialEnd)
def test_every_end_has_a_finished_state_and_words(end: TrialEnd) -> None:
    assert end.state.finished
    assert bool(end.text) == (end is not TrialEnd.COMPLETE)
    if not end.teaches:
        assert end.state is TrialState.FAILED


@pytest.mark.parametrize(
    ("state", "reason", "end"),
    [
        (TrialState.RUNNING, "", None),
        (TrialState.COMPLETE, "", TrialEnd.COMPLETE),
        (TrialState.PRUNED, "stopped early: last of 20", TrialEnd.STOPPED_EARLY),
        (TrialState.PRUNED, "stopped at the end of the sweep's budget", TrialEnd.OUT_OF_BUDGET),
        (TrialState.PRUNED, "stopped at its cost cap", TrialEnd.CAPPED),
        (TrialState.PRUNED, "", TrialEnd.CAPPED),
        (TrialState.FAILED, "interrupted", TrialEnd.INTERRUPTED),
        (TrialState.FAILED, "interrupted by a bad value", TrialEnd.FAILED),
        (TrialState.FAILED, "mistake in the training function: it returned None", TrialEnd.MISTAKE),
        (TrialState.FAILED, "diverged", TrialEnd.FAILED),
    ],
)
def test_an_observation_of_an_earlier_version_gets_the_end_that_its_reason_said(
    state: TrialState, reason: str, end: TrialEnd | None
) -> None:
    assert end_of(state, reason) is end
    score = 1.0 if state is TrialState.COMPLETE else None
    kept = {"params": PARAMS, "state": str(state), "score": score, "cost_seconds": 1.0, "reason": reason}
    assert Observation(**json.loads(json.dumps(kept))).end is end


def test_an_observation_survives_json() -> None:
    one = Observation(params=PARAMS, state=TrialState.FAILED, end=TrialEnd.HUNG, score=None, cost_seconds=1.0)
    read = Observation(**json.loads(json.dumps(dataclasses.asdict(one))))
    assert read == one and read.end is TrialEnd.HUNG


def test_a_state_and_an_end_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="a trial that is complete cannot have the end hung, which goes with failed"):
        Observation(params=PARAMS, state=TrialState.COMPLETE, end=TrialEnd.HUNG, score=1.0, cost_seconds=1.0)
    with pytest.raises(ValueError, match="a trial that is failed cannot have the end none, which goes with running"):
        dataclasses.replace(record(), state=TrialState.FAILED)


def test_a_record_takes_over_every_field_of_its_trial_suggestion_and_outcome() -> None:
    begun = record()
    assert (begun.state, begun.end, begun.score, begun.cost_seconds) == (TrialState.RUNNING, None, None, 0.0)
    assert (begun.number, begun.kind, begun.predicted_score) == (
        3,
        SuggestionKind.SEARCH,
        Estimate(value=1.0, low=0.5, high=2.0),
    )
    outcome = Outcome(end=TrialEnd.DIVERGED, cost_seconds=2.0, steps=5, reason="diverged: x", timings={"startup": 1.0})
    ended = begun.ended(outcome, ())
    for field in dataclasses.fields(Outcome):
        assert getattr(ended, field.name) == getattr(outcome, field.name), field.name
    assert ended.state is TrialState.FAILED
    assert ended.finished_at is not None and ended.started_at <= ended.finished_at <= datetime.now(UTC)
    learnt = ended.observation()
    assert (learnt.end, learnt.reason, learnt.number) == (TrialEnd.DIVERGED, "diverged: x", 3)


def test_a_budget_says_what_the_next_trial_may_cost() -> None:
    assert Budget().next_trial_seconds == float("inf") and not Budget().spent
    assert Budget(remaining_seconds=3.0, max_trial_seconds=5.0).next_trial_seconds == 3.0
    assert Budget(remaining_seconds=0.0).spent and Budget(remaining_trials=0).spent
