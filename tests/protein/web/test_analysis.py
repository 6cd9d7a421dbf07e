"""What the server answers for Curves, Compare and Parameters: the numbers of the store and of the analysis."""

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import ODD_NAME, Served, fill_sweep
from conditional_sweeps import CONDITIONAL, TRIALS
from planted_store import NEW_IS_BETTER, PLANTED, asked
from sample_trials import add_run
from store_samples import complete, new_sweep, start

from protein.analysis import range_ends
from protein.analysis.comparison import Side, SweepResult, compare
from protein.analysis.model_maps import SweepModel
from protein.engine.recommend import Learnt
from protein.engine.results import RangeEnd
from protein.errors import UsageError
from protein.space import Space
from protein.storage import open_store
from protein.types import Measurement, Observation, Outcome, Suggestion, SuggestionKind, TrialEnd
from protein.web import findings
from protein.web.answers import StillComputing, selected
from protein.web.frame import rounded
from protein.web.pages.curves import curve_metrics, spread_order
from protein.web.pages.parameters import some
from protein.web.viewer import Viewer


def test_curves_are_those_of_the_store_in_the_users_direction(served: Served) -> None:
    found = asked(served, "curves", sweep="loss", sel="loss:3.1", pick="selected", points=100)
    assert [one["number"] for one in found["curves"]] == [3, 1], "in the order of the selection"
    curve = found["curves"][0]
    loss = (3 - 20) ** 2 / 100
    assert curve["steps"] == [100 * i for i in range(1, 11)]
    assert curve["value"] == pytest.approx([loss * i / 10 for i in range(1, 11)], rel=1e-5)
    assert curve["seconds"] == pytest.approx([5.0 * i / 10 for i in range(1, 11)], rel=1e-5)
    assert found["metrics"] == ["loss"]
    metric = asked(served, "curves", sweep="loss", sel="loss:3", pick="selected", metric="loss")["curves"][0]
    assert metric["value"] == pytest.approx([1 / i for i in range(1, 11)], rel=1e-5), "a metric has no direction"


def test_moments_keep_all_their_digits(served: Served) -> None:
    found = asked(served, "scatter", sweep="loss", x="started_at", y="score", limit=5000)
    table = asked(served, "table", sweep="loss", column=["started_at"], limit=100)
    started = {key[1]: row[0] for key, row in zip(table["keys"], table["rows"], strict=True)}
    assert found["x"]["values"] == [started[number] for number in found["trials"]["number"]]


def test_a_curves_metrics_are_offered_once_they_are_there(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/p.db")
    trial = start(store, new_sweep(store))
    store.add_measurements(trial, [Measurement(steps=1, elapsed_seconds=1.0, score=1.0)], 60.0)
    viewer = Viewer(store, f"sqlite:///{tmp_path}/p.db", threading.Event())
    assert curve_metrics(viewer, ["s"]) == []
    store.add_measurements(trial, [Measurement(steps=2, elapsed_seconds=2.0, score=1.0, metrics={"loss": 1.0})], 60.0)
    store.finish_trial(trial, complete())
    viewer.forget()
    assert curve_metrics(viewer, ["s"]) == ["loss"]
    store.close()


def test_which_curves_are_picked(served: Served) -> None:
    best = asked(served, "curves", sweep="loss")
    assert best["total"] == 34 and len(best["curves"]) == 12, "of 40, six failed; at most 12 until asked"
    scores = [one["score"] for one in best["curves"]]
    assert scores == sorted(scores) and scores[0] == 0.0, "the lowest loss first"
    newest = asked(served, "curves", sweep="loss", pick="newest", limit=3)
    assert [one["number"] for one in newest["curves"]] == [39, 38, 37]
    spread = asked(served, "curves", sweep="loss", pick="spread", limit=2)
    assert [one["score"] for one in spread["curves"]] == [0.0, max(score for score in scores_of(served))]
    few = asked(served, "curves", sweep="loss", filter="optimizer == muon and layers == 3", group="params.optimizer")
    assert few["group"]["values"] == ["muon"] * few["total"] and few["total"] > 0
    both = asked(served, "curves", sweep=["loss", "pong"], limit=4)
    assert {one["sweep"] for one in both["curves"]} == {"loss", "pong"}, "the best of each sweep come in turn"


def scores_of(served: Served) -> list[float]:
    found = asked(served, "table", sweep="loss", column=["score"], limit=100)
    return [row[0] for row in found["rows"] if row[0] is not None]


def test_a_long_curve_keeps_its_ends_and_its_peak(served: Served) -> None:
    found = asked(served, "curves", sweep="loss", sel="loss:3", pick="selected", points=4)["curves"][0]
    whole = asked(served, "curves", sweep="loss", sel="loss:3", pick="selected")["curves"][0]
    assert found["points"] == 10 and 2 <= len(found["value"]) <= 4
    assert (found["steps"][0], found["steps"][-1]) == (100, 1000)
    assert max(found["value"]) == max(whole["value"]) and min(found["value"]) == min(whole["value"])


def test_numbers_are_sent_short() -> None:
    values = np.array([0.0, 1.23456789, -98765.4321, 1e-12, 1.5e300, 123456789.0])
    assert rounded(values).tolist() == [0.0, 1.23457, -98765.4, 1e-12, 1.5e300, 123457000.0]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 100])
def test_any_first_few_of_a_spread_are_spread(count: int) -> None:
    order = spread_order(count).tolist()
    assert sorted(order) == list(range(count))
    for few in range(3, count + 1):
        gaps = np.diff(sorted(order[:few]))
        assert gaps.max() <= 4 * math.ceil(count / few), (few, sorted(order[:few]))


def test_trials_side_by_side(served: Served) -> None:
    found = asked(served, "compare", sel="loss:1.2.6")
    rows = {row["key"]: row for row in found["rows"]}
    assert rows["score"]["values"] == [3.61, 3.24, 1.96] and rows["score"]["differs"]
    assert rows["params.nesterov"]["values"] == [False, True, True]
    assert rows["params.optimizer"]["values"] == ["sgd", "muon", "adam"]
    assert not rows["state"]["differs"] and not rows["provenance.git_commit"]["differs"]
    assert rows["provenance.seed"]["values"] == [1, 2, 6]
    assert "number" not in rows and "predicted_score_low" not in rows
    several = asked(served, "compare", sel="loss:1,pong:1")
    rows = {row["key"]: row for row in several["rows"]}
    assert rows["params.lr"]["values"][1] is None and rows["params.lr"]["differs"], "pong has no such parameter"


def test_sweeps_over_each_other_are_the_comparison_of_their_trials(planted_served: Served) -> None:
    names = ["old-pong-1", "old-pong-2", "new-pong-1", "new-pong-2"]
    found = asked(planted_served, "compare-sweeps", sweep=names, group=1)
    assert found["labels"] == {"old": names[:2], "new": names[2:]}
    store = open_store(planted_served.store_url)
    results = {
        sweep.spec.name: SweepResult.of(
            sweep.spec.name, "pong", store.trials(sweep.id, curves=False), direction=sweep.spec.direction
        )
        for sweep in store.list_sweeps()
    }
    store.close()
    sides = [Side(label=side, sweeps=tuple(results[f"{side}-pong-{i}"] for i in (1, 2))) for side in ("old", "new")]
    expected = compare(sides)
    for side, own in zip(expected.sides, found["sides"], strict=True):
        assert own["figures"]["best"]["value"] == pytest.approx(side.figures["best"].value)
        assert own["figures"]["area"]["low"] == pytest.approx(side.figures["area"].low)
        # Shown scores are losses: lower is better, and the interval is turned with them.
        band = own["best"]["pong"]
        assert band["value"][-1] == pytest.approx(-side.best["pong"].value[-1])
        assert band["low"][-1] <= band["value"][-1] <= band["high"][-1]
    [env] = found["environments"]
    assert env["direction"] == "minimize" and env["high"] < env["low"], "1 is the lowest loss"
    [best, *_] = found["differences"]["new"]
    gained = best["value"]["value"] * (env["low"] - env["high"])
    assert gained == pytest.approx(NEW_IS_BETTER, abs=1.5)
    swapped = asked(planted_served, "compare-sweeps", sweep=names, group=1, reference="new")
    assert [side["label"] for side in swapped["sides"]] == ["new", "old"]
    own_sides = asked(planted_served, "compare-sweeps", sweep=names[:2], side=["a", "b"])
    assert list(own_sides["labels"]) == ["a", "b"]


def test_the_models_slices_are_those_of_the_analysis(planted_served: Served) -> None:
    found = asked(planted_served, "slices", sweep="new-pong-1")
    store = open_store(planted_served.store_url)
    sweep = store.find_sweep("new-pong-1")
    assert sweep is not None
    model = SweepModel.fit(PLANTED, [trial.observation() for trial in store.trials(sweep.id)])
    store.close()
    own = model.slice("lr", model.anchor())
    sent = next(one for one in found["slices"] if one["name"] == "lr")
    assert sent["estimates"]["value"] == pytest.approx([-one.value for one in own.scores], rel=1e-4, abs=1e-4)
    assert sent["estimates"]["low"] == pytest.approx([-one.high for one in own.scores], rel=1e-4, abs=1e-4)
    lowest = int(np.argmin(sent["estimates"]["value"]))
    assert abs(own.axis.x_unit[lowest] - 0.4) < 0.15, "the planted best value"
    assert [(end["name"], end["end"]) for end in found["range_ends"]] == [("width", "high")]
    held = asked(planted_served, "slices", sweep="new-pong-1", seconds=10, at=0)
    assert held["anchor"]["number"] == 0
    width = next(one for one in held["slices"] if one["name"] == "width")
    assert width["cost_seconds"] == pytest.approx([10.0] * 5, rel=0.2)


def test_what_matters_with_best_values_and_laws(planted_served: Served) -> None:
    found = asked(planted_served, "matters", sweep="new-pong-1")
    by_name = {one["name"]: one for one in found["parameters"]}
    assert set(by_name) == {"lr", "width", "nothing", "kind", "steps"} and by_name["steps"]["is_cost"]
    assert by_name["lr"]["verdict"] == "matters" and by_name["nothing"]["verdict"] != "matters"
    assert by_name["lr"]["best"] and all(
        0 <= one["share"]["low"] <= one["share"]["high"] <= 1 for one in by_name.values()
    )
    costs = asked(planted_served, "matters", sweep="new-pong-1", target="cost")["parameters"]
    assert costs[0]["name"] == "steps" and not any(one["best"] or one["law"] for one in costs)


def test_a_map_and_importance(planted_served: Served) -> None:
    found = asked(planted_served, "map", sweep="new-pong-1", x="lr", y="width", points=11)
    value, low, high = (np.array(found[key]) for key in ("value", "low", "high"))
    assert value.shape == (5, 11) and (low <= value).all() and (value <= high).all()
    best_y, best_x = np.unravel_index(np.argmin(value), value.shape)
    assert found["y"]["values"][best_y] >= 128 and 0.2 < best_x / 10 < 0.6
    methods = {one["method"]: one for one in asked(planted_served, "importance", sweep="new-pong-1")["methods"]}
    assert set(methods) == {"ped-anova", "permutation", "length-scales"}
    for one in (methods["permutation"], methods["length-scales"]):
        assert one["shares"]["nothing"] < max(one["shares"]["lr"], one["shares"]["width"]), one["title"]
    costs = asked(planted_served, "importance", sweep="new-pong-1", target="cost")["methods"]
    permutation = next(one for one in costs if one["method"] == "permutation")
    assert max(permutation["shares"], key=permutation["shares"].__getitem__) == "steps"


def test_parallel_coordinates_and_scatter(served: Served, planted_served: Served) -> None:
    found = asked(planted_served, "parallel", sweep="old-pong-1", limit=10)
    axes = {axis["key"]: axis for axis in found["axes"]}
    assert found["total"] == 40 and len(found["trials"]["number"]) == 10
    assert (axes["params.lr"]["scale"], axes["params.lr"]["low"], axes["params.lr"]["high"]) == ("log", 1e-4, 0.1)
    assert axes["params.kind"]["choices"] == ["plain", "fancy"], "in the order of the space"
    assert list(axes)[-2:] == ["cost_seconds", "score"]
    scatter = asked(served, "scatter", sweep="loss", x="params.lr", y="score", color="params.optimizer")
    assert scatter["total"] == 34, "a failed trial has no score, and no place"
    place = scatter["trials"]["number"].index(4)
    assert scatter["x"]["values"][place] == pytest.approx(10**-3.6, rel=1e-5)
    assert scatter["y"]["values"][place] == pytest.approx(2.56)
    assert scatter["color"]["values"][place] == "sgd" and scatter["color"]["scale"] == "choices"
    odd = asked(served, "scatter", sweep=ODD_NAME, x="params.lërning rate")
    assert len(odd["x"]["values"]) == 3


def test_a_part_of_many_trials_holds_the_best() -> None:
    quality = np.random.default_rng(0).random(1000)
    rows = some(np.arange(1000), quality, 100)
    assert len(rows) == 100 and len(set(rows.tolist())) == 100 and (np.diff(rows) > 0).all()
    assert set(np.argsort(-quality)[:25].tolist()) <= set(rows.tolist())
    assert quality[rows].min() < 0.05, "and some of the worst"


def test_trials_that_are_not_there_are_named_beside_the_others(served: Served) -> None:
    found = asked(served, "compare", sel="loss:4.77")
    assert [(one["sweep"], one["number"]) for one in found["trials"]] == [("loss", 4)]
    assert found["missing"] == [{"sweep": "loss", "number": 77}]
    assert all(len(row["values"]) == 1 for row in found["rows"])
    nothing = asked(served, "compare", sel="loss:77")
    assert nothing["trials"] == [] and nothing["missing"] == [{"sweep": "loss", "number": 77}]


def test_an_answer_that_needs_long_says_so_at_once(own_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread of the server is held while a model is fitted."""
    monkeypatch.setattr(findings, "PATIENCE_SECONDS", 0.05)
    store, go_on = open_store(own_store), threading.Event()
    viewer = Viewer(store, own_store, threading.Event())
    frame = viewer.frame("pong")

    def ask() -> tuple[bool, bool]:
        return findings.fitted(viewer, frame, "slow", lambda: go_on.wait(60.0))

    with pytest.raises(StillComputing):
        ask()
    go_on.set()
    found = None
    while found is None:
        with contextlib.suppress(StillComputing):
            found = ask()
    assert found == (True, False)
    viewer.stopping.set()
    store.close()


def test_slices_and_ends_of_ranges_are_those_of_an_earlier_model_until_the_newest_is_fitted(
    own_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials may end faster than a fit takes. Then no fit is ever the newest one."""
    go_on, fit = threading.Event(), SweepModel.fit
    go_on.set()

    def slowly(space: Space, seen: list[Observation], *given: Any, **named: Any) -> SweepModel:
        go_on.wait(60.0)
        return fit(space, seen, *given, **named)

    def ends(model: Learnt) -> list[RangeEnd]:
        name = model.space.names[0]
        num = sum(one.runs for one in model.contenders)  # tells of which model it is
        return [RangeEnd(name=name, end="low", bound=0, best_value=num, probability=1.0, effect=1.0, natural=False)]

    monkeypatch.setattr(SweepModel, "fit", slowly)
    monkeypatch.setattr(range_ends, "range_ends", ends)
    server = Served(own_store)
    found = [asked(server, "slices", sweep="pong")]
    monkeypatch.setattr(findings, "PATIENCE_SECONDS", 0.05)
    go_on.clear()
    add_run(own_store, of=1, score=17.5)
    for _ in range(200):  # until the server has seen the new trial
        if found[-1]["fitting"]:
            break
        time.sleep(0.1)
        found.append(asked(server, "slices", sweep="pong"))
    assert found[-1]["fitting"]
    go_on.set()
    while found[-1]["fitting"]:
        found.append(asked(server, "slices", sweep="pong"))
    server.stop()
    assert {(one["num_scores"], one["range_ends"][0]["best_value"]) for one in found[:-1]} == {(5, 4)}
    assert (found[-1]["num_scores"], found[-1]["range_ends"][0]["best_value"]) == (6, 5)


def test_a_report_waits_for_its_answers(own_store: str) -> None:
    store, go_on = open_store(own_store), threading.Event()
    viewer = Viewer(store, own_store, threading.Event(), watched=False)
    timer = threading.Timer(3.0, go_on.set)  # longer than a page would wait
    timer.start()
    assert findings.fitted(viewer, viewer.frame("pong"), "slow", lambda: go_on.wait(60.0)) == (True, False)
    timer.join()
    viewer.stopping.set()
    store.close()


@pytest.mark.parametrize(
    ("path", "params", "status", "line"),
    [
        ("curves", {"sweep": "nope"}, 404, "there is no sweep 'nope'"),
        ("curves", {"sweep": "loss", "limit": 501}, 400, "limit 501 must be from 1 to 500"),
        ("curves", {"sweep": "loss", "points": 10**6}, 400, "points 1000000 must be from"),
        ("curves", {"sweep": "loss", "metric": "lss"}, 400, "no curve has a metric 'lss'; did you mean 'loss'?"),
        ("curves", {"sweep": "loss", "group": "nope"}, 400, "group: there is no column 'nope'"),
        ("compare", {"sel": ""}, 400, "no trial is selected"),
        ("compare-sweeps", {"sweep": ["loss", "pong"]}, 200, "no environment in common"),
        ("compare-sweeps", {"sweep": ["loss", "failed"]}, 200, "'failed' has no complete trial yet"),
        ("slices", {"sweep": "loss"}, 200, "the store holds no search space of sweep 'loss'"),
        ("slices", {"sweep": "new"}, 200, "no search space"),
        ("slices", {"sweep": ["loss", "pong"]}, 400, "about one sweep, and 2 are named"),
        ("slices", {"sweep": "pong", "seconds": -1}, 400, "seconds -1 must be above 0"),
        ("slices", {"sweep": "pong", "at": 99}, 404, "sweep 'pong' has no trial 99"),
        ("map", {"sweep": "pong", "x": "train.gamma", "y": "nope"}, 400, "unknown parameter 'nope'"),
        ("importance", {"sweep": "pong", "target": "luck"}, 400, "target 'luck' is not one of score, cost"),
        ("scatter", {"sweep": "loss", "x": "nope"}, 400, "x: there is no column 'nope'"),
    ],
)
def test_what_cannot_be_answered_is_one_line(
    served: Served, path: str, params: dict[str, object], status: int, line: str
) -> None:
    found = asked(served, path, status, **params)
    assert line in found["problem" if status == 200 else "error"]


def test_a_selection_is_read_as_the_page_writes_it() -> None:
    assert selected("pong:1-3.7,a%2Cb%3A:0", most=10) == {"pong": [1, 2, 3, 7], "a,b:": [0]}
    assert selected("", most=0) == {}
    assert selected("pong:3.1.3", most=5) == {"pong": [3, 1]}
    for wrong, line in [
        ("pong", "has no numbers"),
        ("pong:x", "not a number"),
        ("pong:-3", "not a number"),
        ("pong:5-2", "ends before it begins"),
        ("pong:0-99999999999999999999", "more than 10 trials"),
        ("pong:\u0661", "not a number"),
    ]:
        with pytest.raises(UsageError, match=line):
            selected(wrong, most=10)


def test_an_exclusion_is_seen_by_the_model_at_once(own_store: str) -> None:
    server = Served(own_store)
    before = asked(server, "slices", sweep="pong")
    assert before["num_scores"] == 5, "those of complete trials, and the one that was stopped"
    store = open_store(own_store)
    store.annotate(store.list_sweeps()[0].id, [0, 1], excluded=True)
    store.close()
    for _ in range(50):
        after = asked(server, "slices", sweep="pong")
        if "problem" in after:
            break
        time.sleep(0.1)
    assert after["problem"] == "the model needs 4 trials with a score, and has 3; run more"
    server.stop()


def test_a_curve_that_grows_is_read_again(own_store: str) -> None:
    server = Served(own_store)
    finished = asked(server, "curves", sweep="pong", sel="pong:1", pick="selected")
    assert asked(server, "curves", sweep="pong", sel="pong:1", pick="selected") == finished, "kept"
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    record = store.trials(sweep.id)[0]
    trial = store.start_trial(
        sweep.id,
        Suggestion(params=record.params, kind=SuggestionKind.SEARCH, origin="again"),
        seed=1,
        owner="me",
        lease_seconds=600.0,
        suggest_seconds=0.1,
        provenance=record.provenance,
    )
    for last in (1, 2):
        store.add_measurements(trial, [Measurement(steps=last, elapsed_seconds=1.0 * last, score=1.0)], 600.0)
        for _ in range(50):
            found = asked(server, "curves", sweep="pong", sel=f"pong:{trial.number}", pick="selected")["curves"]
            if found and len(found[0]["value"]) == last:
                break
            time.sleep(0.1)
        assert len(found[0]["value"]) == last
    store.close()
    server.stop()


def test_what_interruptions_undid_is_in_every_sum_of_what_was_spent(own_store: str) -> None:
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    record = store.trials(sweep.id)[0]
    suggestion = Suggestion(params=record.params, kind=SuggestionKind.SEARCH, origin="again")
    trial = store.start_trial(
        sweep.id,
        suggestion,
        seed=1,
        owner="me",
        lease_seconds=600.0,
        suggest_seconds=0.1,
        provenance=record.provenance,
    )
    store.add_measurements(trial, [Measurement(steps=1, elapsed_seconds=30.0, score=1.0)], 600.0)
    store.release_trial(trial, "preempted")
    trial = store.take_up_trial(sweep.id, trial.number, "me", 600.0, 0, 10.0)
    store.finish_trial(trial, Outcome(end=TrialEnd.CRASHED, score=None, cost_seconds=15.0, steps=1, reason="crashed"))
    spent = store.summaries()[sweep.id].spent_seconds
    store.close()
    server = Served(own_store)
    found = asked(server, "sweep", sweep="pong")
    server.stop()
    assert found["spending"]["lost"] == 20.0
    assert found["spent_seconds"] == found["spending"]["total"] == found["progress"]["spent"][-1] == spent


@pytest.fixture(scope="module")
def conditional(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of the sweep of `conditional_sweeps`, which tests only read."""
    url = f"sqlite:///{tmp_path_factory.mktemp('conditional')}/protein.db"
    trials = [(one.params, one.score, one.cost_seconds, "") for one in TRIALS]
    fill_sweep(url, "conditional", trials, space=CONDITIONAL)
    server = Served(url)
    yield server
    server.stop()


def test_what_is_not_active_is_nowhere(conditional: Served) -> None:
    name = "conditional"
    tree = next(i for i, one in enumerate(TRIALS) if one.params["model"] == "tree")
    svc = next(i for i, one in enumerate(TRIALS) if "gamma" in one.params)
    parallel = asked(conditional, "parallel", sweep=name)
    for axis in parallel["axes"]:
        parameter = axis["key"].removeprefix("params.")
        if parameter in CONDITIONAL.names:
            given = [TRIALS[number].params.get(parameter) for number in parallel["trials"]["number"]]
            assert [value is None for value in axis["values"]] == [value is None for value in given]
            assert axis["absent"] == (None in given)
    found = asked(conditional, "slices", sweep=name)
    assert "depth" in found["inactive"] and set(found["anchor"]["params"]) == {one["name"] for one in found["slices"]}
    found = asked(conditional, "slices", sweep=name, at=tree)
    assert (
        set(found["inactive"]) == {"C", "kernel", "gamma"} == set(CONDITIONAL.names) - found["anchor"]["params"].keys()
    )
    assert found["trials"]["params"]["C"][found["trials"]["number"].index(tree)] is None
    assert "depth is not active" in asked(conditional, "map", 400, sweep=name, x="depth", y="steps")["error"]
    shown = asked(conditional, "trial", sweep=name, number=tree)
    assert [one["name"] for one in shown["params"]] == ["model", "depth", "steps"]
    rows = {row["key"]: row["values"] for row in asked(conditional, "compare", sel=f"{name}:{tree}.{svc}")["rows"]}
    assert rows["params.gamma"][0] is None and rows["params.depth"][1] is None and rows["params.gamma"][1] is not None
    only = asked(conditional, "table", sweep=name, filter="depth > 0", column=["params.C", "params.depth"], limit=100)
    assert only["matching"] == sum("depth" in one.params for one in TRIALS)
    assert all(c is None and isinstance(depth, int) for c, depth in only["rows"])
