"""Warm starts: what is carried over, what it does to the first trials, and that data outvote a source sweep."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from conditional_sweeps import CONDITIONAL
from sample_trials import trial

from protein import Categorical, Float, Integer, Observation, Protein, Space
from protein.engine.joint_fit import SourceTrials
from protein.engine.score_model import ScoreModel
from protein.engine.warm_start import MAX_SNAPSHOT_TRIALS, carried_over, snapshot_of, source_observations
from protein.errors import UsageError
from protein.sweep.methods import make_designer
from protein.types import Budget, Params, SuggestionKind, TrialEnd, TrialState

pytestmark = pytest.mark.usefixtures("one_blas_thread")

SPACE = Space(
    [
        Float("lr", 1e-4, 1.0, scale="log"),
        Categorical("opt", ("adam", "muon")),
        Integer("steps", 10, 1000, scale="log"),
    ],
    cost_parameter="steps",
)
START: Params = {"lr": 0.5, "opt": "adam", "steps": 50}


def trained(params: Any, *, best_lr: float = 0.01, factor: float = 1.0) -> Observation:
    """A trial of a smooth problem; a failure where the rate is high."""
    cost = factor * params["steps"] / 10.0
    if params["lr"] > 0.6:
        return Observation(params=params, state=TrialState.FAILED, score=None, cost_seconds=0.1 * cost, reason="nan")
    miss = math.log10(params["lr"] / best_lr)
    score = math.exp(-(miss**2)) * (1.0 - math.exp(-params["steps"] / 200.0))
    return Observation(params=params, state=TrialState.COMPLETE, score=score, cost_seconds=cost)


def searched(num_trials: int, **problem: float) -> list[Observation]:
    engine = Protein(SPACE, budget_seconds=2000.0, start=START)
    while len(engine.observations) < num_trials:
        suggestion = engine.suggest()
        assert suggestion is not None
        o = trained(suggestion.params, **problem)
        engine.observe(o.params, cost_seconds=o.cost_seconds, score=o.score, failed=o.reason)
    return list(engine.observations)


def test_what_is_carried_over() -> None:
    base: Params = {"lr": 0.01, "opt": "adam", "steps": 100}

    def carry(**changes: Any) -> list[Any]:
        params = {name: value for name, value in {**base, **changes}.items() if value is not None}
        trial = Observation(params=params, state=TrialState.COMPLETE, score=1.0, cost_seconds=1.0)
        return [o.params for o in carried_over(SPACE, START, [trial])]

    assert carry(gamma=0.99) == [base]  # a parameter that this space lacks
    assert carry(lr=None) == [{**base, "lr": START["lr"]}]  # a missing one: the initial config's value
    assert carry(lr=1.2) == [{**base, "lr": 1.0}]  # a little outside
    assert carry(lr=30.0) == carry(opt="sgd") == carry(steps="many") == carry(lr=-1.0) == []
    cut = Observation(params=base, state=TrialState.FAILED, score=None, cost_seconds=1.0, end=TrialEnd.INTERRUPTED)
    assert carried_over(SPACE, START, [cut]) == []


def test_what_is_carried_over_to_conditions() -> None:
    start: Params = {"model": "svc", "C": 1.0, "kernel": "linear", "steps": 50}

    def carry(**params: Any) -> list[Any]:
        trial = Observation(params=params, state=TrialState.COMPLETE, score=1.0, cost_seconds=1.0)
        return [o.params for o in carried_over(CONDITIONAL, start, [trial])]

    tree: Params = {"model": "tree", "depth": 3, "steps": 20}
    assert carry(**tree) == carry(**tree, C=2.0, gamma=1e9) == [tree]  # a flat source has them in every trial
    assert carry(C=2.0, steps=20) == [{**start, "C": 2.0, "steps": 20}]
    assert carry(model="tree", steps=20) == []  # neither the trial nor the initial config has a depth
    assert carry(kernel="rbf", gamma=0.1) == [{**start, "kernel": "rbf", "gamma": 0.1}]


def test_the_first_trials_come_from_the_source_sweeps_front_and_say_so() -> None:
    source = searched(25)
    engine = Protein(SPACE, budget_seconds=2000.0, start=START, warm_start=source)
    origins = []
    for _ in range(10):
        suggestion = engine.suggest()
        assert suggestion is not None
        origins.append(suggestion.origin)
        from_source = suggestion.origin.startswith("from the source sweep's front near ")
        assert (suggestion.kind is SuggestionKind.WARM_START) == from_source
        o = trained(suggestion.params, factor=1.5)
        engine.observe(o.params, cost_seconds=o.cost_seconds, score=o.score, failed=o.reason)
    assert origins[0] == "initial config"
    assert sum(origin.startswith("from the source sweep's front near ") for origin in origins) >= 2
    assert sum(origin.startswith("initial design") for origin in origins) >= 2  # they find out a misleading source
    near = [
        o for o in engine.observations if o.score is not None and abs(math.log10(float(o.params["lr"]) / 0.01)) < 0.5
    ]
    assert len(near) >= 4


def test_several_sources_begin_in_turn_and_each_once() -> None:
    sources = [searched(12, best_lr=best) for best in (0.01, 0.001, 0.1, 0.03)]
    engine = Protein(SPACE, budget_seconds=2000.0, start=START, warm_start=sources)
    begun: list[Params] = []
    for _ in range(9):
        suggestion = engine.suggest()
        assert suggestion is not None
        if suggestion.kind is SuggestionKind.WARM_START:
            begun.append(suggestion.params)
        o = trained(suggestion.params)
        engine.observe(o.params, cost_seconds=o.cost_seconds, score=o.score, failed=o.reason)
    assert len(begun) == 3  # in all, however many sources
    tried = [[o.params for o in trials] for trials in sources]
    assert all(params in tried[i] for i, params in enumerate(begun))  # those of the first, the second and the third


def test_a_list_of_one_source_is_that_source() -> None:
    source, history = searched(12), searched(9)
    ways: tuple[Any, ...] = (source, [source], ([], source))
    found = [
        Protein(SPACE, budget_seconds=2000.0, start=START, observations=history, warm_start=given).suggest()
        for given in ways
    ]
    assert found[0] == found[1] == found[2]
    with pytest.raises(UsageError, match="warm_start must be a list of observations"):
        mixed: Any = [source, "mine"]
        Protein(SPACE, warm_start=mixed)


def test_scores_in_other_units_and_a_slower_machine_say_the_same() -> None:
    source = searched(20)
    other = [
        Observation(
            params=o.params,
            state=o.state,
            score=None if o.score is None else 1000.0 * o.score - 7.0,
            cost_seconds=o.cost_seconds,
            reason=o.reason,
        )
        for o in source
    ]
    history = searched(9)
    suggestions = [
        make_designer("protein", SPACE, START, warm_start=[trials]).suggest(
            history, [], Budget(remaining_seconds=1000.0), 1
        )
        for trials in (source, other)
    ]
    assert suggestions[0] is not None and suggestions[1] is not None
    assert suggestions[0].params == suggestions[1].params


def test_a_misleading_source_sweep_is_outvoted() -> None:
    rng = np.random.default_rng(0)
    space = Space([Float("a", 0.0, 1.0), Float("b", 0.0, 1.0)])

    def truth(x: Any) -> Any:
        return -((x[:, 0] - 0.2) ** 2) - (x[:, 1] - 0.3) ** 2

    x_source, x = rng.random((25, 2)), rng.random((20, 2))
    lying = SourceTrials(x_source, -3.0 * truth(x_source), lambda points: -3.0 * truth(points))
    at = rng.random((200, 2))

    model = ScoreModel.fit(space, x, truth(x), sources=[lying])
    off = model.predict(at)[0] - model.scale.to_z(truth(at))
    assert np.sqrt(np.mean(off**2)) < 0.15  # of a standard deviation; the lie itself is off by more than 1.5
    few = x[:6]
    honest = SourceTrials(x_source, truth(x_source) * 5.0, lambda points: truth(points) * 5.0)
    with_source = ScoreModel.fit(space, few, truth(few), sources=[lying, honest])
    without = ScoreModel.fit(space, few, truth(few))
    assert with_source.source == 1 and without.source is None
    errors = [np.abs(m.predict(at)[0] - m.scale.to_z(truth(at))).mean() for m in (with_source, without)]
    assert errors[0] < errors[1]


def test_a_snapshot_keeps_what_the_designer_reads() -> None:
    trials = [
        dataclasses.replace(trial(i, score=float(i), cost_seconds=1.0), params={"lr": 0.01 * (i + 1), "other": 1})
        for i in range(MAX_SNAPSHOT_TRIALS + 50)
    ]
    taken = snapshot_of("old", trials, space=SPACE, fixed={"opt": "adam", "steps": 70, "unknown": 3})
    assert taken["sweep"] == "old" and len(taken["trials"]) == MAX_SNAPSHOT_TRIALS
    (found,) = source_observations({"asked": ["old"], "sources": [taken]})
    assert source_observations(taken) == [found]  # as earlier versions stored it
    best_half = range(MAX_SNAPSHOT_TRIALS // 2 + 50, MAX_SNAPSHOT_TRIALS + 50)
    assert {o.score for o in found} >= set(map(float, best_half))
    assert found[0].params == {"lr": 0.01, "opt": "adam", "steps": 70}
    assert source_observations({}) == []


@pytest.mark.parametrize("trials", [[trained({**START, "lr": 0.9})], [trained({**START, "opt": "sgd"})]])
def test_source_trials_of_no_use_are_an_error(trials: Sequence[Observation]) -> None:
    with pytest.raises(UsageError, match=r"of the 1 trial of the warm start none has a score and lies in this space"):
        Protein(SPACE, start=START, warm_start=trials)
    with pytest.raises(UsageError, match="method 'random' cannot use a warm start"):
        Protein(SPACE, start=START, warm_start=searched(2), method="random")
