"""A process that is forked from a warm one (`warm_starts`) is what a true start of Python is."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import psutil
import pytest
import warm_starts
from patience import PATIENCE_SECONDS

FACTS = """
import json, os, signal, sys, threading
streams = [sys.stdin, sys.stdout, sys.stderr]
facts = {
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "path": sys.path,
    "flags": list(sys.flags),
    "variables": dict(os.environ),
    "directory": os.getcwd(),
    "parent": os.getppid(),
    "group": os.getpgid(0) == os.getpid(),
    "session": os.getsid(0) == os.getpid(),
    "files": sorted(os.listdir("/proc/self/fd"), key=int),
    "signals": [str(signal.getsignal(number)) for number in range(1, 32)],
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "threads": threading.active_count(),
    "streams": [[each.encoding, each.errors, each.line_buffering, each.name, each.mode] for each in streams],
}
if "fd" in sys.argv:
    os.write(int(sys.argv[-1]), b"passed")
print(json.dumps(facts))
"""


# It is `subprocess.run` itself, with another `Popen`.
warm_run = types.FunctionType(subprocess.run.__code__, {**vars(subprocess), "Popen": warm_starts.Popen})
warm_run.__kwdefaults__ = subprocess.run.__kwdefaults__


def facts(run: Any, *words: str, **options: Any) -> dict[str, Any]:
    done = run([sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True, **options)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("kind", ["code", "script", "module", "safe"])
def test_a_warm_start_is_what_a_true_one_is(kind: str, tmp_path: Path) -> None:
    (tmp_path / "facts.py").write_text(FACTS)
    words = {"code": ["-c", FACTS], "script": ["facts.py"], "module": ["-m", "facts"], "safe": ["-P", "facts.py"]}[kind]
    for options in (
        {"cwd": tmp_path, "stdin": subprocess.DEVNULL},
        {"cwd": tmp_path, "input": "text", "start_new_session": True, "stderr": subprocess.STDOUT},
        {"cwd": str(tmp_path), "env": {**os.environ, "OURS": "1"}, "stdin": subprocess.DEVNULL},
        {"env": {**os.environ, "PYTHONPATH": f"elsewhere:{tmp_path}::{sys.path[-1]}"}, "cwd": tmp_path},
    ):
        cold, warm = (facts(run, *words, "a", "-b", **options) for run in (subprocess.run, warm_run))
        if kind == "safe":  # the flag itself is not told
            del cold["flags"], warm["flags"]
        assert warm == cold
        assert cold["parent"] == os.getpid()


def test_files_are_passed_by_their_numbers() -> None:
    reading, writing = os.pipe()
    for run in (subprocess.run, warm_run):
        told = facts(run, "-c", FACTS, "fd", str(writing), pass_fds=[writing], stdin=subprocess.DEVNULL)
        assert os.read(reading, 6) == b"passed" and str(writing) in told["files"]
    for end in (reading, writing):
        os.close(end)


@pytest.mark.parametrize(
    "code",
    [
        "",
        "import sys; sys.exit(3)",
        "import sys; sys.exit(-1)",
        "import sys; sys.exit('words')",
        "import os; os._exit(4)",
        "1 / 0",
        "raise KeyboardInterrupt",
        "import os; os.kill(os.getpid(), 9)",
        "import atexit; atexit.register(print, 'at the end'); print('first')",
        "import threading; threading.Timer(.01, print, ['thread']).start()",
        "kept = open('kept', 'w'); kept.write('text')",
        "import os; os.close(1); print('lost')",
        "no python",
    ],
)
def test_it_ends_as_a_true_one_does(code: str, tmp_path: Path) -> None:
    ends = []
    for run in (subprocess.run, warm_run):
        done = run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
        last = done.stderr.splitlines()[-1:]
        ends.append((done.returncode, done.stdout, last, [path.read_text() for path in tmp_path.glob("kept")]))
    assert ends[0] == ends[1]


def test_it_is_a_child_that_signals_reach() -> None:
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        with warm_starts.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1) as process:
            assert process.stdout is not None and process.stdout.readline() == b"\n"
            assert psutil.Process(process.pid).ppid() == os.getpid() and process.poll() is None
            process.send_signal(number)
            assert process.wait(PATIENCE_SECONDS) == -number


def test_what_a_fork_cannot_have_is_a_true_start(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = "import sys; print('scipy.stats' in sys.modules)"

    def loaded(*words: str, **options: Any) -> str:
        done = warm_run([sys.executable, *words], capture_output=True, text=True, check=True, **options)
        return str(done.stdout.strip())

    assert loaded("-c", ask) == "True"
    assert loaded("-I", "-c", ask) == "False"
    assert loaded("-c", ask, env={**os.environ, "PYTHONHASHSEED": "1"}) == "False"
    assert loaded("-c", ask, process_group=0) == "False"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert loaded("-c", ask) == "False"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert loaded("-c", ask) == "True"
    done = warm_run(["true"], check=True)
    assert done.returncode == 0


def test_the_warm_process_ends_with_the_one_that_uses_it() -> None:
    code = (
        f"import sys; sys.path.append({str(Path(warm_starts.__file__).parent)!r}); import os, warm_starts as warm\n"
        "warm.PRELOAD = ()\n"
        "warm.Popen([sys.executable, '-c', 'print(1)']).wait()\n"
        "print(open(f'/proc/self/task/{os.getpid()}/children').read())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    warm = int(done.stdout.split()[-1])
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(warm).wait(PATIENCE_SECONDS)
