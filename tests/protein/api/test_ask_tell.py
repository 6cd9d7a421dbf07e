"""Ask and tell: what is suggested, under which budget, and what it says of it."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from ask_session import make_space, play, train

import protein
from protein import Categorical, Float, Integer, Protein, Space
from protein.engine.sample import MAX_WHOLE
from protein.types import Params, Suggestion, SuggestionKind, TrialState


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


def test_the_best_of_very_many_observations_is_found_among_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `protein best` does it: a model of all of them takes many seconds."""
    engine = Protein(Space([Float("x", 0.0, 1.0)]))
    for i in range(MAX_WHOLE + 1000):
        engine.observe({"x": i / 5000}, score=float(i % 997), cost_seconds=1.0 + i % 89)
        if i == MAX_WHOLE - 1:
            whole = seen_by_best(engine, monkeypatch)
    assert whole == (MAX_WHOLE, False)
    num_seen, is_sample = seen_by_best(engine, monkeypatch)
    assert is_sample and num_seen < MAX_WHOLE


def test_the_best_of_a_sample_names_its_observations() -> None:
    engine, rng = Protein(Space([Float("x", 0.0, 1.0)])), np.random.default_rng(0)
    for x in rng.random(MAX_WHOLE + 100):
        engine.observe({"x": float(x)}, score=-((float(x) - 0.3) ** 2) + 0.01 * rng.normal(), cost_seconds=1.0 + x)
    found = engine.best()
    assert found is not None
    named = [engine.observations[i] for i in found.trials]
    assert [one.score for one in named] == list(found.measured)
    assert all(one.params == found.params for one in named)


def seen_by_best(engine: Protein, monkeypatch: pytest.MonkeyPatch) -> tuple[int, bool]:
    """Returns how many observations `best` looks at, and whether they are a sample."""
    calls: list[tuple[int, bool]] = []

    def contenders(space: Space, observations: list[Any], sample: Any = None, **limits: Any) -> list[Any]:
        calls.append((len(observations), sample is not None))
        return []

    monkeypatch.setattr("protein.api.ask_tell.contenders", contenders)
    assert engine.best() is None
    return calls[0]


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


def test_an_unpredicted_suggestion_sets_its_cap_aside() -> None:
    engine = Protein(make_space(), seed=0, budget_seconds=100.0, max_trial_seconds=40.0)
    while engine.suggest() is not None:
        assert len(engine.pending) < 40
    assert len(engine.pending) == 3 and engine.ended == "the budget is spent"


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


def test_choices_that_are_equal_but_of_different_types_are_different_suggestions() -> None:
    space = Space([Categorical("x", [1, True, 1.0]), Float("y", 0.0, 2.0), Categorical("z", ["a", "b"])])
    engine = Protein(space, seed=0)
    for value in (1, True, 1.0):
        told: Params = {"x": value, "y": 1, "z": "a"}  # a number of a range may be written in both ways
        others: list[Params] = [{"x": other, "y": 1.0, "z": "a"} for other in (1.0, True, 1)]
        engine._pending = [
            Suggestion(params=one, kind=SuggestionKind.CONTINUATION, origin="", continues=i)
            for i, one in enumerate(others)
        ]
        index = [type(one["x"]) for one in others].index(type(value))
        assert engine._suggested_continuation(told) == index
        engine.observe(told, score=1.0, cost_seconds=1.0, continues=None)
        assert [one.continues for one in engine.pending] == [i for i in range(3) if i != index]


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


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(protein.__file__).parent / "py.typed").is_file()


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, protein; print(sorted({'numpy', 'torch', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
