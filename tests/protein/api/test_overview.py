"""What is said of a stored sweep at a glance, and by its models: it is true of the store, whatever the sweep holds."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sample_trials import fill_store, store_url

from protein.api.answers import Answers
from protein.api.overview import overview
from protein.api.recommended import initial_params
from protein.ports import Store
from protein.storage import open_store


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[tuple[Store, str]]:
    """The store of `fill_store`, opened, and its address."""
    fill_store(url := store_url(tmp_path))
    store = open_store(url)
    yield store, url
    store.close()


def test_the_answers_are_those_of_the_store_and_plain_data(stored: tuple[Store, str]) -> None:
    store, url = stored
    [sweep] = store.list_sweeps()
    found = overview(store, sweep, url)
    assert json.loads(json.dumps(dataclasses.asdict(found), allow_nan=False))["sweep"] == "pong"
    assert (found.trials, found.best_measured, found.running, found.eta_seconds) == (7, 1, (), None)
    assert found.headline == "Best measured: trial 1, score 18.00 in 40.0s."
    assert [(one.kind, one.count, one.numbers, one.reason) for one in found.failures] == [
        ("failed", 1, (2,), "diverged: loss is nan")  # the interrupted one has not failed
    ]
    assert found.found is not None and found.found.best is not None
    best = found.found.best
    recommended = Answers(store, sweep).recommendation().best
    assert (best.trial, best.runs, best.is_initial) == (recommended.trial.number, 1, False)
    start = initial_params(sweep.spec)
    assert start is not None
    assert [(one.name, one.initial) for one in best.changes] == [
        ("train.learning_rate", f"{start['train.learning_rate']:.6g}")
    ]
    assert "train --env pong --from pong" in best.command and url in best.command
    assert found.found.trust[0].text.startswith(f"Trial {best.trial} was run once: it measured ")
    assert any("--confirm" in line.command for line in found.whole_next)
