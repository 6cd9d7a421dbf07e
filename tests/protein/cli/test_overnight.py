"""What people do with a sweep that runs for a night: cancel, watch, resume a training run. All by the command line."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS, wait_until

from protein import storage
from protein.cli import main
from protein.types import TrialRecord, TrialState

pytestmark = pytest.mark.usefixtures("warm")

SMALL = ("--env.num-envs", "16", "--train.horizon", "64", "--train.minibatch-size", "512", "--policy.hidden-size", "16")


# The program, which is killed as soon as a training run has written its first checkpoint, however fast it is.
DIES = """
import os, signal, sys
from protein.cli import main
from protein.trainer.ppo.state import TrainingState
write = TrainingState.write
def write_and_die(self, *given, **named):
    write(self, *given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
TrainingState.write = write_and_die
sys.exit(main(sys.argv[1:]))
"""


def protein(folder: Path, *words: str, dies: bool = False) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, *(["-c", DIES] if dies else ["-m", "protein"]), *words]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def stored(folder: Path) -> list[TrialRecord]:
    file = folder / "runs" / "protein.db"
    if not file.exists():
        return []
    store = storage.open_store(str(file))
    try:
        sweep = store.find_sweep("s")
        return [] if sweep is None else store.trials(sweep.id)
    finally:
        store.close()


def run_directory(folder: Path) -> Path:
    [found] = (folder / "runs" / "train").iterdir()
    return found


def scores(folder: Path) -> list[tuple[int, float | None]]:
    lines = (folder / "measurements.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [(event["steps"], event["score"]) for event in events if event["event"] == "measurement"]


def test_a_killed_training_run_goes_on_from_its_folder_to_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("train", "--env", "cartpole", *SMALL, "--train.total-timesteps", "20000", "--train.threads", "1")
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole = protein(tmp_path / "whole", *words)
    assert whole.wait(PATIENCE_SECONDS) == 0
    assert whole.stdout is not None
    score = next(line for line in whole.stdout if line.startswith("score "))
    whole.stdout.close()

    cut = protein(tmp_path / "cut", *words, "--train.checkpoint-seconds", "1e-9", dies=True)
    assert cut.stdout is not None
    assert cut.wait(PATIENCE_SECONDS) == -signal.SIGKILL, cut.stdout.read()
    cut.stdout.close()
    runs = tmp_path / "cut" / "runs" / "train"
    directory = run_directory(tmp_path / "cut")
    assert not any('"result"' in line for line in (directory / "measurements.jsonl").read_text().splitlines())

    monkeypatch.chdir(tmp_path / "cut")
    assert main(["train", "--resume", str(directory)]) == 0
    out = capsys.readouterr().out
    assert score in out
    assert [path.name for path in runs.iterdir()] == [directory.name], "it goes on in its own folder"
    steps = [step for step, _ in scores(directory)]
    assert steps == sorted(set(steps)) and steps[-1] >= 20_000

    assert main(["train", "--resume", str(directory / "checkpoint.safetensors")]) == 2
    assert "the run has made its" in capsys.readouterr().err


def test_a_run_whose_evaluation_was_interrupted_goes_on_with_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All its steps are made, and its folder has no result yet."""
    monkeypatch.chdir(tmp_path)
    few = ("--train.total-timesteps", "1024", "--train.threads", "1", "--eval.episodes", "8", "--eval.num-envs", "8")
    assert main(["train", "--env", "cartpole", *SMALL, *few]) == 0
    score = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("score "))
    directory = run_directory(tmp_path)
    measured = (directory / "measurements.jsonl").read_text()
    lines = [line.replace('"result"', '"interrupted"') for line in measured.splitlines()]
    (directory / "measurements.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["train", "--resume", str(directory)]) == 0
    assert score in capsys.readouterr().out
    assert main(["train", "--resume", str(directory)]) == 2
    assert "the run has made its" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("nowhere", "--resume nowhere does not exist; give the folder of a run in runs/train, or its checkpoint"),
        ("empty", "--resume empty holds no checkpoint, so nothing can be resumed from it"),
        ("garbage", "garbage is damaged or no checkpoint of this program; give another run"),
    ],
)
def test_what_cannot_be_resumed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "garbage").write_bytes(b"\x10garbage" * 10)
    assert main(["train", "--resume", given]) == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "garbage"]


@pytest.mark.slow
def test_a_sweep_is_watched_cancelled_killed_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Our trainer, SIGKILL and SIGTERM of the sweep: the trial goes on, and its cost counts once."""
    begin = ("sweep", "--env", "cartpole", "--name", "s", "--max-trials", "2", "--train.total-timesteps", "400000")
    more = (*SMALL, "--train.checkpoint-seconds", "0.2", "--on-finish", "echo $PROTEIN_REASON > finished")
    words = (*begin, *more)
    first = protein(tmp_path, *words)
    checkpoint = tmp_path / "runs" / "s" / "0000" / "checkpoint.safetensors"
    wait_until(lambda: checkpoint.exists() and stored(tmp_path) and len(stored(tmp_path)[0].curve) >= 2)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert first.stdout is not None
    first.stdout.close()
    killed = stored(tmp_path)[0]

    second = protein(tmp_path, *words)
    assert second.stdout is not None
    wait_until(lambda: stored(tmp_path)[0].steps > killed.steps)
    second.send_signal(signal.SIGTERM)
    output = second.stdout.read()
    second.stdout.close()
    assert second.wait(PATIENCE_SECONDS) == 130
    assert "trial 0 goes on from step" in output and "Traceback" not in output
    waits = stored(tmp_path)[0]
    assert (waits.state, waits.reason) == (TrialState.WAITING, "interrupted")

    monkeypatch.chdir(tmp_path)
    assert main(["status", "s"]) == 0
    shown = capsys.readouterr().out
    assert "trial 0 of 's' waits: it is taken up again when the sweep runs" in shown
    assert "'s' ended: interrupted" in shown
    assert not (tmp_path / "finished").exists(), "a stop by hand is no finish"
    assert main(["cancel", "s", "--trial", "0"]) == 0
    assert capsys.readouterr().out == "trial 0 of sweep 's' has ended\n"
    cancelled = stored(tmp_path)[0]
    assert (cancelled.state, cancelled.reason) == (TrialState.FAILED, "cancelled by hand")
    assert main(["cancel", "s", "--trial", "0"]) == 2
    assert "trial 0 has finished (failed), so none was cancelled" in capsys.readouterr().err

    third = protein(tmp_path, *words)
    assert third.stdout is not None
    watching = protein(tmp_path, "status", "s", "--watch")
    assert watching.stdout is not None
    assert "cartpole" in "".join(watching.stdout.readline() for _ in range(3))
    watching.send_signal(signal.SIGINT)
    assert watching.wait(PATIENCE_SECONDS) == 0
    assert "Traceback" not in watching.stdout.read()
    watching.stdout.close()
    output = third.stdout.read()
    third.stdout.close()
    assert third.wait(PATIENCE_SECONDS) == 0, output
    trials = stored(tmp_path)
    assert [trial.state for trial in trials] == [TrialState.FAILED, TrialState.COMPLETE]
    assert "2 trials" in (tmp_path / "finished").read_text()


def test_a_watch_follows_exclusions_and_the_end_of_a_sweep(
    filled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between two looks: all complete trials are excluded, then the sweep is renamed."""
    opened = storage.open_whole_store("runs/protein.db")
    [sweep] = opened.list_sweeps()
    looks: list[str] = []

    def between(_: float) -> None:
        looks.append(capsys.readouterr().out)
        if len(looks) == 1:
            opened.annotate(sweep.id, [0, 1, 3, 4], excluded=True)
        elif len(looks) == 2:
            opened.rename_sweep("pong", "other")
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("protein.cli.status.time.sleep", between)
    assert main(["status", "pong", "--watch"]) == 0
    opened.close()
    best, nothing, gone = looks
    assert re.search(r"^pong .* 4m00s +18.00 +40.0s$", best, re.MULTILINE)
    assert re.search(r"^pong .* 4m00s +- +-$", nothing, re.MULTILINE)
    assert "sweep 'pong' was removed or renamed" in gone and "4m00s" not in gone


def test_a_watch_and_json_contradict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--watch", "--json"]) == 2
    assert "--watch shows a view that changes" in capsys.readouterr().err
