"""The expected front, and where a sweep's budget went."""

import dataclasses
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sample_trials import failed, running, trial

from protein.analysis.dominated import best_within, spending
from protein.engine import pareto
from protein.engine.recommend import contenders
from protein.engine.results import Contender, best, expected_front
from protein.space import Float, Space
from protein.types import Estimate, Observation, TrialRecord, TrialState

SCORES = st.integers(-3, 3).map(float)
COSTS = st.integers(1, 6).map(float)


def contender(number: int, score: float, cost_seconds: float) -> Contender:
    return Contender(
        params={"x": float(number)},
        score=Estimate(value=score, low=score - 1, high=score + 1),
        expected_cost_seconds=cost_seconds,
        trials=(number,),
        measured=(score,),
        basis="test",
    )


@given(st.lists(st.tuples(SCORES, COSTS), min_size=1, max_size=12), COSTS)
def test_the_expected_front_is_what_is_recommended_under_every_limit(
    points: list[tuple[float, float]], limit: float
) -> None:
    found = [contender(number, *point) for number, point in enumerate(points)]
    front = expected_front(found)
    fitting = [one for one in front if one.expected_cost_seconds <= limit]
    assert (fitting[-1] if fitting else None) == best(found, limit)
    assert front[-1] == best(found)
    assert [one.score.value for one in front] == sorted({one.score.value for one in front})


def test_one_lucky_run_is_on_the_measured_front_and_does_not_end_the_expected_one() -> None:
    rng = np.random.default_rng(3)
    space = Space([Float("x", 0.0, 1.0)])
    runs = [(0.25, float(score)) for score in rng.normal(10.0, 1.0, 12)]  # one good config, run often
    runs += [(float(x), float(rng.normal(8.0, 1.0))) for x in np.linspace(0.5, 1.0, 12)]
    highest = max(score for _, score in runs)
    runs.append((0.75, highest + 0.1))  # among configs that score 8, one run beats them all
    observations = [
        Observation(params={"x": x}, state=TrialState.COMPLETE, score=score, cost_seconds=1.0 + x) for x, score in runs
    ]
    lucky = pareto.front(observations)[-1]
    assert lucky.params == {"x": 0.75}
    front = expected_front(contenders(space, observations))
    assert front[-1].params == {"x": 0.25}
    assert front[-1].score.low < 10.0 < front[-1].score.high


def on_front(trials: list[TrialRecord]) -> set[int]:
    return {one.number for one in pareto.front(trials)}


@given(st.lists(st.tuples(st.sampled_from(["complete", "pruned", "failed", "running"]), SCORES, COSTS), max_size=12))
def test_spending_agrees_with_the_definition_trial_by_trial(points: list[tuple[str, float, float]]) -> None:
    trials = []
    for number, (state, score, cost) in enumerate(points):
        if state == "failed":
            trials.append(failed(number, cost))
        elif state == "running":
            trials.append(running(number, cost))
        else:
            trials.append(
                trial(
                    number, cost, score, state=TrialState(state), reason="stopped at its cost cap" * (state == "pruned")
                )
            )
    complete = [one for one in trials if one.state is TrialState.COMPLETE]
    limit = float(np.median([one.run_seconds for one in complete])) if complete else math.inf
    parts = dict.fromkeys(("front", "expensive", "cheap", "cut", "failed", "running"), 0.0)
    for one in trials:
        beaten = one.score is not None and any(
            other is not one and other.run_seconds <= one.run_seconds and (other.score or 0.0) >= one.score
            for other in complete
        )
        if one.number in on_front(trials):
            part = "front"
        elif one.state is TrialState.FAILED or one.state is TrialState.RUNNING:
            part = str(one.state)
        elif beaten:
            part = "expensive" if one.run_seconds > limit else "cheap"
        else:
            part = "cut"
        parts[part] += one.cost_seconds
    found = spending(trials)
    assert (found.front, found.dominated_expensive, found.dominated_cheap) == (
        parts["front"],
        parts["expensive"],
        parts["cheap"],
    )
    assert (found.cut_short, found.failed, found.running) == (parts["cut"], parts["failed"], parts["running"])
    assert found.total == sum(one.cost_seconds for one in trials)


def test_a_leg_counts_with_its_own_cost_and_is_compared_by_the_cost_of_its_run() -> None:
    leg = dataclasses.replace(trial(1, 5.0, 1.0), continues=0, continued_seconds=10.0)
    found = spending([trial(0, 10.0, 2.0), leg])
    assert found.front == 10.0 and found.dominated_expensive == 5.0
    assert found.expensive_above == 12.5 and found.share == 5.0 / 15.0


def test_excluded_trials_are_counted_apart_and_beat_nothing() -> None:
    exploit = dataclasses.replace(trial(0, 1.0, 99.0), excluded=True)
    found = spending([exploit, trial(1, 2.0, 1.0), trial(2, 3.0, 2.0)])
    assert (found.front, found.excluded, found.dominated_expensive) == (5.0, 1.0, 0.0)


def test_what_interruptions_undid_is_counted_apart() -> None:
    found = spending([dataclasses.replace(trial(0, 10.0, 2.0), lost_seconds=30.0), trial(1, 20.0, 1.0)])
    assert (found.front, found.dominated_expensive, found.lost, found.total) == (10.0, 20.0, 30.0, 60.0)


def test_nothing_was_spent_before_the_first_trial() -> None:
    found = spending([])
    assert (found.total, found.share, found.expensive_above) == (0.0, 0.0, None)


def test_best_within_is_the_highest_score_at_most_that_expensive() -> None:
    scores, costs = np.array([3.0, 1.0, 2.0]), np.array([5.0, 1.0, 2.0])
    assert best_within(scores, costs, np.array([0.5, 1.0, 4.9, 5.0])).tolist() == [-math.inf, 1.0, 2.0, 3.0]
    assert best_within(np.array([]), np.array([]), np.array([1.0])).tolist() == [-math.inf]
