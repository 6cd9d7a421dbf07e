"""How a command and all that it started end: at its limit, with the sweep, or killed from outside."""

import dataclasses
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_jobs import PYTHON, command_backend, command_notes, job, outcome, python, run, wait  # noqa: F401 (fixtures)
from patience import left_behind, wait_until

from protein.run import command, process
from protein.run.command import CommandBackend, CommandRecord, CommandSettings
from protein.run.machine import oom_kills
from protein.run.process import TrialProcess
from protein.types import Direction, Outcome, TrialEnd


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
    assert (found.end, found.reason) == (TrialEnd.INTERRUPTED, "preempted: SIGKILL from outside ended it")
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


REGEX = {"score_from": "regex", "score": r"acc (\S+)"}
ACCEPT = {"accept": (1, 134)}
SCORE, RESULT = '{"steps": 1, "score": 0.4}', '{"result": 0.5}'
OUTSIDE = "preempted: {} from outside ended it"
CAPPED = (TrialEnd.CAPPED, "stopped at its cost cap")
COMPLETE, CRASHED, INTERRUPTED = TrialEnd.COMPLETE, TrialEnd.CRASHED, TrialEnd.INTERRUPTED


def ended(
    lines: list[str],
    code: int | None,
    *,
    told: tuple[TrialEnd, str] | None = None,
    late: list[str] | None = None,
    outside: bool = False,
    accept: tuple[int, ...] = (),
    **how: Any,
) -> Outcome:
    """Returns the outcome of a command that has said this and ended so, without a process.

    `told`: how and why the sweep ends it before it says the `late` lines. A line that begins with "fd" is said on the
    descriptor for reports, and others on stdout.
    """
    one = job(Path("/nowhere"), "true", accept_exit_codes=accept, **how)
    backend = CommandBackend(Direction.MAXIMIZE)
    record = CommandRecord(backend, one, CommandSettings.from_config(one.config), ["true"], Path("/nowhere"))
    process = record.process = TrialProcess.__new__(TrialProcess)
    now = time.monotonic()
    process.record, process.began, process._ended_at, process._pauses = record, now, now + 1.0, []
    process.exit_code, process.is_lost, process.from_outside = code, code is None, outside
    process.requested_end, process._oom_kills = None, oom_kills()
    for said in (lines, late or []):
        for line in said:
            pipe = "report" if line.startswith("fd") else "stdout"
            record.take(line.removeprefix("fd").encode() + b"\n", pipe)
        process.requested_end = told
    record.close()
    backend.close()
    return record.outcome()


@pytest.mark.parametrize(
    ("lines", "code", "how", "expected"),
    [
        # The result first, the exit code second.
        ([SCORE, RESULT], 0, {}, (COMPLETE, 0.5, "")),
        ([SCORE, RESULT], -11, {}, (COMPLETE, 0.5, "after its result: killed by SIGSEGV")),
        ([RESULT, "free(): invalid pointer"], 134, {}, (COMPLETE, 0.5, "after its result: exited with code 134")),
        ([RESULT], 1, {}, (COMPLETE, 0.5, "after its result: exited with code 1")),
        (["fd" + RESULT, "acc 0.4"], 139, REGEX, (COMPLETE, 0.5, "after its result: exited with code 139")),
        ([RESULT], None, {}, (COMPLETE, 0.5, "after its result: the server of trials died")),
        ([RESULT], -9, {}, (COMPLETE, 0.5, "after its result: killed by SIGKILL (out of memory?)")),
        ([RESULT], -15, {"told": CAPPED}, (COMPLETE, 0.5, "after its result: stopped at its cost cap")),
        ([RESULT], -15, {"outside": True}, (COMPLETE, 0.5, "after its result: killed by SIGTERM")),
        ([RESULT, RESULT], -6, {}, (COMPLETE, 0.5, "after its result: killed by SIGABRT")),  # of two ranks
        # What goes on after it was not final; a signal's handler may tell what it has so far.
        ([RESULT, SCORE], -11, {}, (CRASHED, None, 'killed by SIGSEGV: {"steps": 1, "score": 0.4}')),
        ([RESULT, '{"result": 0.6}'], -11, {}, (CRASHED, None, 'killed by SIGSEGV: {"result": 0.6}')),
        (['{"result": NaN}'], -11, {}, (CRASHED, None, 'killed by SIGSEGV: {"result": NaN}')),
        ([SCORE], -15, {"told": CAPPED, "late": [RESULT]}, (TrialEnd.CAPPED, 0.4, "stopped at its cost cap")),
        ([RESULT], 143, {"outside": True}, (INTERRUPTED, None, OUTSIDE.format("SIGTERM"))),
        # A score is not final by itself, unless the user says so of the exit code.
        ([SCORE], -6, {}, (CRASHED, None, 'killed by SIGABRT: {"steps": 1, "score": 0.4}')),
        (["acc 0.4"], 134, REGEX, (TrialEnd.USER_ERROR, None, "exited with code 134: acc 0.4")),
        (["acc 0.4"], 134, REGEX | ACCEPT, (COMPLETE, 0.4, "exited with code 134, which --accept-exit-codes takes")),
        (["acc 0.4"], -6, REGEX | ACCEPT, (COMPLETE, 0.4, "killed by SIGABRT, which --accept-exit-codes takes")),
        (["acc 0.4"], -11, REGEX | ACCEPT, (CRASHED, None, "killed by SIGSEGV: acc 0.4")),
        (
            ["acc nan"],
            134,
            REGEX | ACCEPT,
            (TrialEnd.DIVERGED, None, "its last score is nan, which is no finite score"),
        ),
        ([], 134, REGEX | ACCEPT, (TrialEnd.MISTAKE, None, "exited with code 134 without a score: no line matched")),
        # Who has killed it: somebody, also where a shell passes that on, or a handler.
        ([SCORE], -9, {}, (INTERRUPTED, None, OUTSIDE.format("SIGKILL"))),
        ([SCORE], 137, {}, (INTERRUPTED, None, OUTSIDE.format("SIGKILL"))),
        ([SCORE], 143, {}, (INTERRUPTED, None, OUTSIDE.format("SIGTERM"))),
        ([SCORE], 130, {}, (INTERRUPTED, None, OUTSIDE.format("SIGINT"))),
        (["usage"], 129, {}, (TrialEnd.USER_ERROR, None, "exited with code 129: usage")),
        ([SCORE], -9, {"told": (TrialEnd.HUNG, "silent")}, (TrialEnd.HUNG, None, "silent")),
        ([SCORE], -9, {"told": (TrialEnd.OUT_OF_MEMORY, "2 GiB")}, (TrialEnd.OUT_OF_MEMORY, None, "2 GiB")),
    ],
)
def test_how_a_command_ends_is_told_by_its_result_and_by_who_has_ended_it(
    lines: list[str], code: int | None, how: dict[str, Any], expected: tuple[TrialEnd, float | None, str]
) -> None:
    found = ended(lines, code, **how)
    assert (found.end, found.score) == expected[:2]
    assert found.reason.startswith(expected[2]) and bool(found.reason) == bool(expected[2])


@pytest.mark.parametrize(
    ("before", "after", "end", "reason"),
    [
        (2, 2, INTERRUPTED, OUTSIDE.format("SIGKILL")),
        (2, 3, TrialEnd.OUT_OF_MEMORY, "killed by SIGKILL: the machine or its container was out of memory"),
        (None, None, CRASHED, "killed by SIGKILL (out of memory?)"),  # the kernel does not tell
    ],
)
def test_the_kernel_tells_whether_memory_was_short_when_a_command_was_killed(
    before: int | None, after: int | None, end: TrialEnd, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([before, after])
    monkeypatch.setattr(f"{__name__}.oom_kills", lambda: next(counts))
    monkeypatch.setattr(process, "oom_kills", lambda: after)
    for code in (-9, 137):
        counts = iter([before, after])
        found = ended([], code)
        assert (found.end, found.reason) == (end, reason)


REFUSALS = [  # what programs say of an argument that they do not have, and their exit code
    (2, "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --lrr 0.1"),
    (2, "usage: train.py [-h] --data DATA\ntrain.py: error: the following arguments are required: --data"),
    (
        2,
        "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option: --lrr Did you mean --lr?",
    ),
    (2, "flag provided but not defined: -lrr\nUsage of ./train:\n  -lr float\n    \trate (default 0.1)"),
    (2, "error: unexpected argument '--lrr' found\n\nUsage: train [OPTIONS]\n\nFor more information, try '--help'."),
    (2, "ls: unrecognized option '--lrr'\nTry 'ls --help' for more information."),
    (1, "FATAL Flags parsing error: Unknown command line flag 'lrr'.\nPass --helpshort or --helpfull to see help."),
    (1, "Could not override 'lrr'.\nKey 'lrr' is not in struct\n    full_key: lrr\n\nSet HYDRA_FULL_ERROR=1"),
    (1, "Usage:\n  train.py [--lr=<rate>]"),
    (9, "node: bad option: --lrr"),
    (129, "error: unknown option `lrr'\nusage: git diff [<options>]"),
    (2, "python: can't open file '/home/a/train.py': [Errno 2] No such file or directory"),
    (127, "sh: 1: trane: not found"),
    (126, "sh: 1: ./train: Permission denied"),
]
OTHERS = [  # failures that may be due to the values
    (1, "RuntimeError: CUDA error: invalid argument"),
    (1, "TypeError: Adam.__init__() got an unexpected keyword argument 'momentum'"),
    (1, "GPU usage: 80 %\nValueError: the loss is nan"),
    (1, "Usage: 80 %\nValueError: the loss is nan"),
    (1, "java: Unknown option: ignored\n" + 20 * "epoch\n" + "ValueError: the loss is nan"),
    (3, "the loss is nan"),
]


def test_a_program_that_refuses_its_arguments_is_told_from_one_that_fails() -> None:
    for code, said in [*REFUSALS, *OTHERS]:
        outcome = ended(said.splitlines(), code)
        refused = (code, said) in REFUSALS
        assert outcome.end is (TrialEnd.MISTAKE if refused else TrialEnd.USER_ERROR), said
        assert outcome.reason.startswith(f"exited with code {code}") and "\n" not in outcome.reason
        after = ended(["acc 0.1", *said.splitlines()], code, score_from="regex", score=r"acc (\S+)")
        assert after.end is TrialEnd.USER_ERROR, "it has read its arguments"
        if code < 126:
            assert ended(said.splitlines(), code, accept=(code,)).end is (
                TrialEnd.USER_ERROR if refused else TrialEnd.MISTAKE
            ), "whoever accepts the code lets the sweep go on with other configs"
