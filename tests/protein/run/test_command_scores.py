"""How a command's scores are read: from its output, its log, and files that it writes."""

import dataclasses
import select
import shlex
import struct
import time
import types
from pathlib import Path
from typing import Any

import pytest
from command_jobs import PYTHON, command_backend, command_notes, job, outcome, python, run, wait  # noqa: F401 (fixtures)
from patience import PATIENCE_SECONDS

from protein.ports import Finished, Job, TrialProgress
from protein.run import command, process
from protein.run.command import CommandBackend
from protein.run.reports import number_of
from protein.types import Direction, TrialEnd


@pytest.mark.parametrize(
    ("text", "pattern", "steps", "points"),
    [
        ("epoch 1: reward: 0.5,\nepoch 2: reward: 1,250\n", r"reward: (\S+)", r"epoch (\d+)", [(1, 0.5), (2, 1250.0)]),
        (
            "10%| | 1/9 [0.1]\r\x1b[32mstep 2 acc 87.5%\x1b[0m\r",
            r"step (?P<steps>\d+) acc (?P<score>\S+)",
            "",
            [(2, 87.5)],
        ),
        ("acc 1\nacc 2", r"acc (\d)", "", [(1, 1.0), (2, 2.0)]),
    ],
)
def test_scores_are_read_from_a_log(
    backend: CommandBackend, tmp_path: Path, text: str, pattern: str, steps: str, points: list[tuple[int, float]]
) -> None:
    code = f"import sys; sys.stderr.write({text!r})"
    one = job(tmp_path, python(code), score_from="regex", score=pattern, steps=steps)
    found, finished = run(backend, one)
    assert found == points
    assert finished.outcome.score == points[-1][1]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234", 1234.0),
        ("-12,345.5", -12345.5),
        ("+1,234,567%", 1234567.0),
        ("1,234e-3,", 1.234),
        ("0,512", None),
        ("-0,512", None),
        ("00,512", None),
        ("1234,567", None),
        ("12,34", None),
        ("1,2345", None),
        ("1,234,5", None),
        ("0.123,456", None),
        ("1,234.567,890", None),
        (",123", None),
    ],
)
def test_a_comma_separates_groups_of_three_digits_and_nothing_else(text: str, number: float | None) -> None:
    assert number_of(text) == number


def test_a_decimal_comma_is_told_and_not_read_as_another_score(
    backend: CommandBackend, notes: list[str], tmp_path: Path
) -> None:
    text = python("print('loss: 0,512')")
    _, finished = run(backend, job(tmp_path, text, score_from="regex", score=r"loss: (\S+)"))
    assert finished.outcome.score is None and "its last score is '0,512'" in finished.outcome.reason
    assert any("reported the score '0,512'" in note for note in notes)


def test_a_csv_file_is_followed_while_it_grows_and_when_its_header_changes(
    backend: CommandBackend, tmp_path: Path
) -> None:
    code = """
import sys, time, pathlib
folder = pathlib.Path(sys.argv[1])
def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.05)
out = folder / "logs" / "progress.csv"
out.parent.mkdir()
out.write_text("# made by hand\\nsteps,reward\\n1,0.5\\n")
wait_for("first")
out.write_text("# made by hand\\nsteps,loss,reward\\n1,,0.5\\n2,3,0.75\\n3,4,")
wait_for("second")
out.write_text("# made by hand\\nsteps,loss,reward\\n1,,0.5\\n2,3,0.75\\n3,4,\\n4,5,1.0\\n")
"""
    text = python(code) + " {directory}"
    one = job(tmp_path, text, score_from="csv", score="reward", steps="steps", file="**/progress.csv")
    backend.start(one)
    points: list[tuple[int, float | None]] = []
    for word, known in (("first", (1, 0.5)), ("second", (2, 0.75))):
        while known not in points:  # it is read before the program ends
            for event in backend.poll(0.1):
                assert isinstance(event, TrialProgress)
                points += [(point.steps, point.score) for point in event.measurements]
        (one.directory / word).touch()
    rest, finished = wait(backend)
    assert points + rest == [(1, 0.5), (2, 0.75), (4, 1.0)]
    assert finished.outcome.score == 1.0


def test_the_last_row_of_a_csv_file_needs_no_end_of_line(backend: CommandBackend, tmp_path: Path) -> None:
    text = python(r"import sys; open(sys.argv[1], 'w').write('steps,reward\n1,0.5\n2,0.75')") + " {directory}/out.csv"
    points, finished = run(
        backend, job(tmp_path, text, score_from="csv", score="reward", steps="steps", file="out.csv")
    )
    assert (points, finished.outcome.score) == ([(1, 0.5), (2, 0.75)], 0.75)


@pytest.mark.parametrize(("mode", "text"), [("w", "reward\n0.75\n"), ("a", "0.75\n")])
def test_the_rows_of_an_earlier_trial_are_not_read(
    backend: CommandBackend, tmp_path: Path, mode: str, text: str
) -> None:
    shared = tmp_path / "results.csv"
    shared.write_text("reward\n0.5\n")
    code = f"import time; time.sleep(0.1); open({str(shared)!r}, {mode!r}).write({text!r})"
    settings: dict[str, Any] = {"score_from": "csv", "score": "reward", "file": str(shared)}
    points, finished = run(backend, job(tmp_path, python(code), **settings))
    assert (points, finished.outcome.score) == ([(1, 0.75)], 0.75)
    reason = outcome(backend, job(tmp_path, python("pass"), 1, **settings)).reason
    assert reason.endswith(f"it left {shared} as it was before the trial")


def test_the_events_of_an_earlier_run_are_not_read(backend: CommandBackend, tmp_path: Path) -> None:
    code = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_bytes(bytes.fromhex(sys.argv[2]))"
    settings: dict[str, Any] = {"score_from": "tensorboard", "score": "r", "file": "."}

    def trial(file: str, value: float) -> Job:
        scalar = b"\x0a\x01r\x15" + struct.pack("<f", value)
        summary = b"\x0a" + bytes([len(scalar)]) + scalar
        event = b"\x10\x07\x2a" + bytes([len(summary)]) + summary  # step 7
        record = struct.pack("<QI", len(event), 0) + event + bytes(4)
        return job(tmp_path, f"{python(code)} {{directory}}/events.out.tfevents.{file} {record.hex()}", **settings)

    assert run(backend, trial("1", 0.5))[0] == [(7, 0.5)]
    points, finished = run(backend, trial("2", 0.75))
    assert (points, finished.outcome.score) == ([(7, 0.75)], 0.75)
    goes_on = dataclasses.replace(trial("3", 0.25), resumes=tmp_path / "0" / "checkpoint")
    assert run(backend, goes_on)[0] == [(7, 0.5), (7, 0.75), (7, 0.25)], "a trial that goes on keeps its events"
    assert "it wrote no event file" in outcome(backend, job(tmp_path, python("pass"), **settings)).reason


def test_event_files_of_tensorboard_are_read(backend: CommandBackend, tmp_path: Path) -> None:
    code = """
import sys
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter(sys.argv[1] + "/runs/one")
for step in (10, 20):
    writer.add_scalar("charts/return", step / 4, step)
    writer.add_scalar("losses/value", -1.0, step)
writer.add_scalar("charts/return", 7.0, 30, new_style=True)
writer.close()
"""
    text = f"{PYTHON} -W ignore -c {shlex.quote(code)} {{directory}}"
    one = job(tmp_path, text, score_from="tensorboard", score="charts/return", file=".")
    points, finished = run(backend, one)
    assert points == [(10, 2.5), (20, 5.0), (30, 7.0)]
    assert finished.outcome.score == 7.0
    other = outcome(backend, job(tmp_path, text, 1, score_from="tensorboard", score="charts/reward", file="."))
    assert other.reason.endswith("no event file has the tag 'charts/reward'; tags: charts/return, losses/value")


def test_a_trial_without_a_score_teaches_once_others_have_reported(backend: CommandBackend, tmp_path: Path) -> None:
    assert outcome(backend, job(tmp_path, python("print('{\"score\": 1}')"))).score == 1
    assert outcome(backend, job(tmp_path, python("pass"), 1)).end is TrialEnd.CRASHED


def test_steps_that_go_back_and_garbage_lose_nothing_and_are_told_once(
    backend: CommandBackend, tmp_path: Path, notes: list[str]
) -> None:
    lines = ['{"steps": 5, "score": 1}', '{"steps": 3, "score": 2}', '{"steps": 4, "score": 2}', '{"score": 1e999}']
    lines += ['{"steps": 9, "score": 3}', "{" * 50_000, '{"score": [1]}', '{"steps": 10, "score": 4}']
    points, finished = run(backend, job(tmp_path, python(f"print({chr(10).join(lines)!r})")))
    assert points == [(5, 1.0), (6, None), (9, 3.0), (10, None), (10, 4.0)]
    assert finished.outcome.score == 4.0
    assert [line.split(":")[0] for line in notes] == [
        "trial 0 reported 3 steps after 5",
        "trial 0 reported the score inf",
    ]


def test_reports_that_are_read_late_cost_no_more_than_the_command(
    backend: CommandBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = types.SimpleNamespace(monotonic=lambda: time.monotonic() + 1000.0)
    backend.start(job(tmp_path, python('print(\'{"score": 1}\\n{"score": 2}\')')))
    ended = select.poll()
    ended.register(backend._running[0].status, 0)  # tells the end of the pipe alone
    ended.poll(1000 * PATIENCE_SECONDS)
    monkeypatch.setattr(process, "time", late)
    monkeypatch.setattr(command, "time", late)
    progress, finished = backend.poll(60.0)
    assert isinstance(progress, TrialProgress) and isinstance(finished, Finished)
    cost = finished.outcome.cost_seconds
    assert cost < 500.0, "the sweep's own delay is no cost of the trial"
    assert [point.elapsed_seconds for point in progress.measurements] == [cost, cost]
    assert progress.cost_seconds is None or progress.cost_seconds == cost


def test_steps_and_costs_in_quotes_are_numbers(backend: CommandBackend, tmp_path: Path) -> None:
    line = '{"steps": "1000", "score": "0.5", "cost_seconds": "3.5"}'  # json.dumps(..., default=str) with NumPy's
    points, finished = run(backend, job(tmp_path, python(f"print({line!r})")))
    assert points == [(1000, 0.5)], "the reports were counted instead"
    assert finished.outcome.cost_seconds == 3.5


def test_a_score_that_is_minimised_is_stored_as_its_negative(tmp_path: Path) -> None:
    backend = CommandBackend(Direction.MINIMIZE)
    points, finished = run(backend, job(tmp_path, python("print('{\"score\": 2.5}')")))
    backend.close()
    assert (points, finished.outcome.score) == ([(1, -2.5)], -2.5)
