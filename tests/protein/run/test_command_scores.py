"""How a command's scores are read: from its output, its log, and files that it writes."""

import select
import time
import types
from pathlib import Path

import event_files
import pytest
from command_jobs import PYTHON, command_backend, command_notes, job, outcome, python, run, wait  # noqa: F401 (fixtures)
from patience import PATIENCE_SECONDS

from protein.ports import Finished, TrialProgress
from protein.run import command, process
from protein.run.command import CommandBackend
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
    ("text", "end", "reason"),
    [
        ("1,234", TrialEnd.MISTAKE, "'1,234', whose comma may be a decimal one or stand between thousands; say which"),
        ("nan", TrialEnd.DIVERGED, "nan, which is no finite score within 1e+300"),
        ("0.5s", TrialEnd.DIVERGED, r"'0.5s', which is no number; --score-regex 'loss: [^-+.\d\s]*([-+]?"),
    ],
)
def test_a_score_that_is_no_number_is_told_with_a_remedy(
    backend: CommandBackend, notes: list[str], tmp_path: Path, text: str, end: TrialEnd, reason: str
) -> None:
    one = job(tmp_path, python(f"print('loss: {text}')"), score_from="regex", score=r"loss: (\S+)")
    found = outcome(backend, one)
    assert (found.end, found.score) == (end, None)
    assert found.reason.startswith(f"its last score is {reason}")
    assert any("it is left out of the curve" in note for note in notes)


def test_what_commas_are_can_be_said(backend: CommandBackend, tmp_path: Path) -> None:
    text = python("print('loss: 1,234')")
    one = job(tmp_path, text, score_from="regex", score=r"loss: (\S+)", comma="decimal")
    assert outcome(backend, one).score == 1.234


def test_a_long_line_is_read_and_what_is_cut_is_said_once(
    backend: CommandBackend, notes: list[str], tmp_path: Path
) -> None:
    code = """
import sys
print('{"note": "' + "x" * (2 << 20) + '", "score": 0.5}')
for _ in range(2):
    print("x" * (17 << 20) + '{"score": 9}')
"""
    points, finished = run(backend, job(tmp_path, python(code)))
    assert (points, finished.outcome.score) == ([(1, 0.5)], 0.5)
    assert [note.split(" (said")[0] for note in notes] == [
        "trial 0 printed a line of more than 16 MiB: the rest of that line is not read"
    ]


def test_a_line_that_was_meant_as_a_report_and_is_none_is_told_once(
    backend: CommandBackend, notes: list[str], tmp_path: Path
) -> None:
    lines = ['{"score": 1}', '100%|##| 5/5{"score": 2}', "{'score': 3}", '{"result": 4} # final', '{"loss": 5}']
    points, finished = run(backend, job(tmp_path, python(f"print({chr(10).join(lines)!r})")))
    assert (points, finished.outcome.score) == ([(1, 1.0)], 1.0)
    assert [note.split(" (said")[0] for note in notes] == [
        'trial 0 printed a line that is no report, as it is not JSON alone: 100%|##| 5/5{"score": 2}'
    ]


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


def test_a_trial_is_ended_once_no_score_can_be_right(backend: CommandBackend, tmp_path: Path) -> None:
    code = """
import pathlib, sys, time
for name in ("train", "validation"):
    folder = pathlib.Path(sys.argv[1], name)
    folder.mkdir()
    (folder / "events.out.tfevents.1").write_bytes(bytes.fromhex(sys.argv[2]))
time.sleep(600)
"""
    data = event_files.record("loss", 7, 0.5, 0.0).hex()
    one = job(tmp_path, f"{python(code)} {{directory}} {data}", score_from="tensorboard", score="loss", file=".")
    points, finished = run(backend, one)
    assert (points, finished.outcome.end) == ([], TrialEnd.MISTAKE)
    assert finished.outcome.reason.startswith("the tag 'loss' is in several folders: train, validation; name one")


def test_a_trial_without_a_score_teaches_once_others_have_reported(backend: CommandBackend, tmp_path: Path) -> None:
    assert outcome(backend, job(tmp_path, python("print('{\"score\": 1}')"))).score == 1
    assert outcome(backend, job(tmp_path, python("pass"), 1)).end is TrialEnd.CRASHED


def test_steps_that_go_back_and_garbage_lose_nothing_and_are_told_once(
    backend: CommandBackend, tmp_path: Path, notes: list[str]
) -> None:
    lines = ['{"steps": 5, "score": 1}', '{"steps": 3, "score": 2}', '{"steps": 4, "score": 2}', '{"score": 1e999}']
    lines += ['{"steps": 9, "score": 3}', "{" * 50_000, '{"score": [1, 2]}', '{"steps": 10, "score": 4}']
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


def test_metrics_are_read_from_the_log_wherever_the_score_is_read(
    backend: CommandBackend, notes: list[str], tmp_path: Path
) -> None:
    """What comes before a score counts with it, and what comes last at the end of the trial."""
    code = """
print("peak 1.5 GB\\nms: 1,250.0")
print('{"score": 1, "loss": 0.5}')
print("peak 2.5 GB\\nrate: fast")
"""
    metrics = {"gb": r"peak (\S+) GB", "ms": r"ms: (?P<value>\S+)", "rate": r"rate: (\S+)", "none": r"none: (\S+)"}
    backend.start(job(tmp_path, python(code), metrics=metrics))
    curve: list[dict[str, float]] = []
    finished: Finished | None = None
    while finished is None:
        for event in backend.poll(0.1):
            if isinstance(event, Finished):
                finished = event
            else:
                curve += [dict(point.metrics) for point in event.measurements]
    assert curve == [{"gb": 1.5, "ms": 1250.0, "loss": 0.5}]
    assert finished.outcome.metrics == {"gb": 2.5}
    assert [note.split(" (said")[0] for note in notes] == [
        "trial 0 has the metric rate as 'fast', which is no number: it is left out",
        r"trial 0 has no metric none: no line matched 'none: (\S+)' with a number",
        r"trial 0 has no metric rate: no line matched 'rate: (\S+)' with a number",
    ]
