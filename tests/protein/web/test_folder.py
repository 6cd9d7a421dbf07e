"""`protein serve` before a folder: messages at their places, files, and what is refused."""

import base64
import contextlib
import errno
import http.client
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from folder_workers import TOKEN, serving
from patience import wait_until

from protein.errors import UsageError
from protein.ports import Job
from protein.run.fleet import Fleet
from protein.run.folder import FOLDER, FolderTransport
from protein.run.mailbox import FROM_WORKER, TO_WORKER
from protein.run.served import GoneError, ServedFiles, Server
from protein.run.slot import Copier, Copies, Slot, SlotSettings
from protein.run.trainer import TrainerBackend
from protein.sweep import resuming
from protein.types import Trial
from protein.web import folder

PROBE = ".shared-x"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def sweep(root: Path) -> Iterator[Path]:
    """Runs a sweep without workers. Yields its folder."""
    settings = SlotSettings(make_backend=TrainerBackend, artifacts=root / "s", probe=PROBE)
    fleet = Fleet(FolderTransport("s"), settings, note=lambda line: None)
    (root / "s" / PROBE).write_text("probe")
    yield root / "s"
    fleet.close()


@pytest.fixture
def server(root: Path, sweep: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Server]:
    with serving(root) as url:
        yield Server(url, TOKEN)
    assert capfd.readouterr().err == "", "nothing is an error of the server's own"


def look(server: Server, name: str = "s/w", at: int = 0, read: int = 0, new: bytes = b"") -> bytes | None:
    asked = {name: [at, read, base64.b64encode(new).decode()]}
    said = json.loads(server.call("POST", "/look", json.dumps(asked).encode()))["workers"][name]
    return None if said is None else base64.b64decode(said)


def test_messages_are_written_once_however_often_they_come(server: Server, sweep: Path) -> None:
    worker = sweep / FOLDER / "w"
    for _ in range(2):
        assert look(server) == b""
    (worker / TO_WORKER).write_bytes(b"settings")
    for at, new in ((0, b"one"), (0, b"one"), (3, b"two"), (0, b"onetwo")):
        assert look(server, at=at, read=3, new=new) == b"tings"
    assert (worker / FROM_WORKER).read_bytes() == b"onetwo"
    said = json.loads(server.call("POST", "/look", b"{}"))
    assert list(said["sweeps"]) == ["s"] and set(said["sweeps"]["s"]) == {"alive", "next", "offer.json", "workers"}
    for at, read in ((7, 0), (-1, 0), (0, 1 << 70)):  # not after what is there
        assert look(server, at=at, read=read) is None if read < 1 << 63 else True
    for file in (TO_WORKER, FROM_WORKER):
        (worker / file).unlink()
    worker.rmdir()
    assert look(server, at=6, read=8, new=b"late") is None
    assert not worker.exists(), "one that was given up does not join again"
    with pytest.raises(GoneError, match="give the URL as protein serve prints it"):
        server.call("POST", "/x/look")
    for name in ("s/.w", "s/../w", "../w", "none/w", "s/w\0", "s/..", ".workers/w", "s", "s/w/x", ""):
        try:
            assert look(server, name) is None
        except UsageError as error:
            assert str(error).endswith("cannot do that: this is no look of a worker")
    for body in (b"", b"[]", b"{", b"[" * 100_000, b'{"s/w": 1}', b'{"s/w": [1, 2, 3]}', b'{"s/w": [1e999, 0, ""]}'):
        with pytest.raises(UsageError, match="no look of a worker"):
            server.call("POST", "/look", body)
    assert not (sweep / FOLDER / "w").exists()


def test_files_come_and_go_and_no_path_leads_out(server: Server, sweep: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    look(server)
    copies = Copies(ServedFiles(server, "s", "w"))
    assert copies.has(PROBE) and not copies.has("0000")
    log = tmp_path / "log"
    log.write_bytes(b"a" * 3_000_000)
    copies.put(log, "0000/deep/lög 100%?#")
    copies.fetch("0000", tmp_path / "back")
    assert (tmp_path / "back" / "deep" / "lög 100%?#").read_bytes() == log.read_bytes()
    (sweep / "0000" / "out").symlink_to(tmp_path)
    (sweep / "0000" / "link").symlink_to(secret)
    assert json.loads(server.call("GET", "/list/s/w/0000")) == {"deep/lög 100%?#": 3_000_000}
    wrong = ("0000/out/secret", "0000/link", "../../secret", "0000/../../../secret", "0000//deep", "0000/./deep", "/x")
    for path in (*wrong, ".workers/w/to-worker", ".x/y", "", "/", "0000/", "\0", f"../..{secret}"):
        for method in ("GET", "PUT"):
            with pytest.raises(UsageError, match=r"leads elsewhere|no trial's folder"):
                server.call(method, f"/files/s/w/{path}", b"new" if method == "PUT" else b"")
    copies.put(log, "0000/file")
    for path in ("0000/file/below", "0000/deep"):
        with pytest.raises(UsageError, match="cannot do that"):
            copies.put(log, path)
    assert secret.read_text() == "x"


class Backend:
    """A backend that runs nothing, and keeps the job that it is given."""

    def start(self, job: Job) -> None:
        self.job = job

    def close(self) -> None:
        pass


def test_each_attempt_finds_and_leaves_what_the_sweep_keeps_of_the_trial(server: Server, sweep: Path) -> None:
    """As by the folder. A trial that never gets to a checkpoint is given up by the count of its attempts."""
    backend: Any = Backend()
    look(server)
    trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
    job = Job(trial=trial, config={}, directory=sweep / "0000", max_seconds=None, max_memory_bytes=None)
    settings = SlotSettings(make_backend=lambda: backend, artifacts=sweep, probe=PROBE)
    for count in (1, 2):
        assert resuming.attempt(sweep / "0000", 0) == count
        with contextlib.closing(Slot(settings, ServedFiles(server, "s", "w"))) as slot:
            slot.start(job)
            (backend.job.directory / "log").write_text(f"{count}")
        assert {file.name for file in (sweep / "0000").iterdir()} == {"attempts.json", "log"}


def test_any_name_of_a_file_comes_and_goes_as_it_is(server: Server, sweep: Path, tmp_path: Path) -> None:
    look(server)
    here, back = tmp_path / "here", tmp_path / "back"
    names = [
        b"a\nb",
        b"end\n",
        b"\xff\xfe",
        b"\xef\xbf\xbd",
        b" ",
        b"%0A",
        b"\\",
        b"..a",
        b"-",
        b"\x01",
        b"a?b#c;d",
        b"\xc3\xa9",
    ]
    for name in names:
        (here / "b\n").mkdir(parents=True, exist_ok=True)
        for above in (here, here / "b\n"):
            (above / os.fsdecode(name)).write_bytes(name)
    copier = Copier(Copies(ServedFiles(server, "s", "w")), here, "0000", every_seconds=3600)
    copier._copied.clear()  # as if they were written by now
    assert copier.finish() == ""
    Copies(ServedFiles(server, "s", "w")).fetch("0000", back)
    for above in (sweep / "0000", back):
        found = {os.fsencode(one.relative_to(above)): one.read_bytes() for one in above.rglob("*") if one.is_file()}
        assert found == {before + name: name for name in names for before in (b"", b"b\n/")}


def test_a_worker_that_was_given_up_changes_no_file(server: Server, sweep: Path, tmp_path: Path) -> None:
    look(server)
    copies = Copies(ServedFiles(server, "s", "w"))
    (tmp_path / "large").write_bytes(bytes(30_000_000))
    copies.put(tmp_path / "large", "0000/state")
    for file in (TO_WORKER, FROM_WORKER):
        (sweep / FOLDER / "w" / file).unlink()
    (sweep / FOLDER / "w").rmdir()
    calls: list[Any] = [
        lambda: copies.put(tmp_path / "large", "0000/late"),
        lambda: copies.fetch("0000", tmp_path / "back"),
    ]
    for call in calls:
        with pytest.raises(GoneError, match="given this worker up"):
            call()
    assert [file.name for file in (sweep / "0000").iterdir()] == ["state"]


def test_a_file_that_comes_in_part_or_finds_no_room_leaves_the_old_one(
    server: Server, sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(server)
    files = ServedFiles(server, "s", "w")
    (tmp_path / "new").write_bytes(b"new")
    files.put_file(str(tmp_path / "new"), "/0000/state")
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        head = f"PUT /files/s/w/0000/state HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n"
        connection.sendall(f"{head}content-length: 900000\r\n\r\nonly a part".encode())
        wait_until(lambda: list((sweep / FOLDER / "w").glob(".*")))
    replace, full = os.replace, [True, True, False]

    def full_at_first(old: Path, new: Path) -> None:
        if full and full.pop(0):
            raise OSError(errno.ENOSPC, "No space left on device", str(new))
        replace(old, new)

    monkeypatch.setattr(os, "replace", full_at_first)
    monkeypatch.setattr("protein.run.served.FIRST_WAIT", 0.01)
    with pytest.raises(OSError, match=r"^No space left on device$"):
        server.call("PUT", "/files/s/w/0000/state", b"newer")
    assert (sweep / "0000" / "state").read_bytes() == b"new"
    (tmp_path / "new").write_bytes(b"newest")
    files.put_file(str(tmp_path / "new"), "/0000/state")
    assert (sweep / "0000" / "state").read_bytes() == b"newest" and not full
    wait_until(lambda: not list((sweep / FOLDER / "w").glob(".*")))


def test_bodies_are_limited_and_without_the_token_nothing_is_answered(server: Server, root: Path) -> None:
    parts = urlsplit(server.url)

    def status(method: str, path: str, **headers: str) -> tuple[int, bytes, str | None]:
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=20)
        connection.putrequest(method, path)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        found = answer.status, answer.read(), answer.headers.get("x-protein")
        connection.close()
        return found

    ours = {"authorization": f"Bearer {TOKEN}"}
    assert status("POST", "/look", **ours)[0] == 411
    assert status("POST", "/look", **ours, content_length="+3")[0] == 400
    assert status("POST", "/look", **ours, content_length=str(folder.MAX_LOOK_BYTES + 1))[0] == 413
    look(server)
    assert status("PUT", "/files/s/w/0/x", **ours, content_length=str((16 << 30) + 1))[0] == 413
    for token in ("", TOKEN, f"bearer {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Basic x", "Bearer \xff"):
        for method, path in (("POST", "/look"), ("GET", "/files/s/w/.shared-x"), ("GET", "/"), ("PUT", "/look")):
            assert status(method, path, authorization=token) == (401, b"the token is wrong", None)
    assert status("GET", "/look")[0] == 401
    with pytest.raises(UsageError, match=r"refuses this worker \(Unauthorized\): give the token"):
        Server(server.url, f"{TOKEN}x").call("POST", "/look", b"{}")
