"""Commands that go on with an interrupted or an earlier trial: their steps, costs and checkpoints."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_jobs import command_backend, command_notes, job, outcome, python, run  # noqa: F401 (fixtures)

from protein.run.command import CommandBackend
from protein.sweep import resuming
from protein.types import TrialEnd


@pytest.mark.parametrize(
    ("code", "settings", "points"),
    [
        ("print('{\"score\": 1}'); print('{\"score\": 2}')", {}, [(6, 1.0), (7, 2.0)]),
        ("print('acc 1'); print('acc 2')", {"score_from": "regex", "score": r"acc (\d)"}, [(6, 1.0), (7, 2.0)]),
        ('print(\'{"steps": 5, "score": 1}\'); print(\'{"score": 2}\')', {}, [(5, 1.0), (6, 2.0)]),
        # What it repeats is left out by the loop, or here without a word.
        ('print(\'{"score": 1}\'); print(\'{"steps": 4, "score": 2}\')', {}, [(6, 1.0)]),
        (
            "print('acc 1'); print('step 6 acc 2')",
            {"score_from": "regex", "score": r"acc (\d)", "steps": r"step (\d)"},
            [(1, 1.0), (6, 2.0)],
        ),
        # The row of the interrupted run is still there.
        (
            "open(r'{file}', 'a').write('2\\n')",
            {"score_from": "csv", "file": "scores.csv", "score": "acc"},
            [(5, 1.0), (6, 2.0)],
        ),
    ],
)
def test_reports_without_steps_are_counted_on_from_what_a_trial_goes_on_from(
    backend: CommandBackend,
    notes: list[str],
    tmp_path: Path,
    code: str,
    settings: dict[str, Any],
    points: list[tuple[int, float]],
) -> None:
    (tmp_path / "0" / "checkpoint").mkdir(parents=True)
    file = tmp_path / "0" / "scores.csv"
    file.write_text("acc\n1\n")
    one = job(tmp_path, python(code.replace("{file}", str(file))), **settings)
    one = dataclasses.replace(one, resumes=tmp_path / "0" / "checkpoint", steps_behind=5)
    found, finished = run(backend, one)
    assert (found, finished.outcome.steps, notes) == (points, points[-1][0], [])


def test_rows_without_steps_are_counted_on_where_a_program_opens_its_file_anew(
    backend: CommandBackend, tmp_path: Path
) -> None:
    (tmp_path / "0" / "checkpoint").mkdir(parents=True)
    file = tmp_path / "0" / "scores.csv"
    file.write_text("acc\n0.3\n0.4\n")  # two of four: it was opened anew before, too
    one = job(
        tmp_path,
        python(f"open({str(file)!r}, 'w').write('acc\\n0.5\\n')"),
        score_from="csv",
        file=str(file),
        score="acc",
    )
    one = dataclasses.replace(one, resumes=tmp_path / "0" / "checkpoint", steps_behind=4)
    points, finished = run(backend, one)
    assert (points, finished.outcome.score) == ([(3, 0.3), (4, 0.4), (5, 0.5)], 0.5)


def test_the_log_of_an_interrupted_run_shows_what_commas_are(backend: CommandBackend, tmp_path: Path) -> None:
    (tmp_path / "0" / "checkpoint").mkdir(parents=True)
    (tmp_path / "0" / "trial.log").write_text("loss: 0,912\n")
    one = job(tmp_path, python("print('loss: 1,234')"), score_from="regex", score=r"loss: (\S+)")
    assert outcome(backend, dataclasses.replace(one, resumes=tmp_path / "0" / "checkpoint")).score == 1.234


def test_a_trial_that_goes_on_from_its_very_end_has_the_score_that_it_had(
    backend: CommandBackend, tmp_path: Path
) -> None:
    (tmp_path / "0" / "checkpoint").mkdir(parents=True)
    goes_on: dict[str, Any] = {"resumes": tmp_path / "0" / "checkpoint", "steps_behind": 3, "score_behind": 3.0}
    found = outcome(backend, dataclasses.replace(job(tmp_path, python("pass")), **goes_on))
    assert (found.end, found.score, found.steps) == (TrialEnd.COMPLETE, 3.0, 3)
    assert outcome(backend, job(tmp_path, python("pass"))).end is TrialEnd.MISTAKE


def test_a_trial_that_goes_on_keeps_what_its_log_said(backend: CommandBackend, tmp_path: Path) -> None:
    (tmp_path / "0" / "checkpoint").mkdir(parents=True)
    log = tmp_path / "0" / "trial.log"
    log.write_text("before\n")
    one = job(tmp_path, python("print('after'); print('{\"score\": 1}')"))
    outcome(backend, dataclasses.replace(one, resumes=tmp_path / "0" / "checkpoint"))
    assert log.read_text().startswith("before\nafter\n")
    outcome(backend, one)
    assert log.read_text().startswith("after\n"), "one that begins has a log of its own"


def test_a_trial_that_goes_on_and_reports_its_result_alone_has_made_the_steps_before(
    backend: CommandBackend, tmp_path: Path
) -> None:
    one = dataclasses.replace(job(tmp_path, python("print('{\"result\": 1}')")), steps_behind=5)
    assert outcome(backend, one).steps == 5


def test_a_command_that_resumes_may_report_the_cost_of_the_whole_trial(backend: CommandBackend, tmp_path: Path) -> None:
    code = 'print(\'{"score": 1, "cost_seconds": 101}\')'
    one = dataclasses.replace(job(tmp_path, python(code)), spent_seconds=100.0)
    assert outcome(backend, one).cost_seconds == 101.0


@pytest.mark.parametrize(
    ("reports", "cost_seconds"), [((90.0, 96.0), 106.0), ((0.02, 0.03), 100.03)], ids=["of the trial", "of this run"]
)
def test_a_command_may_report_its_cost_from_a_checkpoint_before_its_last_report(
    backend: CommandBackend, tmp_path: Path, reports: tuple[float, ...], cost_seconds: float
) -> None:
    lines = [f'{{"score": 1, "cost_seconds": {seconds}}}' for seconds in reports]
    code = f"print({chr(10).join(lines)!r})"
    one = dataclasses.replace(job(tmp_path, python(code)), spent_seconds=100.0)
    assert outcome(backend, one).cost_seconds == pytest.approx(cost_seconds)


def test_a_command_that_has_run_for_as_long_as_it_says_counts_its_cost_from_0(
    backend: CommandBackend, tmp_path: Path
) -> None:
    code = 'import time; time.sleep(0.6); print(\'{"score": 1, "cost_seconds": 0.5}\')'
    one = dataclasses.replace(job(tmp_path, python(code)), spent_seconds=0.7)
    assert outcome(backend, one).cost_seconds == pytest.approx(1.2)


def test_half_a_copy_of_what_a_trial_continues_is_not_taken_for_its_own(
    backend: CommandBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = tmp_path / "earlier" / "checkpoint"
    earlier.mkdir(parents=True)
    for name in ("weights", "optimizer"):
        (earlier / name).write_text(name)
    code = "import os, sys; print('{\"score\": %d}' % len(os.listdir(sys.argv[1])))"
    text = python(code) + " {directory}/checkpoint"
    one = dataclasses.replace(job(tmp_path, text, resume="--resume {checkpoint}"), continues=earlier)

    def killed(source: Path, target: Path, **_: Any) -> None:
        target.mkdir()
        shutil.copy2(source / "weights", target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copytree", killed)
        with pytest.raises(KeyboardInterrupt):
            backend.start(one)
    assert resuming.state(one.directory) is None
    assert outcome(backend, one).score == 2
