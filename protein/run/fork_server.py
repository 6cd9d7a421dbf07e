"""The server of trials: the process from which every trial on this machine is forked, so that none waits for imports.

It does little, so that it is always there: it forks, waits, and writes what trials say to stderr into their logs. The
sweep talks to it through a socket (`protein.run.process`). One request starts one trial. It brings the ends of the
trial's pipes, and one on which the server answers with the trial's process id, and tells later when the trial was
stopped (SIGSTOP), went on, and ended.

A trial is a call of a `Work`, or a command that takes the place of the forked process. The server of commands imports
nothing for them, and begins without site-packages, in a hundredth of a second: `python -I -S server.py SOCKET SWEEP`.
So this module imports the standard library alone.

The server ends when the sweep ends, for any reason: then the other end of the socket is closed. It kills its trials
first. It has a session of its own, and outlives the signals by which a person or a scheduler ends a whole group: the
sweep ends its trials in order. When it dies itself, the kernel kills the trials (Linux only), and the sweep sees that.

When a trial has ended, the server kills the processes that the trial has left behind, before it tells the sweep. They
are its own children by then, in whatever session they are: the kernel makes every trial the parent of all that its
descendants leave behind, and the server that of what the trial leaves. Only Linux does that. Elsewhere, a child that
has begun a session of its own outlives the trial.

Slurm and systemd send SIGTERM to all processes of a job or service at once. So the server notes it, and says of each
trial that ran then that it was ended from outside, whatever the trial made of the signal.
"""

import contextlib
import errno
import gc
import marshal
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

NUMBER = struct.Struct("q")  # lengths
ANSWER = struct.Struct("qd")  # a process id, or an error number below 0; and when the process was started
NEWS = struct.Struct("qqdd?")  # `STOPPED`, `CONTINUED` or `ENDED`, and what `_Trial.tell` says of it
STOPPED, CONTINUED, ENDED = range(3)
PIPES = 4  # at most, of one trial
POLL_SECONDS = 1.0  # how often the server looks whether the sweep still lives
READ_BYTES = 1 << 16
ORPHANS_SECONDS = 5.0  # how long it goes on killing what a trial has left behind, which may multiply
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CANNOT_START = b"protein: cannot start: "  # how the first pipe of a command begins where there is no such program
MAX_LOG_BYTES = 16 << 20
HEAD_BYTES = TAIL_BYTES = 4 << 20
_NOTICE = b"\n[... %d bytes of the log are left out here: it may have %d MiB ...]\n"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

# What a trial does. It is called with the sweep's pipe, and returns the exit code.
Work = Callable[[int], int]


class Start(NamedTuple):
    """What the server is told of a trial that it is to start; its fields are what `marshal` takes.

    Attributes:
        work: a pickled `Work`, which only the trial's process loads; or the words of a command.
        environment: all variables.
        directory: in which it works.
        path: where modules are looked for.
        cores: to which it is pinned; empty: it is not.
        log: a file for what the trial writes to stderr, which is then bounded; None: stderr is the sweep's, or one of
            the pipes.
    """

    work: bytes | list[str]
    environment: dict[str, str]
    directory: str
    path: list[str]
    cores: list[int]
    log: str | None = None


class EntryPoint:
    """The work of a trial that is a command line of Python's: `module:function`, called with its arguments."""

    def __init__(self, entry: str, arguments: list[str]) -> None:
        self._entry, self._arguments = entry, arguments

    def __call__(self, output: int) -> int:
        """Runs it with stdout to the sweep. Returns the exit code."""
        import importlib

        os.dup2(output, 1)
        os.close(output)
        module, _, function = self._entry.partition(":")
        code: int = getattr(importlib.import_module(module), function)(self._arguments)
        return code


class BoundedLog:
    """Appends to a file. One that has reached `max_bytes` is cut down to its head, a line that says so, and its tail.

    Others may append to the file, too.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = MAX_LOG_BYTES,
        head_bytes: int = HEAD_BYTES,
        tail_bytes: int = TAIL_BYTES,
    ) -> None:
        """Opens the file, or makes it. A symbolic link is not followed: that is an `OSError`."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        self._max, self._head, self._tail = max_bytes, head_bytes, tail_bytes
        self._left_out = 0
        self._notice_bytes = 0  # of the line that is in the file; 0: there is none

    def write(self, data: bytes) -> None:
        """Raises `OSError` where the file cannot be written, for example on a full disk."""
        if os.fstat(self._file).st_size + len(data) > self._max:
            self._cut()
        data = data[-self._max :]
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        os.close(self._file)

    def _cut(self) -> None:
        size = os.fstat(self._file).st_size
        head = min(self._head, size)
        keep = max(size - self._tail, head + self._notice_bytes)
        self._left_out += keep - head - self._notice_bytes
        if self._left_out == 0:
            return
        notice = _NOTICE % (self._left_out, self._max >> 20)
        tail = os.pread(self._file, size - keep, keep)
        os.ftruncate(self._file, head)
        self._notice_bytes = len(notice)
        rest = notice + tail
        while rest:
            rest = rest[os.write(self._file, rest) :]


def main(control: int, preload: Sequence[str], sweep: int) -> NoReturn:
    """Runs the server in a new Python process.

    Args:
        control: descriptor of its end of the socket.
        preload: modules that are imported once, for all trials.
        sweep: the process id of the sweep.
    """
    import importlib

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
        prctl = _prctl()
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _Server(control, sweep, prctl).serve()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(0)


def ignore_signals() -> None:
    """Ignores what ends a whole group of processes: the sweep ends its trials in order."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)


class _Trial:
    """A running trial, as the server sees it.

    Attributes:
        forked: what must live as long as the process does.
        status: where the sweep is told of it.
        report: an end of a command's pipe that is kept open: see `_Server._execute`.
        errors: where its stderr comes from, to be written to `log`.
    """

    def __init__(self, status: int, errors: int | None, log: BoundedLog | None, report: int | None) -> None:
        self.forked: object = None
        self.began = time.monotonic()
        self.status, self.errors, self.log, self.report = status, errors, log, report

    def tell(self, what: int, moment: float, code: int = 0, cpu_seconds: float = 0.0, *, outside: bool = False) -> None:
        """Tells the sweep what has happened to the trial.

        Args:
            what: `STOPPED`, `CONTINUED` or `ENDED`.
            moment: when, on the clock that all processes share.
            code: with which it has ended.
            cpu_seconds: of all its processes.
            outside: whether this process was told to end while the trial ran.
        """
        with contextlib.suppress(BrokenPipeError, BlockingIOError):  # the sweep does not listen any more
            os.write(self.status, NEWS.pack(what, code, moment, cpu_seconds, outside))

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

    def close(self) -> None:
        for end in (self.status, self.errors, self.report):
            if end is not None:
                os.close(end)
        if self.log is not None:
            self.log.close()


class _Server:
    """The state of one call of `serve`."""

    def __init__(self, control: socket.socket, sweep: int, prctl: Callable[[int, int], object]) -> None:
        self._control, self._sweep, self._prctl = control, sweep, prctl
        control.set_inheritable(False)
        self._trials: dict[int, _Trial] = {}  # by process id
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = os.pipe()
        for end in (self._wake, self._woken):
            os.set_blocking(end, False)
        self._told_to_end_at = -1.0
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._note_end)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        self._selector.register(control, selectors.EVENT_READ, self._take_request)
        self._selector.register(self._wake, selectors.EVENT_READ, self._drain)
        self._ended = False

    def _note_end(self, *_: object) -> None:
        self._told_to_end_at = time.monotonic()

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
        start, (status, *pipes) = request
        os.set_blocking(status, False)
        errors, childs_errors, log = _open_log(start)
        trial = _Trial(status, errors, log, None if isinstance(start.work, bytes) else pipes[0])
        # The server does not act on these signals. Blocked while it forks, they wait until the trial's process does.
        signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        try:
            pid = self._fork(trial, start, pipes, childs_errors)
        except OSError as error:  # too many processes: the other trials go on
            os.write(status, ANSWER.pack(-(error.errno or errno.EAGAIN), trial.began))
            trial.close()
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
            for end in (*pipes, childs_errors):
                if end is not None and end != trial.report:
                    os.close(end)
        self._trials[pid] = trial
        if errors is not None:
            self._selector.register(errors, selectors.EVENT_READ, lambda: self._take_errors(trial))
        with contextlib.suppress(BrokenPipeError):
            os.write(status, ANSWER.pack(pid, trial.began))

    def _take_errors(self, trial: _Trial) -> None:
        if not trial.take_errors():
            self._selector.unregister(trial.errors)  # type: ignore[arg-type]

    def _fork(self, trial: _Trial, start: Start, pipes: list[int], errors: int | None) -> int:
        """Returns the process id of a trial that begins now."""
        if isinstance(start.work, bytes):
            from multiprocessing import Process, popen_fork

            # It alone would be waited for by multiprocessing, had `Process.start` made it.
            trial.forked = forked = popen_fork.Popen(Process(target=self._work, args=(trial, start, pipes[0], errors)))
            return int(forked.pid)
        pid = os.fork()
        if pid == 0:
            self._execute(start, start.work, pipes)
        return pid

    def _work(self, trial: _Trial, start: Start, output: int, errors: int | None) -> NoReturn:
        """Does the work of a trial, in its process."""
        import pickle

        self._selector.close()
        self._control.close()
        for other in (trial, *self._trials.values()):
            other.close()
        for end in (self._wake, self._woken):
            os.close(end)
        if errors is not None:
            os.dup2(errors, 2)
            os.close(errors)
        os.environ.clear()
        os.environ.update(start.environment)
        sys.path[:] = start.path
        self._become_trial(start)
        work: Work = pickle.loads(start.work)  # type: ignore[arg-type]
        sys.exit(work(output))

    def _execute(self, start: Start, words: list[str], pipes: list[int]) -> NoReturn:
        """Becomes a command, whose reports, stdout and stderr go to these pipes.

        The server keeps the pipe of the reports open. So a program finds it in /proc, too, where a launcher has closed
        the descriptors that it inherited.
        """
        try:
            report, stdout, stderr = pipes
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(stdout, 1)
            os.dup2(stderr, 2)
            os.set_inheritable(report, True)
            environment = {**start.environment, "PROTEIN_REPORT_FD": str(report)}
            if sys.platform == "linux":
                environment["PROTEIN_REPORT_PIPE"] = f"/proc/{os.getppid()}/fd/{report}"
            self._become_trial(start, ignored_by_python=(signal.SIGPIPE, signal.SIGXFSZ))
            os.execvpe(words[0], words, environment)
        except OSError as error:
            where = f" ({os.fsdecode(error.filename)})" if error.filename else ""  # bytes, where PATH was searched
            os.write(report, CANNOT_START + f"{error.strerror}{where}\n".encode())
        finally:
            os._exit(127)

    def _become_trial(self, start: Start, ignored_by_python: Sequence[signal.Signals] = ()) -> None:
        """Makes this process a trial's: in a session of its own, on its own cores, in its own folder.

        When the server dies, for any reason, the kernel kills this process.
        """
        server = os.getppid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *IGNORED, *ignored_by_python):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # so that Ctrl-C reaches the sweep alone, which then ends its trials in order
        signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:  # it died before the line above took effect
            os._exit(1)
        # A core that has been taken offline meanwhile is no reason to fail: the process then runs where it may.
        can_pin = bool(start.cores) and hasattr(os, "sched_setaffinity")
        if can_pin and (allowed := set(start.cores) & os.sched_getaffinity(0)):
            os.sched_setaffinity(0, allowed)
        os.chdir(start.directory)

    def _reap(self) -> None:
        """Tells the sweep of trials that were stopped or go on; and of ended ones, when nothing of them is left."""
        ended: dict[int, tuple[float, int, float]] = {}
        with contextlib.suppress(ChildProcessError):
            while (found := os.wait4(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED))[0] != 0:
                pid, status, used = found
                moment = time.monotonic()
                if pid not in self._trials:
                    _stuck.discard(pid)
                    continue
                if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                    self._trials[pid].tell(STOPPED if os.WIFSTOPPED(status) else CONTINUED, moment)
                else:
                    ended[pid] = moment, os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        if not ended:
            return
        for pid in ended:
            _kill_group(pid)
        trials = {pid: self._trials.pop(pid) for pid in ended}
        _kill_children(set(self._trials))
        for pid, trial in trials.items():
            if trial.errors is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(trial.errors)
                until = time.monotonic() + POLL_SECONDS  # where something that cannot be killed still writes
                while _is_readable(trial.errors) and trial.take_errors() and time.monotonic() < until:
                    pass
            trial.tell(ENDED, *ended[pid], outside=self._told_to_end_at >= trial.began)
            trial.close()


def send(control: socket.socket, start: Start, descriptors: Sequence[int]) -> None:
    """Asks the server to start a trial. Raises `OSError` where the server has died.

    Args:
        control: the sweep's end of the socket.
        start: of the trial.
        descriptors: where the server answers, and the ends of the trial's pipes.
    """
    data = marshal.dumps(tuple(start))  # the other end is the same Python; this takes no import
    socket.send_fds(control, [NUMBER.pack(len(data))], descriptors)
    control.sendall(data)


def receive(control: socket.socket) -> tuple[Start, list[int]] | None:
    """Returns the next request and its descriptors, which no other program inherits; None: the sweep has ended."""
    try:
        head, descriptors, _, _ = socket.recv_fds(control, NUMBER.size, PIPES)
        data = b""
        missing = NUMBER.unpack(head)[0] if len(head) == NUMBER.size else 0
        while missing and (part := control.recv(missing)):
            data, missing = data + part, missing - len(part)
    except ConnectionError:
        return None
    if not data or missing:
        return None
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return Start(*marshal.loads(data)), descriptors


def _open_log(start: Start) -> tuple[int | None, int | None, BoundedLog | None]:
    """Returns both ends of a trial's stderr and where it goes; None where it is not kept."""
    if start.log is None:
        return None, None, None
    try:
        log = BoundedLog(start.log)
    except OSError:
        return None, os.open(os.devnull, os.O_WRONLY), None
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    return reading, writing, log


def _prctl() -> Callable[[int, int], object]:
    """Returns what sets an option of this process; elsewhere than on Linux it does nothing."""
    if sys.platform != "linux":
        return lambda *_: None
    import ctypes  # only there

    call = ctypes.CDLL(None, use_errno=True).prctl
    return lambda option, value: call(option, value, 0, 0, 0)


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


_stuck: set[int] = set()  # children that hang in the kernel, as on a file system that is away: they are left behind


def _kill_children(keep: set[int]) -> None:
    """Kills all children but those to `keep`, and theirs, which become this process's own as their parents die."""
    until = time.monotonic() + ORPHANS_SECONDS
    while found := set(_children()) - keep - _stuck:
        if time.monotonic() >= until:
            _stuck.update(found)
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)


def _children() -> list[int]:
    """Returns the process ids of this process's children."""
    with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children") as children:  # noqa: PTH123
        return [int(pid) for pid in children.read().split()]
    with contextlib.suppress(ImportError):  # without site-packages
        import psutil

        return [process.pid for process in psutil.Process().children()]
    return []


if __name__ == "__main__":
    main(int(sys.argv[1]), (), int(sys.argv[2]))
