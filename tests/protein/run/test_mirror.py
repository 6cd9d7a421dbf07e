"""Workers behind a URL: a server that is gone for a while, or is none of ours, and last words of the dying."""

import contextlib
import functools
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from folder_workers import TOKEN, serving
from patience import wait_until

from protein.errors import ProteinError, UsageError
from protein.ports import Job
from protein.run import folder as folders
from protein.run import mirror as mirrors
from protein.run.fleet import Fleet
from protein.run.folder import FOLDER, FolderTransport, goes_next, offers
from protein.run.mailbox import FROM_WORKER, TO_WORKER, Inbox, Outbox
from protein.run.mirror import Mirror
from protein.run.served import Server, read_token
from protein.run.slot import Facts, Leaving, Left, Ready, SlotSettings
from protein.run.trainer import TrainerBackend
from protein.types import Trial


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def fleet(root: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setattr(folders, "LOOK_SECONDS", 0.0)
    settings = SlotSettings(make_backend=TrainerBackend, artifacts=root / "s", probe="")
    fleet = Fleet(FolderTransport("s"), settings, note=notes.append)
    yield fleet
    fleet.close()


def joined(mirror: Mirror, fleet: Fleet) -> tuple[Path, Inbox, Outbox]:
    """Joins as the worker "w". Returns its folder of messages, and their ends."""
    folder = mirror.root / "s" / FOLDER / "w"
    folder.mkdir()
    for file in (FROM_WORKER, TO_WORKER):
        (folder / file).touch()
    inbox, outbox = Inbox(folder / TO_WORKER), Outbox(folder / FROM_WORKER)
    outbox.send(Ready(facts=Facts(host="node", version="1", shares_artifacts=True), seconds_left=None))
    wait_until(lambda: fleet.num_slots() == 1)
    assert isinstance(received(inbox)[0], SlotSettings)
    return folder, inbox, outbox


def received(inbox: Inbox) -> list[object]:
    """Waits for messages."""
    found: list[object] = []

    def look() -> bool:
        found.extend(inbox.receive())
        return bool(found)

    wait_until(look)
    return found


def test_a_server_that_is_another_one_by_now_loses_no_message(fleet: Fleet, root: Path) -> None:
    said: list[str] = []
    with serving(root) as url:
        mirror = Mirror(Server(url, TOKEN), said.append)
        assert [offer.name for offer in offers(mirror.root).values()] == ["s"]
        folder, inbox, outbox = joined(mirror, fleet)
    wait_until(lambda: bool(said))
    assert said[0].startswith(f"messages to {url} wait (") and said[0].endswith("trying again, and nothing is lost")
    trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
    job = Job(trial=trial, config={}, directory=root / "s" / "0000", max_seconds=None, max_memory_bytes=None)
    fleet.start(job)
    outbox.send(Leaving())
    with serving(root, int(url.rpartition(":")[2])):
        assert received(inbox) == [job], "once, and whole"
        wait_until(lambda: fleet.num_slots() == 0)
        fleet.close()
        wait_until(lambda: not folder.exists())
        mirror.close()
    assert not mirror.root.parent.exists() and said[1:] == [f"{url} answers again"]


def test_a_full_disk_of_a_worker_delays_messages_and_loses_none(fleet: Fleet, root: Path) -> None:
    said: list[str] = []
    with serving(root) as url, contextlib.closing(Mirror(Server(url, TOKEN), said.append)) as mirror:
        folder, inbox, _ = joined(mirror, fleet)
        (folder / TO_WORKER).rename(folder / "kept")
        (folder / TO_WORKER).symlink_to("/dev/full")
        trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
        job = Job(trial=trial, config={}, directory=root / "s" / "0000", max_seconds=None, max_memory_bytes=None)
        fleet.start(job)
        wait_until(lambda: bool(said))
        assert said == [
            f"messages to {url} wait ([Errno 28] No space left on device): trying again, and nothing is lost"
        ]
        (folder / "kept").rename(folder / TO_WORKER)
        assert received(inbox) == [job]


def test_a_slot_sends_its_last_words_itself_where_the_mirror_has_died(
    fleet: Fleet, root: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(root) as url:
        server = Server(url, TOKEN)
        mirror = Mirror(server, print)
        folder, _, outbox = joined(mirror, fleet)
        mirror._end.set()  # as `kill -9` does
        mirror._thread.join()
        parents = [1, 2]
        monkeypatch.setattr(os, "getppid", lambda: parents.pop(0))
        monkeypatch.setattr(mirrors, "MAX_READ_BYTES", 40)
        monkeypatch.setattr(mirrors, "work", lambda *_: outbox.send(Left()))
        mirrors._work(folder, 0.0, server)
        wait_until(lambda: fleet.num_slots() == 0)
        assert "worker w has left" in notes
        assert len((mirror.root.parent / "owner").read_text().splitlines()) == 2
        mirror.close()


class Answers:
    """An HTTP server that gives one answer to everything."""

    def __init__(self) -> None:
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"")
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                status, headers, body = answers.answer
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def answers() -> Iterator[Answers]:
    made = Answers()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def ours() -> dict[str, str]:
    return {"x-protein": Server("http://h", TOKEN)._version}


@pytest.mark.parametrize(
    ("status", "headers", "body", "line"),
    [
        (200, {}, b"<html>", "what answers at URL is no protein serve (OK)"),
        (301, {"location": "https://h/"}, b"", "what answers at URL is no protein serve (Moved Permanently)"),
        (401, {}, b"", "what answers at URL is no protein serve (Unauthorized)"),
        (401, {"www-authenticate": "Bearer"}, b"", "what answers at URL is no protein serve (Unauthorized)"),
        (403, {}, b"", "what answers at URL is no protein serve (Forbidden)"),  # such as protein view
        (200, {"x-protein": "0.0.1"}, b"{}", "protein serve at URL has protein 0.0.1, and this machine protein HERE:"),
        (413, {"ours": ""}, b"too\n large", "URL cannot do that: too large"),
        (404, {"ours": ""}, b"give another one", "URL: give another one"),
        (501, {}, b"", "what answers at URL is no protein serve (Not Implemented)"),
        (200, {"ours": ""}, b"[]", "what URL says cannot be read: TypeError"),
        (200, {"ours": ""}, b"<html>", "what URL says cannot be read: JSONDecodeError"),
        (502, {}, b"", "messages to URL wait (Bad Gateway): trying again"),
        (503, {"ours": ""}, b"No space left on device", "messages to URL wait (No space left on device): trying again"),
        (200, {"ours": "", "content-length": "9"}, b"{}", "messages to URL wait (the answer ended too early): trying"),
    ],
)
def test_a_server_that_is_none_of_ours_or_says_no_is_one_line(
    answers: Answers, ours: dict[str, str], status: int, headers: dict[str, str], body: bytes, line: str
) -> None:
    """At the first look, and while workers run."""
    wanted = line.replace("URL", answers.url).replace("HERE", ours["x-protein"])
    bad = status, {**headers, **(ours if "ours" in headers else {})}, body
    server, notes = Server(answers.url, TOKEN), list[str]()
    good = 200, ours, json.dumps({"sweeps": {}, "workers": {}}).encode()
    for first in (bad, good):
        answers.answer = first
        try:
            mirror = Mirror(server, notes.append)
        except ProteinError as error:
            assert wanted in str(error) and "\n" not in str(error) and TOKEN not in str(error)
            continue
        with contextlib.closing(mirror):
            answers.answer = bad
            wait_until(functools.partial(told, mirror, notes))
            assert wanted in told(mirror, notes)
            answers.answer = good
            notes.clear()


def told(mirror: Mirror, notes: list[str]) -> str:
    """Returns what a person is told; "": nothing yet."""
    return notes[0] if notes else "" if mirror.error is None else str(mirror.error)


def test_what_is_no_server_or_no_token_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in (
        "http://",
        "http://h:x",
        "h:8743",
        "ftp://h",
        "http://h/?q",
        "http://h#f",
        "http://[h",
        f"http://{TOKEN}@h",
    ):
        with pytest.raises(UsageError, match="URL") as caught:
            Server(url, TOKEN)
        assert TOKEN not in str(caught.value)
    file = tmp_path / "token"
    for text in ("", "short", "has a space in its middle", "ä" * 20, "a\nb" * 10):
        file.write_text(text)
        for given in (file, None):
            monkeypatch.setenv("PROTEIN_TOKEN", text)
            with pytest.raises(UsageError, match=r"token|TOKEN"):
                read_token(given)
    with pytest.raises(UsageError, match="must have 16 to 4096 characters"):
        read_token(Path("/dev/zero"))
    file.write_text(f"{TOKEN}\n")
    monkeypatch.setenv("PROTEIN_TOKEN", "x" * 16)
    assert read_token(file) == TOKEN and "PROTEIN_TOKEN" not in os.environ and read_token(None) is None


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("http://h", "h", 80, ""),
        ("https://H:1/", "h", 1, ""),
        ("http://[::1]", "::1", 80, ""),
        ("https://[2001:db8::1]/a", "2001:db8::1", 443, "/a"),
        ("https://[fe80::abcd]", "fe80::abcd", 443, ""),
        ("https://h/ä b%20c/", "h", 443, "/%C3%A4%20b%20c"),
    ],
)
def test_a_server_is_where_its_url_says(url: str, host: str, port: int, path: str) -> None:
    server = Server(url, TOKEN)
    connection = server._connect()
    assert (connection.host, connection.port, server._path) == (host, port, path)


def test_a_second_ctrl_c_leaves_nothing_behind(answers: Answers, ours: dict[str, str], tmp_path: Path) -> None:
    answers.answer = 200, ours, json.dumps({"sweeps": {}, "workers": {}}).encode()
    mirror = Mirror(Server(answers.url, TOKEN), print)
    mirror._sent[tmp_path] = 0

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
        patch.setattr(mirrors, "_insist", lambda look: interrupted())
        mirror.close()
    assert not mirror.root.parent.exists()


def test_what_a_server_says_leads_out_of_no_folder(answers: Answers, ours: dict[str, str]) -> None:
    said = {"alive": "0", "next": "w", "offer.json": "{}", "workers": ["../x", ".x", "a/b", "", "w"]}
    names = ("../y", "..", ".z", "/tmp/protein-test", "", "s")
    answers.answer = 200, ours, json.dumps({"sweeps": dict.fromkeys(names, said), "workers": {}}).encode()
    with contextlib.closing(Mirror(Server(answers.url, TOKEN), print)) as mirror:
        found = {str(path.relative_to(mirror.root)) for path in mirror.root.rglob("*")}
        assert found == {"s", *(f"s/.workers{rest}" for rest in ("", "/alive", "/next", "/offer.json", "/w"))}
        assert goes_next(mirror.root / "s" / ".workers") == "w"
        assert {path.name for path in mirror.root.parent.iterdir()} == {"owner", "sweeps"}
