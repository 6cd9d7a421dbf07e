"""How a command and all that it started end: at its limit, with the sweep, or killed from outside."""

import dataclasses
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from command_jobs import PYTHON, command_backend, command_notes, job, outcome, python, run, wait  # noqa: F401 (fixtures)
from patience import left_behind, wait_until

from protein.run import command
from protein.run.command import CommandBackend
from protein.types import TrialEnd


def test_a_command_is_stopped_at_the_cost_that_it_may_have(backend: CommandBackend, tmp_path: Path) -> None:
    code = "import time; print('{\"score\": 1}', flush=True); time.sleep(600)"
    one = job(tmp_path, python(code))
    one = dataclasses.replace(one, config={**one.config, "max_seconds": 2.0})
    found = outcome(backend, one)
    assert (found.end, found.score, found.reason) == (TrialEnd.CAPPED, 1.0, "stopped at its cost cap")
    assert 2.0 <= found.cost_seconds < 30.0


FORKS_TWICE = """
import os, sys
for daemon in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(600)", *sys.argv[1:]])
        os._exit(0)
    os.wait()
print('{"score": 1}', flush=True)
"""


def test_children_that_forked_twice_are_ended(backend: CommandBackend, tmp_path: Path) -> None:
    one = job(tmp_path, python(FORKS_TWICE) + " {directory}")
    assert outcome(backend, one).end is TrialEnd.COMPLETE
    assert left_behind(tmp_path) == []


def test_nothing_of_a_trial_outlives_a_sweep_that_is_killed(tmp_path: Path) -> None:
    text = python(FORKS_TWICE + "import time; time.sleep(600)") + " {directory}"
    code = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2] / "support")!r})
from command_jobs import CommandBackend, Direction, job
backend = CommandBackend(Direction.MAXIMIZE)
backend.start(job(Path({str(tmp_path)!r}), {text!r}))
while not backend.poll(0.1):
    pass
print("running", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as sweep:
        try:
            assert sweep.stdout is not None and sweep.stdout.readline() == b"running\n"
            # The trial has reported, and what it has forked may only be about to begin.
            wait_until(
                lambda: len([one for one in left_behind(tmp_path) if one.pid != sweep.pid]) == 4,
                "the trial's processes",
            )
        finally:
            sweep.kill()
    wait_until(lambda: not left_behind(tmp_path), "the end of the trial's processes")


def test_a_command_that_died_costs_nothing_until_the_sweep_looks(backend: CommandBackend, tmp_path: Path) -> None:
    code = 'import time; print(\'{"score": 1, "cost_seconds": 5}\', flush=True); time.sleep(600)'
    backend.start(job(tmp_path, python(code)))
    while not backend.poll(0.1):
        pass
    process = next(iter(backend._running.values()))
    os.kill(process.pid, signal.SIGKILL)
    select.select([process.status], [], [])
    known = time.monotonic()  # the server has told of the end before
    time.sleep(0.2)  # the sweep waits for its store
    found = wait(backend)[1].outcome
    assert (found.end, found.reason.partition(":")[0]) == (TrialEnd.CRASHED, "killed by SIGKILL (out of memory?)")
    assert 5.0 <= found.cost_seconds <= 5.0 + known - process.record._cost_at  # type: ignore[attr-defined]


def test_a_trial_whose_server_is_killed_is_preempted(backend: CommandBackend, tmp_path: Path) -> None:
    code = "import time; print('{\"score\": 1}', flush=True); time.sleep(600)"
    backend.start(job(tmp_path, python(code) + " {directory}"))
    while not backend.poll(0.1):
        pass
    os.kill(backend._running[0].server_pid, signal.SIGKILL)
    found = wait(backend)[1].outcome
    assert (found.end, found.reason) == (TrialEnd.INTERRUPTED, "preempted: the server of trials died")
    wait_until(lambda: not left_behind(tmp_path), "the end of the command")


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("first", ["server", "command"])
def test_a_command_that_is_ended_with_all_around_it_is_preempted_however_it_takes_that(
    backend: CommandBackend, tmp_path: Path, code: int, first: str
) -> None:
    """Slurm and systemd send SIGTERM to every process. Many programs then save, and exit with 0."""
    program = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit("
    program += f"{code})); print('{{\"score\": 1}}', flush=True); time.sleep(600)"
    backend.start(job(tmp_path, python(program)))
    while not backend.has_reported:
        backend.poll(0.1)
    server, command = backend._running[0].server_pid, backend._running[0].pid
    if first == "command":
        os.kill(server, signal.SIGSTOP)
        os.kill(command, signal.SIGTERM)
        wait_until(lambda: psutil.Process(command).status() == psutil.STATUS_ZOMBIE, "the end of the command")
    os.kill(server, signal.SIGTERM)
    if first == "command":
        os.kill(server, signal.SIGCONT)
    else:
        os.kill(command, signal.SIGTERM)
    found = wait(backend)[1].outcome
    assert (found.end, found.score) == (TrialEnd.INTERRUPTED, None)
    assert found.reason == "preempted: SIGTERM from outside ended it"


def test_a_line_without_end_is_looked_through_once(
    backend: CommandBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it was looked through again with each new part, the program waited, which counted as its cost."""
    searched: list[int] = []

    class Counting:
        def split(self, data: bytes) -> list[bytes]:
            searched.append(len(data))
            return real.split(data)

    real = command._BREAK
    monkeypatch.setattr(command, "_BREAK", Counting())
    length = 3 * command.MAX_LINE_BYTES
    code = f"print({length} * 'x'); print('\\r\\n{{\"score\": 1}}\\rbar', end='')"
    assert outcome(backend, job(tmp_path, python(code.replace("\\\\", "\\")))).score == 1
    assert sum(searched) < 1.5 * length
    assert (tmp_path / "0" / "trial.log").read_bytes().endswith(b'\r\n{"score": 1}\rbar')


def test_the_server_of_commands_may_die(backend: CommandBackend, tmp_path: Path) -> None:
    good = python("print('{\"score\": 1}')")
    assert outcome(backend, job(tmp_path, good)).score == 1
    os.kill(backend._server._pid, signal.SIGKILL)
    assert outcome(backend, job(tmp_path, good, 1)).score == 1
