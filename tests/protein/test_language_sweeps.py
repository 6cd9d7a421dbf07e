"""Disturbed sweeps of language models: a trial goes on from its checkpoint, and learns what it would have learnt.

The campaign of `faults` disturbs sweeps of agents; this is the other kind of training.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_SECONDS, wait_until

WORDS = "sweep --env text/python --name s --method random --seed 3 --max-trials 1 --workers 1 --calibrate False"
SMALL = (
    "--train.total-tokens 150000 --model.num-layers 2 --model.width-ratio 16 --model.sequence-length 64"
    " --train.batch-tokens 1024 --train.threads 1 --train.checkpoint-seconds 0.5 --eval.tokens 16384"
    " --early-stopping False"
)
CHECKPOINT = Path("runs/s/0000/checkpoint.safetensors")

pytestmark = pytest.mark.slow


def sweep(folder: Path, *words: str) -> "subprocess.Popen[str]":
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "protein", *WORDS.split(), *SMALL.split(), *words],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "PROTEIN_STORE"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> str:
    out = process.communicate(timeout=PATIENCE_SECONDS)[0]
    assert "Traceback" not in out, out
    return out


def only_trial(folder: Path) -> dict[str, Any]:
    shown = subprocess.run(
        [sys.executable, "-m", "protein", "show", "s", "--trial", "0", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(shown.stdout))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(sweep(folder))
    trial = only_trial(folder)
    assert trial["state"] == "complete" and trial["lost_seconds"] == 0.0
    return trial


def check(trial: dict[str, Any], undisturbed: dict[str, Any]) -> None:
    names = ("state", "params", "steps", "score")
    assert {name: trial[name] for name in names} == {name: undisturbed[name] for name in names}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_sweep_goes_on_and_learns_the_same(
    number: signal.Signals, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    process = sweep(tmp_path)
    wait_until((tmp_path / CHECKPOINT).exists)
    process.send_signal(number)
    finish(process)
    out = finish(sweep(tmp_path))
    assert "trial 0 goes on from step " in out
    check(only_trial(tmp_path), undisturbed)


def test_on_slurm_a_trial_of_a_cancelled_job_goes_on_in_another(
    slurm: None, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    process = sweep(tmp_path, "--backend", "slurm")
    wait_until((tmp_path / CHECKPOINT).exists)
    jobs = subprocess.run(["squeue", "-h", "-o", "%i"], capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["scancel", *jobs], check=True)
    out = finish(process)
    assert "trial 0 goes on from step " in out, out
    check(only_trial(tmp_path), undisturbed)
