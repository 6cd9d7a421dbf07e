"""Every callback, in the real training loop of its library: the programs in examples/callbacks/, and mistakes in them.

A library that is not installed is left out. `pip install '.[integrations]'` brings those that are too large for the
developers' tools.
"""

import dataclasses
import json
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from command_jobs import PYTHON, command_backend, command_notes, job
from patience import PATIENCE_SECONDS
from trial_processes import TrialHere, trial_here

from protein.callbacks import CountingCallback, TrialTraining
from protein.errors import UsageError
from protein.ports import Finished, TrialProgress
from protein.run.command import CommandBackend
from protein.run.function import Report, Stop
from protein.types import Direction, Measurement, TrialEnd

__all__ = ["command_backend", "command_notes", "trial_here"]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "callbacks"


@dataclasses.dataclass(frozen=True)
class Library:
    """A library's example.

    Attributes:
        name: of the library's module.
        score: the name of the metric.
        length: the flag for the length of a run.
        runs: two lengths.
        step: of the length, between two reports.
        other: a metric beside the score; "": there is none.
        state: how the name of its state begins.
    """

    name: str
    score: str
    length: str = "epochs"
    runs: tuple[int, int] = (1, 3)
    step: int = 1
    other: str = ""
    state: str = "state"

    def run(self, length: int, patch: pytest.MonkeyPatch, report: Report | None = None, score: str = "") -> None:
        """Runs the example in this process, which has loaded what libraries share.

        Args:
            length: of the run.
            patch: of the test.
            report: makes it a function's trial.
            score: the metric that is named instead.
        """
        patch.setattr(sys, "argv", ["train.py", "--rate", "0.01", f"--{self.length}", str(length)])
        path = EXAMPLES / f"with_{self.name}.py"
        given = f'("{score or self.score}", report=report'
        source, count = re.subn(rf'(?<=Callback|.Tracker)\("{self.score}"', given, path.read_text())
        assert count == 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # their warnings are the libraries' own
            exec(compile(source, path, "exec"), {"__name__": "__main__", "report": report})


LIBRARIES = [
    Library("lightgbm", "valid_0's l2", "rounds"),
    Library("xgboost", "test-rmse", "rounds"),
    Library("keras", "val_loss", other="loss"),
    Library("stable_baselines3", "rollout/ep_rew_mean", "steps", (256, 768), 256, "rollout/ep_len_mean"),
    pytest.param(  # its Trainer takes 5 s to load
        Library("transformers", "eval_loss", runs=(1, 2), other="eval_runtime", state="checkpoint"),
        marks=pytest.mark.slow,
    ),
    Library("accelerate", "loss"),
    Library("lightning", "val_loss"),
]


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name)
def library(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Library:
    found: Library = request.param
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))  # where libraries leave folders
    pytest.importorskip(found.name)
    monkeypatch.chdir(tmp_path)
    return found


def report_to(points: list[Measurement], directory: Path, **more: Any) -> Report:
    """Returns what a function's trial reports by."""

    def add(event: object) -> None:
        assert isinstance(event, TrialProgress)
        points.extend(event.measurements)

    return Report(dataclasses.replace(job(directory, "none"), **more), Direction.MINIMIZE, add)


# One test for each library: what a process loads takes longer than what it trains.
def test_callback(library: Library, trial: TrialHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = library.runs
    with trial.process() as begun:
        library.run(first, monkeypatch)
    (state,) = trial.checkpoints.iterdir()
    assert state.name.startswith(library.state)
    with trial.process(resumes=True) as further:
        library.run(second, monkeypatch)
    steps = [one["steps"] for one in begun + further]
    assert steps == list(range(library.step, second + 1, library.step)), "each step once, across both processes"
    assert all(isinstance(one["score"], float) for one in begun + further)
    assert not library.other or all(library.other in one["metrics"] for one in begun + further)
    (state,) = trial.checkpoints.iterdir()
    with trial.process(resumes=True) as nothing:  # it was killed after its end
        library.run(second, monkeypatch)
    assert nothing == []
    assert list(trial.checkpoints.iterdir()) == [state]

    with trial.process() as none, pytest.raises(UsageError) as raised:
        library.run(first, monkeypatch, score=f"my_{library.score}")
    assert none == []
    assert str(raised.value).startswith(f"no metric 'my_{library.score}' came, and monitor= says that it is the score;")
    assert f"'{library.score}'" in str(raised.value)

    points: list[Measurement] = []
    report = report_to(points, tmp_path)
    report.end(TrialEnd.STOPPED_EARLY, "a worse curve")
    with pytest.raises(Stop, match="a worse curve"):
        library.run(second, monkeypatch, report)
    assert [point.steps for point in points] == [library.step]

    before = sorted(tmp_path.rglob("*"))
    library.run(first, monkeypatch, score="nonsense")  # outside a sweep it does nothing and says nothing
    files = [path for path in sorted(tmp_path.rglob("*")) if path not in before]
    assert not [path for path in files if "trainer_output" not in path.parts], "nothing but what the Trainer writes"


def test_state_of_a_longer_function_trial_goes_on_in_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for name in ("state-9.txt", "state-10.txt", "part-11.txt", "mine.txt", "state-of-mine"):
        (tmp_path / "old" / name).touch()
    training = TrialTraining("loss", report_to([], tmp_path / "new", continues=tmp_path / "old"), save=True)
    assert (training.checkpoint, training.steps_behind) == (tmp_path / "old" / "state-10.txt", 10)

    def die(path: str) -> None:
        Path(path).write_text("half")
        raise KeyboardInterrupt

    training.save(12, ".txt", lambda path: Path(path).write_text("whole"))
    with pytest.raises(KeyboardInterrupt):
        training.save(13, ".txt", die)
    again = TrialTraining("loss", report_to([], tmp_path, continues=tmp_path / "new" / "0"), save=False)
    assert again.checkpoint is not None
    assert again.checkpoint.read_text() == "whole"
    assert len(list((tmp_path / "old").iterdir())) == 5, "what another trial has left stays as it is"
    again.save(14, ".txt", die)  # save=False


def test_accelerate_moves_a_state_when_all_processes_have_written_it(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    from protein.callbacks.accelerate import ProteinTracker

    class Processes:
        """The main one of two, as `Accelerator`; the other one writes last."""

        is_main_process, path = True, Path()

        def save_state(self, path: str) -> None:
            self.path = Path(path)
            (self.path / "of-0").mkdir(parents=True)

        def wait_for_everyone(self) -> None:
            (self.path / "of-1").mkdir()

    tracker, processes = ProteinTracker("loss", report=report_to([], tmp_path / "new")), Processes()
    tracker.save(processes, 3)
    (state,) = (tmp_path / "new").rglob("state-3")
    assert sorted(one.name for one in state.iterdir()) == ["of-0", "of-1"]


def test_saving_takes_a_small_share_of_the_time(
    trial: TrialHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)

    def write(path: str) -> None:
        nonlocal now
        Path(path).touch()
        now += 2.0  # seconds that it takes

    with trial.process():
        training = TrialTraining("loss", None, save=True)
    saved = []
    for step in range(100):
        now += 1.0
        if training.is_due():
            training.save(step, "", write)
            saved.append(step)
    assert saved == [0, 40, 80]


def test_numbers_of_all_kinds_are_reported_and_nan_is_left_to_the_sweep(trial: TrialHere) -> None:
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    with trial.process() as said:
        training = TrialTraining("loss", None, save=True)
        values = {"text": "0.5", "array": np.ones(2), "none": None, "tensor": torch.ones(1), "np": np.float32(2)}
        training.tell(1, values)
        training.tell(2, values | {"loss": torch.tensor(float("nan"))})
        training.tell(3, {"loss": 0.5}, is_reporter=False)
        training.check()
    assert json.dumps(said) == '[{"steps": 2, "score": NaN, "metrics": {"tensor": 1.0, "np": 2.0}}]'
    with pytest.raises(UsageError, match=r"^count= must be 'steps' or 'epochs', got 'epoch'$"):
        CountingCallback("loss", count="epoch")  # type: ignore[arg-type]
    with trial.process(), pytest.raises(UsageError, match=r"; the training gave no metric at all$"):
        TrialTraining("loss", None, save=True).check()


TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node 2"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "launcher", "more", "count"),  # of processes
    [
        ("lightning", "", "--devices 2", 2),
        ("transformers", TORCHRUN, "", 3),
        ("accelerate", TORCHRUN, "", 3),
    ],
)
def test_of_processes_that_train_together_one_reports_and_a_stop_reaches_all(
    name: str, launcher: str, more: str, count: int, backend: CommandBackend, tmp_path: Path
) -> None:
    import psutil

    pytest.importorskip(name)
    program = EXAMPLES / f"with_{name}.py"
    command = f"{PYTHON} {launcher} {program} --rate 0.01 --epochs 100000 {more}"
    one = job(tmp_path, command, chdir=str(tmp_path))
    backend.start(one)
    steps: list[int] = []
    mine: list[psutil.Process] = []
    while True:
        for event in backend.poll(PATIENCE_SECONDS):
            if isinstance(event, Finished):
                assert event.outcome.end is TrialEnd.STOPPED_EARLY, (tmp_path / "0" / "log.txt").read_text()
                assert steps == list(range(1, len(steps) + 1)), "one process alone reports"
                assert len(mine) == count
                assert not [process for process in mine if process.is_running()], "the stop has reached all"
                assert [*(tmp_path / "0" / "checkpoint").iterdir()], "a state is kept"
                return
            steps += [point.steps for point in event.measurements]
            if len(steps) >= 3 and not mine:
                mine = [p for p in psutil.process_iter(["cmdline"]) if str(program) in (p.info["cmdline"] or ())]
                backend.stop(one.trial, TrialEnd.STOPPED_EARLY, "a worse curve")


@pytest.mark.slow
def test_lightning_in_a_function_keeps_to_one_process(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    import protein.callbacks.lightning

    callback = protein.callbacks.lightning.ProteinCallback("loss", report=report_to([], tmp_path))
    with pytest.raises(UsageError, match=r"^a function's trial trains in one process, not in 2; run the program by "):
        callback.on_fit_start(type("Trainer", (), {"world_size": 2}), None)
