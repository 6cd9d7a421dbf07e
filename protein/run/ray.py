"""Runs trials on the nodes of a Ray cluster. The loop stays the only decider, and the store the only memory.

Ray itself is used by a process of its own (`ray_driver`). Here its events are taken, and what becomes of the trials
when that process, or the cluster's head, dies: they are preempted, and the next one that starts connects anew.
"""

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import IO, Any

from protein.errors import UsageError
from protein.ports import Finished, Job, TrialProgress
from protein.run import folders
from protein.run.ray_messages import Connect, Failure, Needs, NewMachine, Note, Slots, Stop
from protein.run.slot import SlotSettings
from protein.types import PREEMPTED, Machine, Measurement, Outcome, Trial, TrialEnd

CONNECT_SECONDS = 900.0  # within which the nodes must have answered; `ray_fleet` gives up before, and says more
END_SECONDS = 15.0  # for the driver to end, when the backend is closed
MAX_LOG_BYTES = 4096  # of the driver's output that are looked through for a reason


class RayBackend:
    """Implements `protein.ports.Backend` with slots on the nodes of a Ray cluster.

    Attributes:
        note: called with what a person should know, as one line: nodes that come, go, or cannot be used.
    """

    def __init__(
        self,
        address: str | None,
        needs: Needs,
        settings: SlotSettings,
        *,
        note: Callable[[str], None] = lambda line: None,
        on_machine: Callable[[Machine], None] = lambda machine: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Connects to the cluster and asks its nodes whether they can run trials.

        Args:
            address: `HOST:PORT` of its head; "auto": the cluster of this machine; None: that one, or else a new one.
            needs: what one trial takes of a node.
            settings: what the nodes must know.
            note: see above.
            on_machine: called with each machine that was calibrated.
            should_stop: whether to give up while the cluster has not answered; there is then no slot.

        Raises:
            UsageError: Ray is not installed; there is no such cluster, or no node of it can run trials.
        """
        self.note = note
        self._on_machine, self._should_stop = on_machine, should_stop
        self._connect = Connect(address=address, needs=needs, slot=settings)
        self._running: dict[int, Trial] = {}
        self._last: dict[int, Measurement] = {}  # of running trials, by their ids
        self._events: list[TrialProgress | Finished] = []  # that wait for the next poll
        self._num_slots = 0
        self._driver = _Driver(self._connect)
        self._wait_until_ready()

    def num_slots(self) -> int:
        if not self._driver.closed:
            self._receive(0.0)
        return self._num_slots

    def start(self, job: Job) -> None:
        if self._driver.closed:
            self.note("the connection to the Ray cluster was lost; connecting again")
            self._driver = _Driver(self._connect)
            try:
                self._wait_until_ready()
            except UsageError as error:
                again = "run the same command again, with --backend ray:HOST:PORT for another cluster, to resume"
                raise UsageError(f"the Ray cluster was lost: {error}; then {again}") from error
        folders.prepare(job.directory)
        self._running[job.trial.id] = job.trial
        self._driver.send(job)

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        if self._driver.closed and not self._events:
            time.sleep(timeout_seconds)
        self._receive(0.0 if self._events else timeout_seconds)
        events, self._events = self._events, []
        return events

    def _receive(self, timeout_seconds: float) -> None:
        for message in self._driver.receive(timeout_seconds):
            if isinstance(message, TrialProgress | Finished):
                self._events += self._taken(message)
            else:
                self._take(message)
        if self._driver.closed:
            self._lose_all()
            self._num_slots = max(self._num_slots, 1)  # so that a trial is started, which connects again

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        if trial.id in self._running:
            self._driver.send(Stop(trial=trial, end=end, reason=reason))

    def close(self) -> None:
        self._driver.close()
        self._running.clear()

    def _take(self, message: object) -> None:
        if isinstance(message, Note):
            self.note(message.text)
        elif isinstance(message, NewMachine):
            self._on_machine(message.machine)
            # For the next connection, should this one be lost: the first known machine is the reference.
            slot = self._connect.slot.knowing(message.machine)
            self._connect = dataclasses.replace(self._connect, slot=slot)
        elif isinstance(message, Slots):
            self._num_slots = message.number

    def _taken(self, event: TrialProgress | Finished) -> list[TrialProgress | Finished]:
        """Returns the event, unless its trial has ended for the sweep."""
        number = event.trial.id
        if number not in self._running:
            self.note(f"a late report of trial {event.trial.number} was ignored: it runs elsewhere or has ended")
            return []
        if isinstance(event, Finished):
            del self._running[number]
            self._last.pop(number, None)
        elif event.measurements:
            self._last[number] = event.measurements[-1]
        return [event]

    def _lose_all(self) -> None:
        """Gives back all trials after the driver has died."""
        for number, trial in self._running.items():
            last = self._last.pop(number, None)
            outcome = Outcome(
                end=TrialEnd.INTERRUPTED,
                reason=f"{PREEMPTED}the connection to the Ray cluster was lost",
                cost_seconds=0.0 if last is None else last.elapsed_seconds,
                steps=0 if last is None else last.steps,
            )
            self._events.append(Finished(trial=trial, outcome=outcome))
        self._running.clear()

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + CONNECT_SECONDS
        while time.monotonic() < until:
            if self._should_stop():
                self._driver.close()
                return
            for message in self._driver.receive(1.0):
                if isinstance(message, Failure):
                    self._driver.close()
                    raise UsageError(message.message)
                self._take(message)
                if isinstance(message, Slots):
                    return
            if self._driver.closed:
                raise UsageError(f"the connection to Ray failed: {self._driver.last_words}")
        self._driver.close()
        raise UsageError(f"the Ray cluster has not answered within {CONNECT_SECONDS:.0f} s")


class _Driver:
    """The process of `ray_driver`, and the socket to it."""

    def __init__(self, first: Connect) -> None:
        ours, its = socket.socketpair()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        command = [sys.executable, "-P", "-m", "protein.run.ray_driver", str(its.fileno())]
        self._process = subprocess.Popen(
            command,
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # so that Ctrl-C reaches the sweep alone
        )
        its.close()
        self._connection = Connection(ours.detach())
        self.closed = False
        self.last_words = ""  # what it has printed last, once it has ended
        self.send(first)

    def send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # it has died, which `receive` finds
            self._connection.send(message)

    def receive(self, timeout_seconds: float) -> list[Any]:
        """Returns the messages that are there, after waiting for one."""
        messages: list[Any] = []
        try:
            while not self.closed and self._connection.poll(0.0 if messages else timeout_seconds):
                messages.append(self._connection.recv())
        except (EOFError, OSError):
            self.close()
        return messages

    def close(self) -> None:
        """Ends the process, in order if it can be. Ray then ends what it has started for it."""
        self.closed = True
        self._connection.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if not self._log.closed:
            self.last_words = self._last_line()
            self._log.close()

    def _last_line(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(size - MAX_LOG_BYTES, 0))
        lines = self._log.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "no reason was given")
