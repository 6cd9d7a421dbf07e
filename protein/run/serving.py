"""The server of trials: the process from which every trial is forked, so that none waits for imports.

It does little, so that it is always there: it forks, waits, and writes what trials say to stderr into their logs. The
sweep talks to it through a socket (`trial_server.py`). One request starts one trial and brings two descriptors: the
trial's output, and a pipe on which the server answers with the trial's process id and later with its exit code and the
moment of its end.

It ends when the sweep ends, for any reason: then the other end of the socket is closed. It kills its trials first. It
has a session of its own, and ignores the signals by which a person or a scheduler ends a whole group: the sweep ends
its trials in order. When it dies itself, the kernel kills the trials, and the sweep sees their pipes close.

When a trial has ended, the server kills the processes that the trial has left behind, before it tells the sweep. They
are its own children by then, in whatever session they are (Linux only, see `child.become_trial`).
"""

import contextlib
import errno
import gc
import importlib
import os
import pickle
import selectors
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import Process, popen_fork
from pathlib import Path
from typing import NoReturn

import psutil

from protein.run import child
from protein.run.bounded_log import BoundedLog

NUMBER = struct.Struct("q")  # process ids, error numbers and lengths
END = struct.Struct("qd")  # an exit code, and when the process ended, on the clock that all processes share
POLL_SECONDS = 1.0  # how often the server looks whether the sweep still lives
READ_BYTES = 1 << 16
ORPHANS_SECONDS = 5.0  # how long it goes on killing what a trial has left behind, which may multiply
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(control: int, preload: Sequence[str], sweep: int) -> NoReturn:
    """Runs the server in a new Python process.

    Args:
        control: descriptor of its end of the socket.
        preload: modules that are imported once, for all trials.
        sweep: the process id of the sweep.
    """
    ignore_signals()
    gc.disable()  # in modules that are loaded there is no garbage
    for module in preload:
        with contextlib.suppress(ImportError):  # the trial then says so
            importlib.import_module(module)
    # No trial looks for garbage among these, which takes time and copies the memory that it shares with the others.
    gc.freeze()
    gc.enable()
    serve(socket.socket(fileno=control), sweep)


def serve(control: socket.socket, sweep: int) -> NoReturn:
    """Starts trials until the sweep has ended, then ends this process. Called in a process that has no other thread."""
    try:
        ignore_signals()
        child.become_subreaper()
        _Server(control, sweep).serve()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def ignore_signals() -> None:
    """Ignores what ends a whole group of processes: the sweep ends its trials in order."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)


class _Trial:
    """A running trial, as the server sees it."""

    def __init__(self, forked: popen_fork.Popen, status: int, errors: int | None, log: BoundedLog | None) -> None:
        self.forked, self.status, self.errors, self.log = forked, status, errors, log

    def take_errors(self) -> bool:
        """Writes what waits in the pipe into the log. Returns False once the pipe is closed."""
        assert self.errors is not None and self.log is not None
        try:
            data = os.read(self.errors, READ_BYTES)
        except BlockingIOError:
            return True
        if data:
            with contextlib.suppress(OSError):  # of a full disk: the trial must not wait for that
                self.log.write(data)
        return bool(data)


class _Server:
    """The state of one call of `serve`."""

    def __init__(self, control: socket.socket, sweep: int) -> None:
        self._control, self._sweep = control, sweep
        self._trials: dict[int, _Trial] = {}  # by process id
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = os.pipe()
        for end in (self._wake, self._woken):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        self._selector.register(control, selectors.EVENT_READ, self._take_request)
        self._selector.register(self._wake, selectors.EVENT_READ, self._drain)
        self._ended = False

    def serve(self) -> None:
        while not self._ended and os.getppid() == self._sweep:
            for key, _ in self._selector.select(POLL_SECONDS):
                act: Callable[[], None] = key.data
                act()
            self._reap()
        for pid in self._trials:
            _kill_group(pid)
        self._trials.clear()
        _kill_children(set())

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, READ_BYTES)

    def _take_request(self) -> None:
        request = receive(self._control)
        if request is None:
            self._ended = True
            return
        start, descriptors = request
        output, status = descriptors
        errors, childs_errors, log = self._open_log(start)
        process = Process(target=self._become_trial, args=(start, output, status, errors, childs_errors))
        # The server ignores these signals. Blocked while it forks, they wait until the trial's process listens to them.
        signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        try:
            forked = popen_fork.Popen(process)  # it alone would be waited for by multiprocessing, had `start` made it
        except OSError as error:  # too many processes: the other trials go on
            _answer(status, NUMBER.pack(-(error.errno or errno.EAGAIN)))
            os.close(status)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
            os.close(output)
            if childs_errors is not None:
                os.close(childs_errors)
        trial = self._trials[forked.pid] = _Trial(forked, status, errors, log)
        if errors is not None:
            self._selector.register(errors, selectors.EVENT_READ, lambda: self._take_errors(trial))
        _answer(status, NUMBER.pack(forked.pid))

    def _open_log(self, start: child.Start) -> tuple[int | None, int | None, BoundedLog | None]:
        """Returns both ends of a trial's stderr and where it goes; None where it is not kept."""
        if start.log is None:
            return None, None, None
        try:
            log = BoundedLog(Path(start.log))
        except OSError:
            return None, os.open(os.devnull, os.O_WRONLY), None
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        return reading, writing, log

    def _take_errors(self, trial: _Trial) -> None:
        if not trial.take_errors():
            self._selector.unregister(trial.errors)  # type: ignore[arg-type]

    def _become_trial(
        self, start: child.Start, output: int, status: int, errors: int | None, childs_errors: int | None
    ) -> NoReturn:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *IGNORED):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
        server = os.getppid()
        self._selector.close()
        self._control.close()
        others = [end for trial in self._trials.values() for end in (trial.status, trial.errors)]
        for end in (self._wake, self._woken, status, errors, *others):
            if end is not None:
                os.close(end)
        for trial in self._trials.values():
            if trial.log is not None:
                trial.log.close()
        if childs_errors is not None:
            os.dup2(childs_errors, 2)
            os.close(childs_errors)
        child.become_trial(start, server)
        sys.exit(start.work(output))

    def _reap(self) -> None:
        """Tells the sweep of trials that have ended, when nothing of them is left."""
        ended = []
        with contextlib.suppress(ChildProcessError):
            while (waited := os.waitpid(-1, os.WNOHANG))[0] != 0:
                if waited[0] in self._trials:
                    ended.append((*waited, time.monotonic()))
        if not ended:
            return
        for pid, _, _ in ended:
            _kill_group(pid)
        trials = [(self._trials.pop(pid), status, moment) for pid, status, moment in ended]
        _kill_children(set(self._trials))
        for trial, status, moment in trials:
            if trial.errors is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(trial.errors)
                until = time.monotonic() + POLL_SECONDS  # where something that cannot be killed still writes
                while _is_readable(trial.errors) and trial.take_errors() and time.monotonic() < until:
                    pass
                os.close(trial.errors)
            if trial.log is not None:
                trial.log.close()
            _answer(trial.status, END.pack(os.waitstatus_to_exitcode(status), moment))
            os.close(trial.status)


def send(control: socket.socket, start: child.Start, descriptors: Sequence[int]) -> None:
    """Asks the server to start a trial. Raises `OSError` where the server has died."""
    data = pickle.dumps(start)
    socket.send_fds(control, [NUMBER.pack(len(data))], descriptors)
    control.sendall(data)


def receive(control: socket.socket) -> tuple[child.Start, list[int]] | None:
    """Returns the next request and its two descriptors; None: the sweep has ended."""
    try:
        head, descriptors, _, _ = socket.recv_fds(control, NUMBER.size, 2)
        data = b""
        missing = NUMBER.unpack(head)[0] if len(head) == NUMBER.size else 0
        while missing and (part := control.recv(missing)):
            data, missing = data + part, missing - len(part)
    except ConnectionError:
        return None
    if not data or missing or len(descriptors) != 2:
        return None
    start: child.Start = pickle.loads(data)
    return start, descriptors


def _answer(status: int, answer: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # the sweep does not listen any more
        os.write(status, answer)


def _is_readable(descriptor: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(0))


def _kill_group(pid: int) -> None:
    """Kills a trial's process group, or the trial alone where it has not made its group yet."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        with contextlib.suppress(ProcessLookupError):
            if _is_child(pid):
                os.kill(pid, signal.SIGKILL)


def _is_child(pid: int) -> bool:
    """Whether a process is a child of this one that has not been waited for: its id cannot mean another process."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _kill_children(keep: set[int]) -> None:
    """Kills all children but those to `keep`, and theirs, which become this process's own as their parents die."""
    until = time.monotonic() + ORPHANS_SECONDS
    while (found := set(_children()) - keep) and time.monotonic() < until:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    """Returns the process ids of this process's children."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return [process.pid for process in psutil.Process().children()]
