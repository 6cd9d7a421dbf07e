"""Backends whose trials run in a worker that has joined through a folder, or through a server of that folder."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
from patience import PATIENCE_SECONDS
from slurm_cluster import ASSETS

from protein.ports import Backend
from protein.run.fleet import Fleet
from protein.run.folder import FolderTransport
from protein.run.mirror import Mirror
from protein.run.served import Server
from protein.run.slot import SlotSettings, put_probe
from protein.run.worker import Workers
from protein.web.app import listen
from protein.web.folder import make_server

TOKEN = "t" * 24


@contextlib.contextmanager
def backend(artifacts: Path, make_backend: Callable[[], Backend], *, served: bool = False) -> Iterator[Fleet]:
    """Runs a worker with a slot, and yields a backend that has it. Trials run by `make_backend`."""
    settings = SlotSettings(
        make_backend=make_backend,
        artifacts=artifacts,
        probe=put_probe(artifacts),
        search_path=(*sys.path, ASSETS),
    )
    with contextlib.ExitStack() as stack:
        server = Server(stack.enter_context(serving(artifacts.parent)), TOKEN) if served else None
        fleet = stack.enter_context(contextlib.closing(Fleet(FolderTransport("test"), settings)))
        stack.enter_context(worker(artifacts.parent, server=server))
        yield fleet


@contextlib.contextmanager
def worker(
    root: Path, note: Callable[[str], None] = lambda line: None, slots: int = 1, server: Server | None = None
) -> Iterator[None]:
    """Runs what `protein worker` does, in a thread: by the folder, or by the URL of its server."""
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        if server is not None:
            root = stack.enter_context(contextlib.closing(Mirror(server, note))).root
        workers = Workers(root, slots=slots, gpus=None, seconds=None, note=note, server=server)
        thread = threading.Thread(target=workers.run, args=(stop.is_set,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


@contextlib.contextmanager
def serving(root: Path, port: int = 0) -> Iterator[str]:
    """Runs what `protein serve` does, in a thread. Yields its URL."""
    listening = listen("127.0.0.1", port)
    server: uvicorn.Server = make_server(root, TOKEN)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)
        listening.close()
        assert not thread.is_alive()
