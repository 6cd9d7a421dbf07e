"""The files by which two sides exchange messages, and by which each sees that the other one lives."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from protein.run import mailbox
from protein.run.mailbox import Inbox, Outbox


def test_a_reader_takes_only_whole_messages(tmp_path: Path) -> None:
    file = tmp_path / "box"
    inbox, outbox = Inbox(file), Outbox(file)
    assert inbox.receive() == []
    outbox.send({"a": 1}, "two")
    assert inbox.receive() == [{"a": 1}, "two"]
    outbox.send("x" * 1000)
    outbox.close()
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert inbox.receive() == []
    file.write_bytes(whole)
    assert inbox.receive() == ["x" * 1000]


def test_a_file_of_messages_that_cannot_be_read_now_has_none(tmp_path: Path) -> None:
    """Network file systems fail for moments, with errors of their own."""
    (tmp_path / "box").mkdir()
    inbox = Inbox(tmp_path / "box")
    assert inbox.receive() == []
    (tmp_path / "box").rmdir()
    outbox = Outbox(tmp_path / "box")
    outbox.send("here")
    outbox.close()
    assert inbox.receive() == ["here"]


def test_time_in_which_this_side_could_not_hear_the_other_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared file system hangs for ten minutes: no worker and no sweep has died of that."""
    now = [0.0]
    monkeypatch.setattr(mailbox, "time", SimpleNamespace(monotonic=lambda: now[0]))
    silence = mailbox.Silence()
    now[0] += 600.0
    silence.look(heard=False)
    assert not silence.is_death
    for _ in range(int(mailbox.DEAD_SECONDS) - 5):
        now[0] += 1.0
        silence.look(heard=False)
    assert not silence.is_death
    for _ in range(2):
        now[0] += 1.0
        silence.look(heard=False)
    assert silence.is_death
    silence.look(heard=True)
    assert not silence.is_death
