"""Answers are kept in files: they equal computed ones, and hold only while they may."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import big_store
import hypothesis
import pytest
from hypothesis import strategies as st
from store_samples import complete, sweep_spec
from store_samples import start as begin

from protein import storage
from protein.analysis.matters import TARGETS
from protein.api import answers as module
from protein.api.answers import Answers, at_the_end
from protein.api.recommended import Choice, Recommendation, score_range
from protein.errors import UsageError
from protein.ports import Store
from protein.types import Outcome, Params, SweepRecord, Trial, TrialEnd, TrialState, parse_limits

NUM_TRIALS = 2100


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store with a sweep that is too large to be read whole."""
    path = tmp_path_factory.mktemp("large") / "x.db"
    big_store.make(path, trials=NUM_TRIALS, points=2)
    return path


@pytest.fixture
def large(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Store, SweepRecord, Path]]:
    """A copy of it, opened, and its file; answers are kept in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "x.db"
    shutil.copy(made, path)
    store = storage.open_store(str(path))
    yield store, store.list_sweeps()[0], path
    store.close()


def running_in(store: Store, sweep: SweepRecord) -> Trial:
    """A trial that runs, as its owner knows it."""
    record = next(one for one in store.trials(sweep.id, curves=False) if one.state is TrialState.RUNNING)
    return Trial(
        id=record.id,
        sweep_id=sweep.id,
        number=record.number,
        params=record.params,
        seed=record.seed,
        owner=record.owner,
    )


def comparable(found: Recommendation) -> Recommendation:
    """A recommendation without what depends on which trials were read: positions, and points of curves."""

    def choice(one: Choice) -> Choice:
        contender = dataclasses.replace(one.contender, trials=())
        runs = tuple(dataclasses.replace(trial, curve=()) for trial in one.trials)
        return dataclasses.replace(one, contender=contender, trials=runs)

    def optional(one: Choice | None) -> Choice | None:
        return None if one is None else choice(one)

    return dataclasses.replace(
        found,
        best=choice(found.best),
        under=optional(found.under),
        knee=optional(found.knee),
        front=tuple(map(choice, found.front)),
        best_measured=optional(found.best_measured),
        initial=optional(found.initial),
        cut_short=None if found.cut_short is None else dataclasses.replace(found.cut_short, curve=()),
        broken=None if found.broken is None else dataclasses.replace(found.broken, curve=()),
    )


def test_kept_answers_equal_computed_ones(large: tuple[Store, SweepRecord, Path]) -> None:
    store, sweep, _ = large
    computed = Answers(store, sweep)
    assert not computed.were_kept
    computed.recommendation()
    ends, outlook = computed.range_ends(), computed.outlook()
    kept = Answers(store, sweep)
    assert kept.were_kept
    assert list(kept.range_ends()) == list(ends) and kept.outlook() == outlook is not None
    matters = {target: computed.matters(target) for target in TARGETS}
    assert matters["score"].parameters and not matters["cost"].problem and matters["score"].best_seconds
    kept = Answers(store, sweep)
    assert kept.matters("score") == matters["score"] and kept.matters("cost") == matters["cost"]
    costs = [one.contender.expected_cost_seconds for one in computed.recommendation().front]
    limits = [None, *(f"{1.01 * cost:.6f}s" for cost in costs), f"{(costs[0] + costs[-1]) / 2:.6f}s"]
    for under in limits:
        assert comparable(kept.recommendation(under)) == comparable(computed.recommendation(under)), under
    with pytest.raises(UsageError) as of_kept:
        kept.recommendation("0.0001s")
    with pytest.raises(UsageError) as of_computed:
        computed.recommendation("0.0001s")
    assert str(of_kept.value) == str(of_computed.value)


def test_answers_that_are_asked_for_later_are_kept_beside_the_others(large: tuple[Store, SweepRecord, Path]) -> None:
    store, sweep, _ = large
    outlook = Answers(store, sweep).outlook()
    ends = Answers(store, sweep).range_ends()
    best = Answers(store, sweep).recommendation().best.trial.number
    path = next(module.folder().iterdir())
    found = module.find_kept(store, sweep)
    assert found is not None and found.has_outlook and found.outlook == outlook is not None
    assert found.contenders is not None and Answers(store, sweep).recommendation().best.trial.number == best
    assert found.range_ends is not None and list(found.range_ends) == list(ends)
    assert [path] == list(module.folder().iterdir())


def test_the_end_of_a_sweep_leaves_its_answers_ready(large: tuple[Store, SweepRecord, Path]) -> None:
    store, sweep, path = large
    trials = store.trials(sweep.id, curves=False)
    found = at_the_end(sweep, trials, str(path))
    kept = module.find_kept(store, sweep)
    assert kept is not None
    assert kept.contenders is not None and kept.range_ends is not None and kept.has_outlook and "score" in kept.matters
    asked = Answers(store, sweep).recommendation()
    assert [one.trial.number for one in (asked.best, *asked.front)] == [
        one.trial.number for one in (found.best, *found.front)
    ]


def test_the_end_of_a_sweep_needs_no_store_to_name_the_best(large: tuple[Store, SweepRecord, Path]) -> None:
    """A store that cannot be reached any more hides nothing of what was found."""
    store, sweep, path = large
    trials = store.trials(sweep.id, curves=False)
    best = at_the_end(sweep, trials, str(path.with_name("gone.db"))).best.trial.number
    assert not module.folder().exists() and not path.with_name("gone.db").exists()
    assert best == Answers(store, sweep).recommendation().best.trial.number


def test_they_hold_no_longer_when_a_trial_has_finished(large: tuple[Store, SweepRecord, Path]) -> None:
    store, sweep, _ = large
    Answers(store, sweep).recommendation()
    running = running_in(store, sweep)
    store.annotate(sweep.id, running.number, note="still runs")
    assert Answers(store, sweep).were_kept, "what runs teaches nothing"
    store.release_trial(running, "preempted: the node was taken away")
    assert Answers(store, sweep).were_kept, "neither does what waits"
    again = store.take_up_trial(sweep.id, running.number, owner="other", lease_seconds=600.0, from_steps=0)
    assert Answers(store, sweep).were_kept
    store.finish_trial(again, complete())
    assert not Answers(store, sweep).were_kept


def test_they_hold_no_longer_when_a_trial_is_excluded(large: tuple[Store, SweepRecord, Path]) -> None:
    store, sweep, _ = large
    best = Answers(store, sweep).recommendation().best.trial.number
    store.annotate(sweep.id, best, excluded=True)
    assert not Answers(store, sweep).were_kept
    assert best not in [trial.number for trial in Answers(store, sweep).recommendation().best.trials]


def test_they_are_not_used_for_an_older_copy_of_the_store(large: tuple[Store, SweepRecord, Path]) -> None:
    store, sweep, path = large
    copy = path.with_name("copy.db")
    running = running_in(store, sweep)
    store.close()
    shutil.copy(path, copy)
    newer = storage.open_store(str(path))
    newer.finish_trial(running, complete())
    Answers(newer, sweep).recommendation()
    assert Answers(newer, sweep).were_kept
    newer.close()
    older = storage.open_store(str(copy))
    assert not Answers(older, sweep).were_kept
    older.close()


def test_a_damaged_file_is_as_good_as_none(large: tuple[Store, SweepRecord, Path]) -> None:
    store, sweep, _ = large
    before = Answers(store, sweep).recommendation().best.trial.number
    [file] = module.folder().iterdir()
    for content in ("", "{", "[]", '{"cursor": 1}', '{"cursor": "x", "trials": {}}'):
        file.write_text(content)
        assert not Answers(store, sweep).were_kept, content
    assert Answers(store, sweep).recommendation().best.trial.number == before
    assert Answers(store, sweep).were_kept, "it was written anew"


def test_nothing_is_kept_where_nothing_can_be_written(
    large: tuple[Store, SweepRecord, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sweep, _ = large
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert Answers(store, sweep).recommendation().front
    assert not Answers(store, sweep).were_kept


def test_old_files_are_deleted(large: tuple[Store, SweepRecord, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    store, sweep, _ = large
    monkeypatch.setattr(module, "MAX_FILES", 2)
    for i in range(3):
        other = dataclasses.replace(sweep, spec=dataclasses.replace(sweep.spec, seed=i))
        Answers(store, other).recommendation()
    assert len(list(module.folder().iterdir())) == 2
    assert module.find_kept(store, other) is not None


ENDS = (*[TrialEnd.COMPLETE] * 3, TrialEnd.CAPPED, TrialEnd.DIVERGED, TrialEnd.STOPPED_EARLY)
RESULTS = st.tuples(
    st.sampled_from(ENDS),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(0, 9).map(float),
    st.sampled_from([{}, {"loss": 1.0}, {"memory": 5.0}, {"memory": 12.0}]),
    st.booleans(),
)

CUT = [
    (TrialEnd.CAPPED, 4, 9.0, {"memory": 12.0}, False),
    (TrialEnd.CAPPED, 4, 8.0, {"memory": 5.0}, False),
    (TrialEnd.COMPLETE, 2, 3.0, {"memory": 5.0}, False),
]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.closing(storage.open_store(str(tmp_path_factory.mktemp("small") / "x.db"))) as store,
    ):
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield store


def all_answers(answers: Answers) -> list[Any]:
    found: list[Any] = [list(answers.range_ends()), answers.outlook(), answers.is_large]
    for under in (None, "1s", "3s"):
        try:
            said = answers.recommendation(under)
            found += [comparable(said), said.notes()]
        except UsageError as error:
            found.append(str(error))
    return found


@hypothesis.settings(max_examples=8, phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate])
@hypothesis.example(told=CUT, limits=["memory <= 8"], start=None)
@hypothesis.given(
    told=st.lists(RESULTS, min_size=1, max_size=9),
    limits=st.sampled_from([[], ["memory <= 8"], ["memory <= 8", "ram <= 1"]]),
    start=st.sampled_from([None, {"size": 2.0}, {"size": 8}]),
)
def test_kept_answers_about_any_small_sweep_equal_computed_ones(
    told: list[Any], limits: list[str], start: Params | None, empty: Store
) -> None:
    spec = dataclasses.replace(
        sweep_spec(f"sweep {len(empty.list_sweeps())}"),
        env="train()",
        space={"parameters": [{"type": "integer", "name": "size", "low": 1, "high": 8, "scale": "linear"}]},
        config={"own": {"start": start}},
    ).with_limits(parse_limits(limits, "limits") or ())
    sweep = empty.create_sweep(spec, None)
    for end, size, score, metrics, excluded in told:
        trial = begin(empty, sweep, params={"size": size})
        given = None if end.state is TrialState.FAILED else score
        outcome = Outcome(end=end, score=given, cost_seconds=float(size), steps=1, metrics=metrics, reason="why")
        empty.finish_trial(trial, outcome)
        if excluded:
            empty.annotate(sweep.id, trial.number, excluded=True)
    computed, again = all_answers(Answers(empty, sweep)), Answers(empty, sweep)
    assert again.were_kept
    assert all_answers(again) == computed


def test_the_outlook_ends_where_the_recommended_score_meets_the_highest_possible_one(tmp_path: Path) -> None:
    big_store.make(tmp_path / "small.db", trials=40, points=2)
    store = storage.open_store(str(tmp_path / "small.db"))
    [sweep] = store.list_sweeps()
    answers = Answers(store, sweep)
    possible, ahead = score_range(sweep.spec), answers.outlook()
    assert possible is not None and ahead is not None
    assert ahead.room == pytest.approx(possible[1] - answers.recommendation().best.contender.score.value)
    store.close()
