"""Keeps a copy of every trial's files on the controller's machine, where they are kept under a URL.

So everything that reads a trial's folder (what it can be resumed from, `protein train --from`, the views) reads files.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from protein.ports import Finished, Job, TrialProgress
from protein.run.copies import Copies, mirror
from protein.run.ray import RayBackend
from protein.types import Trial, TrialEnd

NUM_THREADS = 4  # that fetch


class MirroredBackend:
    """A backend around another one, whose trials end only when their files are here.

    Attributes:
        note: as that of the other one.
    """

    def __init__(self, backend: RayBackend, url: str) -> None:
        self._backend, self._copies = backend, Copies(url)
        self._threads = ThreadPoolExecutor(NUM_THREADS)
        self._directories: dict[int, Path] = {}  # of running trials, by id
        self._fetching: list[tuple[Finished, Future[str]]] = []

    @property
    def note(self) -> Callable[[str], None]:
        return self._backend.note

    @note.setter
    def note(self, note: Callable[[str], None]) -> None:
        self._backend.note = note

    def num_slots(self) -> int:
        return self._backend.num_slots()

    def start(self, job: Job) -> None:
        self._directories[job.trial.id] = job.directory
        self._backend.start(job)

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        events: list[TrialProgress | Finished] = []
        for event in self._backend.poll(min(timeout_seconds, 0.1) if self._fetching else timeout_seconds):
            if isinstance(event, TrialProgress):
                events.append(event)
            else:
                directory = self._directories.pop(event.trial.id)
                fetched = self._threads.submit(mirror, self._copies, directory.name, directory)
                self._fetching.append((event, fetched))
        for pending in [pending for pending in self._fetching if pending[1].done()]:
            self._fetching.remove(pending)
            if problem := pending[1].result():
                self.note(problem)
            events.append(pending[0])
        return events

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        self._backend.stop(trial, end, reason)

    def close(self) -> None:
        self._backend.close()
        self._threads.shutdown()
