"""The comparison's tuning tasks of networks and of XGBoost, through ONNX models."""

import numpy as np
import pytest
from engine import surrogates
from engine.reference import reference

FAMILIES = ("lcbench-3945", "xgboost-38")


@pytest.mark.parametrize("family", FAMILIES)
class TestBoth:
    def test_it_has_no_noise(self, family: str) -> None:
        task = surrogates.make_surrogate(family, 0)
        first = task.run(task.start, seed=1)
        assert first == task.run(task.start, seed=2, repeat=3)
        assert first.score == pytest.approx(task.true_score(first), rel=1e-4)

    def test_a_curve_is_the_same_config_at_fewer_steps(self, family: str) -> None:
        task = surrogates.make_surrogate(family, 0)
        params = task.space.from_unit(task.space.sample(1, np.random.default_rng(2))[0])
        steps = task.space.names[-1]
        whole = task.run(params, seed=0)
        point = whole.curve[len(whole.curve) // 2]
        shorter = task.run({**params, steps: point.steps}, seed=0)
        assert shorter.score == pytest.approx(point.score, rel=1e-4)
        assert point.elapsed_seconds <= shorter.cost_seconds * (1 + 1e-3)

    def test_seconds_are_clipped_and_never_fall_along_a_curve(self, family: str) -> None:
        task = surrogates.make_surrogate(family, 0)
        for params in task.space.from_unit_many(task.space.sample(100, np.random.default_rng(3))):
            seconds = [m.elapsed_seconds for m in task.run(params, seed=0).curve]
            assert seconds == sorted(seconds) and seconds[0] >= task.scenario.least_seconds

    def test_a_batch_gives_what_single_configs_give(self, family: str) -> None:
        task = surrogates.make_surrogate(family, 0)
        u = task.space.sample(20, np.random.default_rng(4))
        score, cost, _ = task.final(u)
        single = [task.run(params, seed=0) for params in task.space.from_unit_many(u)]
        # In float32, where sums round differently in batches.
        assert [o.score for o in single] == pytest.approx(score, rel=1e-4)
        assert [o.cost_seconds for o in single] == pytest.approx(cost, rel=1e-2)

    def test_the_default_is_better_than_the_median(self, family: str) -> None:
        """Were the inputs in another order, it would not be."""
        task = surrogates.make_surrogate(family, 0)
        scale = reference(task)
        assert 0.3 < scale.normalise(np.array(task.run(task.start, seed=0).score)) < 1.0


def test_dropping_trees_concerns_dart_alone() -> None:
    task = surrogates.make_surrogate("xgboost-38", 0)

    def score(booster: str, rate_drop: float) -> float | None:
        return task.run({**task.start, "booster": booster, "rate_drop": rate_drop}, seed=0).score

    assert score("gbtree", 0.0) == score("gbtree", 0.9)
    assert score("dart", 0.0) != score("dart", 0.9)


def test_data_sets_differ() -> None:
    one, other = (surrogates.make_surrogate(f"lcbench-{i}", 0) for i in (3945, 7593))
    assert one.run(one.start, seed=0).score != other.run(other.start, seed=0).score
