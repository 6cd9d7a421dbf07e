"""`protein import`: real studies of Optuna, and what holds for every tool.

Files of W&B and PufferLib are in `test_files.py`. MLflow's part is in `contracts/test_trackers`, which has
an MLflow to read from.
"""

import dataclasses
import json
import math
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from commands import Run, stored
from hypothesis import given, settings
from hypothesis import strategies as st

from protein import Float, Space, Sweep
from protein.api import importing
from protein.api.importing import infer
from protein.errors import UsageError
from protein.imports.runs import Imported, Source, parameters, text_value
from protein.imports.runs import Run as ImportedRun
from protein.ports import Store
from protein.space.parameters import Categorical, Integer, parameter_name
from protein.storage import open_store
from protein.types import Direction, Suggestion, SuggestionKind, TrialEnd

STUDY = "sqlite:///study.db"


def objective(trial: optuna.Trial) -> float:
    rate, layers = trial.suggest_float("opt/lr", 1e-4, 0.1, log=True), trial.suggest_int("layers", 1, 4)
    if trial.suggest_categorical("act", ["relu", "tanh"]) == "tanh":
        trial.suggest_float("slope", 0.0, 1.0)
    if trial.number == 1:
        raise RuntimeError("broken")
    if trial.number == 2:
        return math.nan
    for step in range(4):
        trial.report(rate * (4 - step), step)
        if trial.number == 3 and step == 1:
            raise optuna.TrialPruned
    return math.log10(rate) ** 2 / layers


@pytest.fixture(scope="module")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of 12 trials, made once."""
    path = tmp_path_factory.mktemp("optuna") / "study.db"
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.RandomSampler(seed=0)
    found = optuna.create_study(
        study_name="old study", storage=f"sqlite:///{path}", sampler=sampler, direction="minimize"
    )
    found.optimize(objective, n_trials=12, catch=(RuntimeError,))
    return path


@pytest.fixture
def study(study_file: Path, folder: Path) -> optuna.Study:
    shutil.copy(study_file, folder / "study.db")
    return optuna.load_study(study_name="old study", storage=STUDY)


class TestOptuna:
    def test_every_trial_is_taken_over_as_it_was(self, study: optuna.Study, run: Run) -> None:
        study.ask()  # waits: it is left out
        assert "1 run left out: not finished yet" in run(f"import optuna {STUDY}")
        sweep, trials = stored("old-study")
        assert (sweep.spec.method, sweep.spec.direction) == ("imported", Direction.MINIMIZE)
        assert "imported from optuna: sqlite:///study.db, study 'old study'" in sweep.spec.provenance.machine
        space = Space.from_dict(sweep.spec.space)
        assert space.names == ("opt.lr", "layers", "act")  # some lack the slope
        assert space.parameters[0] == Float("opt.lr", 1e-4, 0.1, scale="log")
        assert space.parameters[1:] == (Integer("layers", 1, 4), Categorical("act", ("relu", "tanh")))
        for trial, theirs in zip(trials, study.trials, strict=False):
            assert trial.params == {name.replace("/", "."): value for name, value in theirs.params.items()}
            assert theirs.duration is not None
            assert trial.cost_seconds == theirs.duration.total_seconds()
            assert trial.origin.startswith(f"imported from optuna: run {theirs.number}, begun 2")
            assert [-point.score for point in trial.curve if point.score is not None] == list(
                theirs.intermediate_values.values()
            )
        ends = [trial.end for trial in trials[:4]]
        assert ends == [TrialEnd.COMPLETE, TrialEnd.FAILED, TrialEnd.FAILED, TrialEnd.STOPPED_EARLY]
        assert trials[0].score == -study.trials[0].values[0]  # stored to be maximised
        assert trials[3].score == -study.trials[3].intermediate_values[1]
        assert trials[1].score is None
        shown = run.json("show old-study --json")["trials"]
        assert shown[0]["score"] == study.trials[0].values[0]  # shown as the user knows it

    def test_again_it_adds_what_is_new(self, study: optuna.Study, run: Run) -> None:
        run(f"import optuna {STUDY}")
        study.optimize(objective, n_trials=2)
        again = run.json("import optuna study.db --json")  # the file's path means the same storage
        assert {name: again[name] for name in ("created", "added", "known", "unfinished")} == {
            "created": False, "added": 2, "known": 12, "unfinished": 0
        }  # fmt: skip
        assert [trial.owner for trial in stored("old-study")[1]] == [f"import:{number}" for number in range(14)]

    def test_an_import_that_was_cut_short_is_completed(self, study: optuna.Study, run: Run) -> None:
        imported = importing.read("optuna", Source(place=STUDY), rename={})
        store = open_store("runs/protein.db")

        class Cut(Exception): ...

        def cut(done: int, of: int) -> None:
            if done == 3:
                raise Cut

        with pytest.raises(Cut):
            _store(store, imported, cut)
        sweep = store.find_sweep("old-study")
        assert sweep is not None
        store.start_trial(  # what a process leaves that dies while it stores the fourth run
            sweep.id,
            Suggestion(params=imported.runs[3].params, kind=SuggestionKind.RANDOM, origin="x"),
            seed=0,
            owner="import:3",
            lease_seconds=600.0,
            suggest_seconds=0.0,
            provenance=sweep.spec.provenance,
        )
        done = _store(store, imported, lambda *_: None)
        assert (done.added, done.known) == (9, 3)
        trials = store.trials(sweep.id)
        store.close()
        whole = [trial.owner for trial in trials if trial.end is not TrialEnd.INTERRUPTED]
        assert sorted(whole) == sorted(f"import:{number}" for number in range(12))

    def test_several_studies_or_objectives_have_to_be_named(self, study: optuna.Study, run: Run) -> None:
        two = optuna.create_study(study_name="two", storage=STUDY, directions=["minimize", "maximize"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            two.set_metric_names(["loss", "reward"])
        two.optimize(lambda trial: (1.0, trial.suggest_float("x", 0.0, 1.0)), n_trials=3)
        assert run.error(f"import optuna {STUDY}") == "--experiment (the study) is needed, one of: old study, two"
        two_error = run.error(f"import optuna {STUDY} --experiment two")
        assert two_error == "--score (the objective) is needed, one of: loss, reward"
        run(f"import optuna {STUDY} --experiment two --score reward")
        sweep, trials = stored("two")
        assert sweep.spec.direction is Direction.MAXIMIZE
        assert [trial.score for trial in trials] == [trial.params["x"] for trial in trials]

    def test_none_is_a_choice(self, study: optuna.Study, run: Run) -> None:
        other = optuna.create_study(study_name="other", storage=STUDY)
        for depth in (None, 3, 5, None):
            other.enqueue_trial({"depth": depth})

        def measure(trial: optuna.Trial) -> float:
            trial.suggest_categorical("depth", [None, 3, 5])
            return trial.suggest_float("x", 0.0, 1.0)

        other.optimize(measure, n_trials=4)
        assert run.json(f"import optuna {STUDY} --experiment other --json")["outside"] == 0
        sweep, trials = stored("other")
        assert Space.from_dict(sweep.spec.space).parameters[0] == Categorical("depth", (None, 3, 5))
        assert [trial.params["depth"] for trial in trials] == [None, 3, 5, None]

    def test_what_of_the_study_is_lost_is_named(self, study: optuna.Study, run: Run) -> None:
        other = optuna.create_study(study_name="rich", storage=STUDY, sampler=optuna.samplers.RandomSampler(seed=0))
        for i in range(20):
            other.enqueue_trial({"kind": (None, 1, "1")[i % 3]})
            trial = other.ask()
            trial.suggest_int("units", 32, 512, step=32)
            trial.suggest_float("drop", 0.0, 0.5, step=0.05)
            trial.suggest_float("x", 0.0, 1.0 + i // 10)
            trial.suggest_categorical("kind", [None, 1, "1", math.inf, True])
            trial.suggest_int("a-b", 1, 9)
            trial.suggest_int("a_b", 1, 9)
            trial.suggest_float("C" if i % 2 else "depth", 1.0, 9.0)
            other.tell(trial, i)
        told = run(f"import optuna {STUDY} --experiment rich").splitlines()
        assert [line.removeprefix("note: ") for line in told if line.startswith("note: ")] == [
            "x: its range changes within the study; the last one is taken",
            "kind: the choice inf is lost, as no store takes it",
            "kind: the choice True is lost, as Optuna takes it for an equal one",
            "a-b: its own range is not taken over, because another parameter would be a_b, too",
            "a_b: its own range is not taken over, because another parameter would be a_b, too",
            "left out of the space, because runs lack them: depth (10 of 20), C (10 of 20)",
        ]
        assert "kind (null 1 '1')" in "".join(told), "1 and the text 1 are told apart"
        units, drop = Space.from_dict(stored("rich")[0].spec.space).parameters[:2]
        assert (units, drop) == (Integer("units", 32, 512, step=32), Float("drop", 0.0, 0.5, step=0.05))

    def test_a_cost_that_is_no_time_is_not_known(self, study: optuna.Study, run: Run) -> None:
        costs = [2.0, math.inf, 10**400, 1e12, True, "5", 3]
        strange = optuna.create_study(study_name="strange", storage=STUDY)
        for cost in costs:
            trial = strange.ask()
            trial.set_user_attr("seconds", cost)
            strange.tell(trial, trial.suggest_float("x", 0.0, 1.0))
        found = run.json(f"import optuna {STUDY} --experiment strange --cost seconds --json")
        assert (found["added"], found["without_cost"]) == (2, 5)
        assert [trial.cost_seconds for trial in stored("strange")[1]] == [2.0, 3.0]

    def test_a_new_sweep_starts_warm_from_it(self, study: optuna.Study, run: Run) -> None:
        run(f"import optuna {STUDY} --rename opt.lr=lr")
        space = Space(
            [Float("lr", 1e-4, 0.1, scale="log"), Integer("layers", 1, 4), Categorical("act", ("relu", "tanh"))]
        )

        def train(params: Mapping[str, Any], report: Any) -> float:
            score = math.log10(params["lr"]) ** 2 / params["layers"]
            report(1, score, cost_seconds=1.0)
            return float(score)

        found = Sweep(space, name="new", direction="minimize", warm_start="old-study", max_trials=2).run(train)
        assert "warm_start" in {str(trial.kind) for trial in found.trials}
        [source] = stored("new")[0].spec.warm_start["sources"]
        assert (source["sweep"], len(source["trials"])) == ("old-study", 12)


def test_a_run_that_was_interrupted_at_its_source_is_imported_once(folder: Path) -> None:
    runs = [
        ImportedRun(key=str(i), params={"x": 0.1 * i}, end=end, score=score, cost_seconds=1.0, reason=reason)
        for i, (end, score, reason) in enumerate(
            [
                (TrialEnd.COMPLETE, 1.0, ""),
                (TrialEnd.COMPLETE, 2.0, ""),
                (TrialEnd.INTERRUPTED, None, TrialEnd.INTERRUPTED.text),
            ]
        )
    ]
    imported = Imported(
        tool="t", where="w", identity="", experiment="e", env="e", score="s", direction=Direction.MAXIMIZE, runs=runs
    )
    store = open_store("store.db", create=True)
    for added, known in ((3, 0), (0, 3)):
        done = importing.store_runs(
            store, imported, name="e", space_file=None, cost_parameter=None, progress=lambda *_: None
        )
        assert (done.added, done.known) == (added, known)
    store.close()


def _store(store: Store, imported: Imported, progress: Any) -> importing.Done:
    return importing.store_runs(
        store, imported, name="old-study", space_file=None, cost_parameter=None, progress=progress
    )


def test_the_folder_of_an_older_mlflow_is_read(folder: Path, run: Run) -> None:
    experiment = folder / "mlruns" / "1"
    for i in range(3):
        one = experiment / f"{i:032x}"
        times = {"start_time": 10_000, "end_time": 12_500 + i, "artifact_uri": one.as_uri(), "user_id": "me"}
        for part in ("metrics", "params", "tags", "artifacts"):
            (one / part).mkdir(parents=True)
        (one / "metrics" / "acc").write_text(f"11000 0.5 0\n12000 0.{i + 5} 1\n")
        (one / "params" / "lr").write_text(f"0.{i + 1}")
        facts = {"run_id": one.name, "run_name": "r", "experiment_id": "1", "status": 3, "lifecycle_stage": "active"}
        (one / "meta.yaml").write_text(json.dumps(facts | times))
    facts = {"experiment_id": "1", "name": "old", "lifecycle_stage": "active"}
    (experiment / "meta.yaml").write_text(json.dumps(facts | {"artifact_location": experiment.as_uri()}))
    for place in ("mlruns", (folder / "mlruns").as_uri()):
        found = run.json(f"import mlflow {place} --score acc --direction maximize --json")
        assert found["sweep"] == "old"
    assert (found["added"], found["known"]) == (0, 3)
    best = run.json("status old --json")["best"]
    assert (best["score"], best["params"], best["cost_seconds"]) == (0.7, {"lr": 0.3}, 2.502)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("optuna runs/protein.db", "runs/protein.db is no storage of Optuna: it has no table of studies"),
        ("optuna sqlite:///runs/protein.db", "is no storage of Optuna"),
        ("mlflow runs/protein.db --score x", "runs/protein.db is no database of MLflow: it has no table of runs"),
        ("mlflow sqlite:///runs/protein.db --score x", "is no database of MLflow"),
        ("optuna runs", "runs is a folder; give the storage's URL"),
        ("optuna text.log", "text.log is no storage of Optuna: neither a SQLite file nor a journal"),
        ("mlflow text.log --score x", "text.log is no database of MLflow"),
        ("mlflow runs --score x", "runs is no folder of MLflow: it holds no experiment"),
    ],
)
def test_a_file_of_another_kind_is_refused_and_stays_as_it_is(filled: Path, run: Run, words: str, message: str) -> None:
    """Optuna and MLflow make their tables in any database that they open."""
    Path("text.log").write_text("no database\n", encoding="utf-8")
    before = Path("runs/protein.db").read_bytes()
    assert message in run.error(f"import {words}")
    assert Path("runs/protein.db").read_bytes() == before
    assert Path("text.log").read_text(encoding="utf-8") == "no database\n"


@pytest.mark.parametrize("tool", ["optuna", "mlflow"])
@pytest.mark.parametrize("place", ["host:notaport/runs", "127.0.0.1:1/runs", "127.0.0.1:1/runs?password=secret"])
def test_a_database_that_does_not_answer_is_one_line_without_a_password(run: Run, tool: str, place: str) -> None:
    message = run.error(f"import {tool} postgresql+psycopg://user:secret@{place}")
    assert message.startswith(f"postgresql+psycopg://{place.partition('?')[0]} cannot be read as ")
    assert "secret" not in message


VALUES = st.one_of(
    st.lists(st.integers(-(2**70), 2**70), min_size=2, max_size=8),
    st.lists(st.floats(), min_size=2, max_size=8),
    st.lists(st.floats(1e-12, 1e12), min_size=2, max_size=8),
    st.lists(st.floats(0.5, 1.0, exclude_max=True), min_size=2, max_size=8),
    st.lists(st.integers(0, 20).map(lambda k: 2**k), min_size=2, max_size=8),
    st.lists(st.booleans(), min_size=2, max_size=8),
    st.lists(st.text(max_size=4), min_size=2, max_size=8),
    st.lists(st.one_of(st.integers(0, 3), st.booleans(), st.text(max_size=2), st.none()), min_size=2, max_size=8),
)


def imported_texts(name: str, texts: list[str]) -> Imported:
    """Runs that differ in a parameter, as a tool's table tells it, and in one more."""
    runs = [
        ImportedRun(
            key=str(i),
            params=parameters({name: text_value(text), "i": i}),
            end=TrialEnd.COMPLETE,
            score=1.0,
            cost_seconds=1.0,
        )
        for i, text in enumerate(texts)
    ]
    return Imported(
        tool="t", where="w", identity="", experiment="e", env="e", score="s", direction=Direction.MAXIMIZE, runs=runs
    )


def test_a_text_for_nothing_is_a_choice_as_in_optuna() -> None:
    found = infer(imported_texts("penalty", ["None", "l1", "l2"] * 4))[0]
    assert Categorical("penalty", ("None", "l1", "l2")) in found.parameters
    assert (text_value(""), text_value("null")) == (None, "None")


def test_a_number_that_a_few_runs_do_not_have_is_a_number() -> None:
    texts = ["None" if i % 20 == 3 else str(10.0 ** (-4 + i / 15)) for i in range(40)]
    lr = infer(imported_texts("lr", texts))[0].parameter("lr")
    assert isinstance(lr, Float) and lr.scale == "log"


def imported_runs(params: Sequence[Mapping[str, Any]]) -> Imported:
    runs = [
        ImportedRun(key=str(i), params=one, end=TrialEnd.COMPLETE, score=float(i), cost_seconds=1.0)
        for i, one in enumerate(params)
    ]
    return dataclasses.replace(imported_texts("x", ["a"]), runs=runs, parameters={})


def dynamic(trial: optuna.Trial) -> float:
    model = trial.suggest_categorical("model", ["svc", "tree", "linear"])
    if model != "tree":
        trial.suggest_float("C", 1e-3, 1e3, log=True)
    else:
        trial.suggest_int("depth", 2, 32)
    if model == "svc" and trial.suggest_categorical("kernel", ["rbf", "linear"]) == "rbf":
        trial.suggest_float("gamma", 1e-4, 1.0, log=True)
    for layer in range(trial.suggest_int("layers", 1, 3)):
        trial.suggest_int(f"units_{layer}", 4, 64)
    return trial.number


def test_parameters_of_a_dynamic_study_are_conditional(folder: Path) -> None:
    study = optuna.create_study(
        study_name="dynamic", storage="sqlite:///dynamic.db", sampler=optuna.samplers.RandomSampler(seed=0)
    )
    study.optimize(dynamic, n_trials=40)
    imported = importing.read("optuna", Source(place="sqlite:///dynamic.db", cost="equal"), rename={})
    space, notes = importing.infer(imported)
    assert {one.name: one.when for one in space.parameters} == {
        "model": None,
        "layers": None,
        "units_0": None,
        "C": "model in ['linear', 'svc']",
        "depth": "model == 'tree'",
        "kernel": "model == 'svc'",
        "gamma": "kernel == 'rbf'",
        "units_1": "layers >= 2",
        "units_2": "layers >= 3",
    }
    assert all(space.is_valid(run.params) for run in imported.runs)
    assert sum("by these rules, which the space has" in note for note in notes) == 1


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_every_run_is_in_a_space_whose_conditions_were_found(data: st.DataObject) -> None:
    """Whatever made the runs: where a rule was found, each run has exactly the parameters of its point."""
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries(
                {"a": st.sampled_from(["x", "y", "z"]), "n": st.integers(1, 4)},
                optional={
                    "b": st.sampled_from([True, False]),
                    "c": st.sampled_from([0.5, 1.5, 2.5]),
                    "lambda": st.just(1),
                },
            ),
            min_size=8,
            max_size=16,
        )
    )
    try:
        space, _ = importing.infer(imported_runs(rows))
    except UsageError as error:
        assert "no parameter varies" in str(error)
        return
    for row in rows:
        for parameter in space.parameters:
            if parameter.when is not None and all(name in row for name in ("a", "n")):
                known = {name: value for name, value in row.items() if name != "lambda"}
                try:
                    holds = bool(eval(parameter.when, {}, known))
                except NameError:
                    holds = False
                assert holds == (parameter.name in row)


@pytest.mark.parametrize(("num_runs", "lacking"), [(4, "b (2 of 4)"), (12, None), (14, "b (8 of 14)")])
def test_a_rule_is_exact_and_no_luck(num_runs: int, lacking: str | None) -> None:
    """A choice between two that says 12 times whether there is a `b` is hardly luck; the 14th run is an exception."""
    rows = [{"a": "xy"[i % 2], "i": i, **({"b": i} if i % 2 and i < 12 else {})} for i in range(num_runs)]
    space, notes = infer(imported_runs(rows))
    assert ("b" in space.names) == (lacking is None)
    assert any((lacking or "b when a == 'y'") in note for note in notes)


def test_what_a_space_lacks_is_named() -> None:
    _, notes = infer(imported_texts("fixed", ["7"] * 19 + [""]))
    assert notes == ["fixed is left out of the space: it never varies, and some runs lack it"]
    _, notes = infer(imported_texts("file", [f"run-{i}.txt" for i in range(20)]))
    assert notes == ["file is left out of the space: 20 different values are no choices"]
    _, notes = infer(imported_texts("depth", ["3", "4"] * 4 + [""] * 12))
    assert notes == ["left out of the space, because runs lack them: depth (12 of 20)"]


@settings(max_examples=150, deadline=None)
@given(values=VALUES)
def test_a_space_holds_the_values_that_it_was_made_of(values: list[Any]) -> None:
    runs = [
        ImportedRun(
            key=str(i), params=parameters({"a b": value, "i": i}), end=TrialEnd.COMPLETE, score=1.0, cost_seconds=1.0
        )
        for i, value in enumerate(values)
    ]
    imported = Imported(
        tool="t", where="w", identity="", experiment="e", env="e", score="s", direction=Direction.MAXIMIZE, runs=runs
    )
    space, notes = infer(imported)
    assert "i" in space.names
    lost = {name for run in runs for name in run.params} - {*space.names, *space.fixed}
    assert all(any(name in note for note in notes) for name in lost), "what the space lacks is named"
    for run in runs:
        if set(space.names) <= set(run.params):
            space.validate({name: run.params[name] for name in space.names})
            assert np.isfinite(space.to_unit(run.params)).all()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("lr", "lr"),
        ("opt/lr-rate 1", "opt.lr_rate_1"),
        ("1x", "_1x"),
        ("a..b", "a._.b"),
        ("größe", "größe"),
        ("x²/½", "x_._"),
    ],
)
def test_names_become_names_of_a_space(theirs: str, ours: str) -> None:
    assert parameter_name(theirs) == ours
    Float(ours, 0.0, 1.0)
