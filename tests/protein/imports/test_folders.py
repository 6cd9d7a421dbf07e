"""`protein import` of results that other tools have left: see tests/assets/imports/README.md for how they were made."""

import base64
import dataclasses
import io
import itertools
import json
import math
import os
import pickle
import pickletools
import shutil
import signal
import struct
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import PATIENCE_SECONDS

from protein.api import importing
from protein.errors import UsageError
from protein.imports import syne_tune
from protein.imports.runs import Imported, Source
from protein.ports import Store
from protein.space import Space
from protein.space.parameters import Categorical, Float, Integer
from protein.storage import open_store
from protein.types import Direction, TrialEnd

ASSETS = Path(__file__).parents[2] / "assets" / "imports"
TOLD: dict[str, dict[str, Any]] = {
    "ray": {"direction": Direction.MINIMIZE},
    "trackio": {"experiment": "digits", "score": "loss", "direction": Direction.MINIMIZE},
}
RESULTS = [
    *("ray/small", "syne-tune/small", "smac/plain", "smac/budgets", "smac/instances", "neps/small", "neps/sampled"),
    *("trackio/projects", "carbs/checkpoints"),
]
PROJECTS = ASSETS / "trackio/projects"


def read(place: Path | str, tool: str | None = None, **told: Any) -> Imported:
    path = ASSETS / place
    tool = tool or importing.tool_of(str(path))
    return importing.read(tool, Source(place=str(path), **{**TOLD.get(tool, {}), **told}), rename={})


def ends(imported: Imported) -> list[str]:
    return [str(run.end) for run in imported.runs]


class TestRay:
    def test_trials_are_taken_over_with_their_curves(self) -> None:
        found = read("ray/small")
        assert (found.tool, found.score, found.num_unfinished) == ("ray", "loss", 0)
        state = json.loads(next((ASSETS / "ray/small").glob("experiment_state*")).read_text())
        by_id = {json.loads(one)["trial_id"]: (json.loads(one), json.loads(more)) for one, more in state["trial_data"]}
        assert [run.key for run in found.runs] == sorted(by_id)
        for run in found.runs:
            trial, more = by_id[run.key]
            config, last = trial["config"], more["last_result"]
            assert run.params == {
                "lr": config["lr"], "net.layers": config["net"]["layers"], "act": config["act"], "batch": 64
            }  # fmt: skip
            assert (run.cost_seconds, run.steps) == (last["time_total_s"], last["training_iteration"])
            assert run.curve[0].steps == 1 and len(run.curve) == run.steps
            assert run.metrics == {"loss": last["loss"], "acc": last["acc"]} or math.isnan(last["loss"])
            if trial["status"] == "ERROR":
                assert (run.end, run.score) == (TrialEnd.CRASHED, None)
            elif math.isnan(last["loss"]):
                assert (run.end, run.score) == (TrialEnd.DIVERGED, None)
            else:
                whole = last["training_iteration"] == 4
                assert (run.end, run.score) == (TrialEnd.COMPLETE if whole else TrialEnd.STOPPED_EARLY, last["loss"])
        assert {"complete", "crashed", "stopped_early"} <= set(ends(found))
        assert any("space as a pickle" in note for note in found.notes)
        assert any("does not say why one has ended" in note for note in found.notes)


class TestSyneTune:
    def test_trials_score_and_space_are_the_tools_own(self) -> None:
        found = read("syne-tune/small")
        assert (found.tool, found.score, found.direction, found.num_unfinished) == (
            "syne-tune", "loss", Direction.MINIMIZE, 1
        )  # fmt: skip
        assert [run.key for run in found.runs] == list("0123456")
        assert ends(found) == ["complete", "stopped_early", "crashed", "crashed", *["stopped_early"] * 3]
        first = found.runs[0]
        assert first.params == {"lr": 0.004491523825138, "layers": 2, "act": "tanh", "epochs": 4}
        assert (first.score, first.steps) == (0.3708301344300579, 4)
        assert [point.steps for point in first.curve] == [1, 2, 3, 4]
        assert first.cost_seconds == first.curve[-1].elapsed_seconds > 0
        assert found.parameters == {
            "lr": Float("lr", 1e-4, 0.1, "log"),
            "layers": Integer("layers", 1, 3, step=1),
            "act": Categorical("act", ("relu", "tanh")),
        }


class TestSmac:
    def test_space_conditions_and_failures_are_the_tools_own(self) -> None:
        found = read("smac/plain")
        assert (found.tool, found.experiment, found.score, found.direction) == (
            "smac", "plain", "cost", Direction.MINIMIZE
        )  # fmt: skip
        history = json.loads((ASSETS / "smac/plain/0/runhistory.json").read_text())
        for run, theirs in zip(found.runs, history["data"], strict=True):
            assert run.params == history["configs"][str(theirs["config_id"])]
            if theirs["status"] == 1:
                assert (run.end, run.score, run.cost_seconds) == (TrialEnd.COMPLETE, theirs["cost"], theirs["time"])
            else:
                assert (run.end, run.score) == (TrialEnd.CRASHED, None)
                assert "out of luck" in run.reason
                assert run.cost_seconds == theirs["endtime"] - theirs["starttime"], "SMAC says 0 of a crash"
        assert found.parameters["momentum"] == Float("momentum", 0.0, 0.9, when="optimizer == 'sgd'")
        assert any("1 forbidden clause of configspace.json" in note for note in found.notes)
        assert {run.cost_seconds for run in read("smac/plain", cost="equal").runs} == {1.0}
        for cost in ("time", "cpu_time"):
            told = [run.cost_seconds for run in read("smac/plain", cost=cost).runs]
            assert told == [one[cost] or one["endtime"] - one["starttime"] for one in history["data"]]

    def test_a_budget_is_a_parameter(self) -> None:
        found = read("smac/budgets")
        assert found.cost_parameter == "budget"
        assert found.parameters["budget"] == Float("budget", 1.0, 9.0, "log")
        assert {run.key for run in found.runs} >= {"5 at 1", "5 at 3"}
        space, notes = importing.infer(found)
        assert space.cost_parameter == "budget"
        assert not any("widened" in note for note in notes)

    def test_of_several_objectives_one_is_named(self) -> None:
        with pytest.raises(UsageError, match=r"--score \(the objective\) is needed, one of: loss, size"):
            read("smac/two")
        assert [run.score for run in read("smac/two", score="size").runs] == [2.0, 2.0, None, 2.0]

    def test_instances_and_seeds_are_a_mean_and_named(self) -> None:
        found = read("smac/instances")
        first = found.runs[0]
        assert first.score == pytest.approx((1.019128525752217 * 2 + 2.019128525752217) / 3)
        assert len(found.runs) == 6
        said = " ".join(found.notes)
        assert "their mean score (3 at most)" in said
        assert "5 configs ran on fewer of them" in said


class TestNeps:
    def test_trials_and_fidelity(self) -> None:
        found = read("neps/small")
        assert (found.tool, found.score, found.direction, found.cost_parameter) == (
            "neps", "objective_to_minimize", Direction.MINIMIZE, "epochs"
        )  # fmt: skip
        by_key = {run.key: run for run in found.runs}
        assert len(by_key) == 9
        failed = by_key["1_rung_0"]
        assert (failed.end, failed.score, failed.reason) == (TrialEnd.CRASHED, None, "out of luck")
        long, short = by_key["3_rung_1"], by_key["3_rung_0"]
        assert {**long.params, "epochs": 1} == short.params
        assert (len(long.curve), long.steps, long.metrics) == (4, 4, {"acc": 0.5})
        assert long.curve[-1].score == long.score
        assert 0 < (long.cost_seconds or 0) < 1
        assert {run.cost_seconds for run in read("neps/small", cost="cost").runs} == {None, 1.0, 4.0}
        assert any("1 trial at a higher fidelity" in note for note in found.notes)

    @pytest.mark.parametrize("name", ["config.yaml", "report.yaml", "optimizer_info.yaml"])
    def test_aliases_of_aliases_are_one_line(self, tmp_path: Path, name: str) -> None:
        shutil.copytree(ASSETS / "neps/small", tmp_path / "x")
        path = min((tmp_path / "x").rglob(name))
        lines = ["x0: &a0 [1, 1]", *(f"x{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60))]
        path.write_text(f"{path.read_text()}\n" + "\n".join(lines))
        with pytest.raises(UsageError, match=f"{name} cannot be read as YAML .its aliases stand for more") as caught:
            importing.infer(read(tmp_path / "x"))
        assert "\n" not in str(caught.value)

    def test_samples_in_its_other_form(self) -> None:
        found = read("neps/sampled")
        assert set(found.runs[0].params) == {"epochs", "act", "layers", "lr"}
        assert found.parameters == {
            "epochs": Integer("epochs", 1, 4),
            "act": Categorical("act", (0, 1)),
            "layers": Integer("layers", 1, 3),
            "lr": Float("lr", 1e-4, 0.1, "log"),
        }
        assert any(note.startswith("act: NePS has kept the place") for note in found.notes)


class TestTrackio:
    def test_runs_of_a_project(self) -> None:
        found = read(PROJECTS / "digits.db")
        assert (found.tool, found.experiment) == ("trackio", "digits")
        assert [(run.key, run.params, run.cost_seconds, run.steps) for run in found.runs] == [
            (f"id{i}", {"lr": 10.0**-i, "net.layers": i}, 4.0 + i, 20) for i in range(4)
        ]
        assert ends(found) == ["complete"] * 3 + ["diverged"]
        assert [run.score for run in found.runs] == [0.0, 0.25, 0.5, None]
        assert [(point.steps, point.elapsed_seconds, point.score) for point in found.runs[1].curve] == [
            (0, 1.0, 1.0), (10, 2.0, 0.5), (20, 5.0, 0.25)
        ]  # fmt: skip
        assert found.runs[0].metrics["eval.acc"] == 0.1
        assert any("does not say whether or how a run has ended" in note for note in found.notes)

    def test_parquet_says_the_same(self, tmp_path: Path) -> None:
        for path in PROJECTS.glob("digits*.parquet"):
            shutil.copy(path, tmp_path)
        theirs, ours = read(PROJECTS / "digits.db"), read(tmp_path)
        assert [dataclasses.replace(run, metrics={}) for run in ours.runs] == [
            dataclasses.replace(run, metrics={}) for run in theirs.runs
        ]

    def test_several_projects_have_to_be_named(self) -> None:
        with pytest.raises(UsageError, match=r"--experiment \(the project\) is needed, one of: digits, other"):
            read(PROJECTS, experiment=None)
        assert len(read(PROJECTS, experiment="other").runs) == 4
        with pytest.raises(UsageError, match=r"--score is needed, one of: loss, eval\.acc"):
            read(PROJECTS / "digits.db", score=None)


# A tuple of itself twice, 60 times: whatever walks through it, hashes it or prints it never ends.
ENDLESS = b")" + b"".join(b"r%bj%b\x86" % (struct.pack("<I", i), struct.pack("<I", i)) for i in range(1000, 1060))
VALUES = (
    b"N",
    b"K\x00",
    b"G" + struct.pack(">d", math.inf),
    b"X\x01\x00\x00\x00x",
    b"\x8a\xff" + b"\x7f" * 255,
    ENDLESS,
)


class TestCarbs:
    STATE = ASSETS / "carbs/checkpoints/digits/carbs_16obs.pt"

    @staticmethod
    def packed(pickled: bytes, kind: int = zipfile.ZIP_STORED) -> bytes:
        """Returns a file as `torch.save` writes it, with the numbers of the state."""
        out = io.BytesIO()
        with zipfile.ZipFile(TestCarbs.STATE) as state, zipfile.ZipFile(out, "w", kind) as archive:
            for name in state.namelist():
                archive.writestr(name, pickled if name.endswith("data.pkl") else state.read(name))
        return out.getvalue()

    @staticmethod
    def pickled() -> bytes:
        with zipfile.ZipFile(TestCarbs.STATE) as state:
            return state.read("carbs_16obs/data.pkl")

    def test_observations_are_what_the_program_was_given(self) -> None:
        found = read("carbs/checkpoints")
        assert (found.tool, found.experiment, found.score, found.direction, found.num_unfinished) == (
            "carbs", "digits", "output", Direction.MINIMIZE, 1
        )  # fmt: skip
        told = json.loads((ASSETS / "carbs/told.json").read_text())
        told = [one for one in told if not one["failed"]] + [one for one in told if one["failed"]]
        assert [run.key for run in found.runs] == [f"success {i}" for i in range(1, 14)] + [
            f"failure {i}" for i in range(1, 4)
        ]
        for run, theirs in zip(found.runs, told, strict=True):
            assert run.params == pytest.approx(theirs["params"], rel=1e-5)
            assert type(run.params["epochs"]) is type(run.params["width"]) is int
            assert run.cost_seconds == theirs["params"]["epochs"] / 2
            assert (run.score, run.end.state) == (
                (None, "failed") if theirs["failed"] else (theirs["loss"], "complete")
            )
        assert ends(found)[-3:] == ["failed", "failed", "diverged"]
        assert found.parameters == {
            "lr": Float("lr", 1e-5, 0.1, "log"),
            "width": Integer("width", 8, 256, step=8),
            "epochs": Integer("epochs", 2, 512, "log"),
        }
        said = " ".join(found.notes)
        for word in (
            "search centres",
            "momentum (LogitSpace), shift (LinearSpace): without bounds",
            "why a run has fail",
        ):
            assert word in said
        assert {run.cost_seconds for run in read("carbs/checkpoints", cost="equal").runs} == {1.0}

    def test_a_file_and_its_text_say_the_same(self, tmp_path: Path) -> None:
        theirs = read("carbs/checkpoints")
        shutil.copy(self.STATE, tmp_path / "other.pt")
        (tmp_path / "carbs_state").write_bytes(base64.b64encode(self.STATE.read_bytes()))
        for path in (self.STATE, tmp_path / "other.pt", tmp_path / "carbs_state"):
            assert read(path).runs == theirs.runs
        assert len(read(self.STATE.with_name("carbs_6obs.pt")).runs) == 6, "an earlier state has fewer"
        assert read(self.STATE.with_name("carbs_6obs.pt")).identity == theirs.identity

    def test_no_code_of_a_file_runs(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        call = b"cos\nsystem\nX%b%b\x85R" % (struct.pack("<I", len(f"touch {ran}")), f"touch {ran}".encode())
        state, path = self.pickled(), tmp_path / "carbs_1obs.pt"
        for pickled in (
            b"\x80\x02" + call + b".",
            state.replace(b"X\x06\x00\x00\x00digits", call),
            state.replace(b"ccarbs.utils\nCARBSParams\n", b"cos\nsystem\n"),
            state.replace(b"ctorch._utils\n_rebuild_tensor_v2\n", b"cbuiltins\neval\n"),
            state.replace(b"ccarbs.utils\nLogSpace\n", b"cprotein.imports.carbs\nos.system\n"),
        ):
            path.write_bytes(self.packed(pickled))
            with pytest.raises(UsageError, match=r"which none does, and which is not read\); give another"):
                read(path, "carbs")
        assert not ran.exists()

    @pytest.mark.parametrize(
        "pickled",
        [
            pickle.dumps({"weight": [1.0]}, 2),
            pickle.dumps([1], 2),
            pickle.dumps({"config": b"x"}, 4),
            b"\x80\x02" + ENDLESS + b".",
            b"\x80\x02}(" + ENDLESS + b"K\x01u.",
            b"\x80\x02Nr\xff\xff\xff\xff.",
            b"\x80\x05\x96" + struct.pack("<Q", 1 << 60) + b".",
            b"\x80\x02" + b"(" * 100_000,
            b"\x80\x02" + b")\x85" * 100_000 + b".",
            b"",
        ],
    )  # fmt: skip
    def test_another_pickle_is_one_line(self, tmp_path: Path, pickled: bytes) -> None:
        (tmp_path / "carbs_1obs.pt").write_bytes(self.packed(pickled))
        with pytest.raises(UsageError, match=r"CARBS|damaged") as caught:
            read(tmp_path, "carbs")
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 300

    def test_another_file_and_one_that_unpacks_to_more_are_one_line(self, tmp_path: Path) -> None:
        path = tmp_path / "carbs_1obs.pt"
        path.write_bytes(self.packed(b"0" * 10**7, zipfile.ZIP_DEFLATED))
        with pytest.raises(UsageError, match="unpacks to more than it is"):
            read(path, "carbs")
        whole = bytearray(self.STATE.read_bytes())
        whole[whole.index(b"data/8") + 64] ^= 1  # of the numbers of a point
        path.write_bytes(whole)
        with pytest.raises(UsageError, match="Bad CRC-32"):
            read(path, "carbs")
        path.write_bytes(pickle.dumps({"config": 1}))
        with pytest.raises(UsageError, match="is no state of CARBS, which is a ZIP file"):
            read(path, "carbs")

    def test_any_value_of_a_state_may_be_another(self, tmp_path: Path) -> None:
        state, path, whole = self.pickled(), tmp_path / "carbs_1obs.pt", 0
        places = [(at, one.name) for one, _, at in pickletools.genops(state)]
        ends_at = {at: after for (at, _), (after, _) in itertools.pairwise(places)}
        kinds = ("BINUNICODE", "BINFLOAT", "BININT", "BININT1", "NONE", "NEWTRUE", "NEWFALSE", "GLOBAL", "EMPTY_LIST")
        at_values = [at for at, name in places if name in kinds][::3]
        for number, at in enumerate(at_values):
            value = VALUES[number % len(VALUES)] if number % 2 else ENDLESS
            path.write_bytes(self.packed(state[:at] + value + state[ends_at[at] :]))
            try:
                importing.infer(read(path, "carbs"))
                whole += 1
            except UsageError as error:
                assert "\n" not in str(error) and len(str(error)) < 600
        assert whole > len(at_values) / 4, "what is not read may be anything"


@pytest.mark.parametrize("name", ["ray/small", "smac/budgets", "trackio/projects", "carbs/checkpoints"])
def test_the_command_finds_the_tool_and_stores_all_runs(folder: Path, run: Run, name: str) -> None:
    words = " ".join(f"--{key} {value}" for key, value in TOLD.get(name.split("/")[0], {}).items())
    found = run.json(f"import {ASSETS / name} --name x {words} --json")
    assert found["added"] == len(read(name).runs) - found["without_cost"]
    assert run.json(f"import {ASSETS / name} --name x {words} --json")["added"] == 0, "again it adds what is new"
    assert Space.from_dict(found["space"]).names


class TestWhatIsThere:
    def test_nothing_and_several_are_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="is neither a file nor a folder"):
            importing.tool_of(str(tmp_path / "none"))
        with pytest.raises(UsageError, match="holds runs of no tool that is known; name the tool"):
            importing.tool_of(str(tmp_path))
        with pytest.raises(UsageError, match="there is none below it"):
            read(tmp_path, "ray")
        shutil.copytree(ASSETS / "smac/plain/0", tmp_path / "both")
        shutil.copytree(ASSETS / "syne-tune/small", tmp_path / "both", dirs_exist_ok=True)
        with pytest.raises(UsageError, match="holds runs of syne-tune and of smac; name the tool"):
            importing.tool_of(str(tmp_path / "both"))

    def test_a_pipe_is_one_line_and_nobody_waits_for_its_writer(self, tmp_path: Path) -> None:
        def waits(*_: Any) -> None:
            pytest.fail("it waits for the pipe")

        before = signal.signal(signal.SIGALRM, waits)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS)
        try:
            names = ("x", "x.json", "x.csv", "x.db", "digits.db", "carbs_9obs.pt", "experiment_state-9.json")
            for tool, name in itertools.product((None, *importing.TOOLS), names):
                folder = tmp_path / f"{tool} {name}"
                folder.mkdir()
                os.mkfifo(folder / name)
                for place in (folder / name, folder):
                    with pytest.raises(UsageError) as caught:
                        read(place, tool)
                    assert "\n" not in str(caught.value)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)

    def test_of_two_experiments_one_is_named(self) -> None:
        with pytest.raises(UsageError, match=r"--experiment \(the folder\) is needed, one of: budgets/0, instances/0"):
            read("smac")
        assert read("smac", experiment="plain/0").experiment == "plain"
        assert read("smac/plain/0/runhistory.json").experiment == "plain", "a file stands for its folder"
        with pytest.raises(UsageError, match=r"--experiment \(the folder\) 'other' is not there"):
            read("ray/small", experiment="other")

    @pytest.mark.parametrize(
        ("tool", "place"), [("smac", "ray/small"), ("neps", "smac/plain"), ("trackio", "neps/small")]
    )
    def test_another_tools_folder_is_one_line(self, tool: str, place: str) -> None:
        with pytest.raises(UsageError, match=r"is not a|holds no project"):
            read(place, tool)


NUMBERS = itertools.count()
ODD = st.sampled_from([None, True, "x", "\ud800", "NaN", [], {}, [1], {"a": 1}, math.nan, math.inf, -1, 1e300, 10**400])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    found = open_store(str(tmp_path_factory.mktemp("store") / "store.db"), create=True)
    yield found
    found.close()


def _places(data: Any, path: Sequence[Any] = ()) -> list[Sequence[Any]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(place for key, value in inner for place in _places(value, (*path, key)))]


def _changed(data: Any, path: Sequence[Any], value: Any) -> Any:
    if not path:
        return value
    copy = data.copy()
    copy[path[0]] = _changed(data[path[0]], path[1:], value)
    return copy


@given(name=st.sampled_from(RESULTS), draw=st.data())
@settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_or_foreign_file_is_one_line_and_nothing_is_stored_by_halves(
    tmp_path_factory: pytest.TempPathFactory, store: Store, name: str, draw: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged") / "x"
    shutil.copytree(ASSETS / name, folder)
    files = sorted(path for path in folder.rglob("*.*") if path.is_file())
    path = draw.draw(st.sampled_from(files))
    content = path.read_bytes()
    if path.suffix != ".json" or draw.draw(st.booleans()):
        path.write_bytes(content[: draw.draw(st.integers(0, len(content) - 1))])
    else:
        rows = content.decode().splitlines() if path.name == "result.json" else [content.decode()]
        data = json.loads(rows[-1])
        place = draw.draw(st.sampled_from(_places(data)))
        rows[-1] = json.dumps(_changed(data, place, draw.draw(ODD)))
        path.write_text("\n".join(rows))
    tool = name.split("/")[0]
    try:
        found = importing.read(tool, Source(place=str(folder), **TOLD.get(tool, {})), rename={})
        space, _ = importing.infer(found)
    except UsageError as error:
        assert "\n" not in str(error) and len(str(error)) < 600
        return
    assert space.names
    done = importing.store_runs(
        store, found, name=f"x{next(NUMBERS)}", space_file=None, cost_parameter=None, progress=lambda *_: None
    )
    assert done.added + done.without_cost == len(found.runs)


def test_a_table_with_changed_bytes_and_one_too_large_and_deep_nesting_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, nested = tmp_path / "syne", tmp_path / "ray"
    shutil.copytree(ASSETS / "syne-tune/small", folder)
    shutil.copytree(ASSETS / "ray/small", nested)
    path = next(folder.rglob("results.csv.zip"))
    content, refused = path.read_bytes(), 0
    for start in range(0, len(content), 9):
        path.write_bytes(content[:start] + b"\xff" * 9 + content[start + 9 :])
        try:
            read(folder, "syne-tune")
        except UsageError as error:
            refused += "\n" not in str(error)
    assert refused > len(content) / 18
    path.write_bytes(content)
    monkeypatch.setattr(syne_tune, "MAX_TABLE_BYTES", 100)
    with pytest.raises(UsageError, match="the limit is 100; give a smaller one"):
        read(folder, "syne-tune")
    next(nested.rglob("result.json")).write_text("[" * 100_000)
    with pytest.raises(UsageError, match="it is damaged, or of a version"):
        read(nested, "ray")
