"""Backends whose trials run in a worker that has joined through a folder."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from patience import PATIENCE_SECONDS
from slurm_cluster import ASSETS

from protein.ports import Backend
from protein.run.fleet import Fleet
from protein.run.folder import FolderTransport
from protein.run.slot import SlotSettings, put_probe
from protein.run.worker import Workers


@contextlib.contextmanager
def backend(artifacts: Path, make_backend: Callable[[], Backend]) -> Iterator[Fleet]:
    """Runs a worker with a slot, and yields a backend that has it. Trials run by `make_backend`."""
    settings = SlotSettings(
        make_backend=make_backend,
        artifacts=artifacts,
        probe=put_probe(artifacts),
        search_path=(*sys.path, ASSETS),
    )
    fleet = Fleet(FolderTransport("test"), settings)
    with contextlib.closing(fleet), worker(artifacts.parent):
        yield fleet


@contextlib.contextmanager
def worker(root: Path, note: Callable[[str], None] = lambda line: None, slots: int = 1) -> Iterator[None]:
    """Runs what `protein worker` does, in a thread."""
    stop = threading.Event()
    workers = Workers(root, slots=slots, gpus=None, seconds=None, note=note)
    thread = threading.Thread(target=workers.run, args=(stop.is_set,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
