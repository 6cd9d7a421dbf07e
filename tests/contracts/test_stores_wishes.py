"""What every store must do with what people write and ask for. See `protein.ports.Store`."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from store_samples import LEASE_SECONDS, complete, new_sweep, points, start

from protein.errors import StoreError
from protein.ports import Store, Wishes
from protein.storage import open_store
from protein.types import (
    MAX_NOTE_LENGTH,
    MAX_TAG_LENGTH,
    MAX_TAGS,
    Request,
    SweepRecord,
)

# Annotations


def annotation(store: Store, sweep: SweepRecord, number: int) -> tuple[tuple[str, ...], str, bool]:
    [record] = store.trials(sweep.id, numbers=[number])
    assert store.trials(sweep.id)[number] == record
    return record.tags, record.note, record.excluded


def test_annotations_change_what_is_given_and_nothing_else(store: Store, store_url: str) -> None:
    sweep = new_sweep(store)
    for _ in range(3):
        store.finish_trial(start(store, sweep), complete())
    other, before = open_store(store_url), store.trials(sweep.id)
    store.annotate(sweep.id, 1, tags=["  big   win ", "größe", "big win"], note="line\nline")
    assert annotation(other, sweep, 1) == (("big win", "größe"), "line\nline", False)
    other.annotate(sweep.id, [0, 1], excluded=True)
    assert annotation(store, sweep, 1) == (("big win", "größe"), "line\nline", True)
    assert annotation(store, sweep, 0) == ((), "", True)
    store.annotate(sweep.id, [1, 2], add_tags=["new", "größe"], remove_tags=["big win"])
    assert annotation(store, sweep, 1)[0] == ("größe", "new")
    assert annotation(store, sweep, 2)[0] == ("new", "größe")
    store.annotate(sweep.id, [0, 1, 2], tags=[], note="", excluded=False)
    assert store.trials(sweep.id) == other.trials(sweep.id) == before
    store.annotate(sweep.id, [])
    other.close()


def test_a_running_trial_can_be_annotated_and_its_owner_goes_on(store: Store) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep)
    store.annotate(sweep.id, 0, tags=["watch"], excluded=True)
    store.add_measurements(trial, points(0, 3), LEASE_SECONDS)
    store.finish_trial(trial, complete())
    assert annotation(store, sweep, 0) == (("watch",), "", True)


@pytest.mark.parametrize(
    "change",
    [
        {"tags": [""]},
        {"tags": ["x" * (MAX_TAG_LENGTH + 1)]},
        {"add_tags": ["a\0b"]},
        {"add_tags": ["\x1b[31mred"]},
        {"tags": ["\ud800"]},
        {"tags": [str(i) for i in range(MAX_TAGS + 1)]},
        {"note": "x" * (MAX_NOTE_LENGTH + 1)},
        {"note": "a\0b"},
        {"note": "\x1b[2J"},
        {"numbers": [0, 7], "note": "x"},
        {"numbers": [-1, 0], "note": "x"},
        {"numbers": [0, 2**70], "note": "x"},
    ],
    ids=lambda change: str(change)[:40],
)
def test_an_annotation_that_cannot_be_stored_changes_nothing(store: Store, change: dict[str, Any]) -> None:
    sweep = new_sweep(store)
    store.finish_trial(start(store, sweep), complete())
    store.annotate(sweep.id, 0, tags=["kept"], note="kept")
    with pytest.raises(StoreError) as caught:
        store.annotate(sweep.id, **{"numbers": 0, "excluded": True, **change})
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value) and len(str(caught.value)) < 300
    assert annotation(store, sweep, 0) == (("kept",), "kept", False)


def test_numbers_are_of_the_sweep(store: Store) -> None:
    first, second = new_sweep(store, "first"), new_sweep(store, "second")
    start(store, first), start(store, second), start(store, second)
    store.annotate(second.id, 0, excluded=True)
    assert not store.trials(first.id)[0].excluded
    with pytest.raises(StoreError, match="no trial 1"):
        store.annotate(first.id, 1, excluded=True)
    with pytest.raises(StoreError, match="no sweep has the id 99"):
        store.annotate(99, 0, excluded=True)


# Requests


def test_a_request_is_seen_by_others_until_it_is_taken_back(store: Store, store_url: str) -> None:
    sweep = new_sweep(store)
    other = open_store(store_url)
    start(store, sweep), start(store, sweep)
    assert store.wishes(sweep.id) == Wishes(requested=Request.RUN, excluded=frozenset(), num_trials=2)
    for requested in (Request.PAUSE, Request.STOP, Request.RUN):
        store.request(sweep.id, requested)
        assert other.wishes(sweep.id).requested is requested
        [found] = other.list_sweeps()
        assert found == dataclasses.replace(sweep, requested=requested)
    store.annotate(sweep.id, [0, 1], excluded=True)
    store.annotate(sweep.id, 0, excluded=False)
    assert other.wishes(sweep.id).excluded == {1}
    other.close()


@pytest.mark.parametrize("call", [lambda s: s.wishes(99), lambda s: s.request(99, Request.STOP)], ids=["ask", "tell"])
def test_requests_are_about_a_sweep_that_exists(store: Store, call: Callable[[Store], object]) -> None:
    with pytest.raises(StoreError, match="no sweep has the id 99"):
        call(store)
