"""The engine's own promises: its order of phases, its words, its predictions, and what it does in numerical trouble."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest

from protein.engine import gp
from protein.engine.candidates import ladders, middle, neighbours
from protein.engine.designer import format_seconds
from protein.engine.history import MAX_ATTEMPTS, History
from protein.engine.score_model import ScoreModel
from protein.engine.settings import EngineSettings
from protein.space import Categorical, Float, Integer, Space
from protein.sweep.methods import make_designer
from protein.types import (
    Budget,
    Limit,
    Measurement,
    Observation,
    Params,
    Suggestion,
    SuggestionKind,
    TrialEnd,
    TrialState,
    broken,
)

SPACE = Space(
    [
        Float("lr", 1e-5, 1e-1, scale="log", default=1e-3),
        Integer("steps", 1000, 1_000_000, scale="log", default=30_000),
        Float("clip", 0.05, 0.4),
        Categorical("opt", ("adam", "muon")),
    ],
    cost_parameter="steps",
)
START = SPACE.default()


def observe(params: Params, factor: float = 1.0, shift: float = 0.0) -> Observation:
    distance = (math.log10(float(params["lr"])) + 2.5) ** 2
    value = (1.0 - math.exp(-float(params["steps"]) / 1e5)) * math.exp(-distance)
    seconds = float(params["steps"]) * 1e-3
    return Observation(params=params, state=TrialState.COMPLETE, score=value * factor + shift, cost_seconds=seconds)


def failed(params: Params) -> Observation:
    return Observation(params=params, state=TrialState.FAILED, score=None, cost_seconds=1.0, reason="diverged")


def observed(params: Params, score: float) -> Observation:
    return Observation(params=params, state=TrialState.COMPLETE, score=score, cost_seconds=1.0)


def suggest(
    history: list[Observation],
    running: tuple[Params, ...] = (),
    seed: int = 0,
    trials: int | None = None,
    **kwargs: float,
) -> Suggestion:
    suggestion = make_designer("protein", SPACE, START).suggest(
        history,
        running,
        Budget(remaining_seconds=kwargs.get("remaining"), max_trial_seconds=kwargs.get("cap"), remaining_trials=trials),
        seed,
    )
    assert suggestion is not None
    return suggestion


def play(num_trials: int, factor: float = 1.0, shift: float = 0.0) -> list[Observation]:
    history: list[Observation] = []
    for number in range(num_trials):
        history.append(observe(suggest(history, seed=number).params, factor, shift))
    return history


def test_initial_config_then_initial_design_then_models() -> None:
    history: list[Observation] = []
    origins, kinds = [], []
    for number in range(12):
        suggestion = suggest(history, seed=number)
        origins.append(suggestion.origin)
        kinds.append(suggestion.kind)
        has_model = number > 8
        assert (suggestion.predicted_score is not None) == has_model
        assert (suggestion.predicted_cost_seconds is not None) == has_model
        history.append(observe(suggestion.params))
    assert origins[0] == "initial config"
    assert origins[1:9] == [f"initial design {i} of 8" for i in range(1, 9)]
    assert all(o.startswith(("improving the front", "extending the front", "cheap probe")) for o in origins[9:])
    phases = [SuggestionKind.INITIAL_CONFIG] + 8 * [SuggestionKind.INITIAL_DESIGN] + 3 * [SuggestionKind.SEARCH]
    assert kinds == phases


def test_with_many_workers_the_design_goes_on_until_its_trials_have_ended() -> None:
    history: list[Observation] = []
    running: list[Params] = []
    designer = make_designer("protein", SPACE, START)
    for number in range(40):
        suggestion = designer.suggest(history, running, Budget(), seed=number)
        assert suggestion is not None
        expected = SuggestionKind.INITIAL_DESIGN if number else SuggestionKind.INITIAL_CONFIG
        assert suggestion.kind is (SuggestionKind.SEARCH if len(history) >= 8 else expected)
        if suggestion.kind is SuggestionKind.INITIAL_DESIGN:
            assert SPACE.to_unit(suggestion.params)[1] <= 0.31, "the whole design is cheap"
        running.append(suggestion.params)
        if number >= 24:  # the workers are busy: one trial ends before the next one starts
            history.append(observe(running.pop(0)))


def test_without_an_initial_config_the_middle_of_every_range_comes_first_and_then_the_design() -> None:
    designer = make_designer("protein", SPACE, None)
    history: list[Observation] = []
    origins = []
    for number in range(10):
        suggestion = designer.suggest(history, [], Budget(remaining_seconds=9e4), seed=number)
        assert suggestion is not None
        expected = SuggestionKind.INITIAL_DESIGN if number < 9 else SuggestionKind.SEARCH
        assert suggestion.kind is expected
        origins.append(suggestion.origin)
        history.append(observe(suggestion.params))
    assert origins[:9] == ["the middle of every range", *(f"initial design {i} of 8" for i in range(1, 9))]
    assert history[0].params == SPACE.from_unit(middle(SPACE))


def test_the_initial_design_is_cheap_and_fills_the_rest() -> None:
    x = SPACE.to_unit_many([o.params for o in play(9)[1:]])
    assert x[:, 1].max() <= 0.31
    for column in (0, 2):
        assert x[::2, column].max() - x[::2, column].min() > 0.5, "every other point covers the whole box"
    start = SPACE.to_unit(START)
    numeric = [0, 2]
    assert np.abs(x[1::2, numeric] - start[numeric]).max() <= 0.3, "and the rest the surroundings of the initial config"


def test_another_sweep_seed_gives_another_design_and_the_same_seed_the_same() -> None:
    history = play(1)
    one, two, other = (
        make_designer("protein", SPACE, START, seed=seed).suggest(history, [], Budget(), seed=0) for seed in (5, 5, 6)
    )
    assert one == two != other


def test_an_interrupted_design_point_comes_again() -> None:
    history = play(5)
    cut = Observation(
        params=history[3].params, state=TrialState.FAILED, score=None, cost_seconds=0.5, end=TrialEnd.INTERRUPTED
    )
    assert suggest([*history[:3], cut, history[4]], seed=9).params == history[3].params


def test_what_nobody_wants_again_does_not_come_again() -> None:
    history = play(5)
    cut = Observation(
        params=history[3].params,
        state=TrialState.FAILED,
        score=None,
        cost_seconds=0.5,
        end=TrialEnd.INTERRUPTED,
        excluded=True,
    )
    assert suggest([*history[:3], cut, history[4]], seed=9).params != history[3].params


def test_an_interrupted_initial_config_comes_again() -> None:
    history = play(2)
    cut = dataclasses.replace(history[0], state=TrialState.FAILED, score=None, end=TrialEnd.INTERRUPTED)
    found = suggest([history[1], cut], seed=9)
    assert (found.kind, found.params) == (SuggestionKind.INITIAL_CONFIG, history[0].params)
    assert suggest([history[1], dataclasses.replace(cut, excluded=True)], seed=9).params != history[0].params
    assert suggest([history[1], cut], (history[0].params,), seed=9).params != history[0].params, "it runs again"


@pytest.mark.parametrize("method", ["protein", "random"])
@pytest.mark.parametrize("others", [0, 2])
def test_a_config_that_is_interrupted_each_time_is_given_up(method: str, others: int) -> None:
    """It may be what kills the process that calls the engine."""
    cut = Observation(params=START, state=TrialState.FAILED, score=None, cost_seconds=1.0, end=TrialEnd.INTERRUPTED)
    designer = make_designer(method, SPACE, START)
    for attempts in range(1, MAX_ATTEMPTS + 1):
        found = designer.suggest([*play(8)[1 : 1 + others], *(attempts * [cut])], (), Budget(), 0)
        assert found is not None and (found.params == START) is (attempts < MAX_ATTEMPTS)


@pytest.mark.parametrize("method", ["protein", "random"])
def test_an_interrupted_initial_config_comes_again_only_if_it_fits(method: str) -> None:
    cut = Observation(params=START, state=TrialState.FAILED, score=None, cost_seconds=1.0, end=TrialEnd.INTERRUPTED)
    history = [observe({**START, "lr": 1e-2}), cut]  # 30 s, as the initial config
    designer = make_designer(method, SPACE, START)
    for seconds, comes in ((60.0, True), (15.0, False)):
        found = designer.suggest(history, (), Budget(remaining_seconds=seconds), 0)
        assert found is not None and (found.params == START) is comes


def test_the_shorter_run_that_a_stopped_one_became_may_be_tried() -> None:
    space = Space([Categorical("opt", ("a", "b")), Integer("epochs", 8, 32, scale="pow2")], cost_parameter="epochs")
    history = [
        Observation(
            params={"opt": choice, "epochs": asked},
            state=TrialState.COMPLETE if made == asked else TrialState.PRUNED,
            score=1.0 + made / 10,
            cost_seconds=float(made),
            curve=(Measurement(steps=made, elapsed_seconds=float(made), score=1.0),),
        )
        for choice in "ab"
        for asked, made in ((32, 16), (8, 8))
    ]
    found = make_designer("protein", space, None).suggest(history, [], Budget(), 0)
    assert found is not None and found.params["epochs"] == 16


def test_models_are_fitted_once_for_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []
    fit = gp._fit

    def counted(*arguments: Any) -> Any:
        fits.append(1)
        return fit(*arguments)

    monkeypatch.setattr(gp, "_fit", counted)
    source = play(30, shift=1.0)
    designer = make_designer("protein", SPACE, None, warm_start=[source])
    history = [*play(20), failed(play(21)[20].params)]
    first = designer.suggest(history, [], Budget(), 0)
    assert first is not None and len(fits) >= 5
    fits.clear()
    assert designer.suggest(history, [first.params], Budget(), 1) is not None
    assert not fits


def test_parallel_design_points_do_not_repeat() -> None:
    history = play(3)
    running: list[Params] = []
    for _ in range(6):
        running.append(suggest(history, tuple(running)).params)
    assert suggest(history, tuple(running)).origin == "initial design 9, until 8 trials have ended"
    assert [o.params for o in play(9)[3:]] == running


def test_units_of_the_score_do_not_change_the_search() -> None:
    plain, scaled = play(14), play(14, factor=1e4, shift=-300.0)
    assert [o.params for o in plain] == [o.params for o in scaled]


def test_predictions_cover_what_comes() -> None:
    history = play(25)
    inside_score = inside_cost = 0
    for number in range(25, 45):
        suggestion = suggest(history, seed=number)
        outcome = observe(suggestion.params)
        predicted, cost = suggestion.predicted_score, suggestion.predicted_cost_seconds
        assert predicted is not None
        assert cost is not None
        assert outcome.score is not None
        inside_score += predicted.low - 0.02 <= outcome.score <= predicted.high + 0.02
        inside_cost += cost.low * 0.98 <= outcome.cost_seconds <= cost.high * 1.02
        history.append(outcome)
    assert inside_score >= 12
    assert inside_cost >= 12


def test_it_finds_the_good_region() -> None:
    history = play(30)
    best = max(history, key=lambda o: o.score or 0.0)
    assert best.score is not None
    assert best.score > 0.9
    assert abs(math.log10(float(best.params["lr"])) + 2.5) < 0.4


def test_a_failure_is_no_success() -> None:
    """A region where everything fails is left alone, although nothing there ever had a bad score."""
    x = SPACE.sample(12, np.random.default_rng(0))
    x[:, 0] = 0.8 + 0.2 * x[:, 0]
    tried = [*(o.params for o in play(10)), *SPACE.from_unit_many(SPACE.canonical(x))]
    history = [failed(p) if float(p["lr"]) > 0.01 else observe(p) for p in tried]
    params = [suggest(history, seed=seed).params for seed in range(10)]
    assert all(float(p["lr"]) < 0.03 for p in params)


@pytest.mark.parametrize("num_dims", [1, 3])
def test_a_cliff_beside_the_best_is_no_trap(num_dims: int) -> None:
    """Scores rise up to where everything fails: the score model promises more beyond, whatever fails there."""
    space = Space([Float(f"x{i}", 0.0, 1.0) for i in range(num_dims)])
    designer = make_designer("protein", space, None)
    history: list[Observation] = []
    for number in range(32):
        suggestion = designer.suggest(history, (), Budget(), seed=number)
        assert suggestion is not None
        x0 = float(suggestion.params["x0"])
        end = failed(suggestion.params) if x0 > 0.65 else observed(suggestion.params, x0)
        history.append(end)
    ends = [o.state is TrialState.COMPLETE for o in history[8:]]
    assert ends.count(False) <= 9
    assert max(len(list(run)) for ok, run in itertools.groupby(ends) if not ok) < 6
    assert max(o.score for o in history if o.score is not None) > 0.63


def test_running_trials_push_the_next_one_elsewhere() -> None:
    history = play(15)
    first = suggest(history).params
    second = suggest(history, (first,)).params
    distance = np.abs(SPACE.to_unit(first) - SPACE.to_unit(second)).max()
    assert distance > 0.02


def test_a_small_budget_does_not_end_within_the_initial_design() -> None:
    history = play(5)
    spent = sum(o.cost_seconds for o in history)
    assert suggest(history, remaining=1.1 * spent).origin == "initial design 5 of 8"
    assert suggest(history, remaining=0.9 * spent).origin.startswith(("improving", "extending", "cheap"))
    assert suggest(history[:3], remaining=0.5 * spent).origin.startswith("initial design 3 of 8")


def test_few_trials_for_a_large_budget_are_more_expensive() -> None:
    """With 2,000 s left, a trial more or less of 5 s costs nothing when only three may still be started."""
    history = play(12)

    def seconds(trials: int | None) -> float:
        return sum(
            math.log(observe(suggest(history, seed=seed, trials=trials, remaining=2000.0).params).cost_seconds)
            for seed in range(6)
        )

    assert seconds(3) > seconds(400)


def test_a_design_point_that_would_overrun_is_made_cheaper() -> None:
    history = play(3)
    plain = suggest(history)
    limited = suggest(history, remaining=observe(plain.params).cost_seconds * 0.5)
    assert limited.origin == f"{plain.origin}, made cheaper to fit the budget"
    assert limited.kind is plain.kind is SuggestionKind.INITIAL_DESIGN
    assert limited.params == {**plain.params, "steps": limited.params["steps"]}
    assert float(limited.params["steps"]) < float(plain.params["steps"])


def test_models_that_fail_fall_back_to_a_random_point_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise np.linalg.LinAlgError("singular")

    history = play(12)
    monkeypatch.setattr(ScoreModel, "fit", broken)
    suggestion = suggest(history)
    SPACE.validate(suggestion.params)
    assert suggestion.origin == "random point, the models failed (LinAlgError: singular)"
    assert suggestion.kind is SuggestionKind.FALLBACK


def test_a_fit_that_failed_shows_in_the_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ValueError("no convergence")

    history = play(12)
    monkeypatch.setattr("protein.engine.gp.minimize", broken)
    origin = suggest(history).origin
    assert "(score model: hyperparameters at their prior mode, the fit failed (ValueError))" in origin
    assert "(cost model: " in origin


def test_thousands_of_trials_are_no_trouble() -> None:
    x = SPACE.sample(3000, np.random.default_rng(0))
    history = [observe(p) for p in SPACE.from_unit_many(x)]
    suggestion = suggest(history)
    assert suggestion.predicted_score is not None
    assert suggestion.params not in [o.params for o in history]


def test_neighbours_and_ladders_move_what_they_should() -> None:
    rng = np.random.default_rng(0)
    center = SPACE.sample(1, rng)
    near = neighbours(SPACE, center, 200, (0.02, 0.1), rng)
    moved = (np.abs(near - center) > 1e-9).sum(axis=1)
    assert {1, 2} <= set(moved.tolist())
    rungs = ladders(SPACE, center, 8, rng)
    assert (np.abs(np.delete(rungs - center, 1, axis=1)) < 1e-9).all()
    assert np.floor(rungs[:, 1] * 8 - 1e-6).astype(int).tolist() == list(range(8))


def test_the_settings_switch() -> None:
    designer = make_designer("protein", SPACE, START, settings=EngineSettings(num_initial=2))
    history = play(3)
    suggestion = designer.suggest(history, [], Budget(), seed=0)
    assert suggestion is not None
    assert suggestion.predicted_score is not None


def test_known_sorts_and_counts() -> None:
    history = play(6)
    for permuted in itertools.islice(itertools.permutations(history), 5):
        data = History.of(SPACE, permuted, [START])
        assert data.num_trials == 7
        assert np.array_equal(data.x_scored, History.of(SPACE, history, [START]).x_scored)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.434, "0.43 s"), (39.6, "40 s"), (119.0, "120 s"), (754.0, "13 min"), (12_700.0, "3.5 h")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def played_on(num_trials: int) -> list[Observation]:
    """A history of the engine's own, with a budget that lets it try expensive trials."""
    history: list[Observation] = []
    for number in range(num_trials):
        left = 6000.0 - sum(o.cost_seconds for o in history)
        history.append(observe(suggest(history, seed=number, remaining=left).params))
    return history


def test_more_than_four_running_trials_hold_at_most_a_quarter_of_the_budget() -> None:
    history, designer = played_on(9), make_designer("protein", SPACE, START)
    spent = sum(trial.cost_seconds for trial in history)

    def filled(unspent: float, can_wait: bool) -> list[float]:
        """What the trials that fill 16 free workers are expected to cost, in seconds."""
        running: list[Params] = []
        seconds: list[float] = []
        while len(running) < 16:
            budget = Budget(remaining_seconds=unspent - sum(seconds), max_trial_seconds=60.0, can_wait=can_wait)
            found = designer.suggest(history, running, budget, seed=len(running))
            if found is None:
                break
            assert found.predicted_cost_seconds is not None
            running.append(found.params)
            seconds.append(found.predicted_cost_seconds.value)
        return seconds

    numbers = []
    for unspent in (180.0, 240.0, 320.0, 6000.0):
        seconds, eager = filled(unspent, can_wait=True), filled(unspent, can_wait=False)
        assert len(seconds) >= 4
        assert len(seconds) == 4 or sum(seconds) <= 0.25 * (spent + unspent)
        assert seconds == eager[: len(seconds)], "nothing else is suggested in place of a trial that waits"
        numbers.append((len(seconds), len(eager)))
    assert any(4 < waiting < eager for waiting, eager in numbers)
    assert numbers[-1] == (16, 16), "nobody waits where the budget is large"


def test_many_workers_do_not_wait_for_the_end_of_the_initial_design() -> None:
    """Four of them set their caps aside, which is the whole budget. More are predicted from the first known cost on."""
    first, designer = played_on(1), make_designer("protein", SPACE, START)

    def filled(workers: int, total: float) -> list[float | None]:
        """What the trials that fill free workers are expected to cost; those without a prediction hold their cap."""
        running: list[Params] = []
        seconds: list[float | None] = []
        while len(running) < workers:
            held = sum(total / 4 if one is None else one for one in seconds)
            budget = Budget(
                remaining_seconds=total - first[0].cost_seconds - held,
                max_trial_seconds=total / 4,
                can_wait=True,
                num_free=workers - len(running),
            )
            found = designer.suggest(first, running, budget, seed=len(running))
            if found is None:
                break
            running.append(found.params)
            seconds.append(None if found.predicted_cost_seconds is None else found.predicted_cost_seconds.value)
        return seconds

    assert filled(4, 1000.0) == [None] * 4, "as many as may always run: nothing changes"
    assert len(filled(16, 1000.0)) == 16 and None not in filled(16, 1000.0)
    few = filled(64, 100.0)
    assert 4 < len(few) < 64 and sum(one or 0.0 for one in few) <= 0.25 * 100.0, "the design waits by the same rule"


def test_a_fifth_trial_waits_for_expensive_ones_where_the_caller_can_wait() -> None:
    history = played_on(9)
    designer = make_designer("protein", SPACE, START)
    large: list[Params] = [{**START, "steps": 50_000, "clip": clip} for clip in (0.1, 0.15, 0.2, 0.25)]
    waiting = Budget(remaining_seconds=100.0, can_wait=True)  # beside 200 s that the four hold
    assert designer.suggest(history, large, waiting, seed=0) is None
    assert designer.suggest(history, large, Budget(remaining_seconds=100.0), seed=0) is not None
    assert designer.suggest(history, large[:3], waiting, seed=0) is not None
    assert designer.suggest(history, large, Budget(remaining_seconds=1000.0, can_wait=True), seed=0) is not None
    eager = make_designer("protein", SPACE, START, settings=EngineSettings(running_share=1.0))
    assert eager.suggest(history, large, waiting, seed=0) is not None


BOX = Space([Float(f"x{i}", 0.0, 1.0) for i in range(4)])
LIMITS = (Limit("gb", "<=", 8.0),)


def limited(num_trials: int, limits: tuple[Limit, ...] = LIMITS, factor: float = 2.0) -> list[Observation]:
    """The score is best at .8 everywhere, where `gb` is 11 times the factor."""
    designer = make_designer("protein", BOX, None, seed=1, limits=limits)
    history: list[Observation] = []
    for number in range(num_trials):
        suggestion = designer.suggest(history, [], Budget(remaining_trials=num_trials - number), number)
        assert suggestion is not None
        x = np.array(list(suggestion.params.values()), dtype=float)
        measured = {"gb": float(factor * np.exp(2.0 * x[0] + x[1]))}
        found = observed(suggestion.params, float(1.0 - np.sum((x - 0.8) ** 2)))
        history.append(dataclasses.replace(found, metrics=measured, number=number, reason=suggestion.origin))
    return history


def test_a_limit_is_searched_along_and_not_beyond() -> None:
    """The best score that keeps it lies on it, at .794."""
    history = limited(22)
    keeping = [one.score for one in history if one.score is not None and not broken(LIMITS, one.metrics)]
    assert max(keeping) > 0.78
    beyond = [one for one in history[12:] if one.metrics["gb"] > 8.5]
    assert len(beyond) <= 2, "the score beyond the limit is much higher, and not what is wanted"


def test_where_nothing_keeps_the_limits_they_are_searched_for() -> None:
    history = limited(16, factor=40.0)  # 8 is a corner: the least is 40
    origins = [one.reason for one in history if "no trial keeps the limits so far" in one.reason]
    assert len(origins) >= 5
    values = [one.metrics["gb"] for one in history]
    assert min(values[9:]) < min(values[:9]) and min(values) < 45.0, "they come as near as they can"


def test_metrics_without_limits_change_nothing_and_limits_without_metrics_neither() -> None:
    history = limited(14)
    plain = [dataclasses.replace(one, metrics={}) for one in history]
    without = make_designer("protein", BOX, None, seed=1)
    suggested = without.suggest(plain, [], Budget(), 3)
    assert without.suggest(history, [], Budget(), 3) == suggested
    assert make_designer("protein", BOX, None, seed=1, limits=LIMITS).suggest(plain, [], Budget(), 3) == suggested


@pytest.mark.parametrize("method", ["protein", "random", "optuna:tpe", "optuna:gp", "optuna:nsga2", "optuna:cmaes"])
def test_every_method_takes_limits_and_stays_a_function_of_the_history(method: str) -> None:
    history = limited(12)
    history[3] = dataclasses.replace(history[3], metrics={})  # not every trial has reported it
    limits = (*LIMITS, Limit("never", ">=", 1.0))
    first, second = (
        make_designer(method, BOX, None, seed=1, limits=limits).suggest(history, [], Budget(), 5) for _ in range(2)
    )
    assert first == second and first is not None and "failed" not in first.origin
