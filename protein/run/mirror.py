"""The folder of the sweeps behind a `protein serve`, as a folder of this machine.

A machine's slots (`protein.run.worker`) find there what they find in a shared folder: the sweeps that run, their signs
of life, and the files of messages. Messages go to and fro here. The files of trials do not: each slot copies its own
(`protein.run.served`).

Files of messages only grow, and the position in each is kept here. So a server that was gone, or is another process by
now, gets what it lacks, and nothing twice.

The process of a slot is `python -m protein.run.mirror FOLDER ENDS_AT URL`: a worker (`protein.run.mailbox`) that sends
its last messages itself where the process with the mirror has died. The token is in its environment.
"""

import base64
import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protein.errors import ProteinError
from protein.files import replace_file
from protein.run.folder import FOLDER, NEXT, OFFER, PLAIN
from protein.run.mailbox import ALIVE, FROM_WORKER, MAX_READ_BYTES, TO_WORKER, work
from protein.run.served import FIRST_WAIT, LONGEST_WAIT, TOKEN, ServedFiles, Server
from protein.run.slot import new_scratch, own_scratch

SHORTEST_SECONDS, LONGEST_SECONDS = 0.05, 0.4  # between two looks: a short time after news
LAST_SECONDS = 20.0  # within which the last messages must be sent


class Mirror:
    """The folder, and the thread that keeps it like the server's until `close`.

    Attributes:
        root: the folder.
        error: why it cannot go on; None: it can.
    """

    def __init__(self, server: Server, note: Callable[[str], None]) -> None:
        """Looks for the first time.

        Raises:
            ProteinError: the server does not take this worker, or is none of ours.
        """
        self._scratch = new_scratch()
        self.root = self._scratch / "sweeps"
        self.error: ProteinError | None = None
        self._server, self._note = server, note
        self._sent: dict[Path, int] = {}  # bytes, by the folder of one worker's messages here
        self._end = threading.Event()
        try:
            self.root.mkdir()
            with contextlib.suppress(OSError):  # it may come
                self.look()
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        self._thread = threading.Thread(target=self._run, name="messages of workers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Sends the last messages, and removes the folder."""
        try:
            self._end.set()
            self._thread.join()
            if self.error is None and self._sent:
                _insist(self.look)
        finally:  # also where a second Ctrl-C ends that
            shutil.rmtree(self._scratch, ignore_errors=True)

    def look(self) -> bool:
        """Makes the folder like the server's once, and sends what is new here. Returns whether anything was new.

        Raises:
            OSError: the server does not answer now; or the disk here is full.
            ProteinError: the server does not take this worker, or what it says cannot be read.
        """
        try:
            return self._look()
        except (OSError, ProteinError):
            raise
        except Exception as error:  # whatever it is that it says
            what = f"{type(error).__name__}: {error}"[:300]
            raise ProteinError(f"what {self._server.url} says cannot be read: {what}") from error

    def _look(self) -> bool:
        for file in self.root.glob(f"*/{FOLDER}/[!.]*/{TO_WORKER}"):
            self._sent.setdefault(file.parent, 0)
        sweeps, is_news = exchange(self._server, self._sent)
        for name, said in sweeps.items():
            if PLAIN.fullmatch(name):
                _show(self.root / name / FOLDER, said)
        for folder in self.root.iterdir():
            if folder.name not in sweeps and not any(one.is_relative_to(folder) for one in self._sent):
                shutil.rmtree(folder, ignore_errors=True)
        return is_news

    def _run(self) -> None:
        wait, told = SHORTEST_SECONDS, False
        while not self._wait(wait, told):
            try:
                is_news = self.look()
            except OSError as error:  # of the server, or a full disk here
                if not told:
                    self._note(f"messages to {self._server.url} wait ({error}): trying again, and nothing is lost")
                wait, told = min(2 * wait, LONGEST_WAIT), True
                continue
            except ProteinError as error:
                self.error = error
                return
            if told:
                self._note(f"{self._server.url} answers again")
            wait, told = SHORTEST_SECONDS if is_news else min(2 * wait, LONGEST_SECONDS), False

    def _wait(self, seconds: float, whole: bool) -> bool:
        """Waits, unless `whole` not longer than until a worker here has something to say. Returns whether it ends."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._end.wait(min(left, SHORTEST_SECONDS)):
            with contextlib.suppress(OSError):
                if not whole and any((one / FROM_WORKER).stat().st_size > at for one, at in self._sent.items()):
                    break
        return self._end.is_set()


def exchange(server: Server, sent: dict[Path, int]) -> tuple[dict[str, Any], bool]:
    """Sends the new messages of workers here, and gets those for them.

    Args:
        server: which stands for the sweeps' folder.
        sent: how many bytes of each worker were sent, by its folder of messages. It is brought up to date. One whom
            the sweep has given up is taken out, and its folder removed.

    Returns:
        The sweeps that run, and whether there were messages.
    """
    asked: dict[str, tuple[int, int, str]] = {}
    room = MAX_READ_BYTES
    for folder, at in sent.items():
        with (folder / FROM_WORKER).open("rb") as ours:
            ours.seek(at)
            new = ours.read(room)
        room -= len(new)
        asked[_name(folder)] = at, (folder / TO_WORKER).stat().st_size, base64.b64encode(new).decode()
    said = json.loads(server.call("POST", "/look", json.dumps(asked).encode()))
    is_news = room < MAX_READ_BYTES
    for folder, at in list(sent.items()):
        answer = said["workers"][_name(folder)]
        if answer is None:
            del sent[folder]
            shutil.rmtree(folder, ignore_errors=True)
            continue
        if answer:
            is_news = True
            with (folder / TO_WORKER).open("ab") as theirs:
                theirs.write(base64.b64decode(answer))
        sent[folder] = at + len(base64.b64decode(asked[_name(folder)][2]))
    return said["sweeps"], is_news


def _name(folder: Path) -> str:
    return f"{folder.parents[1].name}/{folder.name}"


def _show(folder: Path, said: dict[str, Any]) -> None:
    """Shows a sweep that runs, its signs of life, who goes next, and whom else it has: an empty folder for each."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in (ALIVE, NEXT, OFFER):
        file, text = folder / name, str(said[name])
        if not file.exists() or file.read_text() != text:  # when it was written is when there was a sign
            replace_file(file, text.encode())
    workers = {str(name) for name in said["workers"] if PLAIN.fullmatch(name)}
    for name in workers:
        (folder / name).mkdir(exist_ok=True)
    for other in folder.glob("[!.]*"):
        if other.is_dir() and other.name not in workers:
            with contextlib.suppress(OSError):  # our own are not empty
                other.rmdir()


def _insist(look: Callable[[], object]) -> None:
    """Sends the last messages, as far as the server answers within `LAST_SECONDS`."""
    until = time.monotonic() + LAST_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(OSError, ProteinError):
            look()
            return
        time.sleep(FIRST_WAIT)


def _work(folder: Path, ends_at: float, server: Server) -> None:
    """Works, and sends all of its messages where the process with the mirror has died: the same bytes again."""
    parent, sent = os.getppid(), {folder: 0}

    def send() -> None:
        while folder in sent and sent[folder] < (folder / FROM_WORKER).stat().st_size:
            exchange(server, sent)

    with contextlib.suppress(OSError):
        own_scratch(folder.parents[3])
    try:
        work(folder, ends_at, ServedFiles(server, folder.parents[1].name, folder.name))
    finally:
        if os.getppid() != parent:
            _insist(send)


if __name__ == "__main__":
    _work(Path(sys.argv[1]), float(sys.argv[2]), Server(sys.argv[3], os.environ.pop(TOKEN)))
