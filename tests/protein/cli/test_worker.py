"""`protein worker`: what it refuses, and a sweep whose workers are killed, join and leave while it runs."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Run
from patience import PATIENCE_SECONDS
from ray_clusters import free_ports

from tests.faults.clock import Clock

pytestmark = pytest.mark.usefixtures("warm")

# Makes four steps and keeps how far it is. Trials 0 to 2 wait at their second step until they are told to go on.
PROGRAM = """
import json, os, pathlib, sys, time
kept = pathlib.Path(os.environ["PROTEIN_CHECKPOINT_DIR"], "step")
done = int(kept.read_text()) if "--resume" in sys.argv else 0
lr, trial = float(sys.argv[1]), os.environ["PROTEIN_TRIAL"]
assert "PROTEIN_TOKEN" not in os.environ
for step in range(done + 1, 5):
    print(json.dumps({"steps": step, "score": lr * step, "cost_seconds": step / 4}), flush=True)
    kept.write_text(str(step))
    while step == 2 and not done and int(trial) < 3 and not os.path.exists("go"):
        time.sleep(0.05)
print(json.dumps({"result": lr * 4}), flush=True)
"""

LATE_FILES = str(Path(__file__).parents[2] / "support" / "late_files")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("worker", "give the folder of the sweeps, as in protein worker /shared/runs"),
        ("worker http://127.0.0.1:1", "give the token of protein serve by --token-file FILE"),
        ("worker http://127.0.0.1:1 --token-file nowhere", "the token in nowhere cannot be read"),
        ("worker . --token-file x", "--token-file is for the URL of a protein serve, which begins with http"),
        ("serve", "give the folder of the sweeps, as in protein serve /data/runs"),
        ("serve nowhere", "there is no folder"),
        ("serve . --port 0", "--port 0 must be from 1 to 65535"),
        ("worker nowhere", "there is no folder"),
        ("worker . --slots 0", "--slots 0 is below the limit of 1"),
        ("worker . --until soon", "--until 'soon' is not a duration"),
        ("worker . --until 25:00", "--until '25:00' is no time"),
        ("worker . --until 2001-02-03T04:05Z", "has passed: now it is"),
        ("worker . --gpus x", "x"),
        (
            "sweep --env pong --backend folder:. --gpus 0",
            "leave it out with --backend folder; protein worker has --gpus",
        ),
    ],
)
def test_what_cannot_be_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in run.error(line)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("way", ["by folder", "by URL", "as on NFS"])
def test_a_sweep_goes_on_while_workers_are_killed_join_and_leave(tmp_path: Path, way: str) -> None:
    """By URL: all but one of them. The server is killed, too, and two of them have a clock an hour off.

    As on NFS: by folder, and each process sees what others do to files some seconds late. The sweep is killed, too.
    """
    by_url = way == "by URL"
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "space.toml").write_text("[space]\nlr = { min = 0.1, max = 1.0 }\n")
    program = f"{sys.executable} -S {tmp_path}/train.py {{lr}}"
    words = ["--command", program, "--resume-flag", "--resume", "--space", "space.toml", "--name", "s"]
    words += ["--backend", "folder:shared", "--method", "random", "--calibrate", "False", "--max-trials", "8"]
    scratch, clock = tmp_path / "scratch", Clock(tmp_path)
    scratch.mkdir()
    clock.jump(3600)
    environment = {key: value for key, value in os.environ.items() if key != "PROTEIN_STORE"}
    environment["TMPDIR"] = str(scratch)
    if way == "as on NFS":
        environment |= {
            "PYTHONPATH": LATE_FILES,
            "LATE_SECONDS": "3",
            "LATE_FILES": f"{tmp_path}/shared:{tmp_path}/link",
        }
    started: list[subprocess.Popen[bytes]] = []

    def start(*line: str, **more: str) -> "subprocess.Popen[bytes]":
        with (tmp_path / "out").open("ab") as out:
            command = [sys.executable, "-m", "protein", *line]
            started.append(subprocess.Popen(command, cwd=tmp_path, env={**environment, **more}, stdout=out, stderr=out))
        return started[-1]

    def serve() -> "subprocess.Popen[bytes]":
        server = start("serve", "shared", "--port", str(port))
        wait(lambda: f"127.0.0.1:{port}  (Ctrl-C ends it)" in said(tmp_path))
        return server

    [port] = free_ports(1)
    place, more = ["shared"], dict[str, str]()
    try:
        sweep = start("sweep", *words)
        wait(lambda: "waiting for workers: protein worker" in said(tmp_path))
        (tmp_path / "link").symlink_to(tmp_path / "shared")  # another machine sees the folder under another path
        if by_url:
            server, place, more = serve(), [f"http://127.0.0.1:{port}"], dict(clock.environment)
            place += ["--token-file", "shared/.token"]
        killed, leaving, _ = start("worker", *place, **more), start("worker", *place, **more), start("worker", "link")
        steps = [tmp_path / "shared" / "s" / f"000{trial}" / "checkpoint" / "step" for trial in range(3)]
        wait(lambda: all(step.is_file() and step.read_text() == "2" for step in steps))
        if by_url:
            server.kill()
            wait(lambda: said(tmp_path).count("and nothing is lost") == 2)
        killed.send_signal(signal.SIGKILL)
        if by_url:
            serve()
        wait(lambda: said(tmp_path).count(" has left") == 1)
        added = start("worker", *place, "--slots", "2", "--until", "1h")
        leaving.send_signal(signal.SIGTERM)
        assert leaving.wait(PATIENCE_SECONDS) == 0
        if way == "as on NFS":
            sweep.kill()
            sweep.wait()
            sweep = start("sweep", *words)
            wait(lambda: "trial 2 goes on from step 2" in said(tmp_path))
        (tmp_path / "go").touch()
        assert sweep.wait(PATIENCE_SECONDS) == 0, said(tmp_path)
        wait(lambda: said(tmp_path).count("waiting for a sweep") == 2)
        added.send_signal(signal.SIGTERM)
        assert added.wait(PATIENCE_SECONDS) == 0
        last = start("worker", *place)  # it removes what the one that was killed has left
        wait(lambda: said(tmp_path).count("waiting for a sweep") == 3)
        last.send_signal(signal.SIGTERM)
        assert last.wait(PATIENCE_SECONDS) == 0
        assert not list(scratch.iterdir())
    finally:
        for process in started:
            process.kill()
            process.wait()
    shown = subprocess.run(
        [sys.executable, "-m", "protein", *shlex.split("show s --json")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    trials = sorted(json.loads(shown.stdout)["trials"], key=lambda trial: int(trial["number"]))
    assert [(trial["number"], trial["state"]) for trial in trials] == [(number, "complete") for number in range(8)]
    assert [trial["score"] for trial in trials] == [4 * trial["params"]["lr"] for trial in trials]
    if way != "as on NFS":  # where those that ran when the sweep was killed made steps of which it never heard
        assert [trial["steps"] for trial in trials] == [4] * 8
        assert said(tmp_path).count("goes on from step 2") == 2, (
            "the trials of the one that died, and of that which left"
        )
    assert not (tmp_path / "shared" / "s" / ".workers").exists()


def said(folder: Path) -> str:
    return (folder / "out").read_text()


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)
