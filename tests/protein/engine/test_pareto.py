"""The Pareto front against brute force and Monte Carlo, and its edge cases."""

import itertools
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protein.engine.pareto import MIN_COST_SECONDS, best_under, front, front_indices, hypervolume, knee_index
from protein.types import Observation, TrialState

points = st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 8)), max_size=25)


def done(score: float, cost: float, tag: int = 0) -> Observation:
    return Observation(params={"tag": tag}, state=TrialState.COMPLETE, score=score, cost_seconds=cost)


def knee(records: list[Observation]) -> Observation | None:
    done = [record for record in records if record.score is not None]
    position = knee_index([record.score or 0.0 for record in done], [record.cost_seconds for record in done])
    return None if position is None else done[position]


def failed(cost: float) -> Observation:
    return Observation(params={}, state=TrialState.FAILED, score=None, cost_seconds=cost, reason="diverged")


@given(points)
@settings(deadline=None)
def test_the_front_is_what_nothing_dominates(sample: list[tuple[int, int]]) -> None:
    expected = {(s, c) for s, c in sample if not any((s2 >= s and c2 <= c) and (s2 > s or c2 < c) for s2, c2 in sample)}
    index = front_indices([s for s, _ in sample], [c for _, c in sample])
    assert [sample[i] for i in index] == sorted(expected, key=lambda p: p[1])
    assert all(sample.index(sample[i]) == i for i in index), "of equal points, the first"


@given(points, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_order_does_not_matter(sample: list[tuple[int, int]], random: Random) -> None:
    records = [done(s, c) for s, c in sample]
    shuffled = list(records)
    random.shuffle(shuffled)
    assert front(records) == front(shuffled)
    assert best_under(records, 4) == best_under(shuffled, 4)
    assert knee(records) == knee(shuffled)


def test_failed_and_stopped_trials_are_no_points() -> None:
    stopped = Observation(params={}, state=TrialState.PRUNED, score=9.0, cost_seconds=0.5)
    records = [failed(0.1), done(1.0, 2.0), stopped, failed(5.0)]
    assert front(records) == [records[1]]
    assert best_under(records) == records[1]
    assert front([failed(1.0)]) == []
    assert best_under([failed(1.0)]) is None
    assert knee([]) is None


def test_the_best_points_are_kept_not_the_worst() -> None:
    records = [done(1.0, 1.0), done(5.0, 2.0), done(0.5, 3.0), done(7.0, 9.0)]
    assert [r.score for r in front(records)] == [1.0, 5.0, 7.0]


def test_best_under_a_limit() -> None:
    records = [done(1.0, 1.0), done(3.0, 4.0), done(3.0, 2.0), done(4.0, 8.0)]
    assert best_under(records, 4.0) == records[2]
    assert best_under(records, 1.0) == records[0]
    assert best_under(records, 0.5) is None
    assert best_under(records) == records[3]


def test_the_knee_is_where_more_cost_stops_paying() -> None:
    records = [done(0.0, 1.0), done(0.9, 2.0), done(0.95, 50.0), done(1.0, 100.0)]
    assert knee(records) == records[1]
    assert knee(records[:3]) == records[1]


def test_a_front_without_a_point_above_its_chord_has_no_knee() -> None:
    steep = [done(-17.5, 1.0), done(-17.0, 30.0), done(15.8, 60.0)]
    assert front(steep) == steep and knee(steep) is None, "the cheapest, and worst, is no balance"
    even = [done(0.1 * n, math.exp(0.3 * n)) for n in range(7)]
    assert knee(even) is None, "all lie on the chord"
    assert knee([*even, done(0.35, math.exp(0.9))]) is not None
    assert knee(even[:2]) is None and knee(even[:1]) is None


@given(points)
@settings(max_examples=40, deadline=None)
def test_hypervolume_against_a_fine_sum(sample: list[tuple[int, int]]) -> None:
    scores, costs = [float(s) for s, _ in sample], [float(c) for _, c in sample]
    t = (np.arange(20_000) + 0.5) / 20_000 * math.log(8.5)
    best = np.full(t.shape, -1.5)
    for s, c in sample:
        best = np.where((np.log(c) <= t) & (s > best), s, best)
    expected = float(np.sum(best + 1.5)) * math.log(8.5) / 20_000
    assert hypervolume(scores, costs, reference_score=-1.5, reference_cost=8.5) == pytest.approx(expected, abs=0.02)


def test_hypervolume_against_monte_carlo() -> None:
    rng = np.random.default_rng(0)
    scores, costs = rng.normal(size=30), np.exp(rng.uniform(0.0, 4.0, 30))
    u = rng.uniform(0.0, 4.5, 400_000)
    v = rng.uniform(-1.0, 4.0, 400_000)
    covered = np.zeros(u.shape, dtype=bool)
    for s, c in zip(scores, costs, strict=True):
        covered |= (u >= math.log(c)) & (v <= s)
    value = hypervolume(scores, costs, reference_score=-1.0, reference_cost=math.exp(4.5))
    assert value == pytest.approx(4.5 * 5.0 * covered.mean(), rel=0.01)


def test_hypervolume_never_falls_when_a_point_is_added() -> None:
    rng = np.random.default_rng(1)
    scores, costs = rng.normal(size=40), np.exp(rng.uniform(0.0, 4.0, 40))
    volumes = [hypervolume(scores[:n], costs[:n], reference_score=-1.0, reference_cost=60.0) for n in range(41)]
    assert volumes[0] == 0.0
    assert all(a <= b for a, b in itertools.pairwise(volumes))


def test_zero_cost_has_a_logarithm() -> None:
    value = hypervolume([1.0], [0.0], reference_score=0.0, reference_cost=1.0)
    assert value == pytest.approx(-math.log(MIN_COST_SECONDS))
    assert len(front([done(1.0, 0.0), done(2.0, 0.0)])) == 1


def test_a_reference_must_be_usable() -> None:
    with pytest.raises(ValueError, match="cost above 0"):
        hypervolume([1.0], [1.0], reference_score=0.0, reference_cost=0.0)
