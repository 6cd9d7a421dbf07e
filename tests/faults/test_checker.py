"""The checker of the campaign finds each violation that is planted, and nothing in a sweep that is in order."""

import contextlib
import functools
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from protein import storage
from protein.run.trainer import TrainerBackend
from protein.sweep.loop import run_sweep
from protein.sweep.methods import make_designer
from tests.faults import checker, evidence, replay, sweeps, trial
from tests.faults.checker import Snapshot
from tests.faults.evidence import Evidence

NUM_TRIALS = 3


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a sweep of processes that nothing has disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(evidence.FILE, str(folder / "evidence.jsonl"))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        store = storage.open_store(f"sqlite:///{folder}/store.db")
        run_sweep(
            store.create_sweep(sweeps.spec(5, "protein"), sweeps.BUDGET_SECONDS),
            designer=make_designer("protein", sweeps.space("train."), None, seed=5),
            store=store,
            backend=TrainerBackend(entry=sweeps.ENTRY, preload=("faults.trial",)),
            settings=sweeps.settings(folder, workers=1, trials=NUM_TRIALS),
            listener=sweeps.Silent(),
            stop=threading.Event(),
        )
        store.close()
    yield folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    with (
        contextlib.closing(sqlite3.connect(finished / "store.db")) as source,
        contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as target,
    ):
        source.backup(target)
    (tmp_path / "evidence.jsonl").write_bytes((finished / "evidence.jsonl").read_bytes())
    return tmp_path


def change(folder: Path, *statements: str) -> None:
    """Changes the store past our own code, and past what the tables forbid."""
    with contextlib.closing(sqlite3.connect(folder / "store.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            connection.execute(statement)


def look(folder: Path) -> tuple[Snapshot, Evidence]:
    return Snapshot.read(f"sqlite:///{folder}/store.db"), Evidence.read(folder / "evidence.jsonl")


def differing(folder: Path) -> list[str]:
    settings = functools.partial(sweeps.settings, workers=1, trials=NUM_TRIALS)
    return replay.differing(f"sqlite:///{folder}/store.db", sweeps.NAME, settings)


def all_wrong(folder: Path, before: Snapshot, runs_before: int) -> list[str]:
    now, seen = look(folder)
    wrong = checker.changed(before, now) + checker.misnumbered(now) + checker.owned_twice(seen)
    wrong += checker.run_again(before, runs_before, seen) + checker.wrong_ends(now)
    return wrong + checker.wrong_cost(now, seen, 0) + differing(folder)


def test_an_undisturbed_sweep_is_in_order(folder: Path) -> None:
    before, seen = look(folder)
    assert len(before.finished) == len(seen.attempts) == NUM_TRIALS and all(one.ended for one in seen.attempts)
    assert all_wrong(folder, before, NUM_TRIALS) == []


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE trials SET score = score + 1e-15 WHERE number = 1", "finished trial 1 has changed"),
        (
            "UPDATE trials SET finished_at = '2020-01-01 00:00:00.000000' WHERE number = 2",
            "finished trial 2 has changed",
        ),
        ("UPDATE measurements SET metrics = '{}' WHERE trial_id = 1 AND position = 2", "finished trial 0 has changed"),
        ("DELETE FROM measurements WHERE trial_id = 3 AND position = 0", "finished trial 2 has changed"),
        ("DELETE FROM artifacts WHERE trial_id = 1", "finished trial 0 has changed"),
        ("UPDATE trials SET state = 'running' WHERE number = 0", "finished trial 0 is lost"),
    ],
)
def test_a_finished_trial_that_changed_is_found(folder: Path, statement: str, found: str) -> None:
    before, _ = look(folder)
    change(folder, statement)
    now, _ = look(folder)
    assert checker.changed(before, now) == [found]


def test_lost_and_doubled_trials_are_found(folder: Path) -> None:
    before, _ = look(folder)
    change(folder, "DELETE FROM artifacts", "DELETE FROM measurements", "DELETE FROM trials WHERE number = 1")
    now, _ = look(folder)
    assert "finished trial 1 is lost" in checker.changed(before, now)
    assert checker.misnumbered(now) == ["trial 1 is missing"]
    doubled = Snapshot([*now.trials, now.trials[0]], now.finished)
    assert checker.misnumbered(doubled) == ["trial 0 is there 2 times", "trial 1 is missing"]


def test_two_runs_at_once_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = look(folder)
    monkeypatch.setenv(evidence.FILE, str(folder / "evidence.jsonl"))
    locks = [evidence.begin(1) for _ in range(2)]
    _, seen = look(folder)
    for lock in locks:
        os.close(lock)
    assert checker.owned_twice(seen) == ["trial 1 was run by two processes at once"]
    assert checker.run_again(before, NUM_TRIALS, seen) == ["trial 1 was run again after it had finished"]


def test_an_end_that_is_not_the_trials_own_is_found(folder: Path) -> None:
    change(
        folder,
        "UPDATE trials SET state = 'failed', score = NULL, ended_as = 'crashed', reason = 'killed by SIGKILL'"
        " WHERE number = 1",
    )
    now, _ = look(folder)
    assert checker.wrong_ends(now) == ["trial 1 ended as crashed: 'killed by SIGKILL'"]
    change(folder, "UPDATE trials SET ended_as = 'interrupted' WHERE number = 1")
    now, _ = look(folder)
    assert checker.wrong_ends(now) == []


def test_a_wrong_cost_is_found(folder: Path) -> None:
    change(folder, "UPDATE trials SET cost_seconds = cost_seconds + 0.001 WHERE number = 2")
    now, seen = look(folder)
    assert checker.wrong_cost(now, seen, kills=1) == ["the cost of complete trial 2 is off by +0.001 s"]
    change(
        folder,
        "UPDATE trials SET state = 'failed', ended_as = 'interrupted', cost_seconds = cost_seconds + 1.5"
        " WHERE number = 2",
    )
    now, seen = look(folder)
    assert checker.wrong_cost(now, seen, kills=1) == ["costs are off by 1.50 s after 1 kills, trial 2 by +1.50 s"]
    assert checker.wrong_cost(now, seen, kills=2) == []


def test_another_suggestion_than_that_of_an_undisturbed_sweep_is_found(folder: Path) -> None:
    change(folder, "UPDATE trials SET params = replace(params, '0.', '0.0') WHERE number = 2")
    assert len(wrong := differing(folder)) == 1 and wrong[0].startswith("trial 2: params is")


def test_a_process_that_was_left_behind_is_found(tmp_path: Path) -> None:
    mark = f"mark of {tmp_path}"
    # The child lives on, as one that forked twice.
    script = "import os, signal; os.fork() or print('ready', flush=True); signal.pause()"
    environment = {**os.environ, checker.MARK: mark}
    parent = subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE)
    assert parent.stdout is not None and parent.stdout.readline() == b"ready\n"
    try:
        found = [process.pid for process in checker.processes(mark)]
        assert parent.pid in found and len(found) == 2
        parent.kill()
        parent.wait()
        assert "was left behind" in checker.left_behind(mark)[0]
    finally:
        for process in checker.processes(mark):
            process.kill()
        parent.communicate()
    assert checker.left_behind(mark) == []


def test_a_traceback_is_found(tmp_path: Path) -> None:
    (tmp_path / "good.out").write_text("error: the store is gone\n")
    (tmp_path / "bad.out").write_text("Traceback (most recent call last):\n  File ...\nEOFError: it ended\n")
    outputs = [tmp_path / "good.out", tmp_path / "bad.out", tmp_path / "none.out"]
    assert checker.tracebacks(outputs) == ["a traceback in bad.out: EOFError: it ended"]


def test_only_a_ctrl_c_before_the_program_has_begun_is_pythons_own(tmp_path: Path) -> None:
    head, start = "Traceback (most recent call last):\n", '  File "<frozen runpy>", line 189, in _run_module_as_main\n'
    ours, end = '  File "/home/me/protein/cli/__init__.py", line 3, in <module>\n', "KeyboardInterrupt\n"
    output = tmp_path / "life.out"
    output.write_text(head + start + end)
    assert checker.tracebacks([output]) == []
    output.write_text(head + start + ours + end)
    assert checker.tracebacks([output]) == ["a traceback in life.out: KeyboardInterrupt"]
    output.write_text(head + start + end + head + start + "ModuleNotFoundError: No module named 'protein'\n")
    assert checker.tracebacks([output]) == ["a traceback in life.out: ModuleNotFoundError: No module named 'protein'"]


def test_a_checkpoint_of_the_campaigns_trial_is_one_of_the_trainers_kind(tmp_path: Path) -> None:
    from protein.sweep import resuming

    trial.save(tmp_path / resuming.TRAINERS_FILE, seed=3, steps=20)
    assert resuming.state(tmp_path) == tmp_path / resuming.TRAINERS_FILE
    assert trial.load(tmp_path / resuming.TRAINERS_FILE) == 20
