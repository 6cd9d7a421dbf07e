"""`protein compare`: which sweeps make up a side, the numbers, the tables, and mistakes."""

import math
from pathlib import Path

import numpy as np
import pytest
from commands import Run
from matplotlib.collections import FillBetweenPolyCollection
from sample_trials import fill_store, store_url, sweep_record
from store_samples import start

from protein import plots
from protein.analysis.comparison import Side, SweepResult, compare
from protein.api.loading import sides_of
from protein.errors import UsageError
from protein.storage import open_store
from protein.types import Outcome, TrialEnd
from protein.view.comparison import plain

NAMES = ("old-1", "old-2", "new-1", "new-2")
MORE = {"new-1": 20.0, "new-2": 20.5}


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with two seeds of two sides; those of the second side have one more trial, which is better."""
    url = store_url(tmp_path_factory.mktemp("seeds"))
    for name in NAMES:
        sweep = fill_store(url, name=name)
        if name in MORE:
            store = open_store(url)
            trial = start(store, sweep, params=store.trials(sweep.id)[1].params)
            store.finish_trial(trial, Outcome(end=TrialEnd.COMPLETE, score=MORE[name], cost_seconds=12.0))
            store.close()
    return url


def test_the_numbers_are_those_of_the_analysis(seeds: str, run: Run) -> None:
    found = run.json(f"compare old-1 old-2 new-1 new-2 --json --store {seeds}")
    assert found["labels"] == {"old": ["old-1", "old-2"], "new": ["new-1", "new-2"]}
    store = open_store(seeds)
    results = [SweepResult.of(s.spec.name, s.spec.env, store.trials(s.id)) for s in store.list_sweeps()]
    store.close()
    expected = plain(
        compare([Side(label="old", sweeps=tuple(results[:2])), Side(label="new", sweeps=tuple(results[2:]))])
    )
    for side, other in zip(found["sides"], expected["sides"], strict=True):
        assert side["figures"] == other["figures"]
        band = side["best"]["pong"]["value"]
        assert [math.nan if value is None else value for value in band] == pytest.approx(
            other["best"]["pong"]["value"].tolist(), nan_ok=True
        )
    assert found["differences"]["new"] == expected["differences"]["new"]
    assert found["sides"][1]["best"]["pong"]["value"][-1] == 20.25
    assert found["sides"][1]["front"]["pong"]["value"][-1] == 20.25
    assert found["sides"][0]["front"]["pong"]["value"][-1] == 18.0


def test_the_tables_say_it_in_words(seeds: str, run: Run) -> None:
    text = run(f"compare old-1 old-2 new-1 new-2 --store {seeds}")
    assert text.startswith("compared in pong: 0 is the median score of all complete trials, 1 the best one;")
    lines = [line.split() for line in text.splitlines()]
    assert ["old", "2"] in [line[:2] for line in lines] and ["new", "2"] in [line[:2] for line in lines]
    assert "new against old: best config +" in text
    assert "old: old-1, old-2\n" in text
    alone = run(f"compare old-1 new-1 --each --reference new-1 --store {seeds}")
    assert "old-1 against new-1: best config +0.000; hypervolume +0.000;" in alone  # the better trial came later
    assert "the figures are taken at 3m50s" in alone  # the budgets differ
    assert "new-1 has one sweep in each environment, so there is no interval over seeds" in alone


def test_sides_are_named_by_what_their_sweeps_share() -> None:
    sweeps = [sweep_record(name) for name in ("a-1", "a-2", "b-1", "c,d", "e")]

    def names(*words: str, each: bool = False) -> dict[str, list[str]]:
        return {label: [s.spec.name for s in own] for label, own in sides_of(sweeps, words, each=each).items()}

    assert names("a-1", "a-2", "b-1") == {"a": ["a-1", "a-2"], "b-1": ["b-1"]}
    assert names("a-1", "a-2", "b-1", each=True) == {"a-1": ["a-1"], "a-2": ["a-2"], "b-1": ["b-1"]}
    assert names("a-*", "b-1,e") == {"a-*": ["a-1", "a-2"], "b-1,e": ["b-1", "e"]}
    assert names("c,d", "e") == {"c,d": ["c,d"], "e": ["e"]}  # a name with a comma is a name
    with pytest.raises(UsageError, match="sweep 'a-1' is named twice; a sweep can be on one side only"):
        names("a-*", "a-1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "a comparison needs two sweeps or more, and none was named"),
        ("old-1", "a comparison needs two sweeps or more, and only 'old-1' was named"),
        ("old-1 nwe-1", "there is no sweep 'nwe-1'; did you mean 'new-1'?"),
        ("'ol?-*' 'x-*'", "there is no sweep 'x-*'"),
        ("old-1 new-1 --reference odl-1", "the reference 'odl-1' is none of the sides; did you mean 'old-1'?"),
        ("old-1 new-1 --env maze", "old-1, new-1 has no sweep of 'maze'; common to all: pong"),
    ],
)
def test_mistakes_are_one_line(seeds: str, run: Run, words: str, message: str) -> None:
    assert run.error(f"compare {words} --store {seeds}").startswith(message)


def test_the_picture_has_a_band_where_there_are_seeds(seeds: str) -> None:
    def bands(*names: str) -> list[int]:
        figure = plots.compare(*names, store=seeds)
        return [sum(isinstance(one, FillBetweenPolyCollection) for one in axes.collections) for axes in figure.axes]

    assert bands("old-1", "new-1") == [0, 0, 0]
    assert bands("old-*", "new-*") == [1, 1, 0]  # the two seeds of the old one are alike
    best = plots.compare("old-*", "new-*", store=seeds).axes[0]
    line = next(one for one in best.lines if one.get_label() == "new-*")
    assert np.asarray(line.get_ydata())[-1] == 20.25


def test_importance_names_its_methods_or_says_why_not(seeds: str, folder: Path, run: Run) -> None:
    said = "the importance of parameters is not known: needs 10 trials with a score, and has 5; run more"
    assert run.error(f"plot importance old-1 --store {seeds}") == said
    said = "a plot of kind 'importance' is of one sweep, and 2 are named; plot them apart"
    assert run.error(f"plot importance old-1 new-1 --store {seeds}") == said
    assert run(f"plot compare 'old-*' 'new-*' --env pong -o a.svg --store {seeds}") == "plot: a.svg\n"
