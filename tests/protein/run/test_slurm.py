"""Trials in jobs of a real Slurm of one node, which the tests start, and what its commands are asked and answer.

Without Slurm, tests that need one are skipped. What a worker does by itself: `test_worker.py`.
"""

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import PATIENCE_SECONDS, wait_until
from slurm_jobs import job, slurm_backends, wait_for_slots  # noqa: F401 (a fixture)

from protein.errors import UsageError
from protein.ports import Finished, TrialProgress
from protein.run import lease, slurm
from protein.run.fleet import Fleet
from protein.run.folder import OWNER
from protein.run.mailbox import ALIVE, DEAD_SECONDS, FROM_WORKER, encode
from protein.run.slot import Facts, Note, Ready, SlotSettings, version
from protein.run.trainer import TrainerBackend
from protein.types import Outcome, Trial, TrialEnd

ELSEWHERE = "another-host:4711:8123.45@5f0c21ab-1a363c15-4026531836"


def wait(backend: Fleet, count: int = 1) -> dict[int, Finished]:
    finished: dict[int, Finished] = {}
    until = time.monotonic() + PATIENCE_SECONDS
    while len(finished) < count:
        assert time.monotonic() < until, "a trial has never ended"
        finished |= {event.trial.number: event for event in backend.poll(0.2) if isinstance(event, Finished)}
    return finished


def workers_of(backend: Fleet) -> list[Any]:
    transport: Any = backend._transport
    return list(transport._workers)


def wait_for_a_report(backend: Fleet) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not any(isinstance(event, TrialProgress) and event.measurements for event in backend.poll(0.2)):
        assert time.monotonic() < until, "the trial has never reported"


def test_one_job_serves_many_trials(start: Callable[..., Fleet], tmp_path: Path) -> None:
    notes: list[str] = []
    backend = start(note=notes.append)
    wait_for_slots(backend)
    for number in range(3):
        backend.start(job(tmp_path, number))
        outcome = wait(backend)[number].outcome
        assert (outcome.end, outcome.score, outcome.cost_seconds) == (TrialEnd.COMPLETE, 2.0, 0.3)
    assert len([line for line in notes if "a worker has started" in line]) == 1
    backend.start(job(tmp_path, 3, behaviour="polite"))
    wait_for_a_report(backend)
    backend.stop(job(tmp_path, 3).trial, TrialEnd.STOPPED_EARLY, "stopped early: low")
    outcome = wait(backend)[3].outcome
    assert (outcome.end, outcome.reason) == (TrialEnd.STOPPED_EARLY, "stopped early: low")


def test_a_job_that_slurm_is_about_to_end_gives_its_trial_back(start: Callable[..., Fleet], tmp_path: Path) -> None:
    backend = start()
    wait_for_slots(backend)
    backend.start(job(tmp_path, behaviour="polite"))
    wait_for_a_report(backend)
    number = workers_of(backend)[0].number
    subprocess.run(["scancel", "--batch", "--signal=USR1", number], check=True)
    outcome = wait(backend)[0].outcome
    assert outcome.end is TrialEnd.INTERRUPTED
    assert outcome.reason == "preempted: its worker ends (it was sent SIGUSR1)"
    assert (outcome.cost_seconds, outcome.steps) == (0.25, 2), "what it has spent counts"
    wait_for_slots(backend)
    assert workers_of(backend)[-1].number != number, "another job took its place"


def test_a_cancelled_job_gives_its_trial_back(start: Callable[..., Fleet], tmp_path: Path) -> None:
    backend = start()
    wait_for_slots(backend)
    backend.start(job(tmp_path, behaviour="polite"))
    wait_for_a_report(backend)
    subprocess.run(["scancel", workers_of(backend)[0].number], check=True)
    outcome = wait(backend)[0].outcome
    assert outcome.end is TrialEnd.INTERRUPTED
    assert outcome.reason.startswith("preempted: ")


def test_a_worker_that_dies_without_a_word_loses_nothing_but_its_trial(
    start: Callable[..., Fleet], tmp_path: Path
) -> None:
    backend = start()
    wait_for_slots(backend)
    backend.start(job(tmp_path, behaviour="hang"))
    wait_for_a_report(backend)
    worker = next(
        process
        for process in psutil.process_iter(["cmdline"])
        if str(workers_of(backend)[0].folder) in (process.info["cmdline"] or []) and "-m" in process.info["cmdline"]
    )
    worker.send_signal(signal.SIGKILL)
    outcome = wait(backend)[0].outcome
    assert outcome.end is TrialEnd.INTERRUPTED
    assert outcome.reason.startswith("preempted: Slurm job ") and "ended (" in outcome.reason
    assert (outcome.cost_seconds, outcome.steps) == (0.1, 1)
    wait_for_slots(backend)
    backend.start(job(tmp_path, 1))
    assert wait(backend)[1].outcome.end is TrialEnd.COMPLETE


def test_a_job_that_cannot_start_a_trial_gets_no_other(start: Callable[..., Fleet], tmp_path: Path) -> None:
    """It would give trial after trial back at once, until each has spent its attempts."""
    backend = start()
    wait_for_slots(backend)
    first = workers_of(backend)[0].number
    (tmp_path / "0000" / "config.json").mkdir(parents=True)
    (tmp_path / "0000" / "config.json" / "in the way").touch()
    backend.start(job(tmp_path))
    outcome = wait(backend)[0].outcome
    assert outcome.end is TrialEnd.INTERRUPTED
    assert outcome.reason.startswith("preempted: its worker cannot start it: ")
    assert backend.num_slots() == 0
    wait_for_slots(backend)
    assert workers_of(backend)[-1].number != first


def test_no_trial_starts_that_cannot_end_in_time(start: Callable[..., Fleet], tmp_path: Path) -> None:
    """The first trial goes to a fresh job whatever its cap; the second one is too long for the rest of it."""
    notes: list[str] = []
    backend = start(options=["--time=3"], note=notes.append)
    wait_for_slots(backend)
    first = workers_of(backend)[0].number
    backend.start(job(tmp_path, 0, max_seconds=3600.0))
    assert wait(backend)[0].outcome.end is TrialEnd.COMPLETE
    backend.start(job(tmp_path, 1, max_seconds=10.0))
    assert wait(backend)[1].outcome.end is TrialEnd.COMPLETE
    assert workers_of(backend)[0].number == first
    backend.start(job(tmp_path, 2, max_seconds=3600.0))
    assert wait(backend)[2].outcome.end is TrialEnd.COMPLETE
    assert f"Slurm job {first} has too little time left for another trial, and ends" in notes
    assert workers_of(backend)[-1].number != first


def test_jobs_of_a_killed_controller_end_before_others_are_submitted(
    start: Callable[..., Fleet], tmp_path: Path
) -> None:
    """They would run the same trials in the same folders for two minutes more."""
    killed = start()
    wait_for_slots(killed)
    killed.start(job(tmp_path, behaviour="hang"))
    wait_for_a_report(killed)
    folder = workers_of(killed)[0].folder.parent
    (folder / OWNER).write_text(a_process_that_has_ended())
    notes: list[str] = []
    wait_for_slots(start(note=notes.append))
    number = workers_of(killed)[0].number
    assert f"Slurm jobs that this sweep left when it was killed are cancelled: {number}" in notes
    assert not folder.exists()
    wait_until(lambda: number not in subprocess.check_output(["squeue", "-h", "-o", "%i"], text=True).split())


def test_close_ends_the_jobs_and_leaves_no_files(start: Callable[..., Fleet], tmp_path: Path) -> None:
    backend = start(workers=2)
    wait_for_slots(backend, 2)
    backend.close()
    backend.close()
    until = time.monotonic() + PATIENCE_SECONDS
    while subprocess.run(["squeue", "-h"], capture_output=True, text=True, check=True).stdout.strip():
        assert time.monotonic() < until, "a job lives on"
        time.sleep(0.2)
    assert not list(tmp_path.glob(".slurm-*"))


def test_options_that_slurm_refuses_are_an_error_at_once(start: Callable[..., Fleet], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"sbatch refused: .*nowhere.*; see --slurm-options"):
        start(options=["--partition=nowhere"])
    assert not list(tmp_path.glob(".slurm-*"))


def test_jobs_that_cannot_run_protein_end_the_sweep_with_their_last_words(
    start: Callable[..., Fleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/python")
    backend = start()
    until = time.monotonic() + PATIENCE_SECONDS
    with pytest.raises(UsageError, match=r"3 Slurm jobs in a row ended .* before they were ready: .*/no/python"):
        while time.monotonic() < until:
            backend.poll(0.2)


def test_a_job_that_slurm_refuses_for_a_while_ends_no_trial_of_another_job(
    start: Callable[..., Fleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is too busy, or counts jobs that are about to end."""
    notes: list[str] = []
    backend = start(workers=2, note=notes.append)
    wait_for_slots(backend, 2)
    backend.start(job(tmp_path, behaviour="polite"))
    wait_for_a_report(backend)
    submit, refusals = slurm.submit, ["Socket timed out", "Socket timed out", "too many jobs"]

    def busy(*words: str) -> str:
        if refusals:
            raise UsageError(f"sbatch refused: {refusals.pop(0)}")
        return submit(*words)

    monkeypatch.setattr(slurm, "submit", busy)
    monkeypatch.setattr(slurm, "RESUBMIT_SECONDS", 0.5)
    subprocess.run(["scancel", next(worker.number for worker in workers_of(backend) if worker.job is None)], check=True)
    wait_until(lambda: backend.num_slots() == 1)
    wait_until(lambda: backend.num_slots() == 2 and not refusals)
    again = "a Slurm job was not submitted, which is tried again every 0 s: sbatch refused:"
    assert [line for line in notes if "submitted" in line] == [f"{again} Socket timed out", f"{again} too many jobs"]
    backend.stop(job(tmp_path).trial, TrialEnd.STOPPED_EARLY, "stopped early: low")
    assert wait(backend)[0].outcome.end is TrialEnd.STOPPED_EARLY


def test_jobs_that_end_before_they_are_ready_end_no_trial_of_another_job(
    start: Callable[..., Fleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person cancels what waits in the queue, or one node is broken."""
    notes: list[str] = []
    backend = start(workers=2, note=notes.append)
    wait_for_slots(backend, 2)
    backend.start(job(tmp_path, behaviour="polite"))
    wait_for_a_report(backend)
    monkeypatch.setattr(slurm, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(slurm, "RESUBMIT_SECONDS", 0.5)
    monkeypatch.setattr(sys, "executable", "/no/python")
    subprocess.run(["scancel", next(worker.number for worker in workers_of(backend) if worker.job is None)], check=True)
    until = time.monotonic() + PATIENCE_SECONDS
    while sum("before it was ready: " in line for line in notes) <= slurm.MAX_LOST_JOBS:
        assert time.monotonic() < until and not any(isinstance(event, Finished) for event in backend.poll(0.2))
    backend.stop(job(tmp_path).trial, TrialEnd.STOPPED_EARLY, "stopped early: low")
    assert wait(backend)[0].outcome.end is TrialEnd.STOPPED_EARLY


def test_jobs_that_are_too_short_for_any_trial_end_the_sweep(
    start: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "LOOK_SECONDS", 0.5)
    backend = start(options=["--time=1"])
    until = time.monotonic() + PATIENCE_SECONDS
    with pytest.raises(UsageError, match=r"3 Slurm jobs in a row had too little time .* give more, as in --slurm-opt"):
        while time.monotonic() < until:
            backend.poll(0.2)


def test_what_jobs_wait_for_is_said_once(start: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(slurm, "TELL_SECONDS", 0.2)
    # Else a job of another test, which is about to end, may be the reason at first.
    wait_until(lambda: not subprocess.check_output(["squeue", "-h"], text=True).strip())
    notes: list[str] = []
    backend = start(options=["--begin=now+1hour"], note=notes.append)
    wait_until(lambda: backend.num_slots() or notes)
    for _ in range(10):
        backend.poll(0.2)
    assert notes == ["no Slurm job has started yet; the reason that squeue gives: BeginTime"]


def test_without_slurm_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="needs Slurm's sbatch on this machine, and there is none"):
        slurm.check([])


def test_options_that_are_no_words_are_one_line() -> None:
    with pytest.raises(UsageError, match=r"--slurm-options --time='1 cannot be read: No closing quotation"):
        slurm.parse_options("--time='1")


@pytest.mark.parametrize("word", ["--array=0-3", "--array", "-a0-3", "-a", "--wait", "-W", "-Mall", "--clusters=all"])
def test_options_with_which_a_sweep_would_lose_its_jobs_are_one_line(word: str) -> None:
    """Of an array, two workers would answer in one file, and squeue would not know the job."""
    with pytest.raises(UsageError, match=rf"--slurm-options: {word} cannot be used, as .*; leave it out"):
        slurm.parse_options(f"--time=1:00:00 {word} 1")


def test_options_that_only_begin_like_those_are_words() -> None:
    words = ["--wait-all-nodes=1", "--wckey=a", "-A", "me", "-w", "node1", "-m", "block", "--account=array"]
    assert slurm.parse_options(" ".join(words)) == words


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (
            "sbatch: error: invalid partition specified: nowhere\nsbatch: error: Batch job submission failed: No\n",
            "invalid partition specified: nowhere; Batch job submission failed: No",
        ),
        (
            "sbatch: unrecognized option '--foo'\nTry \"sbatch --help\" for more information\n",
            "unrecognized option '--foo'",
        ),
        ("sbatch: fatal: no\n  such \t file\n\nsbatch: fatal: no\n", "no; such file"),
        ("", ""),
    ],
)
def test_what_slurm_says_on_several_lines_becomes_one_without_who_says_it(printed: str, line: str) -> None:
    assert slurm.said(printed) == line


def test_a_filter_of_the_users_own_for_squeue_hides_no_job(
    start: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = start()
    wait_for_slots(backend)
    monkeypatch.setenv("SQUEUE_PARTITION", "another")
    number = workers_of(backend)[0].number
    assert slurm.states([number]) == {number: "RUNNING"}


@pytest.mark.usefixtures("slurm")
def test_a_job_that_slurm_has_forgotten_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for a single one, squeue fails as it does where it has no answer."""
    assert slurm.states(["99999"]) == {}
    monkeypatch.setenv("SLURM_CONF", "/no/such/file")
    assert slurm.states(["99999"]) is None


@pytest.mark.parametrize("state", ["SIGNALING", "SUSPENDED"])
def test_a_job_in_a_rare_state_lives(start: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """Slurm says SIGNALING while it tells a worker that its job is about to end: just when its trial saves."""
    backend = start()
    wait_for_slots(backend)
    looks: list[Sequence[str]] = []

    def states(numbers: Sequence[str]) -> dict[str, str]:
        looks.append(numbers)
        return dict.fromkeys(numbers, state)

    monkeypatch.setattr(slurm, "states", states)
    monkeypatch.setattr(slurm, "LOOK_SECONDS", 0.0)
    wait_until(lambda: backend.num_slots() == 0 or len(looks) > 1)
    assert backend.num_slots() == 1


@pytest.mark.usefixtures("slurm")
def test_a_job_is_tried_before_anything_is_made() -> None:
    """One that would only have to wait is taken. None of those that were tried stays in the queue."""
    slurm.check(slurm.resources(1, 0, ["--time=1:00:00"]))
    node = subprocess.run(["sinfo", "-h", "-o", "%n"], capture_output=True, text=True, check=True).stdout.strip()
    for state in ("drain", "resume"):  # where no node is up, it may wait
        change = ["scontrol", "update", f"nodename={node}", f"state={state}", "reason=test"]
        subprocess.run(change, check=True)
        slurm.check(slurm.resources(1, 0, []))
        with pytest.raises(UsageError, match=r"sbatch refused: .*nowhere.*; see --slurm-options"):
            slurm.check(["--partition=nowhere"])
    names = subprocess.run(["squeue", "-h", "-o", "%j"], capture_output=True, text=True, check=True).stdout
    assert "protein-check" not in names


@pytest.fixture
def cancelled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(slurm, "attempt", lambda *words: calls.append(words))
    return calls


def controller(artifacts: Path, owner: str, *, silent_seconds: float = 0.0) -> Path:
    """Makes the folder of a controller that has submitted two jobs."""
    folder = artifacts / f"{slurm.FOLDER}0"
    folder.mkdir()
    (folder / ALIVE).write_text("7")
    long_ago = time.time() - silent_seconds
    os.utime(folder / ALIVE, (long_ago, long_ago))
    (folder / OWNER).write_text(owner)
    (folder / slurm.JOBS).write_text("11\n12\n")
    return folder


def a_process_that_has_ended() -> str:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        return lease.owner_of(process.pid)


def test_jobs_of_a_controller_that_was_killed_here_are_ended_at_once(
    cancelled: list[tuple[str, ...]], tmp_path: Path
) -> None:
    folder = controller(tmp_path, a_process_that_has_ended())
    assert slurm.end_left_behind(tmp_path) == ["11", "12"]
    assert cancelled == [("scancel", "11", "12")]
    assert not folder.exists(), "that ends workers that run"


@pytest.mark.parametrize(("silent_seconds", "ends"), [(0.5 * DEAD_SECONDS, False), (2 * DEAD_SECONDS, True)])
def test_a_controller_elsewhere_has_ended_when_it_has_been_silent_for_long(
    cancelled: list[tuple[str, ...]], tmp_path: Path, silent_seconds: float, ends: bool
) -> None:
    folder = controller(tmp_path, ELSEWHERE, silent_seconds=silent_seconds)
    assert slurm.end_left_behind(tmp_path) == (["11", "12"] if ends else [])
    assert bool(cancelled) == ends == (not folder.exists())
    assert [path.name for path in tmp_path.iterdir()] == ([] if ends else [folder.name])


def test_jobs_of_a_living_controller_stay(cancelled: list[tuple[str, ...]], tmp_path: Path) -> None:
    """It may be another sweep of the same name, in another store. A stopped process shows no life, and lives."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        folder = controller(tmp_path, lease.owner_of(process.pid), silent_seconds=2 * DEAD_SECONDS)
        assert slurm.end_left_behind(tmp_path) == []
    assert not cancelled and folder.exists()


def idle_slurm(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Makes a Slurm that takes every job and starts none. Returns the list of commands that it is given."""
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(slurm, "attempt", lambda *words: commands.append(words))
    monkeypatch.setattr(slurm, "submit", lambda *_: "100")
    return commands


def append(worker: Any, *contents: bytes) -> None:
    """Writes what comes from a worker."""
    with (worker.folder / FROM_WORKER).open("ab") as file:
        for content in contents:
            file.write(struct.pack("<q", len(content)) + content)


def ready(version: str = version()) -> bytes:
    return encode(Ready(facts=Facts(host="node", version=version, shares_artifacts=True), seconds_left=None))


def test_a_worker_that_sends_what_is_no_message_is_ended_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, notes = idle_slurm(monkeypatch), list[str]()
    transport = slurm.SlurmTransport("s", workers=2, cores=1)
    slot = SlotSettings(make_backend=TrainerBackend, artifacts=tmp_path, probe="")
    backend = Fleet(transport, slot, note=notes.append)
    good, bad = transport._workers
    append(bad, ready())
    backend.num_slots()
    backend.start(job(tmp_path))
    append(good, ready(), encode(Note(text="well")))
    append(bad, b"no message")
    monkeypatch.setattr(transport, "start_slots", lambda num_jobs: None)
    [event] = backend.poll(0.0)
    assert isinstance(event, Finished) and event.outcome.end is TrialEnd.INTERRUPTED
    assert "a message cannot be read" in event.outcome.reason
    assert ("scancel", bad.number) in commands and transport._workers == [good]
    assert "well" in notes
    assert sum("a message cannot be read" in note for note in notes) == 1
    backend.close()


def test_a_report_is_of_the_trial_that_the_worker_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idle_slurm(monkeypatch)
    transport = slurm.SlurmTransport("s", workers=1, cores=1)
    backend = Fleet(transport, SlotSettings(make_backend=TrainerBackend, artifacts=tmp_path, probe=""))
    [worker] = transport._workers
    append(worker, ready())
    backend.num_slots()
    backend.start(job(tmp_path))
    trial = job(tmp_path).trial
    other = Trial(id=trial.id, sweep_id=9, number=7, params={}, seed=0, owner="somebody")
    outcome = Outcome(end=TrialEnd.COMPLETE, reason="", score=1.0, cost_seconds=1.0)
    append(worker, encode(Finished(trial=other, outcome=outcome)))
    [event] = backend.poll(0.0)
    assert event.trial == trial
    backend.close()


def test_a_worker_with_another_version_of_protein_ends_the_sweep_unless_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, notes = idle_slurm(monkeypatch), list[str]()
    transport = slurm.SlurmTransport("s", workers=2, cores=1)
    slot = SlotSettings(make_backend=TrainerBackend, artifacts=tmp_path, probe="")
    backend = Fleet(transport, slot, note=notes.append)
    first, second = transport._workers
    append(first, ready())
    append(second, ready("0.0.9"))
    assert backend.num_slots() == 1
    assert ("scancel", second.number) in commands and second not in transport._workers
    assert any(f"node node has protein 0.0.9, and this machine {version()}" in note for note in notes)
    transport._end(first, "ended")
    backend.num_slots()
    transport._submit_after = 0.0
    backend.num_slots()
    append(transport._workers[0], ready("0.0.9"))
    with pytest.raises(UsageError, match=r"node node has protein 0.0.9, and this machine .*: install the same version"):
        backend.num_slots()
    backend.close()


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_the_example_runs_a_sweep_whose_controller_is_a_job(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "slurm_sweep.sh"
    page = Path(__file__).parents[3] / "docs" / "many-machines.md"
    assert example.read_text() in page.read_text(), "the page shows what is run here"
    words = ["--max-trials", "2", "--train.total-timesteps", "20000", "--calibrate", "False", "--method", "random"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "WORKERS": "1"}
    command = ["sbatch", "--wait", str(example), *words]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=4 * PATIENCE_SECONDS)
    log = (tmp_path / "cartpole-sweep.log").read_text()
    assert "trial 0: score" in log and "trial 1: score" in log
    assert not list((tmp_path / "runs" / "cartpole").glob(".slurm-*"))
