"""`protein sweep --command` with its trials in jobs of a real Slurm, which the tests start. Without Slurm: skipped."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from patience import PATIENCE_SECONDS

# Makes four steps and keeps how far it is. Trial 1 waits at its second step, once, for the end of its sweep.
PROGRAM = """
import json, os, pathlib, sys, time
kept = pathlib.Path(os.environ["PROTEIN_CHECKPOINT_DIR"], "step")
done = int(kept.read_text()) if "--resume" in sys.argv else 0
lr = float(sys.argv[1])
with open("starts.txt", "a") as starts:
    print(os.environ["PROTEIN_TRIAL"], os.environ["SLURM_JOB_ID"], done, file=starts)
for step in range(done + 1, 5):
    print(json.dumps({"steps": step, "score": lr * step, "cost_seconds": step / 4}), flush=True)
    kept.write_text(str(step))
    if os.environ["PROTEIN_TRIAL"] == "1" and step == 2 and not done:
        time.sleep(600)
print(json.dumps({"result": lr * 4}), flush=True)
"""


def test_a_command_is_swept_in_jobs_stopped_and_taken_up_in_another_job(slurm: None, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "space.toml").write_text("[space]\nlr = { min = 0.1, max = 1.0 }\n")
    program = f"{sys.executable} -S {tmp_path}/train.py {{lr}}"
    words = ["--command", program, "--resume-flag", "--resume", "--space", "space.toml", "--name", "s"]
    words += ["--backend", "slurm", "--workers", "1", "--method", "random", "--calibrate", "False"]
    command = [sys.executable, "-m", "protein", "sweep", *words, "--max-trials", "3"]
    environment = {key: value for key, value in os.environ.items() if key != "PROTEIN_STORE"}

    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        wait_for(tmp_path / "runs" / "s" / "0001" / "checkpoint" / "step", "2")
        process.send_signal(signal.SIGTERM)
        out = process.communicate(timeout=PATIENCE_SECONDS)[0]
    assert process.returncode == 130, out
    assert "trial 0: score" in out and "Slurm job" in out
    assert not list((tmp_path / "runs" / "s").glob(".slurm-*")), "the jobs' folder is gone"

    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert "trial 1 goes on from step 2" in done.stdout
    shown = subprocess.run(
        [sys.executable, "-m", "protein", *shlex.split("show s --json")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    trials = json.loads(shown.stdout)["trials"]
    assert [(trial["state"], trial["steps"], trial["cost_seconds"]) for trial in trials] == [("complete", 4, 1.0)] * 3
    assert [trial["score"] for trial in trials] == [4 * trial["params"]["lr"] for trial in trials]
    starts = [line.split() for line in (tmp_path / "starts.txt").read_text().splitlines()]
    assert [(trial, step) for trial, _, step in starts] == [("0", "0"), ("1", "0"), ("1", "2"), ("2", "0")]
    first, *_, last = [job for _, job, _ in starts]
    assert [job for _, job, _ in starts] == [first, first, last, last] and first != last, "a job serves many trials"


def wait_for(file: Path, content: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not (file.is_file() and file.read_text() == content):
        assert time.monotonic() < until, f"{file} never held {content}"
        time.sleep(0.05)


def test_what_slurm_refuses_is_one_line_and_nothing_is_made(slurm: None, tmp_path: Path) -> None:
    words = ["--command", "true {lr}", "--space", "space.toml", "--backend", "slurm", "--calibrate", "False"]
    (tmp_path / "space.toml").write_text("[space]\nlr = { min = 0.1, max = 1.0 }\n")
    done = subprocess.run(
        [sys.executable, "-m", "protein", "sweep", *words, "--slurm-options=--partition=nowhere"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert re.fullmatch(
        r"error: sbatch refused: invalid partition specified: nowhere; [^\n]+; see --slurm-options\n", done.stderr
    )
    assert [path.name for path in tmp_path.iterdir()] == ["space.toml"]
