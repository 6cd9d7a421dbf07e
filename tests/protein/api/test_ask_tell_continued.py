"""Ask and tell: trials that go on with the run of an earlier one."""

from typing import Any

import pytest
from ask_session import make_space, train

from protein import Float, Observation, Protein, Space, Suggestion
from protein.errors import UsageError
from protein.types import Params, SuggestionKind


def test_an_engine_that_may_continue_trials_asks_to_go_on_with_good_ones() -> None:
    def go_on(engine: Protein) -> list[Suggestion]:
        made: list[Suggestion] = []
        run_seconds = [one.run_seconds for one in engine.observations]
        while (suggestion := engine.suggest()) is not None:
            score, whole = train(suggestion.params)
            behind = 0.0 if suggestion.continues is None else run_seconds[suggestion.continues]
            assert suggestion.continued_seconds == pytest.approx(behind)
            engine.observe(suggestion.params, score=score, cost_seconds=whole - behind)
            made.append(suggestion)
            run_seconds.append(whole)
        return made

    engine = Protein(make_space(), seed=0, budget_seconds=300.0, can_continue=True)
    made = go_on(engine)
    legs = [(number, one) for number, one in enumerate(made) if one.continues is not None]
    assert legs, "some trial was continued"
    for number, leg in legs:
        assert leg.continues is not None and leg.continues < number
        earlier = made[leg.continues].params
        assert {**leg.params, "steps": 0} == {**earlier, "steps": 0} and leg.params["steps"] > earlier["steps"]
        assert engine.observations[number].continues == leg.continues
        assert engine.observations[number].run_seconds == pytest.approx(train(leg.params)[1])
    assert engine.spent_seconds <= 301.0
    found = engine.best()
    assert found is not None and found.expected_cost_seconds == pytest.approx(train(found.params)[1])
    known = engine.observations[:number]
    again = Protein(make_space(), seed=0, budget_seconds=300.0, can_continue=True, observations=known)
    assert go_on(again) == made[number:], "the observations are all that a search needs to go on"


def test_only_a_complete_trial_can_be_continued_and_only_with_a_cost_parameter() -> None:
    engine = Protein(make_space(), can_continue=True)
    params: Params = {"lr": 1e-3, "gamma": 0.99, "steps": 20_000, "opt": "adam"}
    engine.observe({**params, "steps": 10_000}, failed="diverged", cost_seconds=1.0)
    for number in (0, 1, -1, False, "0"):
        with pytest.raises(UsageError, match="continues must be the number of a complete trial of 1, got"):
            engine.observe(params, score=1.0, cost_seconds=1.0, continues=number)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="can_continue needs a cost_parameter"):
        Protein(Space([Float("x", 0.0, 1.0)]), can_continue=True)


def test_a_suggested_continuation_may_have_been_trained_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    params: Params = {"lr": 1e-3, "gamma": 0.99, "steps": 20_000, "opt": "adam"}
    leg = Suggestion(params={**params, "steps": 60_000}, kind=SuggestionKind.CONTINUATION, origin="", continues=0)

    def told(**how: Any) -> Observation:
        engine = Protein(make_space(), can_continue=True)
        engine.observe(params, score=0.5, cost_seconds=2.0)
        monkeypatch.setattr(engine, "_pending", [leg])
        engine.observe(leg.params, score=1.0, cost_seconds=6.0, **how)
        assert engine.pending == ()
        return engine.observations[1]

    anew = told(continues=None)
    assert (anew.continues, anew.run_seconds) == (None, 6.0), "its cost is that of the whole run"
    went_on = told()
    assert went_on == told(continues=leg.continues) and (went_on.continues, went_on.run_seconds) == (0, 8.0)


def test_laws_are_told_which_trials_are_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Protein(make_space(), can_continue=True)
    params: Params = {"lr": 1e-3, "gamma": 0.99, "steps": 20_000, "opt": "adam"}
    for steps, continues in ((20_000, None), (30_000, None), (60_000, 0)):
        engine.observe({**params, "steps": steps}, score=1.0, cost_seconds=1.0, continues=continues)
    seen: list[tuple[int | None, int | None]] = []

    def record(space: Space, observations: list[Observation]) -> None:
        seen.extend((one.number, one.continues) for one in observations)

    monkeypatch.setattr("protein.api.ask_tell.fit_laws", record)
    engine.laws()
    assert seen == [(0, None), (1, None), (2, 0)]


def test_a_trial_that_goes_on_with_another_is_not_stopped_early(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Protein(make_space(), can_continue=True)
    monkeypatch.setattr(engine._designer, "should_stop", lambda *_: "worse than the others")
    params: Params = {"lr": 1e-3, "gamma": 0.99, "steps": 20_000, "opt": "adam"}
    curve = [(10_000, 1.0, 0.1)]
    assert engine.should_stop(params, curve) == "worse than the others"
    leg = Suggestion(params=params, kind=SuggestionKind.CONTINUATION, origin="", continues=0)
    monkeypatch.setattr(engine, "_pending", [leg])
    assert engine.should_stop(params, curve) is None
