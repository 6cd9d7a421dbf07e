"""Going on with finished trials: what they cost, what the models learn from them, and when the engine chooses one."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from protein.engine.acquisition import log_value
from protein.engine.continuation import Continuable, rest_seconds
from protein.engine.gp import Array
from protein.engine.history import History, by_whole_runs
from protein.engine.pareto import front
from protein.engine.recommend import contenders
from protein.engine.score_model import fit_score_model
from protein.engine.settings import EngineSettings
from protein.space import Float, Integer, Space
from protein.sweep.methods import make_designer
from protein.types import MAX_BUSY_SHARE, Budget, Measurement, Observation, Params, Suggestion, SuggestionKind, TrialEnd

SPACE = Space(
    [Float("rate", 1e-4, 1e-1, scale="log"), Integer("steps", 4_000, 1_000_000, scale="log")], cost_parameter="steps"
)
NONE = np.empty((0, 2))  # no running trials


def trial(
    number: int,
    rate: float,
    steps: int,
    *,
    score: float | None = None,
    parent: Observation | None = None,
    kept_at: float | None = 1.0,
    end: TrialEnd = TrialEnd.COMPLETE,
) -> Observation:
    """One second for 1,000 steps; the score rises with the steps and falls with the distance from a rate of 0.01.

    Its checkpoint lies at the share `kept_at` of its steps.
    """
    behind = 0.0 if parent is None else parent.resumable_seconds or 0.0
    return Observation(
        params={"rate": rate, "steps": steps},
        state=end.state,
        end=end,
        reason=end.text,
        score=(np.log(steps) - abs(np.log(rate / 0.01)) if score is None else score) if not end.text else None,
        cost_seconds=steps / 1000.0 - behind,
        number=number,
        continues=None if parent is None else parent.number,
        continued_seconds=behind,
        resumable_seconds=None if kept_at is None else kept_at * steps / 1000.0,
    )


def some_trials(kept_at: float | None = 1.0) -> list[Observation]:
    """Cheap trials around the best rate, so that only more steps are worth anything."""
    rates = np.geomspace(3e-3, 3e-2, 13)
    return [trial(i, float(rate), 4_000 + 100 * i, kept_at=kept_at) for i, rate in enumerate(rates)]


def suggest(
    history: list[Observation], remaining: float = 2_000.0, settings: EngineSettings | None = None
) -> Suggestion:
    designer = make_designer("protein", SPACE, None, settings=settings)
    found = designer.suggest(history, [], Budget(remaining_seconds=remaining), 3)
    assert found is not None
    return found


def test_a_continued_trial_counts_once_in_the_budget_and_with_its_whole_run_for_the_models() -> None:
    first = trial(0, 0.01, 4_000)
    second = trial(1, 0.01, 16_000, parent=first)
    third = trial(2, 0.01, 64_000, parent=second)
    data = History.of(SPACE, [first, second, third, trial(3, 0.02, 4_000)], [])
    assert data.spent_seconds == pytest.approx(68.0)
    assert sorted(data.costs.tolist()) == pytest.approx([4.0, 4.0, 16.0, 64.0])
    assert [o.number for o in front([third, first, second])] == [0, 1, 2]
    assert [c.expected_cost_seconds for c in contenders(SPACE, [first, second, third])] == pytest.approx([4, 16, 64])


def test_the_price_of_going_on_from_an_earlier_checkpoint_includes_what_is_trained_again() -> None:
    first = trial(0, 0.01, 10_000, kept_at=0.8)
    second = trial(1, 0.01, 20_000, parent=first, kept_at=0.8)
    assert (second.continued_seconds, second.cost_seconds) == (8.0, 12.0)
    assert Continuable.of(SPACE, [first, second], NONE).behind.tolist() == [8.0, 16.0]


def test_the_busy_share_of_a_whole_run_is_never_more_than_that_of_any_trial() -> None:
    first = dataclasses.replace(trial(0, 0.01, 42_000), busy_share=MAX_BUSY_SHARE, resumable_seconds=42.26872211976585)
    leg = dataclasses.replace(trial(1, 0.01, 64_000, parent=first), cost_seconds=0.0, busy_share=None)
    assert by_whole_runs([first, leg])[1].busy_share == pytest.approx(MAX_BUSY_SHARE)


def test_scores_of_one_run_share_its_label_whatever_the_order() -> None:
    first, other = trial(0, 0.01, 4_000), trial(1, 0.05, 4_000)
    legs = [trial(2, 0.01, 8_000, parent=first), trial(3, 0.01, 16_000, parent=first)]
    again = [trial(4, 0.01, 32_000, parent=legs[0])]
    for history in ([first, other, *legs, *again], [*again, *legs, other, first]):
        data = History.of(SPACE, history, [])
        alone = data.x_scored[:, 0] > 0.8
        assert len(set(data.runs[~alone].tolist())) == 1
        assert data.runs[alone].tolist() == np.flatnonzero(alone).tolist()


def test_trials_without_numbers_are_runs_of_their_own() -> None:
    first, other = trial(0, 0.01, 4_000), trial(1, 0.05, 4_000)
    nameless = [dataclasses.replace(o, number=None) for o in (first, other, trial(2, 0.01, 8_000, parent=first))]
    assert len(set(History.of(SPACE, nameless, []).runs.tolist())) == 3


def test_a_leg_that_failed_leaves_its_parent_as_it_was() -> None:
    first = trial(0, 0.01, 4_000)
    failed = trial(1, 0.01, 16_000, parent=first, end=TrialEnd.DIVERGED, kept_at=None)
    data = History.of(SPACE, [first, failed], [])
    assert (data.scores.tolist(), data.ok.tolist()) == ([first.score], [True, False])
    assert [o.number for o in Continuable.of(SPACE, [first, failed], NONE).trials] == [0]


def test_only_complete_trials_with_a_checkpoint_can_be_continued() -> None:
    cut = trial(2, 0.01, 4_000, end=TrialEnd.CAPPED)
    history = [trial(0, 0.01, 4_000, kept_at=None), trial(1, 0.02, 4_000), cut]
    assert [o.number for o in Continuable.of(SPACE, history, NONE).trials] == [1]
    free = Space([Float("rate", 1e-4, 1e-1, scale="log"), Integer("steps", 1_000, 1_000_000)])
    assert not Continuable.of(free, history, NONE).trials, "without a cost parameter there are no steps to go on to"


def test_rungs_ask_for_more_steps_of_the_same_params() -> None:
    able = Continuable.of(SPACE, [trial(0, 0.0123456789, 4_000), trial(1, 0.02, 1_000_000)], NONE)
    x, which = able.ladders(16, np.random.default_rng(0))
    assert set(which.tolist()) == {0}, "trial 1 has reached the highest number of steps"
    for point in x:
        params = able.params(0, point)
        assert (params["rate"], float(params["steps"]) > 4_000) == (0.0123456789, True)


def test_the_rest_is_never_free_and_a_new_run_costs_all() -> None:
    assert rest_seconds(np.array([10.0, 10.0, 10.0]), np.array([0.0, 4.0, 10.5])).tolist() == [10.0, 6.0, 0.5]


def test_the_engine_goes_on_with_a_good_trial_and_predicts_the_cost_of_the_rest() -> None:
    history = some_trials()
    found = suggest(history, 300.0)
    assert found.kind is SuggestionKind.CONTINUATION
    assert found.continues is not None
    parent = history[found.continues]
    assert found.params["rate"] == parent.params["rate"]
    assert float(found.params["steps"]) > float(parent.params["steps"])
    assert found.continued_seconds == parent.run_seconds
    rest = float(found.params["steps"]) / 1000.0 - parent.run_seconds
    assert found.predicted_cost_seconds is not None
    assert found.predicted_cost_seconds.value == pytest.approx(rest, rel=0.3)
    assert found.origin.startswith(f"continuing trial {found.continues} from ")


def test_what_the_rest_costs_decides_whether_it_fits_the_budget() -> None:
    history = [trial(i, rate, 100_000) for i, rate in enumerate(np.geomspace(1e-3, 1e-1, 12).tolist())]
    for remaining in (30.0, 6.0):
        found = suggest(history, remaining)
        assert found.predicted_cost_seconds is not None
        assert found.predicted_cost_seconds.value <= remaining


def test_the_cap_on_one_trial_is_one_on_its_whole_run() -> None:
    history = some_trials()
    designer = make_designer("protein", SPACE, None)
    free = designer.suggest(history, [], Budget(remaining_seconds=300.0), 3)
    capped = designer.suggest(history, [], Budget(remaining_seconds=300.0, max_trial_seconds=6.5), 3)
    assert free is not None and float(free.params["steps"]) > 6_500 and free.continues is not None
    assert capped is not None and float(capped.params["steps"]) <= 6_500


def test_nothing_is_continued_where_no_trial_can_be_or_it_is_switched_off() -> None:
    able, unable = some_trials(), some_trials(kept_at=None)
    assert suggest(unable).continues is None
    assert suggest(able, settings=EngineSettings(num_continued=0)) == suggest(unable)


def test_the_order_of_the_history_does_not_matter() -> None:
    history = some_trials()
    assert suggest(history) == suggest(history[::-1])


@pytest.mark.parametrize("name", ["continued_seconds", "resumable_seconds"])
@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_seconds_that_are_none_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(trial(0, 0.01, 4_000), **{name: value})  # type: ignore[arg-type]


def test_a_running_leg_is_not_suggested_again() -> None:
    history = some_trials()
    running: list[Params] = []
    designer = make_designer("protein", SPACE, None)
    for _ in range(3):
        found = designer.suggest(history, running, Budget(remaining_seconds=2_000.0), 3)
        assert found is not None
        assert dict(found.params) not in running
        running.append(dict(found.params))


@pytest.mark.parametrize("steps", [5_000, 6_000])
def test_a_trial_is_not_continued_by_two_at_once(steps: int) -> None:
    history = some_trials()
    designer = make_designer("protein", SPACE, None)
    found = designer.suggest(history, [], Budget(remaining_seconds=300.0), 3)
    assert found is not None and found.continues is not None
    leg = {**history[found.continues].params, "steps": steps}
    beside = designer.suggest(history, [leg], Budget(remaining_seconds=300.0), 3)
    assert beside is not None and beside.continues != found.continues


def test_a_trial_waits_for_longer_runs_of_its_config_alone() -> None:
    history = [trial(0, 0.01, 8_000), trial(1, 0.02, 8_000), trial(2, 0.03, 8_000), trial(3, 0.05, 8_000)]
    running = [{"rate": 0.01, "steps": 9_000}, {"rate": 0.02, "steps": 8_000}, {"rate": 0.03, "steps": 5_000}]
    able = Continuable.of(SPACE, history, SPACE.canonical(SPACE.to_unit_many(running)))
    assert [o.number for o in able.trials] == [1, 2, 3]
    assert len(able.x_unit) == len(able.behind) == len(able.paid) == 3


def test_a_lucky_run_that_was_continued_is_one_result_for_the_recommendation() -> None:
    """Two trials of other seeds at each number of steps score 0; the lucky run scores 10 all the way."""
    steps = (4_000, 16_000, 64_000, 256_000)
    plain = [trial(i, 0.01, s, score=0.1 * (i % 2)) for i, s in enumerate(2 * steps)]
    lucky = [trial(8, 0.0101, steps[0], score=10.0)]
    for number, more in enumerate(steps[1:], start=9):
        lucky.append(trial(number, 0.0101, more, score=10.0, parent=lucky[-1]))
    apart = [dataclasses.replace(one, continues=None) for one in lucky]
    data = History.of(SPACE, [*plain, *lucky], [])
    assert (len(data.scores), len(data.one_of_each_run().scores)) == (12, 9)
    assert data.one_of_each_run().costs.max() == 256.0

    def expected(run: list[Observation]) -> float:
        found = {
            c.params["rate"]: c.score.value for c in contenders(SPACE, [*plain, *run]) if c.params["steps"] == steps[3]
        }
        return found[0.0101] - found[0.01]

    assert expected(lucky) < 0.8 * expected(apart)


def test_a_leg_that_was_stopped_does_not_replace_what_its_run_had_scored_at_an_end() -> None:
    parent = trial(0, 0.01, 64_000, score=13.5)
    leg = trial(1, 0.01, 256_000, parent=parent, end=TrialEnd.OUT_OF_BUDGET)
    curve = (Measurement(steps=90_000, elapsed_seconds=26.0, score=11.5),)
    leg = dataclasses.replace(leg, cost_seconds=26.0, score=11.5, curve=curve)
    data = History.of(SPACE, [parent, leg], [])
    assert sorted(data.scores.tolist()) == [11.5, 13.5]
    assert data.one_of_each_run().scores.tolist() == [13.5]
    alone = History.of(SPACE, [leg], [])
    assert alone.one_of_each_run().scores.tolist() == [11.5]


def test_a_history_without_legs_has_one_score_of_each_run() -> None:
    data = History.of(SPACE, some_trials(), [])
    one = data.one_of_each_run()
    for name in ("x_scored", "scores", "costs", "runs", "unfinished"):
        assert getattr(one, name).tolist() == getattr(data, name).tolist()


def test_on_a_busy_machine_the_price_is_that_of_the_rest_at_todays_pace() -> None:
    """All trials had their cores for a third of the time, so 1,000 steps took three seconds, and will again."""
    history = [
        dataclasses.replace(
            o, cost_seconds=3.0 * o.cost_seconds, resumable_seconds=3.0 * o.run_seconds, busy_share=2 / 3
        )
        for o in some_trials()
    ]
    found = suggest(history, 900.0)
    assert found.continues is not None and found.predicted_cost_seconds is not None
    parent = history[found.continues]
    assert found.continued_seconds == parent.run_seconds
    rest = 3.0 * float(found.params["steps"]) / 1000.0 - parent.run_seconds
    assert found.predicted_cost_seconds.value == pytest.approx(rest, rel=0.3)


def test_a_run_whose_beginning_was_on_a_busy_machine_costs_what_it_would_have_on_a_calm_one() -> None:
    parent = dataclasses.replace(trial(0, 0.01, 10_000), cost_seconds=30.0, resumable_seconds=30.0, busy_share=2 / 3)
    leg, again = (
        dataclasses.replace(
            trial(number, 0.01, steps),
            continues=number - 1,
            continued_seconds=behind,
            cost_seconds=seconds,
            resumable_seconds=behind + seconds,
            busy_share=busy,
        )
        for number, steps, behind, seconds, busy in ((1, 25_000, 30.0, 15.0, 0.0), (2, 50_000, 45.0, 50.0, 0.5))
    )
    for history in ([parent, leg, again], [again, parent, leg]):
        data = History.of(SPACE, history, [])
        assert sorted(data.costs.tolist()) == pytest.approx([10.0, 25.0, 50.0])
        by_steps = {float(o.params["steps"]): o.expected_cost_seconds for o in contenders(SPACE, history)}
        assert by_steps == pytest.approx({10_000.0: 10.0, 25_000.0: 25.0, 50_000.0: 50.0})
    assert Continuable.of(SPACE, [parent, leg, again], NONE).behind.tolist() == pytest.approx([10.0, 25.0, 50.0])


def test_longer_runs_are_rated_at_their_whole_cost_and_against_the_best_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is left, so that new trials must be short, and the best trial is the most expensive one."""
    rated: list[tuple[float, float, float]] = []

    def spied(
        mean: Array, sd: Array, cost_mean: Array, *more: Array, levels: Array, top: float, **others: Any
    ) -> Array:
        if others["log_price"] is not None:
            rated.append((float(levels.max()), float(cost_mean.max()), top))
        return log_value(mean, sd, cost_mean, *more, levels=levels, top=top, **others)

    monkeypatch.setattr("protein.engine.designer.log_value", spied)
    history = [trial(i, 0.01, int(steps)) for i, steps in enumerate(np.geomspace(4_000, 200_000, 10))]
    suggest(history, 100.0)
    ((level, longest, top),) = rated
    assert math.exp(longest) > 205.0
    assert level == pytest.approx(longest, abs=0.1)
    data = History.of(SPACE, history, [])
    score = fit_score_model(SPACE, data, EngineSettings())
    assert top == pytest.approx(float(np.max(score.mean(data.x_scored))))
