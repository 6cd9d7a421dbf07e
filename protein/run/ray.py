"""Slots on the nodes of a Ray cluster.

Ray itself is used by a process of its own (`protein.run.ray_driver`), because Ray ends the process that it is used from
when its head dies, takes over the handling of SIGTERM, and prints. The sweep survives all that: for it, the slots are
lost, and the next trial connects anew. The two processes exchange messages through a socket. A message that is about
one slot comes with the number of the slot: `(number, message)`.
"""

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import IO, Any

from protein.errors import UsageError
from protein.ports import Job
from protein.run.fleet import Lost, News, RemoteSlot
from protein.run.slot import Close, Facts, Note, SlotSettings, Stop

CONNECT_SECONDS = 900.0  # within which the nodes must have answered; the driver gives up before, and says more
END_SECONDS = 15.0  # for the driver to end, when the transport is closed
MAX_LOG_BYTES = 4096  # of the driver's output that are looked through for a reason


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one trial takes of a node."""

    cores: float = 1.0
    gpus: float = 0.0
    resources: Mapping[str, float] = dataclasses.field(default_factory=dict)  # custom ones, by name

    def by_name(self) -> dict[str, float]:
        """Returns them with Ray's names for cores and GPUs, without those of which none is needed."""
        found = {"CPU": self.cores, "GPU": self.gpus, **self.resources}
        return {name: amount for name, amount in found.items() if amount > 0}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """The first message to the driver."""

    address: str | None  # of the cluster's head; None: the cluster of this machine, or else one is started
    needs: Needs
    slot: SlotSettings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """To the driver: how many slots are needed now."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """From the driver: how many trials can run at once now. It is connected when it says so first."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """From the driver, its last message: why it cannot work."""

    message: str


@dataclasses.dataclass(eq=False, kw_only=True)
class _ActorSlot(RemoteSlot):
    number: int  # by which the driver knows it


class RayTransport:
    """Implements `protein.run.fleet.Transport` with Ray's actors."""

    settings: SlotSettings

    def __init__(self, address: str | None, needs: Needs, *, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Remembers where to connect.

        Args:
            address: `HOST:PORT` of its head; "auto": the cluster of this machine; None: that one, or else a new one.
            needs: what one trial takes of a node.
            should_stop: whether to give up while the cluster has not answered; there is then no slot.
        """
        self._address, self._needs, self._should_stop = address, needs, should_stop
        self._slots: dict[int, _ActorSlot] = {}
        self._num_slots, self._wanted = 0, 0
        self._early: list[News] = []  # news that have come while it connected

    def start(self, settings: SlotSettings, note: Callable[[str], None]) -> None:
        self.settings, self._note = settings, note
        self._connect()

    def start_slots(self, num_jobs: int) -> None:
        if self._driver.closed and num_jobs and not self._should_stop():
            self._note("the connection to the Ray cluster was lost; connecting again")
            try:
                self._connect()
            except UsageError as error:
                again = "run the same command again, with --backend ray:HOST:PORT for another cluster, to resume"
                raise UsageError(f"the Ray cluster was lost: {error}; then {again}") from error
        if num_jobs != self._wanted:
            self._wanted = num_jobs
            self._driver.send(Wanted(number=num_jobs))

    def num_slots(self) -> int:
        return self._num_slots

    def receive(self, timeout_seconds: float) -> list[News]:
        if self._driver.closed:
            time.sleep(timeout_seconds)
            return []
        news, self._early = self._early, []
        for message in self._driver.receive(0.0 if news else timeout_seconds):
            news += self._read(message)
        if self._driver.closed:
            lost = Lost(why="the connection to the Ray cluster was lost")
            news += [(slot, lost) for slot in self._slots.values()]
            self._slots.clear()
            self._num_slots = max(self._num_slots, 1)  # so that a trial is started, which connects again
        return news

    def send(self, slot: RemoteSlot, message: Job | Stop | Close) -> None:
        assert isinstance(slot, _ActorSlot)
        self._driver.send((slot.number, message))

    def close(self) -> None:
        self._driver.close()

    def _read(self, message: Any) -> list[News]:
        """Returns the news in a message of the driver."""
        if isinstance(message, Note):
            self._note(message.text)
        elif isinstance(message, Slots):
            self._num_slots = message.number
        elif isinstance(message, Facts):
            return [(None, message)]
        else:
            number, news = message
            slot = self._slots.setdefault(number, _ActorSlot(number=number))
            if isinstance(news, Lost):
                self._wanted = -1  # the driver may want one slot less by now, so it is told anew
                del self._slots[number]
            return [(slot, news)]
        return []

    def _connect(self) -> None:
        """Starts a driver, and waits until it has found a node."""
        self._driver = _Driver(Connect(address=self._address, needs=self._needs, slot=self.settings))
        self._wanted = 0
        until = time.monotonic() + CONNECT_SECONDS
        while time.monotonic() < until:
            if self._should_stop():
                self._driver.close()
                return
            messages = self._driver.receive(1.0)
            for message in messages:
                if isinstance(message, Failure):
                    self._driver.close()
                    raise UsageError(message.message)
                self._early += self._read(message)
            if any(isinstance(message, Slots) for message in messages):
                return
            if self._driver.closed:
                raise UsageError(f"the connection to Ray failed: {self._driver.last_words}")
        self._driver.close()
        raise UsageError(f"the Ray cluster has not answered within {CONNECT_SECONDS:.0f} s")


class _Driver:
    """The process of `protein.run.ray_driver`, and the socket to it."""

    def __init__(self, first: Connect) -> None:
        ours, its = socket.socketpair()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        # Workers of a Ray that is started here give way to all other programs by default, and so would trials.
        environment = {"RAY_worker_niceness": "0", **os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
        # By its name, and not by -m: Ray sends classes of the main module to the nodes as a whole.
        start = f"from protein.run.ray_driver import main; main({its.fileno()})"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", start],
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=environment,
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
