"""Trains with several processes of this machine: starts them, passes their events on, and ends them together.

    this process --- config, on stdin ---> rank 0, rank 1, ...      (python -m protein.trainer.launch, a process each)
                 <-- events, on stdout --- rank 0

The ranks communicate with each other. Only rank 0 communicates with this process. A rank that fails tells rank 0 why,
and rank 0 reports it as any other failure. If a rank is killed, only this process knows how it ended. In both cases the
other ranks, which wait for it, have some seconds to end by themselves before they are killed. If this process dies, the
ranks notice the end of stdin.

This module does not import torch, which only the ranks need.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from .errors import ConfigError, LostProcessError, TrainerError, with_reason
from .events import EventSink, FinalEvent, JsonLines, RunResult, failed, killed_by, read_line, run_result
from .kinds import Config, read

GRACE_SECONDS = 5.0  # from the first rank's failure until all are killed: time for rank 0 to report why
MAX_PROCESSES = 1024
POLL_SECONDS = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # that end a run in order


def under_torchrun() -> bool:
    """Whether this process is one of several that torchrun, or a program like it, has started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and {"RANK", "MASTER_ADDR"} <= os.environ.keys()


def is_reporting() -> bool:
    """Whether this process reports events and errors to the user: of several under torchrun, only the first one."""
    return not under_torchrun() or os.environ["RANK"] == "0"


def check_launch(processes: int, *, watched: bool) -> None:
    """Raises `ConfigError` for an impossible number of processes. `watched`: a profile or trace is wanted."""
    if not 1 <= processes <= MAX_PROCESSES:
        raise ConfigError(f"--nproc must be between 1 and {MAX_PROCESSES}, got {processes}")
    if processes > 1 and under_torchrun():
        raise ConfigError(f"--nproc {processes} under torchrun would start processes twice: leave out --nproc")
    if watched and (processes > 1 or under_torchrun()):
        raise ConfigError("--profile and --trace can watch only one process: use them without --nproc and torchrun")


def launch(
    config: Config,
    processes: int,
    *,
    directory: Path | None,
    report: EventSink,
    stop: threading.Event | None = None,
    resume: Path | None = None,
    continue_from: Path | None = None,
    started: float | None = None,
    speed: float = 1.0,
) -> RunResult:
    """Does what `trainer.run.run` does, with `processes` processes.

    Raises:
        TrainerError: the run failed; the event `failed` has been reported, and no process is left.
    """
    try:
        config.validate()
        config.check_processes(processes)
        job = {
            "config": config.to_dict(),
            "directory": None if directory is None else str(directory),
            "resume": None if resume is None else str(resume),
            "continue_from": None if continue_from is None else str(continue_from),
            "started": time.perf_counter() if started is None else started,
            "speed": speed,
        }
        with tempfile.TemporaryDirectory(prefix="protein-") as folder, _Ranks(job, processes, Path(folder)) as ranks:
            final = ranks.run(report, stop or threading.Event())
    except TrainerError as error:
        final = failed(error.reason, str(error))
    report(final)
    if final["event"] == "failed":
        raise with_reason(final["reason"], final["message"])
    return run_result(final)


class _Ranks:
    """The processes. All of them have ended when the context is left."""

    def __init__(self, job: dict[str, Any], size: int, folder: Path) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._job = json.dumps({**job, "store": str(folder / "store")}).encode() + b"\n"
        self._size = size
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "_Ranks":
        # Ctrl-C reaches the ranks, too. They inherit the mask, so that a signal waits until they listen to it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self._start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it died at once, which `run` reports
                process.stdin.write(self._job)
                process.stdin.flush()
        self._reader.start()
        return self

    def _start(self) -> None:
        local = {"darwin": "lo0"}.get(sys.platform, "lo")  # else gloo looks up the machine's name, which may fail
        for rank in range(self._size):
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self._size, "LOCAL_WORLD_SIZE": self._size}
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-P", "-m", "protein.trainer.launch"],  # -P: no module of the working directory
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                    env={"GLOO_SOCKET_IFNAME": local, **os.environ, **{k: str(v) for k, v in names.items()}},
                )
            )

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()

    def run(self, report: EventSink, stop: threading.Event) -> FinalEvent:
        """Passes events on until all ranks have ended; returns the final one."""
        final: FinalEvent | None = None
        steps, seconds = 0, 0.0
        begun, signalled, kill_at = False, False, float("inf")
        failures: dict[int, int] = {}  # exit codes of ranks that failed by themselves
        while True:
            ended = all(process.poll() is not None for process in self._processes)
            if ended:
                self._reader.join(GRACE_SECONDS)  # for the last lines; a child of the rank may still hold the pipe open
            with contextlib.suppress(queue.Empty):
                while True:
                    event = read_line(self._lines.get(timeout=0 if ended else POLL_SECONDS))
                    if event["event"] == "start" or event["event"] == "measurement":
                        begun = True
                        if event["event"] == "measurement":
                            steps, seconds = event["steps"], event["elapsed_seconds"]
                        report(event)
                    else:
                        final = event
            if stop.is_set() and begun and not signalled:  # not before all ranks listen to signals
                signalled = True
                for process in self._processes:
                    process.terminate()
            if kill_at == float("inf"):
                codes = {rank: process.poll() for rank, process in enumerate(self._processes)}
                failures = {rank: code for rank, code in codes.items() if code not in (None, 0, 130)}
                if failures:
                    kill_at = time.monotonic() + GRACE_SECONDS
            elif time.monotonic() > kill_at:
                for process in self._processes:
                    process.kill()
            if ended:
                break
        if final is not None and not (final["event"] == "failed" and final["reason"] == LostProcessError.reason):
            return final
        # A rank that was killed is the cause; the others failed because of it.
        rank, code = min(failures.items(), key=lambda item: (item[1] > 0, item[0]), default=(0, 0))
        how = f"was {killed_by(code)}" if code < 0 else f"ended with code {code}"
        return failed(
            LostProcessError.reason, f"process {rank} of {self._size} {how}: start the run again", steps, seconds
        )

    def _read(self) -> None:
        stream = self._processes[0].stdout
        assert stream is not None
        for line in stream:
            self._lines.put(line)


def _rank() -> int:
    """Runs one rank; returns its exit code."""
    stop = threading.Event()
    for number in SIGNALS:
        signal.signal(number, lambda *_: stop.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # see `_Ranks`
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see trainer/__main__.py
    job = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def path(key: str) -> Path | None:
        return None if job[key] is None else Path(job[key])

    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stream:
        os.dup2(2, 1)  # from here on what a library prints goes to stderr

        from .machine.distributed import connect
        from .run import run

        try:
            result = run(
                read(job["config"]),
                directory=path("directory"),
                report=JsonLines(stream),
                stop=stop,
                resume=path("resume"),
                continue_from=path("continue_from"),
                started=job["started"],
                speed=job["speed"],
                world=connect(Path(job["store"])),
            )
        except TrainerError as error:
            return error.exit_code  # rank 0 has reported it
    return 130 if result.interrupted else 0


def _end_with_parent() -> None:
    """Waits for the end of stdin, which is the parent's, and ends this process."""
    while os.read(0, 1):
        pass
    os._exit(1)


def exit_at_once(code: int) -> NoReturn:
    """Ends a process that was one of several, without the interpreter's clean-up.

    During that clean-up, threads of the library that connected the ranks may still run, and sometimes one of them
    aborts the process. All output has been written by then.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    exit_at_once(_rank())
