"""Small processes that stand between the sweep and the commands that it runs: `python -I -S supervisor.py SOCKET`.

The sweep starts one server of them. For each trial the server forks a supervisor, which takes a hundredth of the time
that a new Python takes. The supervisor starts the command in a session of its own and waits. Whatever happens, nothing
of the trial survives it:

- The sweep ends, for any reason: the control pipe closes, and every process of the trial is killed.
- The command ends: the processes that it left behind are killed, also those that forked twice. The supervisor is their
  "subreaper" (Linux): the kernel makes it the parent of every orphan among its descendants.
- The supervisor is killed: the kernel kills the command (parent-death signal, Linux).

The server may be killed: supervisors do not need it. This module imports the standard library alone. Elsewhere than on
Linux, children that leave the command's session are not found.

Socket, to the server: one byte with five descriptors (control, status, report, stdout, stderr). Control pipe, to the
supervisor: the job as a line of JSON, `{"words": ..., "environment": ..., "directory": ..., "cores": ...}`; then `T`
sends SIGTERM to the command's process group, `K` kills all. Status pipe, from the supervisor, one JSON object a line:
`{"supervisor": ..., "pid": ..., "began": ...}`, its process, the command's, and when that was started on the monotonic
clock; then one of `{"error": ...}`, why the command could not be started, and `{"code": ..., "seconds": ...,
"cpu_seconds": ..., "signalled": ..., "outside": ..., "left": ...}`: the exit code (negative: the signal), its wall
clock, the CPU seconds of all its processes, whether it was sent a signal before it ended, whether the supervisor itself
was sent SIGTERM, and how many processes it left behind.

Slurm and systemd send SIGTERM to all processes of a job or service at once. Then the supervisor gets it, too, which
tells that the command was ended from outside, whatever it made of the signal.
"""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PATIENCE_SECONDS = 10.0  # for killed processes to disappear; one that hangs in the kernel is left behind
PAUSE_SECONDS = 0.005

Prctl = Callable[[int, int], object]


def serve(server: socket.socket) -> None:
    """Forks a supervisor for each set of descriptors that comes, until the sweep closes its end of the socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended supervisors leave nothing to wait for
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    prctl = _prctl()
    while True:
        message, descriptors, _, _ = socket.recv_fds(server, 1, 5)
        if not message:
            return
        if os.fork() == 0:
            try:
                server.close()
                supervise(descriptors, prctl)
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def supervise(descriptors: list[int], prctl: Prctl) -> None:
    """Runs one command to its end, and ends what it leaves behind."""
    control, status, report, stdout, stderr = descriptors
    for descriptor in descriptors:  # what comes through a socket is inheritable; these are no business of the command
        os.set_inheritable(descriptor, False)
    os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake, wakened = os.pipe()
    os.set_blocking(wakened, False)
    signal.set_wakeup_fd(wakened)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    terminated: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: terminated.append(1))
    job, asked = _job(control)
    if job is None:  # the sweep has ended
        return
    if job["cores"]:
        os.sched_setaffinity(0, job["cores"])
    environment = dict(job["environment"])
    environment["PROTEIN_REPORT_FD"] = str(report)
    if sys.platform == "linux":  # for programs that close inherited descriptors when they start the real one
        environment["PROTEIN_REPORT_PIPE"] = f"/proc/{os.getpid()}/fd/{report}"
    began = time.monotonic()
    child, error = _start({**job, "environment": environment}, report, stdout, stderr, prctl)
    if error:
        _say(status, {"error": error})
        return
    _say(status, {"supervisor": os.getpid(), "pid": child, "began": began})
    for descriptor in (stdout, stderr):  # these are the command's alone
        os.close(descriptor)
    signalled, passed_on = False, 0
    while (code := _reaped(child)) is None:
        if b"K" in asked:
            signalled, code = True, _kill(child)
            break
        if b"T" in asked or len(terminated) > passed_on:
            passed_on = len(terminated)
            signalled, asked = True, b""
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGTERM)
        ready, _, _ = select.select([control, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
        if control in ready:
            asked = os.read(control, 64) or b"K"  # nothing more can come: the sweep has ended
    seconds = time.monotonic() - began
    left = _end_descendants(child)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = {"code": code, "seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime}
    outside = bool(terminated)  # perhaps only just now, when the command had ended of the same signal
    _say(status, ended | {"signalled": signalled or outside, "outside": outside, "left": left})


def _job(control: int) -> tuple[dict[str, Any] | None, bytes]:
    """Returns the job that comes through the control pipe (None: the sweep has ended), and what follows it."""
    text = b""
    while b"\n" not in text:
        chunk = os.read(control, 1 << 16)
        if not chunk:
            return None, b""
        text += chunk
    line, _, rest = text.partition(b"\n")
    return json.loads(line), rest


def _prctl() -> Prctl:
    if sys.platform != "linux":
        return lambda *_: 0
    import ctypes  # only there

    call = ctypes.CDLL(None, use_errno=True).prctl
    return lambda option, value: call(option, value, 0, 0, 0)


def _start(job: dict[str, Any], report: int, stdout: int, stderr: int, prctl: Prctl) -> tuple[int, str]:
    """Returns the process of the command, and why it could not be started ("": it runs)."""
    failed, tell = os.pipe()  # closed by a successful exec
    handled = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ}
    signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in handled:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(stdout, 1)
            os.dup2(stderr, 2)
            os.set_inheritable(report, True)
            if job["directory"]:
                os.chdir(job["directory"])
            if os.getppid() == parent:
                os.execvpe(job["words"][0], job["words"], job["environment"])
        except OSError as error:
            where = f" ({os.fsdecode(error.filename)})" if error.filename else ""  # bytes, where PATH was searched
            os.write(tell, f"{error.strerror}{where}".encode())
        finally:
            os._exit(127)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
    os.close(tell)
    why = os.read(failed, 4096).decode()
    os.close(failed)
    if why:
        os.waitpid(child, 0)
    return child, why


def _reaped(child: int) -> int | None:
    """Reaps what has ended. Returns the exit code of the command, or None while it runs."""
    code = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child:
            code = os.waitstatus_to_exitcode(ended)


def _kill(child: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _end_descendants(child: int) -> int:
    """Kills whatever the command has left behind, and returns how many processes that were."""
    killed: set[int] = set()
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # an orphan would be a child of this process
            return len(killed)
        found = _descendants()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
        time.sleep(PAUSE_SECONDS)
    return len(killed)


def _descendants() -> set[int]:
    """Returns all processes below this one; none where there is no /proc."""
    parents: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208 (pathlib is slow to import)
            if name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                    parents[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
    found: set[int] = set()
    grown = {os.getpid()}
    while grown:
        grown = {pid for pid, parent in parents.items() if parent in grown}
        found |= grown
    return found


def _say(status: int, message: Mapping[str, object]) -> None:
    with contextlib.suppress(OSError):  # the sweep has ended
        os.write(status, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
