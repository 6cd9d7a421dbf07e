"""Commands that go on with an interrupted or an earlier trial: their steps, costs and checkpoints."""

import dataclasses
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from command_jobs import command_backend, command_notes, job, outcome, python, run  # noqa: F401 (fixtures)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protein.ports import Finished, TrialProgress
from protein.run.command import CommandBackend, CommandRecord, CommandSettings
from protein.sweep import resuming
from protein.types import Direction, TrialEnd


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


class Program:
    """A program that reports a cost at every step, and its checkpoints, as `CommandRecord` reads it without a process.

    Attributes:
        account: what it says that it has cost.
        spent: what it has really cost since the trial began.
    """

    def __init__(self, backend: CommandBackend, directory: Path, *, pace: float, start: float, steps: bool) -> None:
        self._backend, self._directory, self._pace, self._start, self._tells_steps = (
            backend,
            directory,
            pace,
            start,
            steps,
        )
        self.account = self.spent = self.stored = 0.0
        self.curve: list[tuple[int, float]] = []

    def run(self, begin: int, end: int, account: float) -> None:
        """Runs from a checkpoint at step `begin`, where it resumes with this cost, to step `end`."""
        one = job(self._directory, "true")
        if self.curve:
            behind: dict[str, Any] = {
                "spent_seconds": self.stored,
                "curve_behind": tuple(self.curve),
                "steps_behind": self.curve[-1][0],
            }
            one = dataclasses.replace(one, resumes=self._directory, **behind)
        record = CommandRecord(self._backend, one, CommandSettings.from_config(one.config), ["true"], self._directory)
        record.process = Ended(began=time.monotonic() - 1e6)  # type: ignore[assignment]  # loading took ages
        self.account = account + self._start
        for step in range(begin + 1, end + 1):
            self.account += self._pace
            steps = f'"steps": {step}, ' if self._tells_steps else ""
            record.take(f'{{{steps}"score": 1, "cost_seconds": {self.account!r}}}\n'.encode(), "report")
        self.spent += self._start + self._pace * (end - begin)
        told = TrialProgress(trial=one.trial, measurements=record.take_measurements())
        outcome = record.in_reference(Finished(trial=one.trial, outcome=record.outcome()))
        points = record.in_reference(told).measurements
        self.curve += [
            (one.steps, one.elapsed_seconds) for one in points if one.steps > (self.curve or [(0, 0)])[-1][0]
        ]
        self.stored = outcome.outcome.cost_seconds


@dataclasses.dataclass
class Ended:
    """A process that has ended by itself."""

    began: float
    exit_code: int = 0
    ended = True
    is_lost = from_outside = False
    requested_end = None
    ended_by: int = 0
    stopped: float = 0.0

    @property
    def ended_at(self) -> float:
        return time.monotonic()

    def paused_seconds(self, since: float, until: float) -> float:
        return self.stopped

    def after_result(self) -> str:
        return ""


@settings(deadline=None, max_examples=100)
@given(
    pace=st.floats(0.01, 100.0),
    start=st.floats(0.0, 1.0),  # of a step's seconds
    counts_on=st.booleans(),
    tells_steps=st.booleans(),
    runs=st.lists(st.tuples(st.integers(3, 30), st.floats(0.0, 1.0)), min_size=1, max_size=4),
)
@example(pace=0.1, start=0.0, counts_on=True, tells_steps=True, runs=[(20, 1.0), (10, 1.0)])
def test_a_cost_is_charged_once_whether_a_program_counts_it_on_or_anew(
    pace: float, start: float, counts_on: bool, tells_steps: bool, runs: list[tuple[int, float]]
) -> None:
    """However long it takes to load what it goes on from, and however often it is interrupted."""
    backend = CommandBackend(Direction.MAXIMIZE)
    with tempfile.TemporaryDirectory() as folder:
        program = Program(backend, Path(folder), pace=pace, start=start * pace, steps=tells_steps)
        at, account, interval = 0, 0.0, (1.0 + start) * pace
        for length, kept in runs:
            program.run(at, at + length, account if counts_on else 0.0)
            # The checkpoint is one of this run, of the last third at least: an older one may look like a beginning.
            back = int((1.0 - kept) * length / 3)
            at, account = at + length - back, program.account - back * pace
        program.run(at, at + 5, account if counts_on else 0.0)
    backend.close()
    if not counts_on:
        assert program.stored == pytest.approx(program.spent)
    else:  # what a step and a start after a checkpoint cost is not told
        assert program.account - 1e-6 <= program.stored <= program.spent + 1e-6
        assert program.stored >= program.spent - len(runs) * interval - 1e-6


@settings(deadline=None, max_examples=50)
@given(
    ran=st.floats(1.0, 1000.0),
    told=st.lists(st.floats(0.0, 2000.0), max_size=4),
    spent=st.floats(0.0, 400.0),
    counts=st.booleans(),
    killed=st.booleans(),
    stopped=st.floats(0.0, 1.0),
)
def test_a_trial_costs_at_least_its_clock_where_that_counts(
    ran: float, told: list[float], spent: float, counts: bool, killed: bool, stopped: float
) -> None:
    """Whatever it reports, it has nothing left at its cap, and what goes on has the rest of it alone."""
    backend, began = CommandBackend(Direction.MAXIMIZE), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        one = job(Path(folder), "true", clock_counts=counts)
        one = dataclasses.replace(one, spent_seconds=spent, config={**one.config, "max_seconds": 500.0})
        record = CommandRecord(backend, one, CommandSettings.from_config(one.config), ["true"], Path(folder))
        record.process = Ended(began=began - ran, ended_by=int(killed), stopped=stopped * ran)  # type: ignore[assignment]
        for seconds in told:
            record.take(f'{{"score": 1, "cost_seconds": {seconds!r}}}\n'.encode(), "report")
        assert record.wall_cost(time.monotonic()) is None or counts or not told
        left = record.seconds_to_cap(time.monotonic())
        record.close()
        points, cost = record.take_measurements(), record.outcome().cost_seconds
    backend.close()
    reported = 0.0 if not told else max(max(told) - record._costs_count_from, 0.0)
    ran -= 0.0 if counts else stopped * ran
    if counts or not told:
        assert left is not None and left <= 500.0 - spent - max(ran, reported) + 1e-6
        assert cost >= max(ran, reported) and all(point.elapsed_seconds >= ran - 1e-6 for point in points)
    else:
        assert left is None or reported >= 500.0 - spent
        assert cost == pytest.approx(reported, abs=1.0)
    assert [point.elapsed_seconds for point in points] == sorted(point.elapsed_seconds for point in points)


def test_a_trial_that_continues_another_one_does_not_pay_for_it(backend: CommandBackend, tmp_path: Path) -> None:
    lines = ['{"steps": 11, "score": 1, "cost_seconds": 111}', '{"steps": 12, "score": 2, "cost_seconds": 122}']
    code = f"print({chr(10).join(lines)!r})"
    behind: dict[str, Any] = {"curve_behind": ((1, 11.0), (10, 101.0)), "continued_seconds": 101.0, "steps_behind": 10}
    assert outcome(backend, dataclasses.replace(job(tmp_path, python(code)), **behind)).cost_seconds == 21.0


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
