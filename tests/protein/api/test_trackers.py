"""Trackers beside a sweep: real processes of TensorBoard's tracker and of MLflow's, and what can befall them.

A trial or a sweep notices none of it. What was missed is caught up afterwards, each point once.
"""

import os
import posixpath
import resource
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import store_samples
import tracker_process
from commands import Run
from patience import PATIENCE_SECONDS, wait_until

from protein import Float, Report, Space, Sweep
from protein.api import trackers
from protein.api.trackers import TrackerProcess
from protein.api.trackers import folder as tracker_folder
from protein.errors import UsageError
from protein.ports import Store
from protein.storage import open_store
from protein.trackers import exporter, mlflow, neptune
from protein.trackers.exporter import Exporter, Position, file_name, locked
from protein.trackers.tracker import TrialUpdate
from protein.types import SweepRecord

SPACE = Space([Float("lr", 1e-3, 1.0, scale="log")])
TRIALS = 4


def test_names_of_metrics_become_names_that_mlflow_and_neptune_take() -> None:
    for name in ("loss", "a//b", "/a", "a/../b", "a/./b", "..", "", "a/", "é?/x"):
        found = mlflow._name(f"metrics/{name}")  # MLflow refuses a name that is another path than it looks
        assert posixpath.normpath(found) == found and not found.startswith((".", "/"))
    paths = neptune._paths({name: f"curve/{name}" for name in ("loss", "loss/policy", "score")})
    assert list(paths.values()) == ["curve/loss/value", "curve/loss/policy", "curve/score"]
    fields = neptune._under("results", {"a": 1.0, "a.b": 2.0, "c": 3.0, "c/d": 4.0})
    assert fields == {"results/a/value": 1.0, "results/a/b": 2.0, "results/c/value": 3.0, "results/c/d": 4.0}


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("MLFLOW_", "TENSORBOARD_", "PROTEIN_")):
            monkeypatch.delenv(name)


def train(params: Any, report: Report) -> float:
    for step in range(3):
        report(step, params["lr"] + step, cost_seconds=step + 1.0)
    return float(params["lr"])


def sweep(store: Path, *names: str, train: Callable[[Any, Report], float] = train, name: str = "s") -> Any:
    found = Sweep(SPACE, name=name, store=store, method="random", max_trials=TRIALS, trackers=names)
    return found.run(train)


def curves(store: Path, name: str = "s") -> dict[str, int]:
    """Returns how many points of the score TensorBoard holds, by trial; each trial's result is there once."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for run in sorted((tracker_folder(str(store)) / "tensorboard" / name).glob("[0-9]*")):
        events = EventAccumulator(str(run), {"scalars": 0}).Reload()
        assert len(events.Scalars("cost_seconds")) == 1, run
        found[run.name] = len(events.Scalars("curve/score")) if "curve/score" in events.Tags()["scalars"] else 0
    return found


WHOLE = {f"{number:04d}": 3 for number in range(TRIALS)}


class TestBesideASweep:
    def test_a_sweep_is_written_while_it_runs(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trackers, "END_SECONDS", PATIENCE_SECONDS)  # other programs may have the cores
        sweep(tmp_path / "p.db", "tensorboard")
        printed = capfd.readouterr().out
        assert "tensorboard has all trials; to see them there, run tensorboard --logdir" in printed
        assert curves(tmp_path / "p.db") == WHOLE

    def test_a_killed_process_is_one_warning_and_is_caught_up(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started: list[TrackerProcess] = []
        start = trackers.start

        def remembered(*given: Any, **named: Any) -> list[TrackerProcess]:
            started.extend(fresh := start(*given, **named))
            return fresh

        monkeypatch.setattr(trackers, "start", remembered)

        def kills_it(params: Any, report: Report) -> float:
            process = started[0]
            if process.exit_code() is None:
                assert os.getsid(process.pid) != os.getsid(0)  # so Ctrl-C in the terminal does not reach it
                os.kill(process.pid, signal.SIGKILL)
                wait_until(lambda: process.exit_code() is not None)
                assert has_warned.wait(PATIENCE_SECONDS), "the loop looks at its listener a few times a second"
            return train(params, report)

        has_warned, warn = threading.Event(), trackers.Tracked._warn

        def warned(*given: Any) -> None:
            warn(*given)
            has_warned.set()

        monkeypatch.setattr(trackers.Tracked, "_warn", warned)
        store = tmp_path / "p.db"
        result = sweep(store, "tensorboard", train=kills_it)
        assert len(result.trials) == TRIALS
        printed = capfd.readouterr().out
        assert printed.count("tensorboard is behind: its process ended with code -9; the sweep goes on") == 1
        assert "sync s --tracker tensorboard" in printed
        synced = trackers.sync(["tensorboard"], str(store), "s", lambda *_: None)
        assert [(one.num_written, one.error) for one in synced] == [(TRIALS, "")]
        assert curves(store) == WHOLE

    def test_a_server_that_hangs_delays_nothing(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trackers, "END_SECONDS", 0.5)
        with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never answers
            monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://u:secret@127.0.0.1:{silent.getsockname()[1]}")
            result = sweep(tmp_path / "p.db", "mlflow")
        assert len(result.trials) == TRIALS
        assert all(trial.end == "complete" for trial in result.trials)
        printed = capfd.readouterr().out
        assert "mlflow is not up to date: it had not finished 0.5 s after the sweep" in printed
        assert "sync s --tracker mlflow" in printed
        assert "secret" not in printed
        assert not [child for child in psutil.Process().children() if "protein.api.trackers" in child.cmdline()]

    def test_a_full_disk_fails_the_tracker_alone(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start = trackers.start

        def cramped(*given: Any, **named: Any) -> list[TrackerProcess]:
            processes = start(*given, **named)
            for process in processes:  # no file of its may grow: the system's answer is that of a full disk
                psutil.Process(process.pid).rlimit(resource.RLIMIT_FSIZE, (0, 0))
            return processes

        monkeypatch.setattr(trackers, "start", cramped)
        store = tmp_path / "p.db"
        result = sweep(store, "tensorboard")
        assert len(result.trials) == TRIALS
        printed = capfd.readouterr().out
        assert "tensorboard is not up to date" in printed
        assert "File too large" in printed
        monkeypatch.setattr(trackers, "start", start)
        assert [one.error for one in trackers.sync(["tensorboard"], str(store), "s", lambda *_: None)] == [""]
        assert curves(store) == WHOLE

    def test_a_sweep_that_is_killed_leaves_no_process_and_no_gap(self, tmp_path: Path) -> None:
        code = (
            "import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/tests/support']\n"
            "import os, pathlib, signal, tests.protein.api.test_trackers as t\n"
            "count = 0\n"
            "def train(params, report):\n"
            "    global count\n"
            "    count += 1\n"
            "    if count == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
            "    return t.train(params, report)\n"
            "t.sweep(pathlib.Path(sys.argv[2]), 'tensorboard', train=train)\n"
        )
        store = tmp_path / "p.db"
        killed = subprocess.Popen([sys.executable, "-c", code, str(Path(__file__).parents[3]), str(store)])
        assert killed.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        identity = _identity(store)
        path = tracker_folder(str(store)) / "positions" / file_name("s", "tensorboard", identity[1])
        wait_until(lambda: {0, 1} <= Position(path, *identity).done)  # it has seen the end of the pipe, and wrote
        sweep(store, "tensorboard")
        assert curves(store) == WHOLE  # the trial that was interrupted has begun again


def _identity(store: Path) -> tuple[SweepRecord, str]:
    opened = open_store(str(store))
    found = opened.find_sweep("s")
    opened.close()
    assert found is not None
    return found, str(tracker_folder(str(store)) / "tensorboard")


class TestSync:
    def test_says_what_it_wrote_and_then_that_nothing_is_new(self, filled: Path, run: Run) -> None:
        assert "tensorboard: 7 trials written; to see the sweep there, run" in run("sync --tracker tensorboard")
        again = run.json("sync pong --tracker tensorboard --json")
        assert again == {"sweep": "pong", "trackers": [{"tracker": "tensorboard", "written": 0, "error": None}]}

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("sync", "sync needs --tracker NAME, one of mlflow, neptune"),
            ("sync --tracker tensorbord", "--tracker 'tensorbord' is no tracker; did you mean 'tensorboard'?"),
            ("sweep --env pong --tracker wanbd", "--tracker 'wanbd' is no tracker; did you mean 'wandb'?"),
            ("sync nosuch --tracker tensorboard", "there is no sweep 'nosuch'"),
        ],
    )
    def test_mistakes_are_one_line(self, filled: Path, run: Run, line: str, words: str) -> None:
        assert words in run.error(line)

    def test_a_missing_package_is_one_line(self, filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        found = run.error("sync --tracker neptune")
        assert found == (
            "--tracker neptune needs the package neptune, which is not installed; run pip install"
            " 'protein-sweep[neptune]'"
        )

    def test_a_destination_that_cannot_be_written_fails(
        self, filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (filled / "file").touch()
        monkeypatch.setenv("TENSORBOARD_LOGDIR", str(filled / "file" / "below"))
        found = run.error("sync --tracker tensorboard", code=1)
        assert "Not a directory" in found
        assert "sync --tracker tensorboard again" in found


class Notebook:
    """A tracker in memory, to look at what an exporter gives."""

    takes_running, destination, how_to_look = True, "here", "look"

    def __init__(self, *, is_there: bool) -> None:
        self.is_there = is_there
        self.updates: list[TrialUpdate] = []

    def begin(self, sweep: SweepRecord) -> bool:
        return self.is_there

    def write(self, updates: Sequence[TrialUpdate]) -> None:
        self.updates += updates

    def close(self) -> None: ...


class TestExporter:
    @pytest.fixture
    def stored(self, tmp_path: Path) -> tuple[Store, SweepRecord]:
        store, record, _ = tracker_process.fill(str(tmp_path / "p.db"))
        return store, record

    def export(self, stored: tuple[Store, SweepRecord], path: Path, *, is_there: bool) -> list[TrialUpdate]:
        notebook = Notebook(is_there=is_there)
        Exporter(notebook, *stored, Position(path, stored[1], "here")).run(lambda progress: None)
        stored[0].close()
        return notebook.updates

    def test_all_is_written_again_where_the_destination_was_deleted(
        self, stored: tuple[Store, SweepRecord], tmp_path: Path
    ) -> None:
        path = tmp_path / "position.json"
        first = self.export(stored, path, is_there=False)
        assert [update.is_new for update in first] == [True] * 4
        assert self.export(stored, path, is_there=True) == []
        assert self.export(stored, path, is_there=False) == first

    def test_all_is_unsure_where_the_position_was_lost_or_damaged(
        self, stored: tuple[Store, SweepRecord], tmp_path: Path
    ) -> None:
        path = tmp_path / "position.json"
        self.export(stored, path, is_there=False)
        path.write_text(path.read_text()[:40])
        again = self.export(stored, path, is_there=True)
        assert [(update.is_new, update.is_unsure, update.num_written) for update in again] == [(False, True, 0)] * 4

    def test_a_position_is_of_one_sweep_and_destination(
        self, stored: tuple[Store, SweepRecord], tmp_path: Path
    ) -> None:
        path = tmp_path / "position.json"
        self.export(stored, path, is_there=False)
        assert Position(path, stored[1], "here").done == {0, 1, 2}
        assert Position(path, stored[1], "there").done == set()
        assert file_name("s", "mlflow", "here") != file_name("s", "mlflow", "there")

    @pytest.mark.parametrize(("seconds_a_trial", "sizes"), [(0.0, [1, 2, 4, 3]), (1.0, [1, 2, 1, 2, 1, 2, 1])])
    def test_batches_shrink_where_a_tracker_is_slow(
        self, seconds_a_trial: float, sizes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = open_store(f"sqlite:///{tmp_path}/p.db")
        sweep = store_samples.new_sweep(store)
        for _ in range(10):
            store_samples.start(store, sweep)
        now = [0.0]
        written: list[int] = []

        class Slow(Notebook):
            def write(self, updates: Sequence[TrialUpdate]) -> None:
                now[0] += seconds_a_trial * len(updates)
                written.append(len(updates))

        monkeypatch.setattr(exporter, "BATCH_SECONDS", 2.0)
        monkeypatch.setattr(exporter, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
        told: list[int] = []
        path = tmp_path / "position.json"
        Exporter(Slow(is_there=False), store, sweep, Position(path, sweep, "here")).run(
            lambda p: told.append(p.waiting)
        )
        assert written == sizes
        assert told == [10 - sum(sizes[: i + 1]) for i in range(len(sizes))]
        store.close()

    def test_two_processes_do_not_write_the_same(self, tmp_path: Path) -> None:
        path, words = tmp_path / "p.json", f"it: process {os.getpid()} is doing that already"
        with locked(path, "it"), pytest.raises(UsageError, match=words), locked(path, "it"):
            pass
        with locked(path, "it"):
            pass


@pytest.mark.slow
def test_a_real_server_of_mlflow_holds_what_the_store_holds(tmp_path: Path) -> None:
    from tests.contracts.test_trackers import check, environment, require, scenario

    require("mlflow")
    (tmp_path / "server").mkdir()
    (tmp_path / "work").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (tmp_path / "server.log").open("w") as log:
        words = ["--backend-store-uri", f"sqlite:///{tmp_path}/server/m.db", "--port", str(port), "--workers", "1"]
        server = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", *words],
            env=environment(MLFLOW_DISABLE_TELEMETRY="true", MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false"),
            cwd=tmp_path / "server",
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until(lambda: _answers(port))
        check("mlflow", scenario("mlflow", tmp_path / "work", MLFLOW_TRACKING_URI=f"http://127.0.0.1:{port}"))
        assert not (tmp_path / "work" / "trackers" / "mlflow.db").exists()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(PATIENCE_SECONDS)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            return b"200" in connection.recv(64)
    except OSError:
        return False
