"""The comparison's tasks: what every one of them promises to the optimisers and to the figures."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))  # where `engine` is a package

from engine.protocol import Task
from engine.reference import reference
from engine.tasks import FAMILIES, make_task

from protein.errors import SpaceError
from protein.types import Measurement, Observation, Params, TrialState


def _complete(task: Task) -> tuple[Params, Observation]:
    """Params of a run that gives a score, with their observation."""
    rng = np.random.default_rng(0)
    for params in [task.start, *task.space.from_unit_many(task.space.sample(20, rng))]:
        observation = task.run(params, seed=1)
        if observation.state is TrialState.COMPLETE:
            return params, observation
    raise AssertionError("no random config of 20 gives a score")


@pytest.mark.parametrize("family", FAMILIES)
class TestEveryFamily:
    def test_curve_ends_at_the_outcome(self, family: str) -> None:
        task = make_task(family, 0)
        assert task.family == family
        _, whole = _complete(task)
        steps = [m.steps for m in whole.curve]
        seconds = [m.elapsed_seconds for m in whole.curve]
        assert steps == sorted(set(steps)) and seconds == sorted(seconds)
        assert seconds[-1] == pytest.approx(whole.cost_seconds, rel=1e-6)
        assert np.isfinite(task.true_score(whole))

    def test_watch_ends_it_pruned_at_that_point(self, family: str) -> None:
        task = make_task(family, 0)
        params, whole = _complete(task)
        seen: list[tuple[Measurement, ...]] = []

        def watch(curve: tuple[Measurement, ...]) -> bool:
            seen.append(curve)
            return len(curve) == 3

        stopped = task.run(params, seed=1, watch=watch)
        assert [len(curve) for curve in seen] == [1, 2, 3]
        assert stopped.state is TrialState.PRUNED
        assert stopped.curve == seen[-1] and stopped.score == stopped.curve[-1].score
        assert stopped.cost_seconds == stopped.curve[-1].elapsed_seconds < whole.cost_seconds
        assert np.isfinite(task.true_score(stopped))

    def test_a_watch_that_never_stops_changes_nothing(self, family: str) -> None:
        task = make_task(family, 0)
        params, whole = _complete(task)
        watched = task.run(params, seed=1, watch=lambda curve: False)
        assert (watched.state, watched.score) == (whole.state, whole.score)

    def test_invalid_params_are_refused(self, family: str) -> None:
        task = make_task(family, 0)
        with pytest.raises(SpaceError):
            task.run({**task.start, task.space.cost_parameter: -1}, seed=1)


def test_repeat_changes_the_noise_and_not_the_truth() -> None:
    task = make_task("ppo", 0)
    first, same, again = (task.run(task.start, seed=1, repeat=repeat) for repeat in (0, 0, 1))
    assert first == same
    assert first.score != again.score and first.cost_seconds == again.cost_seconds
    assert task.true_score(first) == task.true_score(again)


def test_noise_averages_out_to_the_truth() -> None:
    task = make_task("noisy", 3)
    scores = [task.run(task.start, seed=1, repeat=repeat) for repeat in range(200)]
    mean, spread = np.mean([o.score for o in scores]), np.std([o.score for o in scores])
    assert abs(mean - task.true_score(scores[0])) < 4 * spread / np.sqrt(200)


def test_the_landscapes_stay_what_committed_results_were_measured_on() -> None:
    expected = {"ppo": 0.9677689632626328, "supervised": -1.0201663928332767, "outliers": 19909.14128981112}
    best = {family: reference(make_task(family, 0)).best for family in expected}
    assert best == pytest.approx(expected, rel=1e-9)
