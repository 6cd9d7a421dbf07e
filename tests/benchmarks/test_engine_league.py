"""The league: what is recorded, the surrogate as a task, what TPE is told, and the figures of a run."""

import numpy as np
import pytest
from engine import league
from engine.cells import Run

from protein.errors import SpaceError
from protein.types import Budget, Observation, Params, TrialState

DEFAULT = league.SPACE.to_unit(league.START)


@pytest.fixture(scope="module")
def task() -> league.GptTask:
    """The task of a tenth of the trials: quick to fit."""
    trials = league.recorded()
    return league.GptTask(surrogate=league.Surrogate.fit(trials.only(np.arange(len(trials.ok)) % 10 == 0)))


def test_the_trials_inside_the_space_are_those_that_the_source_tells_of() -> None:
    trials = league.recorded()
    assert trials.x_unit.shape == (10_202, 14)
    assert league.SPACE.valid(trials.x_unit).all()
    random = trials.only(trials.method == "Random")
    assert 1.0 - random.ok.mean() == pytest.approx(0.56, abs=0.005)
    default = trials.val_bpb[(trials.x_unit == DEFAULT).all(axis=1)]
    assert len(default) >= 27 and np.nanstd(default) == pytest.approx(0.0007, abs=0.0002), "first of every run"
    for name, (_, failed) in league.SOURCE.items():
        own = trials.only(trials.method == name)
        assert len(own.ok) < 10 or 1.0 - own.ok.mean() == pytest.approx(failed, abs=0.011)


def test_a_repeat_has_other_noise_and_the_same_truth(task: league.GptTask) -> None:
    runs = [task.run(league.START, seed=0, repeat=repeat) for repeat in range(20)]
    assert task.run(league.START, seed=0) == runs[0] != task.run(league.START, seed=1)
    scores = np.array([run.score for run in runs])
    assert len({task.true_score(run) for run in runs}) == 1
    assert 0.0004 < scores.std() < 0.0011
    assert scores.mean() == pytest.approx(task.true_score(runs[0]), abs=0.0007)
    assert all(300.0 <= run.cost_seconds < 312.0 for run in runs)
    with pytest.raises(SpaceError):
        task.run(league.START | {"DEPTH": 99}, seed=0)


def test_a_model_too_large_fails_always_and_soon(task: league.GptTask) -> None:
    large = league.START | {"DEPTH": 24, "ASPECT_RATIO": 128, "DEVICE_BATCH_SIZE": 256}
    runs = [task.run(large, seed=seed, repeat=1) for seed in range(5)]
    assert {run.state for run in runs} == {TrialState.FAILED}
    assert np.median([run.cost_seconds for run in runs]) < 60.0
    assert all(run.reason == "out of memory" and run.score is None for run in runs)


def test_tpe_is_told_of_a_failure_what_the_source_told_it() -> None:
    peer = league.Told("tpe", league.SPACE, league.START, 0)
    for score in (None, -0.99):
        params = peer.ask([], Budget(remaining_seconds=1.0))
        assert params is not None
        peer.tell(_observed(score, 1.0, params=params))
    assert [trial.value for trial in peer._study.get_trials()] == [-100.0, -0.99]


def test_figures_are_of_what_was_measured_and_of_the_truth(task: league.GptTask) -> None:
    lucky = league.START | {"DEPTH": 9}
    history = [_observed(None, 360.0), _observed(-0.98, 3600.0), _observed(-0.97, 3600.0, params=lucky)]
    run = Run(history, [0.1] * 3, [None] * 3)
    row = {"method": "tpe", "seed": 0} | league.figures(task, run, None)
    assert (row["trials"], row["failed"], row["best"]) == (3, 1, 0.97)
    assert row["bests"] == [None, 0.98, 0.97] and row["hours"] == pytest.approx([0.1, 1.1, 2.1])
    assert row["handed_over"] == pytest.approx(-task.true_score(history[2]), abs=1e-6)
    assert league.figures(task, run, history[1].params)["handed_over"] == pytest.approx(
        -task.true_score(history[1]), abs=1e-6
    )
    ours = row | {"method": "protein", "best": 0.96, "bests": [None, 0.99, 0.96]}
    text = league.table([row, ours, ours | {"bests": [None, 0.99, 0.98]}])
    assert text[1].split()[-1] == "2.1" and text[2].split()[-2:] == ["2.1,", "-"]
    assert any(line.startswith("SMAC ") and "0.9778" in line for line in text)


def _observed(score: float | None, cost: float, params: Params | None = None) -> Observation:
    return Observation(
        params=league.START if params is None else params,
        state=TrialState.FAILED if score is None else TrialState.COMPLETE,
        score=score,
        cost_seconds=cost,
    )
