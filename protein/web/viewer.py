"""What all pages share on the server: the open store, the frames of its sweeps, and the news for open pages.

A frame is read when a page first asks for its sweep. Later it is brought up to date by what changed since, at most
every `REFRESH_SECONDS`, however many pages ask. Sweeps that no page asks for cost nothing.
"""

import dataclasses
import math
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from protein.api import stores
from protein.engine.sample import MAX_WHOLE
from protein.errors import StoreUnavailable, UsageError
from protein.ports import Store
from protein.spelling import nearest
from protein.types import SweepRecord
from protein.web.answers import NotFound
from protein.web.background import Background, apart, give_back
from protein.web.frame import Frame, Table, together

T = TypeVar("T")
REFRESH_SECONDS = 0.5  # how old what a page is shown may be
MAX_FRAMES = 50  # kept in memory; the one that was used least recently is dropped
MAX_SWEEPS = 20  # in one request


@dataclasses.dataclass(slots=True)
class _Kept:
    frame: Frame
    lock: threading.Lock
    read_at: float = -math.inf  # when its last reading began, on the monotonic clock


class Viewer:
    """A store that is being looked at. Its methods may be called from any thread."""

    def __init__(
        self,
        store: Store,
        store_url: str,
        stopping: threading.Event,
        *,
        watched: bool = True,
        artifacts: Path | None = None,
    ) -> None:
        """Looks at an open store.

        Commands name it by `store_url`. Where it is `watched`, it is an error that its file is removed or replaced.
        """
        self.store = store
        self._artifacts = artifacts
        self.url = store_url
        self.stopping = stopping  # set when the server is asked to end
        self.background = Background(stopping)  # for what takes seconds
        self.epoch = secrets.token_hex(4)  # versions of frames mean nothing to another process
        self._frames: OrderedDict[int, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._sweeps: tuple[float, dict[str, SweepRecord]] = (-math.inf, {})  # and when their reading began
        self._forgotten_at = -math.inf  # what began to be read before is too old
        self._path = stores.file(store_url) if watched else None
        self.is_served = watched  # to pages, which ask again; a report asks once
        self._file = self._file_now()
        self._memory: dict[Any, OrderedDict[Any, Any]] = {}

    def sweeps(self) -> dict[str, SweepRecord]:
        """Returns all sweeps by name, oldest first."""
        with self._lock:
            read_at, found = self._sweeps
        if not self._is_fresh(read_at):
            now = time.monotonic()
            if self._file_now() != self._file:  # SQLite goes on reading the old one without a word
                raise StoreUnavailable(
                    f"the file {self._path} was removed or replaced; end protein view with Ctrl-C and start it again"
                )
            found = {sweep.spec.name: sweep for sweep in self.store.list_sweeps()}
            with self._lock:
                self._sweeps = (now, found)
        return found

    def _file_now(self) -> tuple[int, int] | None:
        """Returns what tells the store's file from another one at its place; None: there is no file."""
        try:
            found = None if self._path is None else self._path.stat()
        except OSError:
            return None
        return None if found is None else (found.st_dev, found.st_ino)

    def sweep(self, name: str) -> SweepRecord:
        """Returns a sweep by name. Raises `NotFound`."""
        sweeps = self.sweeps()
        if name not in sweeps:
            known = nearest(name, sweeps) if sweeps else "; the store holds no sweep yet"
            raise NotFound(f"there is no sweep '{name[:200]}'{known}")
        return sweeps[name]

    def frame(self, name: str) -> Frame:
        """Returns all trials of a sweep, as of at most `REFRESH_SECONDS` ago. Raises `NotFound`."""
        sweep = self.sweep(name)
        with self._lock:
            kept = self._frames.get(sweep.id)
            if kept is None:
                kept = self._frames[sweep.id] = _Kept(Frame.empty(sweep), threading.Lock())
            self._frames.move_to_end(sweep.id)
            while len(self._frames) > MAX_FRAMES:
                self._frames.popitem(last=False)
        with kept.lock:
            if not self._is_fresh(kept.read_at):
                now = time.monotonic()
                first = not len(kept.frame)
                kept.frame = kept.frame.updated(sweep, self.store.columns(sweep.id, kept.frame.cursor))
                if first:
                    give_back()
                kept.read_at = now
            return kept.frame

    def compute(self, num_trials: int, work: Callable[..., T], *given: Any) -> T:
        """Returns what a function of a module returns. Of a large sweep, a process of its own calls it.

        Its arguments `given` and its result can be pickled.
        """
        return apart(self.stopping, work, *given) if self.is_large(num_trials) else work(*given)

    def is_large(self, num_trials: int) -> bool:
        """Whether a process of its own fits the models of a sweep of this size."""
        return self.is_served and num_trials > MAX_WHOLE

    def forget(self) -> None:
        """Makes the next request read what changed: the store was written to. Readings that go on do not count."""
        self._forgotten_at = time.monotonic()

    def _is_fresh(self, read_at: float) -> bool:
        return read_at > self._forgotten_at and time.monotonic() - read_at <= REFRESH_SECONDS

    def frames(self, names: Sequence[str]) -> list[Frame]:
        """Returns the frames of several sweeps. Raises `NotFound`, and `UsageError` for none or too many."""
        if not 1 <= len(names) <= MAX_SWEEPS:
            raise UsageError(f"{len(names)} sweeps were asked for; give 1 to {MAX_SWEEPS} with sweep=NAME")
        return [self.frame(name) for name in dict.fromkeys(names)]

    def together(self, frames: Sequence[Frame]) -> tuple[Table, str]:
        """Returns the trials of several sweeps as one table, and a text that changes whenever they do."""
        version = self.version(frames)
        table: Table = self.remembered(("table", version), lambda: together(frames), most=1)
        return table, version

    def version(self, frames: Sequence[Frame]) -> str:
        """Returns a text that changes whenever one of the frames does."""
        return self.epoch + "".join(f"-{frame.sweep.id}.{frame.version}" for frame in frames)

    def remembered(self, key: tuple[Any, ...], make: Callable[[], Any], *, most: int = 16) -> Any:
        """Returns what was made for a key before, or makes it.

        A key begins with its kind, and has a version unless the value never changes. `most` of each kind are kept,
        those that were used last.
        """
        with self._lock:
            memory = self._memory.setdefault(key[0], OrderedDict())
            if key in memory:
                memory.move_to_end(key)
                return memory[key]
        value = make()
        with self._lock:
            memory[key] = value
            while len(memory) > most:
                memory.popitem(last=False)
        return value

    def artifact_directory(self, sweep: str) -> Path:
        """Returns the folder of a sweep's artifacts, which may be missing. Raises `NotFound`.

        What lies behind a symbolic link in its place is not shown: the folder is then one that can never be there.
        """
        name = self.sweep(sweep).spec.name
        folder = stores.artifact_directory(self.url, name, self._artifacts)
        return folder if stores.linked(self.url, name, self._artifacts) is None else Path(os.devnull) / folder.name
