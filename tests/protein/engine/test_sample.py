"""What readers load of a very large sweep: few trials and few curves, and the same answers."""

import dataclasses
from pathlib import Path

import big_store
import numpy as np
import pytest

from protein import storage
from protein.api.answers import Answers, Readable, readable, sweep_outlook
from protein.api.recommended import recommendation
from protein.columns import DOT_FIELDS, dots
from protein.engine import pareto, recommend, results
from protein.engine.designer import ProteinDesigner
from protein.engine.gp import single_thread
from protein.engine.sample import choose, sampled
from protein.engine.settings import EngineSettings
from protein.ports import Store
from protein.space import Space
from protein.sweep.trials import read_trials
from protein.types import Budget, Observation, Params, SweepRecord, TrialRecord, TrialState
from protein.view.scatter import scatter

NUM_TRIALS = 2600


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, SweepRecord, list[TrialRecord]]:
    """A store with a sweep that is too large to be read whole, and all of its trials."""
    path = tmp_path_factory.mktemp("large") / "x.db"
    sweep = big_store.make(path, trials=NUM_TRIALS, points=3)
    store = storage.open_store(str(path))
    store.annotate(sweep.id, [7, 11], excluded=True)
    return store, sweep, store.trials(sweep.id)


@pytest.fixture(scope="module")
def some(large: tuple[Store, SweepRecord, list[TrialRecord]]) -> Readable:
    return readable(large[0], large[1])


@pytest.fixture(scope="module")
def everything(large: tuple[Store, SweepRecord, list[TrialRecord]]) -> list[results.Contender]:
    """Every contender of the sweep, by the model that learns from all trials."""
    _, sweep, trials = large
    finished = [trial.observation() for trial in trials if trial.state.finished]
    return recommend.contenders(Space.from_dict(sweep.spec.space), finished)


def test_what_a_sample_recommends_is_as_good_as_what_all_trials_do(
    large: tuple[Store, SweepRecord, list[TrialRecord]], some: Readable, everything: list[results.Contender]
) -> None:
    """By the model of all trials, the config that a sample recommends is expected to score as much, at every cost."""
    sweep = large[1]
    assert some.sample is not None and len(some.trials) < 0.8 * NUM_TRIALS
    finished = [trial for trial in some.trials if trial.state.finished]
    found = recommend.contenders(
        Space.from_dict(sweep.spec.space), [trial.observation() for trial in finished], some.sample
    )
    by_params = {tuple(c.params.items()): c for c in everything}
    spread = max(c.score.value for c in everything) - min(c.score.value for c in everything)
    for under in (*sorted(c.expected_cost_seconds for c in everything)[::200], float("inf")):
        whole, part = results.best(everything, under), results.best(found, under)
        assert whole is not None and part is not None
        assert by_params[tuple(part.params.items())].score.value >= whole.score.value - 0.02 * spread
    knee, of_all = results.knee(found), results.knee(everything)
    assert knee is not None and of_all is not None
    differences = []
    for contender in found:  # about the same model, and all runs of each config
        full = by_params[tuple(contender.params.items())]
        differences.append(abs(contender.score.value - full.score.value))
        assert contender.measured == full.measured
        assert contender.expected_cost_seconds == pytest.approx(full.expected_cost_seconds)
    assert sum(differences) / len(differences) < 0.02 * spread


def test_contenders_that_are_left_out_of_a_sample_answer_no_question(
    large: tuple[Store, SweepRecord, list[TrialRecord]], some: Readable
) -> None:
    """By one model: all contenders, and those that a sample keeps, give the same answers with the same intervals."""
    space = Space.from_dict(large[1].spec.space)
    finished = [trial.observation() for trial in some.trials if trial.state.finished]
    with single_thread():
        model = recommend.fitted(space, finished, some.sample)
    whole = recommend.contenders(space, finished, model=model)
    start = dict(min(whole, key=lambda one: one.score.value).params)  # as an initial config that is bad
    kept = recommend.contenders(space, finished, some.sample, model=model, start=start)
    assert len(kept) < 0.2 * len(whole)

    def answers(found: list[results.Contender], under: float) -> list[results.Contender | None]:
        allowed = [one for one in found if one.expected_cost_seconds <= under]
        named = [min(found, key=lambda one: one.expected_cost_seconds), results.best(found, under)]
        named += [results.knee(found), next((one for one in found if dict(one.params) == start), None)]
        return [*named, max(allowed, key=lambda one: max(one.measured))]

    for under in (*sorted(one.expected_cost_seconds for one in whole)[::50], float("inf")):
        for mine, other in zip(answers(kept, under), answers(whole, under), strict=True):
            assert mine is not None and other is not None and mine.trials == other.trials
            assert dataclasses.astuple(mine.score) == pytest.approx(dataclasses.astuple(other.score))


def test_the_sample_of_records_at_hand_is_that_of_the_store(
    large: tuple[Store, SweepRecord, list[TrialRecord]], some: Readable
) -> None:
    kept, sample = sampled(large[2])
    assert sample is not None and some.sample is not None
    assert [trial.number for trial in kept] == [trial.number for trial in some.trials]
    assert (sample.taught, sample.top, sample.num_complete) == (
        some.sample.taught,
        some.sample.top,
        some.sample.num_complete,
    )
    small = large[2][:500]
    assert sampled(small) == (small, None)


def test_runs_of_a_config_are_read_together_in_whatever_order_its_params_are_named() -> None:
    def observed(number: int, params: Params, score: float) -> Observation:
        return Observation(params=params, state=TrialState.COMPLETE, score=score, cost_seconds=1.0, number=number)

    trials = [observed(i, {"x": i, "y": [0, {"a": None}]}, float(i)) for i in range(2500)]
    more: list[Params] = [{"x": 2499, "y": [0, {"a": None}]}, {"y": [0, {"a": None}], "x": 2499}, {"x": 2499}]
    trials += [observed(2500 + i, params, -1.5) for i, params in enumerate(more)]
    kept = {trial.number for trial in sampled(trials)[0]}
    assert {2499, 2500, 2501} <= kept and 2502 not in kept


@pytest.mark.parametrize("factor", [1e-2, 1e3, 1e6])
def test_the_stretches_of_cost_do_not_depend_on_how_long_trials_take(factor: float) -> None:
    rng = np.random.default_rng(0)
    cost, numbers, complete = np.exp(rng.uniform(0.0, 3.0, 5000)), np.arange(5000), np.ones(5000, dtype=bool)
    score = rng.random(5000) + cost
    _, needed = choose(numbers, score, cost, complete, 1.0)
    assert choose(numbers, score, factor * cost, complete, 1.0)[1] == needed


def test_the_best_that_keep_the_limits_are_in_the_sample_however_many_score_more() -> None:
    number, score = np.arange(5000), np.linspace(0.0, 1.0, 5000)
    cost, complete, breaks = np.full(5000, 10.0), np.ones(5000, dtype=bool), score > 0.6
    kept = set(number[~breaks][-200:].tolist())
    assert kept <= set(choose(number, score, cost, complete, 1.0, breaks)[1])
    assert not kept <= set(choose(number, score, cost, complete, 1.0)[1])


def test_a_sweep_without_complete_trials_has_a_sample() -> None:
    none = np.empty(0)
    assert choose(none.astype(np.int64), none, none, none.astype(bool), 0.0)[1] == []


def test_the_outlook_of_a_sample_is_near_that_of_all_trials(
    large: tuple[Store, SweepRecord, list[TrialRecord]], some: Readable, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sweep, trials = large
    part = sweep_outlook(sweep, some.trials, some.sample)
    monkeypatch.setattr("protein.api.answers.sampled", lambda trials, **_: (trials, None))
    whole = sweep_outlook(sweep, trials)
    assert part is not None and whole is not None
    assert part.spent_seconds == pytest.approx(whole.spent_seconds)
    assert part.best_per_second == pytest.approx(whole.best_per_second, rel=0.35)


def test_a_large_sweep_that_is_resumed_makes_the_same_suggestion(tmp_path: Path) -> None:
    sweep = big_store.make(tmp_path / "x.db", trials=2100, points=12)
    store = storage.open_store(str(tmp_path / "x.db"))
    designer = ProteinDesigner(Space.from_dict(sweep.spec.space), None, seed=0, settings=EngineSettings())
    undisturbed, resumed = (
        designer.suggest(
            [one.observation() for one in known if one.state.finished], [], Budget(remaining_seconds=1e8), 7
        )
        for known in (store.trials(sweep.id), read_trials(store, sweep.id))
    )
    store.close()
    assert undisturbed is not None and undisturbed == resumed


def test_what_a_page_maps_is_the_model_that_recommends(
    large: tuple[Store, SweepRecord, list[TrialRecord]], some: Readable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    answers = Answers(large[0], large[1])
    mapped, best = answers.model(), answers.recommendation().best.contender
    found = results.best(mapped.contenders)
    assert found is not None and (found.params, found.score) == (best.params, best.score)
    assert [one.number for one in answers.finished] == [one.number for one in some.trials if one.state.finished]


def test_a_plot_of_columns_is_that_of_the_records(large: tuple[Store, SweepRecord, list[TrialRecord]]) -> None:
    store, sweep, trials = large
    drawn = store.columns(sweep.id, fields=DOT_FIELDS)
    assert set(drawn.state) == set(TrialState) - {TrialState.WAITING}
    for best in (None, 5):
        lines = scatter(drawn, 100, 18, best=best)
        assert lines == scatter(trials, 100, 18, best=best)
        assert all(mark in "".join(lines) for mark in "★●·○×")


def test_dots_have_the_front_of_the_records(large: tuple[Store, SweepRecord, list[TrialRecord]]) -> None:
    store, sweep, trials = large
    drawn = dots(store.columns(sweep.id, fields=DOT_FIELDS))
    assert [dot.number for dot in pareto.front(drawn)] == [trial.number for trial in pareto.front(trials)]
    for dot, trial in zip(drawn, trials, strict=True):
        for field in dataclasses.fields(dot):
            assert getattr(dot, field.name) == getattr(trial, field.name), field.name
    best = pareto.best_under(trials)
    assert best is not None and store.summaries([sweep.id])[sweep.id].best == best.number


def test_the_recommendation_of_records_and_of_the_store_are_one(
    large: tuple[Store, SweepRecord, list[TrialRecord]], some: Readable
) -> None:
    _, sweep, trials = large
    assert recommendation(sweep, trials).best.trial.number == (
        recommendation(sweep, some.trials, sample=some.sample).best.trial.number
    )


def test_a_large_sweep_is_taken_up_with_the_curves_that_teach(
    large: tuple[Store, SweepRecord, list[TrialRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sweep, trials = large
    assert read_trials(store, sweep.id, most=NUM_TRIALS) == trials
    monkeypatch.setattr("protein.engine.sample.NUM_EXPENSIVE", 20)
    monkeypatch.setattr("protein.engine.sample.NUM_SPREAD", 30)
    taken = read_trials(store, sweep.id)
    whole = [trial.number for trial, before in zip(taken, trials, strict=True) if trial.curve == before.curve]
    assert 30 <= len(whole) <= 60
    scored = [t for t in trials if t.state.finished and t.score is not None and not t.excluded]
    expensive = sorted(scored, key=lambda trial: -trial.run_seconds)[:20]
    assert {trial.number for trial in expensive} <= set(whole)
    assert {trial.number for trial in trials if trial.state is TrialState.RUNNING} <= set(whole)
    for trial, before in zip(taken, trials, strict=True):
        assert dataclasses.replace(trial, curve=before.curve) == before
        if trial.number not in whole:
            [point] = trial.curve
            assert (point.steps, point.score) == (before.steps, None)
