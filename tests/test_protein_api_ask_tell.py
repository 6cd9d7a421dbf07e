import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import protein
from protein import Categorical, Float, Integer, Observation, Protein, Space, Suggestion
from protein.errors import SpaceError, UsageError
from protein.types import Params, SuggestionKind, TrialEnd, TrialState


def make_space() -> Space:
    return Space(
        [
            Float("lr", 1e-5, 1e-1, scale="log"),
            Float("gamma", 0.9, 0.9999, scale="logit"),
            Integer("steps", 10_000, 10_000_000, scale="log"),
            Categorical("opt", ["adam", "muon"]),
        ],
        cost_parameter="steps",
    )


def train(params: Any) -> tuple[float, float]:
    """A score in [0, 1] that grows with steps and wants a learning rate near 1e-3, and what it costs."""
    fit = math.exp(-((math.log10(params["lr"]) + 3) ** 2)) * (1.0 if params["opt"] == "muon" else 0.8)
    return fit * (1 - math.exp(-params["steps"] / 1e6)), params["steps"] / 1e5


def play(engine: Protein, trials: int, sign: float = 1.0) -> list[Suggestion]:
    made = []
    for _ in range(trials):
        suggestion = engine.suggest()
        assert suggestion is not None
        made.append(suggestion)
        score, seconds = train(suggestion.params)
        engine.observe(suggestion.params, score=sign * score, cost_seconds=seconds)
    return made


def spend(engine: Protein) -> float:
    """Plays until the budget is spent; returns the best score."""
    while (suggestion := engine.suggest()) is not None:
        score, seconds = train(suggestion.params)
        engine.observe(suggestion.params, score=score, cost_seconds=seconds)
    return max(observation.score for observation in engine.observations if observation.score is not None)


def test_it_finds_more_than_random_search_for_the_same_seconds() -> None:
    for seed in range(2):
        best = spend(Protein(make_space(), seed=seed, budget_seconds=300.0))
        assert best > 0.95 and best > spend(Protein(make_space(), seed=seed, budget_seconds=300.0, method="random"))


def test_the_best_choice_is_found_whatever_is_named_first() -> None:
    """In the middle of the ranges only the first choice would be tried, and seem better for the rest of the budget."""
    for seed in (1, 8, 12, 14):
        engine = Protein(make_space(), seed=seed, budget_seconds=300.0)
        spend(engine)
        found = engine.best()
        assert found is not None and found.params["opt"] == "muon"


def test_the_largest_scores_are_scores() -> None:
    """The squares of their differences overflow."""
    engine = Protein(Space([Float("x", 0.0, 1.0), Float("y", 0.0, 1.0)]), seed=0)
    for _ in range(14):
        suggestion = engine.suggest()
        assert suggestion is not None
        expected = suggestion.predicted_score
        assert expected is None or (math.isfinite(expected.low) and math.isfinite(expected.high))
        high = float(suggestion.params["x"]) > 0.5
        engine.observe(suggestion.params, score=1e300 if high else -1e300, cost_seconds=1.0)
    found = engine.best()
    assert found is not None and math.isfinite(found.score.low) and math.isfinite(found.score.high)


def test_it_says_what_it_expects() -> None:
    engine = Protein(make_space(), seed=0, budget_seconds=3600.0)
    made = play(engine, 12)
    last = made[-1]
    assert last.origin and last.predicted_score is not None and last.predicted_cost_seconds is not None
    assert last.predicted_cost_seconds.low <= last.predicted_cost_seconds.high
    assert engine.spent_seconds == sum(train(suggestion.params)[1] for suggestion in made)


def test_minimising_is_maximising_with_the_sign_turned() -> None:
    up = play(Protein(make_space(), seed=3), 12)
    down = play(Protein(make_space(), seed=3, direction="minimize"), 12, sign=-1.0)
    assert [s.params for s in up] == [s.params for s in down]
    assert up[-1].predicted_score is not None and down[-1].predicted_score is not None
    assert down[-1].predicted_score.value == -up[-1].predicted_score.value
    assert down[-1].predicted_score.low == -up[-1].predicted_score.high


def test_the_best_config_is_told_in_the_scores_own_direction() -> None:
    up, down = Protein(make_space(), seed=3), Protein(make_space(), seed=3, direction="minimize")
    assert up.best() is None
    play(up, 12)
    play(down, 12, sign=-1.0)
    best, least = up.best(), down.best()
    assert best is not None and least is not None and best.params == least.params
    assert (best.score.low, best.score.value) == (-least.score.high, -least.score.value)
    assert best.measured == (-least.measured[0],) and best.trials == least.trials
    cheap = up.best(under_seconds=1.0)
    assert cheap is not None and cheap.expected_cost_seconds <= 1.0 < best.expected_cost_seconds


def losing(direction: Literal["maximize", "minimize"], sign: float) -> tuple[Protein, list[str | None]]:
    """An engine that has seen 20 trials, and what it says of 10 that stand at the bottom, and of one at the top."""
    engine = Protein(make_space(), seed=0, direction=direction)
    base: Params = {"gamma": 0.99, "steps": 1_000_000, "opt": "adam"}
    for i in range(20):
        curve = [(100_000 * k, float(k), sign * i * k / 10) for k in range(1, 11)]
        engine.observe({**base, "lr": 1e-4 * (1 + i)}, score=sign * i, cost_seconds=10.0, curve=curve)
    low = [(100_000 * k, float(k), None if k == 1 else sign * 0.1 * k) for k in range(1, 6)]
    high = [(100_000 * k, float(k), sign * 2.0 * k) for k in range(1, 6)]
    answers = [engine.should_stop({**base, "lr": 5e-3 + 1e-4 * i}, low) for i in range(10)]
    return engine, [*answers, engine.should_stop({**base, "lr": 1e-2}, high)]


def test_it_stops_losing_trials_in_both_directions() -> None:
    (_, up), (_, down) = losing("maximize", 1.0), losing("minimize", -1.0)
    assert up == down
    assert sum(reason is not None for reason in up[:10]) >= 7, "most of them; some are spared"
    assert up[10] is None


def test_a_stopped_trial_is_no_failure_and_leaves_the_pending() -> None:
    engine = Protein(make_space(), seed=0)
    play(engine, 10)
    suggestion = engine.suggest()
    assert suggestion is not None
    engine.observe(suggestion.params, stopped="stopped early: last of 10", score=0.1, cost_seconds=2.0)
    assert engine.pending == ()
    told = engine.observations[-1]
    assert (told.state, told.score, told.reason) == (TrialState.PRUNED, 0.1, "stopped early: last of 10")
    engine.observe({**suggestion.params, "opt": "adam"}, stopped="no score yet", cost_seconds=1.0)
    assert engine.suggest() is not None


def test_the_observations_are_all_that_is_needed_to_go_on() -> None:
    whole = Protein(make_space(), seed=1, budget_seconds=1000.0)
    play(whole, 12)
    again = Protein(make_space(), seed=1, budget_seconds=1000.0, observations=whole.observations)
    assert whole.suggest() == again.suggest()


def test_observations_may_be_kept_as_json() -> None:
    whole = Protein(make_space(), seed=1, budget_seconds=1000.0)
    for suggestion in (whole.suggest() for _ in range(12)):
        assert suggestion is not None
        score, seconds = train(suggestion.params)
        steps = int(suggestion.params["steps"])
        curve = [(steps // 2, seconds / 2, score / 2), (steps, seconds, score)]
        whole.observe(suggestion.params, score=score, cost_seconds=seconds, curve=curve)
    kept = json.dumps([dataclasses.asdict(observation) for observation in whole.observations])
    read = [Observation(**fields) for fields in json.loads(kept)]
    again = Protein(make_space(), seed=1, budget_seconds=1000.0, observations=read)
    assert again.observations == whole.observations and again.best() == whole.best() is not None
    assert again.suggest() == whole.suggest()
    fields = {**json.loads(kept)[0], "state": "done"}
    with pytest.raises(ValueError, match="'done' is not a valid TrialState"):
        Observation(**fields)


def test_an_interrupted_trial_says_nothing_about_its_params() -> None:
    engine = Protein(make_space(), seed=0)
    first = engine.suggest()
    assert first is not None
    engine.observe(first.params, failed="interrupted", cost_seconds=3.0)
    again = engine.suggest()
    assert again is not None and again.params == first.params and engine.spent_seconds == 3.0


@pytest.mark.parametrize(
    ("told", "end"),
    [
        ({"failed": "diverged"}, TrialEnd.DIVERGED),
        ({"failed": "interrupted"}, TrialEnd.INTERRUPTED),
        ({"failed": "out_of_memory"}, TrialEnd.OUT_OF_MEMORY),
        ({"failed": "loss was nan"}, TrialEnd.FAILED),
        ({"failed": "complete"}, TrialEnd.FAILED),  # the name of an end that is no failure
        ({"stopped": "interrupted"}, TrialEnd.STOPPED_EARLY),
        ({"score": 1.0, "stopped": "last of 10"}, TrialEnd.STOPPED_EARLY),
        ({"score": 1.0}, TrialEnd.COMPLETE),
    ],
)
def test_how_a_trial_ended_is_kept_as_data(told: dict[str, Any], end: TrialEnd) -> None:
    engine = Protein(make_space(), seed=0)
    engine.observe(make_space().default(), cost_seconds=1.0, **told)
    (observation,) = engine.observations
    assert (observation.end, observation.state) == (end, end.state)
    kept = Observation(**json.loads(json.dumps(dataclasses.asdict(observation))))
    assert kept == observation and isinstance(kept.end, TrialEnd)


def test_an_unpredicted_suggestion_sets_its_cap_aside() -> None:
    engine = Protein(make_space(), seed=0, budget_seconds=100.0, max_trial_seconds=40.0)
    while engine.suggest() is not None:
        assert len(engine.pending) < 40
    assert len(engine.pending) == 3 and engine.ended == "the budget is spent"


def test_training_code_may_change_the_params_that_it_was_given() -> None:
    own: Params = {"lr": 3e-4, "gamma": 0.99, "steps": 1_000_000, "opt": "adam"}
    engine = Protein(make_space(), seed=0, start=own)
    first = engine.suggest()
    assert first is not None
    assert isinstance(first.params, dict)
    first.params.pop("lr")
    assert engine.pending[0].params == own
    assert engine.suggest() is not None
    engine.observe(own, score=1.0, cost_seconds=1.0)
    assert len(engine.pending) == 1


def test_trials_side_by_side_differ() -> None:
    engine = Protein(make_space(), seed=0, budget_seconds=400.0)
    play(engine, 10)
    made = [engine.suggest() for _ in range(4)]
    params = [tuple(s.params.items()) for s in made if s is not None]
    assert len(set(params)) == 4
    assert engine.pending == tuple(made)
    assert made[0] is not None
    engine.observe(made[0].params, failed="diverged", cost_seconds=1.0)
    assert engine.pending == tuple(made[1:])


def test_what_unobserved_suggestions_should_cost_is_not_spent_twice() -> None:
    engine = Protein(make_space(), seed=0, budget_seconds=10.0)
    play(engine, 10)
    while engine.suggest() is not None:
        assert len(engine.pending) < 40
    expected = [s.predicted_cost_seconds.value for s in engine.pending if s.predicted_cost_seconds is not None]
    assert len(expected) == len(engine.pending) > 1
    assert engine.spent_seconds + sum(expected) <= 10.0


def test_workers_of_the_initial_design_do_not_overrun_the_budget_together() -> None:
    engine = Protein(make_space(), seed=0, budget_seconds=6.0)
    play(engine, 2)  # the middle of the ranges with either choice: 2 s
    average = engine.spent_seconds / 2
    while engine.suggest() is not None:
        assert engine.spent_seconds + (len(engine.pending) - 1) * average < 6.0, "there was something left for it"
    assert len(engine.pending) > 1 and all(s.predicted_cost_seconds is None for s in engine.pending), "no model yet"


@pytest.mark.parametrize("method", ["random", "optuna:tpe"])
def test_many_workers_get_trials_once_a_cost_is_known(method: str) -> None:
    space = Space([Float("lr", 1e-4, 1e-1, scale="log"), Integer("width", 16, 256)])
    engine = Protein(space, seed=0, method=method, budget_seconds=100.0, max_trial_seconds=25.0)
    first = engine.suggest()
    assert first is not None
    engine.observe(first.params, score=1.0, cost_seconds=2.0)
    running = [engine.suggest() for _ in range(16)]
    assert None not in running, "each is expected to cost about 2 s, not the cap"


def test_it_says_why_it_has_nothing_left_to_suggest() -> None:
    small = Space([Categorical("opt", ["adam", "muon"]), Integer("depth", 1, 2)])
    for method in ("protein", "random", "optuna:tpe"):
        engine = Protein(small, seed=0, method=method)
        for _ in range(4):
            suggestion = engine.suggest()
            assert suggestion is not None and engine.ended == ""
            engine.observe(suggestion.params, score=float(suggestion.params["depth"]), cost_seconds=1.0)
        assert engine.suggest() is None and engine.ended == "every config of the space was tried"

    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"budget_seconds": 5.0}, "the budget is spent"),
        ({"budget_seconds": 99.0, "max_trials": 1}, "the limit of 1 trial is reached"),
        ({"budget_seconds": 5.4}, "no new config is expected to fit what is left of the budget"),
        (
            {"budget_seconds": 99.0, "max_trial_seconds": 2.0},
            "no new config is expected to fit what one trial may cost",
        ),
    )
    for limits, ended in cases:
        engine = Protein(small, seed=0, **limits)
        suggestion = engine.suggest()
        assert suggestion is not None
        engine.observe(suggestion.params, score=1.0, cost_seconds=5.0)
        assert engine.suggest() is None and engine.ended == ended


def test_the_initial_config_comes_first() -> None:
    own: Params = {"lr": 3e-4, "gamma": 0.99, "steps": 1_000_000, "opt": "adam"}
    suggestion = Protein(make_space(), start=own).suggest()
    assert suggestion is not None and suggestion.params == own and suggestion.origin == "initial config"


def test_it_stops_when_the_budget_is_spent() -> None:
    engine = Protein(make_space(), seed=0, budget_seconds=20.0)
    for _ in range(300):
        suggestion = engine.suggest()
        if suggestion is None:
            break
        score, seconds = train(suggestion.params)
        engine.observe(suggestion.params, score=score, cost_seconds=seconds)
    assert suggestion is None
    assert 0 < engine.spent_seconds <= 20.0 * 1.5


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"cost_seconds": 1.0}, "either a score or a reason"),
        ({"cost_seconds": 1.0, "score": 1.0, "failed": "diverged"}, "either a score or a reason"),
        ({"cost_seconds": 1.0, "failed": "diverged", "stopped": "worse than others"}, "either failed or was stopped"),
        ({"cost_seconds": 1.0, "score": math.nan}, "score must be finite.*failed="),
        ({"cost_seconds": 1.0, "score": 1e301}, r"score must be finite and within 1e\+300, got 1e\+301; .*failed="),
        ({"cost_seconds": -1.0, "score": 1.0}, "cost must be finite seconds >= 0, got -1.0"),
        ({"cost_seconds": 1.0, "score": 1.0, "curve": [(-1, 0.5, 0.1)]}, "steps >= 0"),
        (
            {"cost_seconds": 1.0, "score": 1.0, "curve": [(1, 0.5)]},
            r"\(steps, cost_seconds, score\), got tuple \(1, 0.5\)",
        ),
        (
            {"cost_seconds": 1.0, "score": 1.0, "curve": [(1, 0.5, "x")]},
            "score of a curve must be a number, got str 'x'",
        ),
        ({"cost_seconds": 1.0, "score": "0.9"}, "score must be a number, got str '0.9'"),
        ({"cost_seconds": None, "score": 0.9}, "cost_seconds must be a number, got NoneType"),
        ({"cost_seconds": 1.0, "score": 1.0, "curve": None}, "a curve must be a list of points.*got NoneType None"),
        ({"cost_seconds": 1.0, "score": 1.0, "curve": [(math.nan, 0.5, 0.1)]}, "steps of a curve must be finite"),
        ({"cost_seconds": 1.0, "score": np.zeros((9, 9))}, "score must be a number, got ndarray"),
    ],
)
def test_what_cannot_be_told(told: dict[str, Any], message: str) -> None:
    engine = Protein(make_space())
    suggestion = engine.suggest()
    assert suggestion is not None
    with pytest.raises(UsageError, match=message) as error:
        engine.observe(suggestion.params, **told)
    assert "\n" not in str(error.value)
    assert engine.observations == () and len(engine.pending) == 1


def test_a_curve_that_cannot_be_told() -> None:
    engine = Protein(make_space())
    params: Params = {"lr": 1e-3, "gamma": 0.99, "steps": 1_000_000, "opt": "adam"}
    with pytest.raises(UsageError, match=r"score of a curve must be finite.*, got nan; give None"):
        engine.should_stop(params, [(10, 1.0, math.nan)])
    with pytest.raises(SpaceError):
        engine.should_stop({"lr": 1e-3}, [(10, 1.0, 1.0)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget_seconds": 0.0}, "budget_seconds must be above 0 seconds, or None for no limit, got 0"),
        ({"budget_seconds": math.nan}, "budget_seconds must be above 0 seconds, or None for no limit, got nan"),
        # a share of an infinite budget would price all trials alike
        ({"budget_seconds": math.inf}, "budget_seconds must be above 0 seconds, or None for no limit, got inf"),
        ({"budget_seconds": "10 minutes"}, "budget_seconds must be a number, got str '10 minutes'"),
        ({"direction": "up"}, "direction must be"),
        ({"method": "protien"}, "unknown method 'protien'"),
        ({"method": None}, "unknown method 'None'"),
        ({"max_trials": 0}, "max_trials must be a whole number, 1 or more, or None for no limit, got 0"),
        ({"budget_seconds": True}, "budget_seconds must be above 0 seconds, or None for no limit, got True"),
        ({"observations": None}, "observations must be a list of observations.*got NoneType None"),
        ({"seed": -1}, "seed must be a whole number, 0 or more, got -1"),
        ({"warm_start": "mine"}, "warm_start must be a list of observations"),
    ],
)
def test_bad_arguments_are_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Protein(make_space(), **arguments)


def test_params_that_are_no_params() -> None:
    engine = Protein(make_space())
    suggestion: Any = engine.suggest()
    with pytest.raises(SpaceError, match=r"as in suggestion.params, got Suggestion"):
        engine.observe(suggestion, score=1.0, cost_seconds=1.0)
    with pytest.raises(SpaceError, match="lr"):
        engine.observe({"lr": 1.0}, score=1.0, cost_seconds=1.0)
    space: Any = [Float("lr", 0.0, 1.0)]
    with pytest.raises(UsageError, match=r"write Space\(\[...\]\)"):
        Protein(space)


def test_numbers_of_numpy_are_numbers() -> None:
    engine = Protein(make_space())
    params = {"lr": 1e-3, "gamma": 0.99, "steps": 1_000_000, "opt": "adam"}
    engine.observe(params, score=np.float32(0.5), cost_seconds=np.array(2.0), curve=np.array([[10, 1.0, 0.25]]))  # type: ignore[arg-type]
    (told,) = engine.observations
    assert [type(told.score), type(told.cost_seconds), type(told.curve[0].steps)] == [float, float, int]

    told_params: Any = {
        "lr": np.float32(1e-3),
        "gamma": np.float64(0.99),
        "steps": np.int64(10**6),
        "opt": np.str_("adam"),
    }
    engine.observe(told_params, score=0.5, cost_seconds=2.0)
    kinds = {"lr": float, "gamma": float, "steps": int, "opt": str}
    assert {name: type(value) for name, value in engine.observations[1].params.items()} == kinds
    assert engine.should_stop(told_params, []) is None
    zero, one, two, four = (np.int64(n) for n in (0, 1, 2, 4))
    limits: dict[str, Any] = {"seed": zero, "max_trials": one, "start": told_params}
    limited = Protein(make_space(), **limits)
    first = limited.suggest()
    assert first is not None and {name: type(value) for name, value in first.params.items()} == kinds
    assert limited.suggest() is None and limited.ended == "the limit of 1 trial is reached"
    ends: tuple[Any, Any] = (np.float32(0), np.float32(1))
    whole: tuple[Any, Any, Any] = (one, four, two)
    space = Space([Float("x", *ends), Integer("n", *whole[:2], default=whole[2])])
    assert space == Space([Float("x", 0.0, 1.0), Integer("n", 1, 4, default=2)])
    assert [type(getattr(parameter, "low", None)) for parameter in space.parameters] == [float, int]
    choices: Any = np.arange(3)
    assert Categorical("c", choices) == Categorical("c", [0, 1, 2])


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(protein.__file__).parent / "py.typed").is_file()


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, protein; print(sorted({'numpy', 'torch', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
        assert {**leg.params, "steps": 0} == {**earlier, "steps": 0} and leg.params["steps"] > earlier["steps"]  # type: ignore[operator]
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
