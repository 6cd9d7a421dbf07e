"""Slots in workers that talk with a sweep through files, and join and leave it while it runs.

A worker is started by hand on any machine that sees the folder of artifacts (`protein worker`, see
`protein.run.worker`), or in a job of Slurm (`protein.run.slurm`). All that they share is that folder: no port is open,
and nothing asks the file system for a lock. The sweep makes a folder of messages there, for its user alone. A worker
has a folder of its own in it, with a file in each direction (`protein.run.mailbox`).

A worker that ends says so. One that is silent for `DEAD_SECONDS` of the sweep's own clock is given up: its trial runs
elsewhere, nothing that it writes is read any more, and it ends when it sees that its folder is gone.
"""

import contextlib
import dataclasses
import json
import math
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from protein.errors import UsageError
from protein.files import write_file
from protein.ports import Finished, Job, TrialProgress
from protein.run import lease
from protein.run.fleet import Lost, News, RemoteSlot
from protein.run.mailbox import (
    ALIVE,
    ALIVE_SECONDS,
    DEAD_SECONDS,
    FROM_WORKER,
    TO_WORKER,
    Inbox,
    MessageError,
    Outbox,
    Silence,
    show_life,
)
from protein.run.slot import Close, Leaving, Left, Note, Ready, SlotSettings, Stop, version

LOOK_SECONDS = 0.5  # how often it is looked who has joined
POLL_SECONDS = 0.05  # between two looks at the workers' files
MAX_NOTE = 1000  # characters of what a worker says
FOLDER = ".workers"  # a sweep's folder of messages, in that of its artifacts
OWNER = "owner"  # a file there: the process of the sweep
OFFER = "offer.json"  # a file there: what a worker has to know before it joins
NEXT = "next"  # a file there: the name of the worker that goes first where another sweep has too few
PLAIN = re.compile(r"\w[\w.-]{0,200}", re.ASCII)  # the name of a worker's folder, or of a sweep's


@dataclasses.dataclass(eq=False, kw_only=True)
class FileSlot(RemoteSlot):
    """A worker. `host` is "" until it is ready."""

    folder: Path
    inbox: Inbox
    outbox: Outbox
    host: str = ""
    silence: Silence = dataclasses.field(default_factory=Silence)


W = TypeVar("W", bound=FileSlot)


class FileTransport(Generic[W]):
    """Implements what all transports through files have in common (see `protein.run.fleet.Transport`)."""

    settings: SlotSettings

    def __init__(self, folder: str) -> None:
        """`folder`: the name of the sweep's folder of messages."""
        self._folder_name = folder
        self._workers: list[W] = []

    def start(self, settings: SlotSettings, note: Callable[[str], None]) -> None:
        self.settings, self._note = settings, note
        self._folder = settings.artifacts / self._folder_name
        new = settings.artifacts / f".new-{secrets.token_hex(8)}"  # it is seen when it is whole
        try:
            new.mkdir(mode=0o700, parents=True)
            (new / OWNER).write_text(lease.current_owner())
            self._furnish(new)
            self._closed = show_life(new, self._folder)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            raise

    def num_slots(self) -> int:
        return sum(bool(worker.host) and not worker.leaving for worker in self._workers)

    def receive(self, timeout_seconds: float) -> list[News]:
        news: list[News] = []
        for worker in list(self._workers):
            with contextlib.suppress(OSError):
                worker.outbox.flush()
            try:
                messages = worker.inbox.receive()
            except MessageError as error:
                news.append(self._dismiss(worker, f"is ended: {error}"))
                continue
            worker.silence.look(heard=bool(messages))
            news += self._read(worker, messages)
        news += self._look()
        if not news:
            time.sleep(min(POLL_SECONDS, timeout_seconds))
        return news

    def send(self, slot: RemoteSlot, message: Job | Stop | Close) -> None:
        assert isinstance(slot, FileSlot)
        with contextlib.suppress(OSError):  # such as a full disk: `receive` tries again
            slot.outbox.send(message)

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.outbox.send(Close())
        self._workers.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _furnish(self, folder: Path) -> None:
        """Puts further files in the new folder of messages."""

    def _look(self) -> list[News]:
        """Looks now and then who has come or gone. Returns what is new."""
        raise NotImplementedError

    def _ready(self, worker: W, ready: Ready) -> list[News]:
        """Takes a worker into use, or not. Returns what the fleet is told."""
        raise NotImplementedError

    def _read(self, worker: W, messages: Sequence[object]) -> list[News]:
        """Returns the news among a worker's messages."""
        news: list[News] = []
        for message in messages:
            if isinstance(message, Ready):
                if not worker.host:  # else it has said so before
                    news += self._ready(worker, message)
            elif isinstance(message, Note):
                self._note(message.text[:MAX_NOTE])
            elif isinstance(message, Left):
                return [*news, *self._left(worker, message)]
            elif isinstance(message, Leaving | TrialProgress | Finished):
                news.append((worker, message))
        return news

    def _left(self, worker: W, left: Left) -> list[News]:
        return [self._end(worker, f"has failed: {left.why[:MAX_NOTE]}" if left.why else "has left")]

    def _dismiss(self, worker: W, how: str) -> News:
        """Ends a worker that may be alive. Returns that it is lost."""
        with contextlib.suppress(OSError):
            worker.outbox.send(Close())
        return self._end(worker, how)

    def _end(self, worker: W, how: str) -> News:
        """Forgets a worker. Returns that it is lost."""
        self._workers.remove(worker)
        return worker, Lost(why=f"{worker.name} on node {worker.host} {how}")


class FolderTransport(FileTransport[FileSlot]):
    """Implements `protein.run.fleet.Transport` with workers that join by themselves."""

    def __init__(self, sweep: str) -> None:
        super().__init__(FOLDER)
        self._sweep, self._waits = sweep, False
        self._failures: set[str] = set()  # of workers that never got ready, which are told once
        self._looked_at = -math.inf  # on the monotonic clock
        self._next = ""  # what the file NEXT says

    def start(self, settings: SlotSettings, note: Callable[[str], None]) -> None:
        folder = settings.artifacts / FOLDER
        try:
            if folder.exists() and has_ended(folder):
                shutil.rmtree(folder)
            super().start(settings, note)
        except OSError as error:
            if not folder.exists():
                raise
            raise UsageError(
                f"another process runs a sweep '{self._sweep}' in {settings.artifacts}, or did until a moment ago:"
                f" give this sweep another --name, or try again in {DEAD_SECONDS:.0f} s"
            ) from error

    def start_slots(self, num_jobs: int) -> None:
        """Does nothing: workers join by themselves."""

    def _furnish(self, folder: Path) -> None:
        offer = Offer(name=self._sweep, gpus_per_trial=self.settings.gpus_per_trial)
        write_file(folder / OFFER, json.dumps(dataclasses.asdict(offer)))

    def _look(self) -> list[News]:
        news: list[News] = []
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return news
        self._looked_at = time.monotonic()
        with contextlib.suppress(OSError):
            entries = [entry for entry in os.scandir(self._folder) if entry.is_dir(follow_symlinks=False)]
            there = {entry.name for entry in entries if PLAIN.fullmatch(entry.name)}
            for worker in list(self._workers):
                if worker.silence.is_death:
                    news.append(self._dismiss(worker, "has been silent for too long"))
                elif worker.folder.name not in there and worker.inbox.is_gone:  # it ended before it was ready
                    news.append(self._end(worker, "has left"))
            for name in sorted(there - {worker.folder.name for worker in self._workers}):
                self._admit(self._folder / name)
            ready = [worker for worker in self._workers if worker.host]
            if (next_ := max(ready, key=_goes_first).folder.name if ready else "") != self._next:
                (self._folder / NEXT).write_text(next_)
                self._next = next_
        if not self._waits and all(worker.leaving and worker.job is None for worker in self._workers):
            self._note(f"waiting for workers: protein worker {self.settings.artifacts.parent}")
            self._waits = True
        return news

    def _admit(self, folder: Path) -> None:
        with contextlib.suppress(OSError):  # then it is tried again at the next look
            outbox = Outbox(folder / TO_WORKER)
            outbox.send(self.settings)
            inbox = Inbox(folder / FROM_WORKER)
            self._workers.append(FileSlot(name=f"worker {folder.name}", folder=folder, inbox=inbox, outbox=outbox))

    def _ready(self, worker: FileSlot, ready: Ready) -> list[News]:
        worker.host, self._waits = ready.facts.host, False
        self._note(f"{worker.name} has joined")
        return [(worker, ready)]

    def _left(self, worker: FileSlot, left: Left) -> list[News]:
        why = " ".join(left.why[:MAX_NOTE].split())
        if not worker.host and why and why not in self._failures:
            self._failures.add(why)
            self._note(f"{worker.name} cannot run trials, and tries again: {why}")
            self._waits = False  # for others, as it says then
        return super()._left(worker, left)

    def _end(self, worker: FileSlot, how: str) -> News:
        if worker.host:
            self._note(f"{worker.name} {how}")
        shutil.rmtree(worker.folder, ignore_errors=True)
        self._workers.remove(worker)
        return worker, Lost(why=f"{worker.name} {how}")


def _goes_first(worker: FileSlot) -> tuple[bool, bool, bool, str]:
    """Returns what is greatest for the worker that goes first: it hears the sweep, is idle, and leaves already."""
    return worker.silence.seconds < 3 * ALIVE_SECONDS, worker.job is None, worker.leaving, worker.folder.name


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a sweep says in its folder of messages to workers that may join."""

    name: str  # of the sweep
    gpus_per_trial: int
    process: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))  # another one for each
    protein: str = dataclasses.field(default_factory=version)
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.gpus_per_trial, int):
            raise TypeError("its fields are of other types")

    def refusal(self) -> str:
        """Returns why this machine cannot run its trials; "": it can."""
        here = Offer(name=self.name, gpus_per_trial=0)
        if (self.protein, self.python) == (here.protein, here.python):
            return ""
        return (
            f"sweep '{self.name}' has protein {self.protein} on Python {self.python}, and this machine protein"
            f" {here.protein} on Python {here.python}: install the same"
        )


def offers(
    root: Path, alive: Collection[Path] = (), signs: dict[Path, tuple[str, float]] | None = None
) -> dict[Path, Offer]:
    """Returns the sweeps of this user that run in a folder, by their folders of messages; `alive` do for sure.

    A sweep tells its workers which programs to run. So one of another user is none.

    Args:
        root: the folder.
        alive: folders of messages.
        signs: what this function has seen at its calls before. A call that sees nothing new writes nothing.
    """
    found: dict[Path, Offer] = {}
    signs = {} if signs is None else signs
    for file in sorted(root.glob(f"*/{FOLDER}/{OFFER}")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            folder = file.parent
            if folder.lstat().st_uid == os.geteuid() and (folder in alive or _shows_life(folder, signs)):
                found[folder] = Offer(**json.loads(file.read_text()))
    return found


def join(sweep: Path, worker: str) -> Path:
    """Makes the folder of a new worker's messages in that of a sweep."""
    new = sweep / f".new-{worker}"  # it is seen when it is whole
    new.mkdir(exist_ok=True)
    for file in (TO_WORKER, FROM_WORKER):  # so that no machine remembers that they are not there
        (new / file).touch()
    return new.rename(sweep / worker)


def goes_next(sweep: Path) -> str:
    """Returns the name of the worker that a sweep would miss least; "": it has not said so."""
    with contextlib.suppress(OSError):
        return (sweep / NEXT).read_text(errors="replace")
    return ""


def _shows_life(folder: Path, signs: dict[Path, tuple[str, float]]) -> bool:
    """Whether a sweep has not ended: as `has_ended`, but one of another machine has to show a new sign of life first.

    A folder without an owner is a mirror (`protein.run.mirror`). What is new there, its server has seen alive.
    """
    if (ended := _owner_has_ended(folder)) is not None:
        return not ended
    said, known = (folder / ALIVE).read_text(), signs.get(folder)
    if known is None or known[0] != said:
        is_new = known is not None or not (folder / OWNER).exists()
        signs[folder] = said, time.monotonic() if is_new else -math.inf
    return time.monotonic() - signs[folder][1] <= DEAD_SECONDS


def has_ended(folder: Path) -> bool:
    """Whether a sweep has: it was a process of this machine and is gone, or has shown no life for too long."""
    ended = _owner_has_ended(folder)
    return _is_old(folder / ALIVE) if ended is None else ended


def _owner_has_ended(folder: Path) -> bool | None:
    """Whether the process of a sweep has ended; None: it is one of another machine, or not known."""
    owner = folder / OWNER
    if owner.exists() and (name := owner.read_text()):
        if lease.dead_owners([name]):
            return True
        if lease.living_owners([name]) or name == lease.current_owner():
            return False
    return None


def _is_old(sign: Path) -> bool:
    """Whether a sign of life is, by the clock of the file system: those of other machines may be off."""
    now = sign.with_name(f".now-{secrets.token_hex(8)}")
    now.touch()
    try:
        return now.stat().st_mtime - sign.stat().st_mtime > DEAD_SECONDS
    finally:
        now.unlink()
