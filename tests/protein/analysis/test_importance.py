"""Importance of parameters: each method finds what was planted, and says why where it cannot answer."""

import dataclasses
import sys

import numpy as np
import pytest
from conditional_sweeps import CONDITIONAL
from conditional_sweeps import TRIALS as CONDITIONAL_TRIALS
from planted_sweeps import searched

from protein.analysis import importance
from protein.analysis.importance import LENGTH_SCALES, METHODS, PED_ANOVA, PERMUTATION, importances
from protein.errors import UsageError
from protein.space import Categorical, Float, Integer, Space
from protein.types import Params

SPACE = Space(
    [
        Float("much", 1e-5, 1e-1, scale="log"),
        Integer("little", 1, 8, scale="pow2"),
        Float("nothing", 0.0, 1.0),
        Categorical("also_nothing", ("a", "b", "c")),
    ]
)
TRIALS = searched(SPACE, lambda x: 4.0 * abs(x[0] - 0.3) + 0.8 * x[1], num_trials=120, seed=0, noise=0.1)


@pytest.mark.parametrize("method", METHODS)
def test_finds_what_was_planted(method: str) -> None:
    [found] = importances(SPACE, TRIALS, methods=[method])
    assert found.method == method and not found.problem and found.num_trials == 120
    assert found.ranking()[0] == "much"
    assert found.shares["much"] > 2 * max(found.shares["nothing"], found.shares["also_nothing"])
    assert set(found.shares) == set(SPACE.names)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert found.caveat and found.meaning and found.title


def test_the_forest_and_ped_anova_see_a_categorical() -> None:
    trials = searched(SPACE, lambda x: 3.0 * (0.34 < x[3] < 0.66), num_trials=90, seed=1, noise=0.1)
    for found in importances(SPACE, trials, methods=[PED_ANOVA, PERMUTATION]):
        assert found.ranking()[0] == "also_nothing", found.title


def test_what_makes_a_trial_expensive() -> None:
    trials = searched(SPACE, lambda x: x[0], num_trials=60, seed=2, seconds=lambda x: 10.0 * 20.0 ** x[2], noise=0.1)
    ped_anova, permutation, length_scales = importances(SPACE, trials, target="cost")
    assert ped_anova.ranking()[0] == permutation.ranking()[0] == "nothing"
    assert "cheapest" in ped_anova.meaning
    assert "straight line" in length_scales.problem and not length_scales.shares


def test_what_shuffling_adds_to_the_error_is_what_scikit_learn_finds() -> None:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance

    rng = np.random.default_rng(0)
    x, y = rng.random((30, 4)), rng.random(30)
    forest = RandomForestRegressor(3, random_state=0, n_jobs=1).fit(x, y)
    theirs = permutation_importance(
        forest, x, y, scoring="neg_mean_squared_error", n_repeats=importance._NUM_REPEATS, random_state=importance._SEED
    )
    ours = importance._more_error(forest, x, y, [3, 0])
    assert ours == pytest.approx(theirs.importances[[3, 0]], rel=1e-9) and (ours > 0.0).any()


def test_says_where_the_forest_explains_nothing() -> None:
    trials = searched(SPACE, lambda x: 0.0, num_trials=40, seed=3)
    [found] = importances(SPACE, trials, methods=[PERMUTATION])
    assert "do not rely" in found.warning


@pytest.mark.parametrize(
    ("module", "method", "said"), [("optuna", PED_ANOVA, "Optuna"), ("sklearn", PERMUTATION, "scikit-learn")]
)
def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch, module: str, method: str, said: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    missing, there = importances(SPACE, TRIALS, methods=[method, LENGTH_SCALES])
    assert missing.problem == f"needs {said}: pip install 'protein-sweep[importance]'" and not missing.shares
    assert not there.problem


@pytest.mark.parametrize("method", METHODS)
def test_a_parameter_that_never_varied_has_no_share(method: str) -> None:
    fixed: Params = {"nothing": 0.5, "also_nothing": "b"}
    trials = [dataclasses.replace(trial, params={**trial.params, **fixed}) for trial in TRIALS[:40]]
    [found] = importances(SPACE, trials, methods=[method])
    assert found.shares["nothing"] == found.shares["also_nothing"] == 0.0 and found.ranking()[0] == "much"
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert "all trials have the same nothing, also_nothing, so nothing is known of them" in found.warning
    same = [dataclasses.replace(trial, params=TRIALS[0].params) for trial in TRIALS[:40]]
    [nothing] = importances(SPACE, same, methods=[method])
    assert nothing.problem == "all 40 trials have the same params: nothing can be told apart"


def test_too_few_trials_and_equal_scores() -> None:
    for found in importances(SPACE, TRIALS[:9]):
        assert "needs 10 trials with a score, and has 9" in found.problem
    for found in importances(SPACE, []):
        assert "and has 0" in found.problem
    same = [dataclasses.replace(one, score=1.0) for one in TRIALS[:20]]
    for found in importances(SPACE, same):
        assert found.problem == "all 20 trials have the same score: nothing can matter"


def test_of_very_many_trials_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "_MAX_TRIALS", 100)
    [found] = importances(SPACE, TRIALS, methods=[PED_ANOVA])
    assert found.num_trials == 100 and found.ranking()[0] == "much"


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="no importance method 'fanova'"):
        importances(SPACE, TRIALS, methods=["fanova"])
    with pytest.raises(UsageError, match="score or cost, got 'time'"):
        importances(SPACE, TRIALS, target="time")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [PED_ANOVA, PERMUTATION])
def test_a_conditional_parameter_is_judged_by_the_trials_that_have_it(method: str) -> None:
    [found] = importances(CONDITIONAL, CONDITIONAL_TRIALS, methods=[method])
    assert found.shares["depth"] > 2 * max(found.shares["kernel"], found.shares["C"]) and not found.problem

    # That an SVC is better says nothing of what only a tree has.
    flat = [
        dataclasses.replace(one, score=float(one.params["model"] == "svc") + 0.01 * (number % 7))
        for number, one in enumerate(CONDITIONAL_TRIALS)
    ]
    [by_model] = importances(CONDITIONAL, flat, methods=[method])
    assert by_model.ranking()[0] == "model" and by_model.shares["depth"] < 0.3


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_said_of_a_parameter_that_few_trials_have(method: str) -> None:
    trees = [one for one in CONDITIONAL_TRIALS if one.params["model"] == "tree"][:9]
    others = [one for one in CONDITIONAL_TRIALS if one.params["model"] == "svc"]
    [found] = importances(CONDITIONAL, [*trees, *others], methods=[method])
    assert found.shares["depth"] == 0.0 and found.ranking()[0] != "depth"
    assert "fewer than 10 trials have depth, so nothing is known of it" in found.warning
    assert sum(found.shares.values()) == pytest.approx(1.0)
