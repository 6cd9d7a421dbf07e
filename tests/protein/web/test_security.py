"""Who may ask the page's server for what: the rules of `protein.web.security`, asked of a real server."""

import hashlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from browser import Served, fill_sweep
from patience import PATIENCE_SECONDS
from sample_trials import fill_store

from protein.errors import StoreUnavailable, UsageError
from protein.storage import open_store
from protein.web import app
from protein.web.pages.sweeps import shown_store
from protein.web.security import MAX_ADDRESS_BYTES, inside, is_loopback, new_token
from protein.web.viewer import Viewer

TOKEN = "a-token-that-only-this-test-knows"
JSON = {"Content-Type": "application/json"}


def ask(
    served: Served, path: str, headers: Mapping[str, str] | None = None, *, method: str = "GET", body: Any = None
) -> tuple[int, dict[str, str], str]:
    """Returns status, headers and text of an answer. The path is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_SECONDS)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        given = {"Host": f"127.0.0.1:{served.port}", **(headers or {})}
        content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        if content:
            given["Content-Length"] = str(len(content))
        for name, value in given.items():
            for one in value.split("\n"):
                connection.putheader(name, one)
        connection.endheaders(content or None)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
    finally:
        connection.close()


def origin(served: Served) -> dict[str, str]:
    return {"Origin": f"http://127.0.0.1:{served.port}", **JSON}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose store the tests may change; they take their changes back."""
    url = f"sqlite:///{tmp_path_factory.mktemp('own')}/protein.db"
    fill_store(url)
    server = Served(url)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def guarded(own: Served) -> Iterator[Served]:
    """A server with a token, of the same store."""
    server = Served(own.store_url, token=TOKEN)
    yield server
    server.stop()


@pytest.mark.parametrize(
    "host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "localhost:9999", "LOCALHOST"]
)
def test_names_of_this_machine_are_answered(served: Served, host: str) -> None:
    assert ask(served, "/api/sweeps", {"Host": host.format(port=served.port)})[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost.evil.example:{port}",
        "127.0.0.2:{port}",
        "evil.example@127.0.0.1.example",
        "[bad",
        "",
        "127.0.0.1:{port}\nevil.example",
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/sweeps", "/static/app.js"])
def test_a_hostile_host_header_is_refused(served: Served, host: str, path: str) -> None:
    status, _, text = ask(served, path, {"Host": host.format(port=served.port)})
    assert status in (400, 403)
    assert "pong" not in text


@pytest.mark.parametrize(
    "given", ["http://evil.example", "null", "https://127.0.0.1.evil.example", "http://localhost:1", "http://["]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_origin_is_refused(own: Served, given: str, method: str) -> None:
    body = {"sweep": "pong", "numbers": [1], "excluded": True} if method == "POST" else None
    path = "/api/annotate" if method == "POST" else "/api/sweeps"
    status, headers, text = ask(own, path, {**JSON, "Origin": given}, method=method, body=body)
    assert status == 403
    assert "another site" in text
    assert "access-control-allow-origin" not in headers
    assert not any(trial.excluded for trial in stored(own))


def stored(own: Served) -> list[Any]:
    store = open_store(own.store_url)
    try:
        return list(store.trials(store.list_sweeps()[0].id, curves=False))
    finally:
        store.close()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_browser_asks_for_another_site_is_refused_but_the_page_itself(served: Served, site: str) -> None:
    assert ask(served, "/api/sweeps", {"Sec-Fetch-Site": site})[0] == 403
    assert ask(served, "/static/app.js", {"Sec-Fetch-Site": site})[0] == 403
    assert ask(served, "/", {"Sec-Fetch-Site": site})[0] == 200  # a link in a mail


def test_a_write_needs_our_origin_and_json(own: Served) -> None:
    body = {"sweep": "pong", "numbers": [1], "excluded": True}
    assert ask(own, "/api/annotate", JSON, method="POST", body=body)[0] == 403
    form = {**origin(own), "Content-Type": "text/plain"}
    assert ask(own, "/api/annotate", form, method="POST", body=body)[0] == 415
    assert not any(trial.excluded for trial in stored(own))
    assert ask(own, "/api/annotate", origin(own), method="POST", body=body)[0] == 200
    assert [trial.number for trial in stored(own) if trial.excluded] == [1]
    body["excluded"] = False
    assert ask(own, "/api/annotate", origin(own), method="POST", body=body)[0] == 200
    assert not any(trial.excluded for trial in stored(own))


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(served: Served, method: str) -> None:
    assert ask(served, "/api/sweeps", method=method)[0] == 405


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"numbers": [1], "note": "x"}, "sweep must be a text"),
        ({"sweep": "gone", "numbers": [1], "note": "x"}, "there is no sweep 'gone'"),
        ({"sweep": "pong", "numbers": [], "note": "x"}, "numbers must be a list of 1 to 10000"),
        ({"sweep": "pong", "numbers": [1.5], "note": "x"}, "numbers must hold numbers of trials"),
        ({"sweep": "pong", "numbers": [True], "note": "x"}, "numbers must hold numbers of trials"),
        ({"sweep": "pong", "numbers": [99], "note": "x"}, "no trial 99"),
        ({"sweep": "pong", "numbers": [1]}, "nothing is to be changed"),
        ({"sweep": "pong", "numbers": [1], "score": 99}, "'score' cannot be changed"),
        ({"sweep": "pong", "numbers": [1], "excluded": 1}, "excluded must be true or false"),
        ({"sweep": "pong", "numbers": [1], "tags": "x"}, "tags must be a list of texts"),
        ({"sweep": "pong", "numbers": [1], "note": "x" * 10_001}, "at most 10000 characters"),
        ([1], "not a JSON object"),
        (b"{", "not a JSON object"),
    ],
)
def test_a_write_that_cannot_be_done_is_one_clear_line(own: Served, body: Any, message: str) -> None:
    status, _, text = ask(own, "/api/annotate", origin(own), method="POST", body=body)
    assert status in (400, 404)
    assert message in json.loads(text)["error"]
    assert all(not trial.note and not trial.tags and not trial.excluded for trial in stored(own))


def test_pause_and_stop_are_asked_of_the_sweep(own: Served) -> None:
    for wanted in ("pause", "stop", "run"):
        body = {"sweep": "pong", "request": wanted}
        assert ask(own, "/api/request", origin(own), method="POST", body=body)[0] == 200
        store = open_store(own.store_url)
        assert store.wishes(store.list_sweeps()[0].id).requested == wanted
        store.close()
    status, _, text = ask(own, "/api/request", origin(own), method="POST", body={"sweep": "pong", "request": "rm"})
    assert status == 400 and "not one of run, pause, stop" in text


def test_bounds(served: Served) -> None:
    assert ask(served, "/api/sweeps?x=" + "y" * MAX_ADDRESS_BYTES)[0] == 414
    assert ask(served, "/api/annotate", origin(served), method="POST", body=b" " * (1 << 20) + b"{}")[0] == 413
    for query in ("limit=1001", "limit=-1", "limit=x", "offset=-1", "sort=a,b,c,d,e", "sort=nothing", "column=nothing"):
        status, _, text = ask(served, f"/api/table?sweep=pong&{query}")
        assert status == 400 and json.loads(text)["error"].count("\n") == 0
    many = "&".join(f"sweep=s{i}" for i in range(21))
    assert ask(served, f"/api/table?{many}")[0] == 400
    assert ask(served, f"/api/changes?{many}")[0] == 400
    assert ask(served, "/api/table?sweep=gone")[0] == 404
    assert ask(served, "/api/nothing")[0] == 404
    assert ask(served, "/nothing")[0] == 404


def test_with_a_token_nobody_is_answered_without_it(guarded: Served) -> None:
    for path in ("/", "/api/sweeps", "/static/app.js", "/?token=wrong", f"/api/sweeps?token={TOKEN}"):
        status, _, text = ask(guarded, path)
        assert status == 401 and "pong" not in text and TOKEN not in text
    port = guarded.port
    for given in (
        {"Cookie": f"protein_view_{port}=wrong"},
        {"Cookie": f"protein_view_1={TOKEN}"},
        {"Authorization": "Bearer x"},
        {"Authorization": f"Basic {TOKEN}"},
    ):
        assert ask(guarded, "/api/sweeps", given)[0] == 401


def test_the_address_with_the_token_signs_in_by_a_cookie(guarded: Served) -> None:
    status, headers, _ = ask(guarded, f"/?token={TOKEN}")
    assert status == 303 and headers["location"] == "/"  # the token does not stay in the address
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    signed = {"Cookie": cookie.partition(";")[0]}
    assert ask(guarded, "/", signed)[0] == 200
    assert ask(guarded, "/api/sweeps", signed)[0] == 200
    body = {"sweep": "pong", "numbers": [1], "note": "seen"}
    assert ask(guarded, "/api/annotate", {**signed, **JSON}, method="POST", body=body)[0] == 403  # no origin
    assert ask(guarded, "/api/annotate", {**signed, **origin(guarded)}, method="POST", body=body)[0] == 200
    bearer = {"Authorization": f"Bearer {TOKEN}", **JSON}
    body["note"] = ""
    assert ask(guarded, "/api/annotate", bearer, method="POST", body=body)[0] == 200


@pytest.mark.parametrize("name", [socket.gethostname(), "192.168.7.7"])
def test_behind_a_proxy_with_tls_the_page_answers_to_the_name_that_others_use(guarded: Served, name: str) -> None:
    passed_on = {"Host": f"{name}:8443", "Origin": f"https://{name}:8443", **JSON}
    body = {"sweep": "pong", "numbers": [1], "note": ""}
    cookie = {"Cookie": f"protein_view_{guarded.port}={TOKEN}"}
    assert ask(guarded, "/api/annotate", {**passed_on, **cookie}, method="POST", body=body)[0] == 200
    assert ask(guarded, "/api/annotate", passed_on, method="POST", body=body)[0] == 401
    other = {**passed_on, **cookie, "Host": "evil.example:8443"}
    assert ask(guarded, "/api/annotate", other, method="POST", body=body)[0] == 403


def test_the_log_holds_no_token(guarded: Served, capfd: pytest.CaptureFixture[str]) -> None:
    ask(guarded, f"/?token={TOKEN}")
    ask(guarded, f"/api/table?token={TOKEN}&sweep=%00")
    ask(guarded, "/api/sweeps", {"Authorization": f"Bearer {TOKEN}"})
    ask(guarded, f"/?token={TOKEN}", {"Host": "evil.example"})
    printed = capfd.readouterr()
    assert TOKEN not in printed.out + printed.err


@pytest.mark.parametrize("path", ["/", "/api/sweeps", "/static/app.js", "/nothing"])
def test_every_answer_carries_the_content_policy(served: Served, path: str) -> None:
    _, headers, _ = ask(served, path)
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["script-src"] == "'self' 'wasm-unsafe-eval'"  # games are WebAssembly; no text becomes a script
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert not any("http" in sources or "*" in sources for sources in policy.values())
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path",
    [
        "/static/build-0/../../app.py",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/..\\app.py",
    ],
)
def test_static_files_lie_in_their_folder(served: Served, path: str) -> None:
    status, _, text = ask(served, path)
    assert status == 404 and "import" not in text


def test_a_path_of_a_store_leaves_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "pong"
    (folder / "0001").mkdir(parents=True)
    (folder / "0001" / "log.txt").write_text("ours")
    secret = tmp_path / "secret.txt"
    secret.write_text("not ours")
    (folder / "0001" / "link.txt").symlink_to(secret)
    (folder / "0001" / "up").symlink_to(tmp_path)
    (folder.parent / "pong2").mkdir()
    (folder.parent / "pong2" / "log.txt").write_text("another sweep's")
    assert inside(folder, "0001/log.txt").read_text() == "ours"
    assert inside(folder, folder / "0001" / "log.txt").read_text() == "ours"
    for path in (
        "../../secret.txt",
        "0001/../../../secret.txt",
        secret,
        "/etc/passwd",
        "0001/link.txt",
        "0001/up/secret.txt",
        "../pong2/log.txt",
        folder.parent / "pong2" / "log.txt",
        "0001",
        ".",
        "",
        "0001/log.txt\0.png",
        "~/.ssh/id_rsa",
        "0001/none.txt",
        "x" * 5000,
    ):
        with pytest.raises(UsageError, match="there is no file"):
            inside(folder, path)


@pytest.mark.parametrize("name", ["..", "../..", ".", "/", "/etc", "a/../..", "pong/../../secret"])
def test_a_name_of_a_sweep_leaves_no_folder(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/runs/protein.db"
    (tmp_path / "runs").mkdir()
    fill_sweep(url, name, [({"x": 1.0}, 1.0, 1.0, "")])
    fill_sweep(url, "a/b", [({"x": 1.0}, 1.0, 1.0, "")])
    store = open_store(url)
    viewer = Viewer(store, url, threading.Event())
    assert viewer.artifact_directory("a/b").parent == tmp_path / "runs"
    found = viewer.artifact_directory(name)
    assert found.is_relative_to(tmp_path / "runs") and ".." not in found.parts and not found.exists()
    for path in (tmp_path / "runs" / "protein.db", Path("/etc/passwd")):
        with pytest.raises(UsageError, match="there is no file"):
            inside(found, path)
    store.close()


def test_a_report_does_not_mind_what_becomes_of_another_store(tmp_path: Path) -> None:
    url, other = f"sqlite:///{tmp_path}/protein.db", f"sqlite:///{tmp_path}/other.db"
    fill_store(url)
    store = open_store(url)
    viewers = [Viewer(store, other, threading.Event(), watched=watched) for watched in (False, True)]
    (tmp_path / "other.db").touch()
    assert list(viewers[0].sweeps()) == ["pong"]
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        viewers[1].sweeps()
    store.close()


def test_the_page_names_the_store_without_folders_and_passwords() -> None:
    assert shown_store("postgresql+psycopg://user:secret@host/trials?sslmode=require") == "trials"
    assert shown_store("sqlite:////home/me/private/protein.db") == "protein.db"
    assert shown_store("runs/protein.db") == "protein.db"


@pytest.mark.parametrize(
    ("address", "local"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("[::1]", True), ("127.8.8.8", True)]
    + [(other, False) for other in ("0.0.0.0", "::", "192.168.0.3", "example.org", "")],
)
def test_which_addresses_this_machine_alone_can_reach(address: str, local: bool) -> None:
    assert is_loopback(address) is local


def test_tokens_cannot_be_guessed() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100 and all(len(token) >= 32 for token in tokens)


def test_vendored_files_are_those_of_the_manifest() -> None:
    folder = app.STATIC / "vendor"
    files = json.loads((folder / "manifest.json").read_text())["files"]
    found = {path.name for path in folder.iterdir()} - {"manifest.json"}
    assert found == set(files)
    for name, facts in files.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == facts["sha256"], name
        assert facts["version"] and facts["license"] and facts["package"]
    packages = {facts["package"] for facts in files.values()}
    assert {f"{package}.LICENSE".lower() for package in packages} <= {name.lower() for name in found}
