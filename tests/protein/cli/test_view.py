"""`protein view`: what it prints, which port it takes, and mistakes in one line."""

import http.client
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Run
from patience import PATIENCE_SECONDS
from sample_trials import fill_store

from protein.web.app import DEFAULT_PORT, listen

pytestmark = pytest.mark.usefixtures("warm")


def started(folder: Path, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "protein", "view", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_prints_its_address_at_once_answers_and_ends_politely(filled: Path) -> None:
    process = started(filled)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"protein view: http://127\.0\.0\.1:(\d+)/  \(Ctrl-C ends it\)\n", line)
        assert match is not None, line
        connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=PATIENCE_SECONDS)
        connection.request("GET", "/api/sweeps")
        assert b'"name":"pong"' in connection.getresponse().read()
        connection.close()
        stream = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=PATIENCE_SECONDS)
        stream.request("GET", "/api/changes?sweep=pong")
        assert stream.getresponse().readline() == b"event: hello\n"  # a page is open, and does not keep it from ending
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        stream.close()
    finally:
        process.kill()
    assert process.returncode == 0
    assert (out, err) == ("", "\nended; sweeps that run are not affected\n")


def test_with_a_token_the_address_holds_it_once(filled: Path) -> None:
    process = started(filled, "--token")
    try:
        assert process.stdout is not None
        assert re.search(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}  ", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert "token" not in out + err


def test_on_all_addresses_it_is_named_as_others_reach_it(filled: Path) -> None:
    process = started(filled, "--host", "0.0.0.0", "--token")
    try:
        assert process.stdout is not None
        match = re.search(r"http://(\S+):(\d+)(/\?token=\S+)", process.stdout.readline())
        assert match is not None and match[1] == socket.gethostname()
        for host, status in ((match[1], 303), ("127.0.0.1", 303), ("evil.example", 403)):
            connection = http.client.HTTPConnection("127.0.0.1", int(match[2]), timeout=PATIENCE_SECONDS)
            connection.request("GET", match[3], headers={"Host": f"{host}:{match[2]}"})
            assert connection.getresponse().status == status
            connection.close()
    finally:
        process.kill()
        _, err = process.communicate()
    assert "unencrypted" in err and f"ssh -L {match[2]}:127.0.0.1:{match[2]} {match[1]}," in err and "TLS" in err
    assert match[3].partition("=")[2] not in err


def test_a_store_of_a_newer_version_ends_it_with_the_reason(filled: Path) -> None:
    with sqlite3.connect(filled / "runs" / "protein.db") as database:
        database.execute("UPDATE protein_schema SET version_num = '9999'")
    database.close()
    process = started(filled)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 2
    assert re.fullmatch(r"error: store \S+ has schema 9999, and this version of protein knows[^\n]+\n", err)
    assert "http://" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--host 0.0.0.0", "--host 0.0.0.0 lets other machines read the store"),
        ("--host ::", "add --token"),
        ("--port 0", "--port 0 must be from 1 to 65535"),
        ("--port 70000", "--port 70000 must be from 1 to 65535"),
        ("nowhere.db", "there is no store nowhere.db yet"),
        ("runs", "store runs is a folder"),
        ("a.db --store b.db", "the store is given twice"),
        ("--host 203.0.113.7 --token", "cannot listen on 203.0.113.7"),
        ("mysql://me:secret@host/x", "'mysql' is not supported"),
    ],
)
def test_mistakes_are_one_line(filled: Path, run: Run, words: str, message: str) -> None:
    line = run.error(f"view {words}")
    assert message in line
    assert "secret" not in line


def test_a_port_that_is_taken_is_an_error_where_it_was_asked_for(filled: Path, run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1 port {port}" in run.error(f"view --port {port}")


def test_without_a_port_another_one_is_taken_where_the_usual_one_is_not_free() -> None:
    first, second = listen("127.0.0.1", None), listen("127.0.0.1", None)
    ports = {first.getsockname()[1], second.getsockname()[1]}
    first.close()
    second.close()
    assert len(ports) == 2 and ports - {DEFAULT_PORT}


def test_a_store_may_be_given_by_position(tmp_path: Path) -> None:
    fill_store(f"sqlite:///{tmp_path}/other.db", name="elsewhere")
    process = started(tmp_path, "other.db")
    try:
        assert process.stdout is not None
        match = re.search(r":(\d+)/", process.stdout.readline())
        assert match is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=PATIENCE_SECONDS)
        connection.request("GET", "/api/sweeps")
        assert b'"store":"other.db"' in connection.getresponse().read()
        connection.close()
    finally:
        process.kill()
        process.communicate()
