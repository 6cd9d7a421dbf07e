"""Configs that people queue: what is refused, what is filled in, the files that hold them, and `enqueue`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from function_sweeps import START, sweep, train
from store_samples import PROVENANCE

from protein import Categorical, Float, Integer, Protein, Space, Sweep, storage
from protein.api import by_hand
from protein.errors import ProteinError, SpaceError, UsageError
from protein.ports import Store
from protein.types import Outcome, Suggestion, SuggestionKind, SweepRecord, SweepSpec, TrialEnd

SPACE = Space(
    [
        Float("lr", 1e-5, 1e-1, scale="log"),
        Integer("num_layers", 1, 8),
        Categorical("opt", ["adam", "sgd"]),
        Categorical("warm", [True, False]),
        Categorical("batch", [16, 32]),
    ],
    constraints=["num_layers * batch <= 128"],
    fixed={"width": 64},
)
FIRST: dict[str, Any] = {"lr": 1e-3, "num_layers": 2, "opt": "adam", "warm": True, "batch": 16}
SPEC = SweepSpec(
    name="mine",
    env="train()",
    method="protein",
    seed=3,
    space=SPACE.to_dict(),
    config={"own": {"start": FIRST}},
    provenance=PROVENANCE,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = storage.open_store(f"sqlite:///{tmp_path}/x.db")
    yield made
    made.close()


def run_one(store: Store, record: SweepRecord, params: dict[str, Any], end: TrialEnd | None) -> int:
    """Starts a trial, ends it so, and returns its number. None: it runs on."""
    suggestion = Suggestion(params=params, kind=SuggestionKind.SEARCH, origin="test")
    how: dict[str, Any] = {"lease_seconds": 60.0, "suggest_seconds": 0.0, "provenance": PROVENANCE}
    trial = store.start_trial(record.id, suggestion, seed=0, owner="host:1:1", **how)
    if end is not None:
        score = 0.5 if end is TrialEnd.COMPLETE else None
        store.finish_trial(trial, Outcome(end=end, score=score, reason=end.text))
    return trial.number


def test_what_is_not_given_is_as_in_the_initial_config() -> None:
    assert by_hand.completed(SPEC, {"lr": 3e-4}) == {**FIRST, "lr": 3e-4}
    assert by_hand.completed(SPEC, {"opt": "sgd", "width": 64}) == {**FIRST, "opt": "sgd"}, "a fixed value as it is"
    without = SweepSpec(**{**{f: getattr(SPEC, f) for f in SPEC.__slots__}, "config": {"own": {"start": None}}})
    filled = by_hand.completed(without, {"lr": 3e-4})
    assert filled["lr"] == 3e-4 and SPACE.is_valid(filled)


def test_what_does_not_exist_in_a_config_is_left_out_and_refused_where_it_is_given() -> None:
    space = Space(
        [
            Categorical("model", ["tree", "svc"]),
            Float("C", 0.1, 10.0, when="model == 'svc'"),
            Integer("depth", 1, 9, when="model == 'tree'"),
            Categorical("net", ["small", "large"]),
        ]
    )
    start: dict[str, Any] = {"model": "tree", "depth": 3, "net": "small"}
    assert by_hand.whole(space, start, {"net": "large"}) == {**start, "net": "large"}
    other = by_hand.whole(space, start, {"model": "svc"})
    assert other.keys() == {"model", "C", "net"} and space.is_valid(other)
    assert by_hand.whole(space, None, {"model": "svc", "C": 3.0})["C"] == 3.0
    with pytest.raises(SpaceError, match="parameter 'C' has a value, but exists only when model == 'svc'"):
        by_hand.whole(space, start, {"C": 3.0})


WRONG = [
    ({"lrr": 1e-3}, "unknown parameter 'lrr'; did you mean 'lr'?"),
    ({"lr": 1.0}, "parameter 'lr'"),
    ({"lr": "0.1x"}, "parameter 'lr'"),
    ({"num_layers": 2.5}, "parameter 'num_layers'"),
    ({"opt": "lion"}, "parameter 'opt': 'lion' is not one of its choices"),
    ({"warm": 1}, "parameter 'warm'"),
    ({"num_layers": 8, "batch": 32}, "constraint 'num_layers * batch <= 128' is violated by"),
    ({"width": 32}, "'width' is not searched in sweep 'mine', where it is 64"),
    ([("lr", 1e-3)], "a config maps names to values"),
    ({1: 2}, "a config maps names to values"),
    ("lr=1", "a config maps names to values"),
]


@pytest.mark.parametrize(("point", "said"), WRONG)
def test_what_is_no_config_of_the_sweep_is_one_line(point: Any, said: str, store: Store) -> None:
    record = store.create_sweep(SPEC, None)
    with pytest.raises(ProteinError) as refused:
        by_hand.queue(store, record, [{"lr": 1e-2}, point])
    assert said in str(refused.value) and "\n" not in str(refused.value)
    assert str(refused.value).startswith("config 2 of 2: ")
    assert store.trials(record.id) == [], "all of them or none"


def test_a_config_that_a_trial_has_is_refused_with_its_number(store: Store) -> None:
    record = store.create_sweep(SPEC, None)
    known = {
        "complete": TrialEnd.COMPLETE,
        "running": None,
        "failed": TrialEnd.DIVERGED,
    }
    for i, (how, end) in enumerate(known.items()):
        number = run_one(store, record, {**FIRST, "lr": 10.0 ** -(i + 2)}, end)
        with pytest.raises(UsageError, match=rf"^trial {number} has this config already \({how}\)"):
            by_hand.queue(store, record, [{"lr": 10.0 ** -(i + 2)}])
    assert by_hand.queue(store, record, [{"opt": "sgd"}]) == [3]
    with pytest.raises(UsageError, match=r"^trial 3 has this config already \(queued\)"):
        by_hand.queue(store, record, [{"opt": "sgd"}])
    with pytest.raises(UsageError, match=r"^config 2 of 2: it is given twice"):
        by_hand.queue(store, record, [{"num_layers": 3}, {"num_layers": 3, "lr": 1e-3}])
    assert by_hand.queue(store, record, [{"opt": "sgd"}, {"num_layers": 3}], skip_if_exists=True) == [4]
    for i, end in enumerate((TrialEnd.INTERRUPTED, TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET)):
        run_one(store, record, {**FIRST, "lr": 0.01 + 0.01 * (i + 1)}, end)
        assert by_hand.queue(store, record, [{"lr": 0.01 + 0.01 * (i + 1)}]), "it told nothing of a whole run"
    store.annotate(record.id, 0, excluded=True)
    assert by_hand.queue(store, record, [{"lr": 0.01}])


FILES = {
    "a.json": json.dumps([{"lr": 3e-4, "opt": "sgd"}, {"number": 7, "score": 0.5, "params": {"num_layers": 3}}]),
    "a.jsonl": '{"lr": 3e-4, "opt": "sgd"}\n\n{"params": {"num_layers": 3}}\n',
    "a.csv": "lr,opt,num-layers\n3e-4,sgd,\n,,3\n",
    "trials.csv": "number,score,params.lr,params.opt,params.num_layers\n0,0.5,3e-4,sgd,\n1,,,,3\n",
    "a.toml": '[[trials]]\nlr = 3e-4\nopt = "sgd"\n[[trials]]\nparams = {num_layers = 3}\n',
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_all_kinds_hold_the_same(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FILES[name])
    points = by_hand.read_file(tmp_path / name, SPEC)
    assert [by_hand.completed(SPEC, one) for one in points] == [
        {**FIRST, "lr": 3e-4, "opt": "sgd"},
        {**FIRST, "num_layers": 3},
    ]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", "{", "cannot be read as json"),
        ("a.json", "[]", "holds no config"),
        ("a.json", "3", "holds no config"),
        ("a.json", "[3]", "a config maps names to values"),
        ("a.jsonl", '{"lr": 1}\n\n  lr', "cannot be read as jsonl: line 3, column 3: Expecting value"),
        ("a.jsonl", '{"opt": "a\u2028b"}\n{"lr": 1,}', "line 2, column 10: "),
        ("a.csv", "lr,opt\n1e-3\n", "line 2 has another number of fields than the header"),
        ("a.csv", "lr,opt\n1e-3,sgd,3\n", "line 2 has another number of fields than the header"),
        ("a.csv", "", "holds no config"),
        ("a.csv", "lrr\n1e-3\n", "unknown parameter 'lrr'; did you mean 'lr'"),
        ("a.toml", "lr = ", "cannot be read as toml"),
        ("a.txt", "lr 1", "'.txt' is no known kind of file"),
        ("a.json", None, "cannot be read: No such file"),
        ("a.json", b"\xff\xfe", "cannot be read as json"),
    ],
)
def test_a_file_that_holds_none_is_one_line(name: str, content: Any, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ProteinError) as refused:
        by_hand.read_file(tmp_path / name, SPEC)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_texts_of_a_command_line_are_values_of_their_parameters() -> None:
    texts = {"lr": "3e-4", "num-layers": "3", "opt": "sgd", "warm": "false", "batch": "32", "width": "64"}
    values = dict(by_hand.value_of(SPEC, name, text) for name, text in texts.items())
    assert values == {"lr": 3e-4, "num_layers": 3, "opt": "sgd", "warm": False, "batch": 32, "width": 64}
    assert values["warm"] is False
    assert by_hand.value_of(SPEC, "warm", "True") == ("warm", True)
    for name, text in (("num_layers", "2.5"), ("num_layers", "two"), ("lr", "nan"), ("batch", "17"), ("opt", "")):
        own, value = by_hand.value_of(SPEC, name, text)
        with pytest.raises(SpaceError, match=f"parameter '{name}'"):
            by_hand.completed(SPEC, {own: value})


def test_a_sweep_over_a_function_takes_configs_before_and_after_its_start(tmp_path: Path) -> None:
    store = str(tmp_path / "own.db")
    mine = sweep(store, None, max_trials=3)
    assert mine.enqueue([{"lr": 0.01}, {"lr": 0.02, "epochs": 2}]) == []
    with pytest.raises(UsageError, match="queued already"):
        mine.enqueue({"lr": 0.01})
    with pytest.raises(SpaceError, match="unknown parameter 'epoch'; did you mean 'epochs'"):
        mine.enqueue({"epoch": 3})
    assert not Path(store).exists()
    trials = mine.run(train).trials
    assert [dict(one.params) for one in trials] == [{**START, "lr": 0.01}, {"lr": 0.02, "epochs": 2}, START]
    assert [str(one.kind) for one in trials] == ["by_hand", "by_hand", "initial_config"]

    again = sweep(store, None, max_trials=4)  # the script is run again
    assert again.enqueue([{"lr": 0.01}, {"lr": 0.03}], skip_if_exists=True) == [3]
    assert [one.params["lr"] for one in again.run(train).trials] == [0.01, 0.02, START["lr"], 0.03]
    with pytest.raises(UsageError, match=r"^trial 3 has this config already \(complete\)"):
        again.enqueue({"lr": 0.03})
    with pytest.raises(UsageError, match="exists with seed"):
        sweep(store, None, seed=5).enqueue({"lr": 0.5})


def test_ask_and_tell_asks_for_what_is_queued_first() -> None:
    engine = Protein(SPACE, start=FIRST, max_trials=3)
    engine.enqueue([{"lr": 3e-4}, {"opt": "sgd"}])
    for point, said in (({"lr": 3e-4}, "known already"), ({"lr": 1.0}, "parameter 'lr'"), ({"x": 1}, "unknown")):
        with pytest.raises(ProteinError, match=said):
            engine.enqueue(point)
    asked = [engine.suggest() for _ in range(4)]
    assert asked[3] is None and engine.ended == "the limit of 3 trials is reached"
    first, second, third = (one for one in asked if one is not None)
    assert (first.params, first.kind) == ({**FIRST, "lr": 3e-4}, SuggestionKind.BY_HAND)
    assert second.params == {**FIRST, "opt": "sgd"}
    assert third.kind is not SuggestionKind.BY_HAND and third.params not in (first.params, second.params)
    engine.observe(first.params, score=1.0, cost_seconds=1.0)
    assert [one.params for one in engine.pending] == [second.params, third.params]


def test_what_training_code_changes_in_a_queued_config_stays_as_it_was_in_the_engine() -> None:
    engine = Protein(Space([Categorical("layers", ([64], [64, 64])), Float("lr", 0.0, 1.0)]))
    engine.enqueue({"layers": [64, 64]})
    asked = engine.suggest()
    assert asked is not None
    asked.params["layers"].pop()
    assert engine.pending[0].params["layers"] == [64, 64]


def test_before_a_sweep_is_stored_all_configs_are_queued_or_none(tmp_path: Path) -> None:
    space = Space([Categorical("flag", (1, True, "no")), Float("lr", 0.0, 1.0)])
    made = Sweep(space, max_trials=3, name="s", store=tmp_path / "p.db", quiet=True)
    with pytest.raises(UsageError, match="queued already"):
        made.enqueue([{"flag": 1}, {"flag": "no"}, {"flag": "no"}])
    made.enqueue([{"flag": 1}, {"flag": True}])
    made.enqueue([{"flag": True}, {"flag": "no"}], skip_if_exists=True)
    ran = made.run(lambda params, report: 1.0)
    assert [repr(one.params["flag"]) for one in ran.trials] == ["1", "True", "'no'"]
