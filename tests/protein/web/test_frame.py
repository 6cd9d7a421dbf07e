"""Frames: what the store holds comes back as columns, and updates by cursor equal a frame that is read anew."""

import contextlib
import csv
import dataclasses
import io
import math
import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import fill_loss
from store_samples import PROVENANCE, complete, filled_sweep, new_sweep, points, start, sweep_spec

from protein.analysis.columns import Kind, column_of
from protein.engine.history import whole_run_shares
from protein.errors import StoreError, StoreUnavailable, UsageError
from protein.ports import Store
from protein.storage import open_store, open_whole_store
from protein.types import QUEUED, Limit, Outcome, Suggestion, SuggestionKind, TrialEnd, TrialState, told
from protein.web import viewer as viewer_module
from protein.web.answers import NotFound, plain
from protein.web.frame import Frame, Table, together
from protein.web.pages import sweep
from protein.web.pages.front import calm_seconds
from protein.web.pages.sweeps import described, summary
from protein.web.pages.table import as_shown, changed, chosen, csv_lines, grouped, live, ordered, scales, special
from protein.web.viewer import Viewer


def read(store: Store, frame: Frame | None = None) -> Frame:
    sweep = store.list_sweeps()[0]
    frame = Frame.empty(sweep) if frame is None else frame
    return frame.updated(sweep, store.columns(sweep.id, frame.cursor))


def values(frame: Frame) -> dict[str, list[Any]]:
    return {key: column.listed() for key, column in frame.columns.items()}


@pytest.fixture
def loss(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with the sweep "loss", which minimises."""
    url = f"sqlite:///{tmp_path_factory.mktemp('loss')}/protein.db"
    fill_loss(url)
    store = open_store(url)
    yield store
    store.close()


def test_scores_by_number_are_thinned_but_the_best_so_far_stay(loss: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = read(loss)
    states = np.array(frame.columns["state"].listed(), dtype=np.str_)
    whole = sweep.history(frame, states)
    monkeypatch.setattr(sweep, "MAX_DOTS", 5)
    thin = sweep.history(frame, states)
    assert thin["best"] == whole["best"] and set(thin["best"]["number"]) <= set(thin["number"])
    assert len(thin["number"]) < len(whole["number"])
    none = np.full(len(frame), "running")
    assert sweep.history(frame, none)["number"] == sweep.history(frame, none)["best"]["number"] == []
    failed = sweep.history(frame, np.full(len(frame), "failed"))
    assert 1 < len(failed["number"]) <= 5 and failed["best"] == {"number": [], "score": []}


def test_costs_without_other_programs_are_those_of_the_engine(tmp_path: Path) -> None:
    """A trial that goes on with others has waited as they have: the pages and the engine have one clock."""
    rng = np.random.default_rng(1)
    store = open_store(f"sqlite:///{tmp_path}/protein.db")
    record = new_sweep(store)
    for number in range(30):
        before = int(rng.integers(number)) if number and rng.random() < 0.6 else None
        behind = 0.0 if before is None else store.trial(record.id, before).run_seconds * float(rng.choice([1.0, 0.5]))
        suggestion = Suggestion(
            params={"train.learning_rate": 0.01},
            kind=SuggestionKind.SEARCH if before is None else SuggestionKind.CONTINUATION,
            origin="test",
            continues=before,
            continued_seconds=behind,
        )
        cost, waited = float(rng.uniform(0.1, 9.0)), float(rng.choice([0.0, 0.3, 0.8, 7.0]))
        timings = {} if rng.random() < 0.3 else {"wall": cost, "waited": waited * cost}
        trial = store.start_trial(
            record.id, suggestion, seed=1, owner="me", lease_seconds=9.0, suggest_seconds=0.1, provenance=PROVENANCE
        )
        store.finish_trial(trial, dataclasses.replace(complete(cost), timings=timings))
    trials = store.trials(record.id)
    shares = [share or 0.0 for share in whole_run_shares(trials)]
    assert len(set(shares)) > 10
    assert calm_seconds(read(store)) == pytest.approx(
        [trial.run_seconds * (1.0 - share) for trial, share in zip(trials, shares, strict=True)]
    )
    store.close()


def test_columns_hold_what_the_records_say_in_the_users_direction(loss: Store) -> None:
    frame = read(loss)
    trials = loss.trials(frame.sweep.id, curves=False)
    found = values(frame)
    assert found["score"] == [None if trial.score is None else -trial.score for trial in trials]
    assert found["score"][18] == pytest.approx(0.04)
    assert found["predicted_score_low"][10] == pytest.approx(1.0 - 2.0)  # the ends change places with the sign
    assert found["predicted_score_high"][10] == pytest.approx(1.0 + 1.0)
    assert found["params.optimizer"] == [trial.params["optimizer"] for trial in trials]
    assert found["params.width"] == [trial.params["width"] for trial in trials]
    assert found["params.layers"] == [trial.params["layers"] for trial in trials]
    assert found["reason"][5] == "crashed: signal 11" and found["reason"][4] is None
    assert found["end"][5] == "crashed" and found["state"][5] == "failed"
    assert found["started_at"] == [pytest.approx(trial.started_at.timestamp()) for trial in trials]
    assert found["metrics.train_score"][3] == 3.0
    assert found["continues"] == [None] * 40
    np.testing.assert_array_equal(frame.stored_score(), [math.nan if t.score is None else t.score for t in trials])
    assert frame.columns["params.nesterov"].kind is Kind.BOOLEAN
    assert frame.rows([3, 99, 0, -1]).tolist() == [3, 0]


def test_trials_that_break_a_limit_are_known(loss: Store) -> None:
    frame = read(loss)
    spec = frame.sweep.spec.with_limits([Limit("train_score", "<=", 5.0), Limit("never", ">=", 1.0)])
    limited = dataclasses.replace(frame, sweep=dataclasses.replace(frame.sweep, spec=spec))
    own = [trial.metrics.get("train_score") for trial in loss.trials(frame.sweep.id, curves=False)]
    assert limited.within_limits().tolist() == [value is None or value <= 5.0 for value in own]
    assert 0 < limited.within_limits().sum() < len(frame) == frame.within_limits().sum()


def test_a_renamed_sweep_is_shown_by_its_new_name(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/protein.db"
    fill_loss(url)
    store = open_whole_store(url)
    before = read(store)
    store.rename_sweep("loss", "lower")
    after = read(store, before)
    assert after.columns["sweep"].listed() == ["lower"] * 40
    assert after.version > before.version and set(after.revisions) == {after.version}
    assert values(after) == values(read(store))
    store.close()


def test_whole_numbers_stay_whole_where_a_trial_lacks_a_parameter(store: Store) -> None:
    sweep = new_sweep(store)
    for params in ({"width": 64, "lr": 0.5}, {}, {"width": 128, "lr": 2.0}):
        store.finish_trial(start(store, sweep, params=params), complete())
    frame = read(store)
    assert frame.columns["params.width"].kind is Kind.INTEGER and frame.columns["params.lr"].kind is Kind.NUMBER
    found = values(frame)
    assert found["params.width"] == [64, None, 128] and found["params.lr"] == [0.5, None, 2.0]
    assert all(isinstance(value, int) for value in found["params.width"] if value is not None)


def test_an_updated_frame_equals_one_that_is_read_anew(store: Store) -> None:
    sweep = new_sweep(store)
    frame = read(store)
    assert len(frame) == 0
    changes: list[Callable[[], object]] = []
    first = start(store, sweep, params={"lr": 0.1})
    changes += [
        lambda: store.add_measurements(first, points(1, 4), 600.0),
        lambda: start(store, sweep, params={"lr": 0.2, "width": 3}),  # a new parameter
        lambda: store.finish_trial(first, complete()),
        lambda: start(store, sweep, params={"lr": "auto", "width": 4}),  # a value of another type
        lambda: store.annotate(sweep.id, 1, tags=["odd"], note="seen", excluded=True),
        lambda: [start(store, sweep, params={"lr": 0.1 * i}) for i in range(5)],
        lambda: store.annotate(sweep.id, [0, 1], excluded=False),
    ]
    for change in changes:
        before = frame.version
        change()
        frame = read(store, frame)
        anew = read(store)
        assert frame.version == before + 1
        assert values(frame) == {key: values(anew)[key] for key in values(frame)}
        assert set(values(anew)) == set(values(frame))
        assert read(store, frame) is frame  # nothing changed: no new version
    assert frame.revisions.max() == frame.version
    assert frame.revisions[0] == frame.version and frame.revisions[2] < frame.version


def test_a_change_marks_only_its_own_rows(loss: Store) -> None:
    frame = read(loss)
    loss.annotate(frame.sweep.id, [7, 9], tags=["x"])
    after = read(loss, frame)
    assert np.flatnonzero(after.revisions == after.version).tolist() == [7, 9]
    version = f"e-{frame.sweep.id}.{frame.version}"
    assert np.flatnonzero(changed([after], version, "e")).tolist() == [7, 9]
    assert changed([after], version, "other").all()  # of another process
    assert changed([after], "nonsense-x.y-", "nonsense").all()


def test_rows_are_ordered_and_filtered_together(loss: Store) -> None:
    frame = read(loss)
    found = ordered(frame, "optimizer == sgd and score != none", "params.layers,-score")
    trials = [
        t for t in loss.trials(frame.sweep.id, curves=False) if t.params["optimizer"] == "sgd" and t.score is not None
    ]
    expected = sorted(trials, key=lambda t: (t.params["layers"], t.score))  # stored scores: the negatives
    assert found.tolist() == [trial.number for trial in expected]
    assert ordered(frame, "", "").tolist() == list(range(40))
    with pytest.raises(UsageError, match="sort: there is no column 'nothing'"):
        ordered(frame, "", "nothing")
    with pytest.raises(UsageError, match="at most 4"):
        ordered(frame, "", "score,-number,state,end,kind")
    with pytest.raises(UsageError, match="column: there is no column 'x'"):
        chosen(frame, ["x"])


def test_csv_has_a_line_for_each_row(loss: Store) -> None:
    frame = read(loss)
    text = "".join(csv_lines(frame, np.array([5, 6]), ["number", "score", "reason", "params.nesterov"]))
    assert text == "number,score,reason,params.nesterov\r\n5,,crashed: signal 11,False\r\n6,1.96,,True\r\n"


def test_csv_holds_no_formula() -> None:
    """Spreadsheets run what begins with one of these signs. Numbers stay numbers, also where a choice is a text."""
    written = ["=1+1", "+a", "-a", "@sum", "\tx", '=a,"b"', "-0.5", "1e-3", "a=b"]
    columns = {
        "text": column_of(written),
        "number": column_of([-1.5, 2.0, math.nan, -math.inf, *[0.0] * 5]),
        "tags": column_of([("=x", "y"), *[()] * 8]),
        "=name": column_of([-1] * 9),
    }
    table = Table(columns=columns, revisions=np.zeros(9, np.int64))
    text = "".join(csv_lines(table, np.arange(9), list(columns)))
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["text", "number", "tags", "'=name"]
    assert [row[0] for row in rows[1:]] == [*(f"'{one}" for one in written[:6]), "-0.5", "1e-3", "a=b"]
    assert [row[1] for row in rows[1:5]] == ["-1.5", "2.0", "nan", "-inf"]
    assert rows[1][2] == "'=x y" and rows[2][3] == "-1"


def test_several_sweeps_in_one_table(loss: Store) -> None:
    sweep = new_sweep(loss, "second")
    loss.finish_trial(start(loss, sweep, params={"lr": 0.5}), Outcome(end=TrialEnd.FAILED, reason="x"))
    frames = [read(loss), Frame.empty(sweep).updated(sweep, loss.columns(sweep.id))]
    table = together(frames)
    assert len(table) == 41
    assert table.columns["sweep"].listed()[-2:] == ["loss", "second"]
    assert table.columns["params.lr"].listed()[-1] == 0.5
    assert table.columns["params.optimizer"].listed()[-1] is None
    assert list(table.group("params")) == ["lr", "layers", "optimizer", "width", "nesterov"]


def test_a_viewer_reads_once_for_many_and_again_after_a_write(loss: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer_module, "REFRESH_SECONDS", 1e9)
    viewer = Viewer(loss, "sqlite:///x.db", threading.Event())
    assert viewer.frame("loss") is viewer.frame("loss")
    loss.annotate(1, 3, note="seen")
    assert viewer.frame("loss").columns["note"].value(3) is None  # not asked again so soon
    viewer.forget()
    assert viewer.frame("loss").columns["note"].value(3) == "seen"
    with pytest.raises(NotFound, match="there is no sweep 'los'; did you mean 'loss'"):
        viewer.frame("los")
    with pytest.raises(UsageError, match="0 sweeps were asked for"):
        viewer.frames([])


def test_a_write_during_a_reading_is_read_next_time(loss: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading ends after the write was announced, and has not seen it."""
    monkeypatch.setattr(viewer_module, "REFRESH_SECONDS", 1e9)
    viewer = Viewer(loss, "sqlite:///x.db", threading.Event())
    columns, list_sweeps = loss.columns, loss.list_sweeps

    def columns_before(*given: Any) -> Any:
        found = columns(*given)
        loss.annotate(1, 3, note="seen")
        viewer.forget()
        return found

    def sweeps_before() -> Any:
        found = list_sweeps()
        loss.set_budget(1, 999.0)
        viewer.forget()
        return found

    monkeypatch.setattr(loss, "list_sweeps", sweeps_before)
    viewer.sweeps()
    monkeypatch.setattr(loss, "list_sweeps", list_sweeps)
    assert viewer.sweep("loss").max_cost_seconds == 999.0
    monkeypatch.setattr(loss, "columns", columns_before)
    viewer.frame("loss")
    monkeypatch.setattr(loss, "columns", columns)
    assert viewer.frame("loss").columns["note"].value(3) == "seen"


def test_what_is_remembered_is_bounded_by_kind(loss: Store) -> None:
    viewer = Viewer(loss, "sqlite:///x.db", threading.Event())
    made: list[int] = []

    def make(i: int) -> int:
        made.append(i)
        return i

    for i in (1, 2, 1, 3, 2):  # 2 was dropped when 3 came
        assert viewer.remembered(("kind", i), lambda i=i: make(i), most=2) == i  # type: ignore[misc]
    assert made == [1, 2, 3, 2]
    assert viewer.remembered(("other", 1), lambda: 10) == 10


def test_numbers_that_json_lacks_are_texts() -> None:
    assert plain({"a": [math.nan, math.inf, -math.inf, 1.5], "b": np.array([1.0, math.nan])}) == {
        "a": ["nan", "inf", "-inf", 1.5],
        "b": [1.0, "nan"],
    }
    assert plain((np.int64(3), np.bool_(True), None, "x")) == [3, True, None, "x"]
    with pytest.raises(TypeError):
        plain(object())


def test_a_summary_of_the_store_equals_one_of_the_frame(loss: Store) -> None:
    loss.annotate(1, 3, excluded=True)
    start(loss, loss.list_sweeps()[0], params={"lr": 0.1})
    frame = read(loss)
    counted = described(frame.sweep, loss.summaries()[frame.sweep.id])
    assert summary(frame) == counted
    assert counted["states"] == {"running": 1, "waiting": 0, "complete": 34, "pruned": 0, "failed": 6, "interrupted": 0}
    assert counted["excluded"] == 1 and counted["trials"] == 41
    assert counted["spent_seconds"] == pytest.approx(sum(2.0 + i for i in range(40)))


def test_a_store_that_was_replaced_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "protein.db"
    fill_loss(f"sqlite:///{path}", num_trials=2)
    store = open_store(str(path))
    viewer = Viewer(store, str(path), threading.Event())
    assert list(viewer.sweeps()) == ["loss"]
    path.rename(tmp_path / "old.db")
    open_store(str(path)).close()
    monkeypatch.setattr(viewer_module, "REFRESH_SECONDS", -1.0)
    with pytest.raises(StoreUnavailable, match="was removed or replaced; end protein view"):
        viewer.sweeps()
    store.close()


def test_a_store_that_was_upgraded_meanwhile_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "protein.db"
    fill_loss(f"sqlite:///{path}", num_trials=2)
    store = open_store(str(path))
    viewer = Viewer(store, str(path), threading.Event())
    viewer.frame("loss")
    monkeypatch.setattr(viewer_module, "REFRESH_SECONDS", -1.0)
    with contextlib.closing(sqlite3.connect(path)) as newer:  # as a migration of a later version may
        newer.execute("ALTER TABLE trials RENAME COLUMN lost_seconds TO undone_seconds")
    with pytest.raises(StoreError, match="another version of protein has upgraded it meanwhile; end this program"):
        viewer.frame("loss")
    store.close()


def test_none_lists_and_what_a_trial_has_not_are_three_things(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/p.db")
    sweep = new_sweep(store)
    given: list[dict[str, Any]] = [
        {"size": None, "lr": 0.5},
        {"size": [64, 64], "lr": 2.0},
        {"size": "null"},
        {"lr": 1.0},
        {"size": {"b": 1, "a": [None, True]}, "lr": 8.0},
        {"size": 8},
    ]
    for params in given:
        start(store, sweep, params=params)
    frame = read(store)
    table = together([frame])
    size, lr = table.columns["params.size"], table.columns["params.lr"]
    shown = ["null", "[64, 64]", "null", None, '{"a": [null, true], "b": 1}', 8]
    assert size.kind is Kind.MIXED and size.listed() == shown
    assert lr.listed() == [0.5, 2.0, None, 1.0, 8.0, None]

    def rows(text: str) -> list[int]:
        return sorted(ordered(table, text, "number").tolist())

    assert rows("size == null") == [0, 2] and rows("size != none") == [0, 1, 2, 4, 5]
    assert rows("size == '[64, 64]'") == [1] and rows("size == 8") == [5] and rows("size contains '64'") == [1]
    assert rows("size == none") == [3] and rows("lr == none") == [2, 5] and rows("lr < 1.5") == [0, 3]
    assert rows("not lr < 1.5") == [1, 2, 4, 5] and rows("lr == 0") == []
    lines = list(csv.reader(io.StringIO("".join(csv_lines(table, np.arange(6), ["params.size", "params.lr"])))))
    assert lines[1:] == [
        ["null", "0.5"],
        ["[64, 64]", "2.0"],
        ["null", ""],
        ["", "1.0"],
        ['{"a": [null, true], "b": 1}', "8.0"],
        ["8", ""],
    ]
    start(store, sweep, params={"lr": 3.0, "late": None})
    grown = read(store, frame)
    assert values(grown) == values(read(store)) and grown.columns["params.late"].listed() == [None] * 6 + ["null"]


def test_params_stay_in_the_order_of_the_space_when_a_later_trial_is_the_first_to_have_one(store: Store) -> None:
    space = {"parameters": [{"name": name} for name in ("model", "C", "depth")]}
    sweep = store.create_sweep(dataclasses.replace(sweep_spec("s"), space=space), None)
    frame = Frame.empty(sweep)
    for params in ({"model": "tree", "depth": 3}, {"model": "svm", "C": 2.0}):
        start(store, sweep, params=params)
        frame = frame.updated(sweep, store.columns(sweep.id, frame.cursor))
    assert list(frame.group("params")) == ["model", "C", "depth"]
    assert frame.group("params")["depth"].listed() == [3, None]


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Frame:
    """Trials that ended in every way, two that run, of which one has lost its process, and a queued one."""
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('varied')}/protein.db")
    sweep = filled_sweep(store)
    queued = Suggestion(params={"lr": 0.2, "size": 5}, kind=SuggestionKind.BY_HAND, origin="by hand")
    store.queue_trials(sweep.id, [(queued, 1)], number=len(TrialEnd) + 2, provenance=PROVENANCE)
    store.annotate(sweep.id, [1, 3], tags=["lucky run", "b"], note='say "x" and <b>y</b>')
    store.annotate(sweep.id, [4], tags=["b"])
    frame = read(store)
    store.close()
    return frame


def test_every_state_that_is_shown_is_found_in_the_same_words(varied: Frame) -> None:
    gone = (varied.sweep.spec.name, len(TrialEnd) + 1)
    known = as_shown([varied], varied, {gone})
    numbers: dict[str, set[int]] = {}
    for place, end in enumerate(TrialEnd):
        numbers.setdefault(told(end.state, end), set()).add(place)
        numbers.setdefault(end.state.value, set()).add(place)  # "failed" are all that failed
        if end.state is TrialState.FAILED:
            assert place in ordered(varied, f"score == {told(end.state, end)}", "number", known)
    numbers["running"] = {len(TrialEnd), len(TrialEnd) + 1}
    numbers["interrupted"].add(gone[1])
    numbers["queued"] = numbers["waiting"] = {len(TrialEnd) + 2}
    assert told(TrialState.WAITING, None, QUEUED) == "queued"
    for word, expected in numbers.items():
        for text in (word, f"'{word}'", word.upper(), word.replace(" ", "_")):
            assert set(ordered(varied, f"state == {text}", "number", known).tolist()) == expected, text
    with pytest.raises(UsageError, match="no trial has 'outofbudget' in state; did you mean 'out of budget'"):
        ordered(varied, "state == outofbudget", "number", known)
    assert len(ordered(varied, "suggested by == fallback", "number", known)) == 0  # a kind that none has


@pytest.mark.parametrize(
    "key", ["state", "params.kind", "params.size", "params.lr", "tags", "note", "started_at", "score"]
)
def test_each_group_holds_the_trials_that_its_filter_finds(varied: Frame, key: str) -> None:
    found = grouped([varied], varied, np.arange(len(varied)), key)
    known = as_shown([varied], varied)
    assert found["groups"]
    scores = varied.columns["score"].floats()
    for group in found["groups"]:
        rows = ordered(varied, group["filter"], "number", known)
        if not (key == "state" and group["values"] == ["failed"]):  # which are all that failed
            assert group["count"] == len(rows), group
        whole = [row for row in rows if varied.columns["state"].value(row) == "complete"]
        if len(rows) == group["count"]:
            assert group["best"] == (scores[whole].max() if whole else None)
            assert group["mean"] == (pytest.approx(scores[whole].mean()) if whole else None)
            assert group["spread"] == (pytest.approx(scores[whole].std(ddof=1)) if len(whole) > 1 else None)
    if key != "tags":  # a trial may have several
        assert sum(group["count"] for group in found["groups"]) == len(varied)


def test_scales_say_where_the_best_trials_lie(loss: Store) -> None:
    frame = read(loss)
    assert grouped([frame], frame, np.arange(len(frame)), "params.optimizer")["lower"]
    found = scales([frame], frame)
    scores = frame.columns["score"].floats()
    assert found["score"]["low"] == np.nanmin(scores) and found["score"]["high"] < np.nanmax(scores)
    assert found["score"]["good"] == [np.nanmin(scores), np.sort(scores[np.isfinite(scores)])[2]]
    assert (
        found["predicted_score"]["good"] is None
        or found["predicted_score"]["good"][1] <= found["predicted_score"]["high"]
    )
    assert "metrics.nothing" not in found and "number" not in found


def test_the_recommended_and_the_initial_config_are_told_apart(varied: Frame) -> None:
    kinds = column_of(["initial_config" if i in (2, 5) else "search" for i in range(len(varied))])
    frame = dataclasses.replace(varied, columns={**varied.columns, "kind": kinds})
    assert special(frame, 7) == [(7, "recommended"), (2, "initial")]
    assert special(frame, 2) == [(2, "recommended and initial")]
    assert special(frame, None) == special(frame, 99) == [(2, "initial")]


def test_times_in_csv_are_dates(varied: Frame) -> None:
    [_, first, *_] = "".join(csv_lines(varied, np.arange(2), ["started_at", "finished_at"])).splitlines()
    started = varied.columns["started_at"].value(0)
    assert datetime.fromisoformat(f"{first.partition(',')[0]}+00:00").timestamp() == pytest.approx(started, abs=2e-3)


def test_a_running_trial_has_its_scores_so_far(loss: Store) -> None:
    [sweep] = loss.list_sweeps()
    running = start(loss, sweep, params={"lr": 0.25})
    loss.add_measurements(running, points(0, 9), 60.0)
    frame = read(loss)
    rows = ordered(frame, "", "-number")[:3]
    [(place, scores)] = live(Viewer(loss, "sqlite:///x.db", threading.Event()), [frame], frame, rows)
    assert frame.numbers[rows[place]] == running.number
    assert scores == pytest.approx([-one.score for one in points(0, 9) if one.score is not None], rel=1e-5)
