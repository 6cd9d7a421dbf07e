"""The benchmark for a GPU: its dry run on a CPU trains every kind of row, and without a GPU it says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / "gpu_benchmark.sh"), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHON": sys.executable},
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.slow  # minutes on a processor that does not multiply bfloat16
def test_the_dry_run_prints_every_kind_of_row() -> None:
    done = script("cpu")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    shipped = [line.split() for line in lines if line.startswith(("  pong ", "  breakout ", "  snake "))]
    assert len(shipped) == 3 and all(float(rate.replace(",", "")) > 0 for _, *rates in shipped for rate in rates)
    table = [line for line in lines if line.startswith(("pong ", "snake "))]
    numbers = [[float(word.strip("%").replace(",", "")) for word in line[52:].split()] for line in table]
    assert all(len(row) == 8 and row[0] > 0 and row[4] > 0 for row in numbers), done.stdout
    kinds = {tuple(line[a:b].strip() for a, b in ((0, 10), (10, 22), (22, 28), (28, 52))) for line in table}
    assert {policy for _, policy, *_ in kinds} == {"mlp 2x512", "lstm 256", "mingru 512", "cnn 256"}
    assert {precision for _, _, precision, _ in kinds} == {"fp32", "tf32", "bf16"}
    assert ("pong", "mlp 2x512", "tf32", "cpu_inference overlap") in kinds


def test_no_time_means_no_row_and_every_one_is_named() -> None:
    done = script("cpu", "--minutes", "0")
    assert done.returncode == 0, done.stderr
    assert "no time was left for 17 rows (--minutes 0):" in done.stdout
    assert "  pong      lstm 256" in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured() -> None:
    done = script("cuda")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: train.device 'cuda' is not available on this machine")
    assert done.stderr.count("\n") == 1
