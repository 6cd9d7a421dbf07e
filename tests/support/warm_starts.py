"""Starts of Python for tests with the fixture `warm`: each is forked from a process that has loaded our modules.

To import what a command needs takes longer than most commands do. So each of pytest's processes has a warm process: a
new Python that has imported it, runs nothing, and has one thread. A start is a fork of that, which is then as
`python ...` would have made it: a child of this process, with the arguments, streams, variables, working directory and
session that `subprocess.Popen` was asked for. All else is `subprocess.Popen` itself.

What a fork can't have, such as variables that Python or a library reads when it is loaded, makes it a true start. So
does another system than Linux. Tests do without, or take `cold`, where they show how a command starts, what it imports,
what memory it has, or where they look for a process by its command line or its variables in /proc.

A fork that ends without an error does not take apart what was loaded. `protein sweep` gets a warm process of its own.
"""

import atexit
import builtins
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import itertools
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from protein.run import trainer

PRELOAD = (
    "protein.cli.sweep",
    "protein.cli.show",
    "protein.cli.status",
    "protein.view.figures.front",
    "matplotlib.backends.backend_agg",
    "scipy.stats",
    "protein.run.fork_server",
    "protein.trainer.__main__",
    *trainer.PRELOAD,
)
# Variables that are read when Python or a library is loaded, by how their names begin.
_READ_AT_START = (
    *("PYTHON", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "MKL_", "MPL", "TORCH", "CUDA"),
    *("LANG", "LC_", "TZ", "HOME", "XDG_CONFIG"),
)
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_POPEN = subprocess.Popen
_GROUP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
# What `subprocess.Popen` asks for beside the words, in its order; and what it asks for unless it is told otherwise.
_PIPES = ("stdin", "to_stdin", "from_stdout", "stdout", "from_stderr", "stderr")
_ASKED = (
    *("executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo", "creationflags", "shell"),
    *(*_PIPES, "restore_signals", "gid", "gids", "uid", "umask", "start_new_session", "process_group"),
)
_USUAL = dict.fromkeys(("executable", "preexec_fn", "gid", "gids", "uid"))
_USUAL |= {"close_fds": True, "shell": False, "restore_signals": True, "umask": -1, "process_group": -1}


class _Warm:
    """The warm process of this process, from its first start on."""

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), 0
        self._control: socket.socket | None = None
        self._traits: dict[str, Any] = {}

    def can(self, environment: Mapping[str, str]) -> bool:
        """Whether a fork has what a child of this process would have. Starts the warm process."""
        if sys.platform != "linux" or self._owner not in (0, os.getpid()):  # not in a fork of its user
            return False
        with self._lock:
            if self._control is None:
                self.take(self._start())
        return self._traits == _traits(environment)

    def fork(self, request: dict[str, Any], files: list[int]) -> int:
        """Returns the process id of a new child of this process."""
        assert self._control is not None
        data = json.dumps({**request, "parent": os.getpid()}).encode()
        with self._lock, _adopting():
            socket.send_fds(self._control, [len(data).to_bytes(8)], files)
            self._control.sendall(data)
            answer = self._control.recv(8, socket.MSG_WAITALL)
        assert len(answer) == 8, "the warm process has died; its last words are above"
        return int.from_bytes(answer)

    def take(self, control: socket.socket) -> None:
        """Takes the end of the socket of a process that is warm."""
        self._control, self._owner, self._traits = control, os.getpid(), _traits(_environment())
        atexit.register(control.close)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        support, number = str(Path(__file__).parent), theirs.fileno()
        code = f"import sys; sys.path[0] = {support!r}; import warm_starts as warm; del sys.path[0]"
        code += f"; warm._main({number}, {PRELOAD!r})()"
        environment = {name: value for name, value in _environment().items() if name != "PYTHONPATH"}
        null = subprocess.DEVNULL
        with theirs:
            process = _POPEN([sys.executable, "-c", code], env=environment, stdin=null, stdout=null, pass_fds=[number])
        process.returncode = 0  # it ends with this process, which does not wait for it
        return ours


_WARM = _Warm()


class Popen(subprocess.Popen[Any]):
    """Starts `[sys.executable, "-m", MODULE, ...]`, or a script, or `-c` and code; anything else as it is."""

    def _execute_child(self, args: Any, *more: Any) -> None:
        asked = dict(zip(_ASKED, more, strict=True))
        words = list(args) if isinstance(args, list | tuple) else []
        safe = words[1:2] == ["-P"]
        plain = [*words[:1], *words[2:]] if safe else words
        environment = _environment() if asked["env"] is None else dict(asked["env"])
        if not _is_plain(plain) or {name: asked[name] for name in _USUAL} != _USUAL or not _WARM.can(environment):
            super()._execute_child(args, *more)  # type: ignore[misc]
            return
        pipes = [asked[name] for name in _PIPES]
        passed = [int(number) for number in asked["pass_fds"]]
        request = {
            "words": plain,
            "orig_argv": words,
            "safe": safe,
            "environment": environment,
            "directory": os.path.abspath(asked["cwd"] or "."),  # noqa: PTH100 (as it is: it may be a link)
            "session": bool(asked["start_new_session"]),
            "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
            "files": [0, 1, 2, *passed],
        }
        streams = [number if end == -1 else end for number, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        self.pid = _WARM.fork(request, [*streams, *passed])
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def warm() -> Iterator[None]:
    """For all tests of a file: what they start with `subprocess`, and what our code starts in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Popen)
        yield


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test of a file with `warm`: a start is what it tests."""
    monkeypatch.setattr(subprocess, "Popen", _POPEN)


def _is_plain(words: list[str]) -> bool:
    """Whether a Python is started without flags of its own."""
    kind = words[1:2]
    return words[:1] == [sys.executable] and bool(kind) and (kind[0] in ("-m", "-c") or not kind[0].startswith("-"))


def _environment() -> dict[str, str]:
    """Returns the variables of this process, also those that a library has set (readline: COLUMNS)."""
    entries = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    every = itertools.takewhile(lambda entry: entry is not None, (entries[number] for number in itertools.count()))
    return dict(os.fsdecode(entry).split("=", 1) for entry in every)


def _traits(environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns what a child would have of this process and has of the warm one."""
    return {
        "variables": {
            name: value
            for name, value in environment.items()
            if name.startswith(_READ_AT_START) and name != "PYTHONPATH"  # a fork minds it itself
        },
        "limits": [resource.getrlimit(number) for number in _LIMITS],
        "cores": os.sched_getaffinity(0),
        "niceness": os.nice(0),
        "ignored": [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN],
    }


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """This process becomes the parent of those that its children leave behind."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    before = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def _main(control: int, preload: tuple[str, ...]) -> Callable[[], None]:
    """Loads what there is to load, and forks until the process that has started this one has ended.

    Returns only in a fork: what that is to do.
    """
    for module in preload:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    return _serve(socket.socket(fileno=control))


def _serve(control: socket.socket) -> Callable[[], None]:
    # What ends a whole group is for the forks.
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _GROUP}
    while True:
        head, files, _, _ = socket.recv_fds(control, 8, 64)
        if not head:
            os._exit(0)
        request = json.loads(control.recv(int.from_bytes(head), socket.MSG_WAITALL))
        told, tell = os.pipe()
        if (between := os.fork()) == 0:
            ours = os.getpid()
            if (pid := os.fork()) == 0:
                while (parent := os.getppid()) != request["parent"]:
                    if parent != ours:
                        os._exit(1)  # the one that asked has ended
                    time.sleep(0.0005)  # until the process between the two has ended
                for end in (told, tell):
                    os.close(end)
                control.close()
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                return _become(request, files)
            os.write(tell, pid.to_bytes(8))
            os._exit(0)
        os.waitpid(between, 0)
        control.send(os.read(told, 8))
        for end in (told, tell, *files):
            os.close(end)


def _become(request: dict[str, Any], files: list[int]) -> Callable[[], None]:
    """Makes this process what `python` would be. Returns what it runs."""
    words: list[str] = request["words"]
    ours = None
    if words[1:4] == ["-m", "protein", "sweep"]:  # it starts others, as the server of its trials
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            for end in (null, *files):
                os.close(end)
            ours.close()
            return _serve(theirs)
        theirs.close()
    above = [fcntl.fcntl(file, fcntl.F_DUPFD, 3 + max(request["files"])) for file in files]
    for end, number in zip(above, request["files"], strict=True):
        os.dup2(end, number)
    for end in {*files, *above} - set(request["files"]):
        os.close(end)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, name)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if request["session"]:
        os.setsid()
    os.chdir(request["directory"])
    locale = {name: os.environ[name] for name in ("LC_CTYPE",) if name in os.environ}  # Python may have set it
    os.environ.clear()
    os.environ.update({**locale, **request["environment"]})
    if "numpy" in sys.modules:  # other modules do so by themselves after a fork
        sys.modules["numpy"].random.seed()
    kind = words[1] if words[1] in ("-m", "-c") else ""
    sys.orig_argv[:] = request["orig_argv"]
    sys.argv[:] = [kind, *words[3:]] if kind else words[1:]
    folder = os.path.dirname(os.path.realpath(words[1]))  # noqa: PTH120
    named = filter(None, request["environment"].get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = dict.fromkeys([*map(os.path.abspath, named), *sys.path])
    if not request["safe"]:
        sys.path.insert(0, {"-m": request["directory"], "-c": ""}.get(kind, folder))
    if kind == "-m":  # it begins anew
        for name in (words[2], f"{words[2]}.__main__"):
            if not hasattr(sys.modules.get(name), "__path__"):
                sys.modules.pop(name, None)
    if ours is not None:
        _WARM.take(ours)
        subprocess.Popen = Popen  # type: ignore[misc]
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if not kind:
        main.__file__ = words[1]

    def work() -> None:
        if kind == "-m":
            runpy._run_module_as_main(words[2])  # type: ignore[attr-defined]
        source = words[2] if kind else Path(words[1]).read_bytes()
        exec(compile(source, "<string>" if kind else words[1], "exec"), main.__dict__)

    return lambda: _end(_code(work))


def _stream(number: int, name: str) -> io.TextIOWrapper:
    """Returns a standard stream as Python makes it, with the settings of the one that this process has."""
    old = getattr(sys, f"__{name}__")
    raw = io.FileIO(number, "wb" if number else "rb", closefd=False)
    raw.name = f"<{name}>"
    buffer = raw if isinstance(old.buffer, io.FileIO) else (io.BufferedWriter if number else io.BufferedReader)(raw)
    lines = not old.write_through and (number == 2 or os.isatty(number))
    stream = io.TextIOWrapper(buffer, old.encoding, old.errors, line_buffering=lines, write_through=old.write_through)
    stream.mode = old.mode  # type: ignore[misc]
    return stream


def _code(work: Callable[[], None]) -> int:
    """Returns the exit code of what ends without an error. An error is shown by Python, as everywhere."""
    try:
        work()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        raise
    return 0


def _end(code: int) -> None:
    """Ends this process as Python does, but leaves out to take apart all that was loaded, which takes .1 s."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except OSError:  # Python itself says so
        sys.exit(code)
    sys.modules["__main__"].__dict__.clear()
    gc.collect()
    os._exit(code & 0xFF)
