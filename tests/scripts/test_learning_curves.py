"""Learning curves: runs read from what training leaves behind, and the picture and the script that draw them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protein.errors import UsageError
from protein.view.figures.style import COLORS
from scripts.learning_curves import Run, read_run, write_curves

SCRIPT = Path(__file__).parents[2] / "scripts" / "learning_curves.py"
PNG = b"\x89PNG\r\n\x1a\n"


def write_run(folder: Path, env: str = "pong", *, points: int = 5, ended: bool = True) -> Path:
    """What `protein train` leaves: the first measurement comes before any episode has ended."""
    events: list[dict[str, Any]] = [{"event": "start", "env": env, "device": "cpu"}]
    for i in range(points):
        score = None if i == 0 else 5.0 * i
        events.append({"event": "measurement", "steps": 1000 * i, "elapsed_seconds": 0.5 * i, "score": score})
    if ended:
        events.append({"event": "result", "score": 20.5, "steps": 1000 * points})
    folder.mkdir(parents=True)
    (folder / "measurements.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def test_a_run_is_read_from_its_folder_or_its_file(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    run = read_run(folder)
    assert (run.env, run.label, run.final_score) == ("pong", "pong", 20.5)
    assert [(point.steps, point.elapsed_seconds, point.score) for point in run.curve] == [
        (1000, 0.5, 5.0),
        (2000, 1.0, 10.0),
        (3000, 1.5, 15.0),
        (4000, 2.0, 20.0),
    ]
    assert read_run(folder / "measurements.jsonl", "mine") == Run(
        env="pong", label="mine", curve=run.curve, final_score=20.5
    )
    assert read_run(write_run(tmp_path / "b", ended=False)).final_score is None


def test_a_run_that_was_killed_loses_only_its_unfinished_line(tmp_path: Path) -> None:
    file = write_run(tmp_path / "a", ended=False) / "measurements.jsonl"
    file.write_text(file.read_text() + '{"event": "measurement", "steps": 50')
    assert len(read_run(file).curve) == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("text\n", "does not hold the events of one run"),
        ("[1]\n", "does not hold the events of one run"),
        (
            '{"event": "measurement", "steps": 1, "elapsed_seconds": 1, "score": 1}\n',
            "does not hold the events of one run",
        ),
        ('{"event": "start", "env": "pong"}\n', "holds no measurement with a score"),
        ("", "does not hold the events of one run"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "run.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_run(file)
    assert str(caught.value).startswith(str(file)) and message in str(caught.value)


def test_the_picture_has_a_row_for_each_environment(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / str(i)), f"label {i // 2}") for i in range(2 * len(COLORS) + 2)]
    runs.append(read_run(write_run(tmp_path / "snake", "snake", ended=False)))
    heights = []
    for chosen in (runs[:1], runs):
        write_curves(chosen, {"pong": 20.0}, tmp_path / "made" / "curves.png")
        picture = (tmp_path / "made" / "curves.png").read_bytes()
        assert picture.startswith(PNG)
        heights.append(int.from_bytes(picture[20:24], "big"))
    assert heights == [432, 792]
    with pytest.raises(UsageError, match="there is a threshold for 'snake' but no run; there are runs of pong"):
        write_curves(runs[:1], {"snake": 1.0}, tmp_path / "no.png")


def test_the_script_draws_and_refuses(tmp_path: Path) -> None:
    write_run(tmp_path / "a"), write_run(tmp_path / "b")
    command = [sys.executable, str(SCRIPT), "out.png", "a", "LSTM=b"]
    done = subprocess.run(
        [*command, "--threshold", "pong=20"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out.png").read_bytes().startswith(PNG)
    done = subprocess.run([*command, "--threshold", "pong"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: --threshold 'pong' is not ENV=SCORE; write it like pong=20\n")
