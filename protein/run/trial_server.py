"""The sweep's side of the server of trials (`serving.py`): starts it when it is needed, and again when it has died."""

import atexit
import contextlib
import functools
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import protein
from protein.run import child, serving

WAIT_SECONDS = 1.0  # for an answer, until the server is woken in case somebody has stopped it (SIGSTOP)
END_SECONDS = 10.0  # for the server's own end, when this process ends
_TRIES = 2

# Starts a server, which gets the first end of the socket and must not keep the second. Returns its process id.
Launch = Callable[[socket.socket, socket.socket], int]


class TrialProcess:
    """A trial's process: its id, and its exit code once it has ended.

    Attributes:
        pid: of the process, which is the leader of its own group.
        status: descriptor that becomes readable when there is news of the exit.
        exit_code: negative: the signal that killed it; None: it is not known to have ended.
        ended_at: when it ended, on the monotonic clock, however late the sweep looks; None: that is not known.
        is_lost: whether the server has died before it could tell how the trial ended. The trial is dead then, too.
    """

    def __init__(self, pid: int, status: int, server: int) -> None:
        self.pid, self.status = pid, status
        self.exit_code: int | None = None
        self.ended_at: float | None = None
        self.is_lost = False
        self._server = server
        os.set_blocking(status, False)

    @property
    def ended(self) -> bool:
        return self.is_lost or self.exit_code is not None

    def look(self) -> None:
        """Reads the news of the exit, if there is any."""
        if self.ended:
            return
        try:
            data = os.read(self.status, serving.END.size)
        except BlockingIOError:
            return
        if len(data) == serving.END.size:
            self.exit_code, self.ended_at = serving.END.unpack(data)
        else:
            self.is_lost = True
            self.send(signal.SIGKILL)  # the trial's children, which the kernel has not killed with it

    def wake_server(self) -> None:
        """Lets a server that somebody has stopped go on: it has to tell how the trial ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._server, signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Signals the trial's process group, or the process alone while it has not made its own group yet."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            if not self.ended:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)

    def close(self) -> None:
        os.close(self.status)


class TrialServer:
    """A server of trials, which runs from the first trial on. Any thread may use it."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._pid = 0
        self._owner = 0  # the process that has started it

    def start(self, start: child.Start, output: int) -> TrialProcess:
        """Starts a trial; waits until the server has imported what it preloads.

        Args:
            start: of the trial.
            output: descriptor to which the trial writes what it reports.

        Raises:
            OSError: the server dies whenever it is started, or the system has no process left.
        """
        with self._lock:
            for _ in range(_TRIES):
                control = self._running()
                reading, writing = os.pipe()
                try:
                    serving.send(control, start, (output, writing))
                except OSError:
                    pass
                finally:
                    os.close(writing)
                pid = self._answer(reading)
                if pid > 0:
                    return TrialProcess(pid, reading, self._pid)
                os.close(reading)
                if pid < 0:
                    raise OSError(-pid, os.strerror(-pid))
                self._end()
            raise OSError(f"the server of trials has died {_TRIES} times as a trial started; its last words are above")

    def launch(self) -> None:
        """Starts the server now, if it does not run. Raises `OSError` as `start`."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """Ends the server and all its trials."""
        with self._lock:
            self._end()
        with contextlib.suppress(ValueError):
            _started.remove(self)

    def _running(self) -> socket.socket:
        """Returns the connection to a server that runs, as far as can be known."""
        if self._control is not None and self._owner != os.getpid():  # this is a fork of the process that started it
            self._control.close()
            self._control = None
        if self._control is not None and not self._is_alive():
            self._end()
        if self._control is None:
            ours, theirs = socket.socketpair()
            try:
                self._pid = self._launch(theirs, ours)
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            self._control, self._owner = ours, os.getpid()
            _remember(self)
        return self._control

    def _answer(self, status: int) -> int:
        """Returns the process id of the trial that the server has started; 0: it has died; below 0: an error number."""
        with selectors.DefaultSelector() as selector:
            selector.register(status, selectors.EVENT_READ)
            while not selector.select(WAIT_SECONDS):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGCONT)
        data = os.read(status, serving.NUMBER.size)
        answer: int = serving.NUMBER.unpack(data)[0] if data else 0
        return answer

    def _is_alive(self) -> bool:
        try:
            return os.waitpid(self._pid, os.WNOHANG)[0] == 0
        except ChildProcessError:
            return False

    def _end(self) -> None:
        if self._control is None:
            return
        self._control.close()
        self._control = None
        if self._owner != os.getpid():
            return
        ended = threading.Event()

        def wait() -> None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            ended.set()

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        if not ended.wait(END_SECONDS):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        waiting.join()

    def forget(self) -> None:
        """Closes a fork's copy of the connection: the server must not take a fork's life for the sweep's."""
        if self._control is not None and self._owner != os.getpid():
            self._control.close()
            self._control = None
            self._lock = threading.Lock()


def launch_python(preload: tuple[str, ...]) -> Launch:
    """Returns what starts a server in a new Python process, which imports `preload` once for all trials.

    It does not search the working directory for modules, as `python -c` would: a `torch.py` there would be imported.
    """

    def launch(control: socket.socket, _: socket.socket) -> int:
        number, source = control.fileno(), str(Path(protein.__file__).parent.parent)
        code = (
            f"import sys; sys.path.append({source!r}); from protein.run import serving;"
            f" serving.main({number}, {preload!r}, {os.getpid()})"
        )
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[number],
            start_new_session=True,  # signals to the sweep's group are not for it
        )
        process.returncode = 0  # it is waited for by its id; without this its object would warn that it still runs
        return process.pid

    return launch


_servers: dict[tuple[str, ...], TrialServer] = {}  # those that run modules' command lines, by what they preload
_started: list[TrialServer] = []  # by this process or one that it was forked from


def shared(preload: tuple[str, ...]) -> TrialServer:
    """Returns the server of this process that preloads these modules: torch is imported once for all sweeps."""
    if preload not in _servers:
        _servers[preload] = TrialServer(launch_python(preload))
    return _servers[preload]


def _remember(server: TrialServer) -> None:
    """Sees to it that a server ends with this process, and that forks of this process do not keep it alive."""
    _register_once()
    if server not in _started:
        _started.append(server)


@functools.cache
def _register_once() -> None:
    atexit.register(_close_all)
    os.register_at_fork(after_in_child=_forget_all)


def _close_all() -> None:
    for server in _started[:]:  # each takes itself off the list
        with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C: the server ends, too, and is not waited for
            server.close()


def _forget_all() -> None:
    for server in _started:
        server.forget()
