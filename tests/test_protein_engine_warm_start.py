"""Beginning from a former sweep: what is carried over, what it does to the first trials, and that data outvote it."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from viewing import trial

from protein import Categorical, Float, Integer, Observation, Protein, Space
from protein.engine.models import FormerTrials, ScoreModel
from protein.engine.warm_start import carried_over
from protein.errors import UsageError
from protein.sweep.methods import make_designer
from protein.sweep.source import MAX_TRIALS, observations, snapshot
from protein.types import TrialState

pytestmark = pytest.mark.usefixtures("one_blas_thread")

SPACE = Space(
    [
        Float("lr", 1e-4, 1.0, scale="log"),
        Categorical("opt", ("adam", "muon")),
        Integer("steps", 10, 1000, scale="log"),
    ],
    cost_parameter="steps",
)
START = {"lr": 0.5, "opt": "adam", "steps": 50}


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
    base = {"lr": 0.01, "opt": "adam", "steps": 100}

    def carry(**changes: Any) -> list[Any]:
        params = {name: value for name, value in {**base, **changes}.items() if value is not None}
        trial = Observation(params=params, state=TrialState.COMPLETE, score=1.0, cost_seconds=1.0)
        return [o.params for o in carried_over(SPACE, START, [trial])]

    assert carry(gamma=0.99) == [base]  # a parameter that is none here
    assert carry(lr=None) == [{**base, "lr": START["lr"]}]  # the own value of one that was none there
    assert carry(lr=1.2) == [{**base, "lr": 1.0}]  # a little outside
    assert carry(lr=30.0) == carry(opt="sgd") == carry(steps="many") == carry(lr=-1.0) == []
    cut = Observation(params=base, state=TrialState.FAILED, score=None, cost_seconds=1.0, reason="interrupted")
    assert carried_over(SPACE, START, [cut]) == []


def test_the_first_trials_come_from_the_former_front_and_say_so() -> None:
    former = searched(25)
    engine = Protein(SPACE, budget_seconds=2000.0, start=START, prior=former)
    origins = []
    for _ in range(10):
        suggestion = engine.suggest()
        assert suggestion is not None
        origins.append(suggestion.origin)
        o = trained(suggestion.params, factor=1.5)
        engine.observe(o.params, cost_seconds=o.cost_seconds, score=o.score, failed=o.reason)
    assert origins[0] == "your own config"
    assert sum(origin.startswith("from the prior sweep's front near ") for origin in origins) >= 2
    assert sum(origin.startswith("initial design") for origin in origins) >= 2  # what finds a misleading prior out
    near = [o for o in engine.observations if o.score is not None and abs(math.log10(o.params["lr"] / 0.01)) < 0.5]
    assert len(near) >= 4


def test_scores_in_other_units_and_a_slower_machine_say_the_same() -> None:
    former = searched(20)
    other = [
        Observation(
            params=o.params,
            state=o.state,
            score=None if o.score is None else 1000.0 * o.score - 7.0,
            cost_seconds=o.cost_seconds,
            reason=o.reason,
        )
        for o in former
    ]
    history = searched(9)
    suggestions = [
        make_designer("protein", SPACE, START, prior=prior).suggest(
            history, [], remaining_seconds=1000.0, max_trial_seconds=None, seed=1
        )
        for prior in (former, other)
    ]
    assert suggestions[0] is not None and suggestions[1] is not None
    assert suggestions[0].params == suggestions[1].params


def test_a_misleading_prior_is_outvoted() -> None:
    rng = np.random.default_rng(0)
    space = Space([Float("a", 0.0, 1.0), Float("b", 0.0, 1.0)])

    def truth(x: Any) -> Any:
        return -((x[:, 0] - 0.2) ** 2) - (x[:, 1] - 0.3) ** 2

    x_former, x = rng.random((25, 2)), rng.random((20, 2))
    lying = FormerTrials(x_former, -3.0 * truth(x_former), lambda points: -3.0 * truth(points))
    at = rng.random((200, 2))

    model = ScoreModel.fit(space, x, truth(x), former=lying)
    off = model.predict(at)[0] - model.scale.to_z(truth(at))
    assert np.sqrt(np.mean(off**2)) < 0.15  # of a standard deviation; the lie itself is off by more than 1.5
    few = x[:6]
    honest = FormerTrials(x_former, truth(x_former) * 5.0, lambda points: truth(points) * 5.0)
    with_prior = ScoreModel.fit(space, few, truth(few), former=honest)
    without = ScoreModel.fit(space, few, truth(few))
    assert with_prior.leans and not without.leans
    errors = [np.abs(m.predict(at)[0] - m.scale.to_z(truth(at))).mean() for m in (with_prior, without)]
    assert errors[0] < errors[1]


def test_a_snapshot_keeps_what_the_designer_reads() -> None:
    trials = [
        dataclasses.replace(trial(i, score=float(i), cost_seconds=1.0), params={"lr": 0.01 * (i + 1), "other": 1})
        for i in range(MAX_TRIALS + 50)
    ]
    taken = snapshot("old", trials, space=SPACE, fixed={"opt": "adam", "steps": 70, "unknown": 3})
    assert taken["sweep"] == "old" and len(taken["trials"]) == MAX_TRIALS
    found = observations(taken)
    assert {o.score for o in found} >= {float(i) for i in range(MAX_TRIALS // 2 + 50, MAX_TRIALS + 50)}  # the best half
    assert found[0].params == {"lr": 0.01, "opt": "adam", "steps": 70}
    assert observations({}) == []


@pytest.mark.parametrize("prior", [[trained({**START, "lr": 0.9})], [trained({**START, "opt": "sgd"})]])
def test_a_prior_of_no_use_is_an_error(prior: Sequence[Observation]) -> None:
    with pytest.raises(UsageError, match=r"none of the 1 trials of the prior"):
        Protein(SPACE, start=START, prior=prior)
    with pytest.raises(UsageError, match="can make no use of a prior"):
        Protein(SPACE, start=START, prior=searched(2), method="random")
