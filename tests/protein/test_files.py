"""Files appear whole or not at all, whatever goes wrong while they are written."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest
from full_disk import largest_file

from protein import files

CONTENT = b"x" * 10_000


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "a.txt"
    files.replace_file(path, b"one")
    files.replace_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert names(path.parent) == ["a.txt"]


@pytest.mark.parametrize("room", [0, 1, len(CONTENT) - 1])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, room: int) -> None:
    (tmp_path / "old").write_bytes(b"old")
    for path in (tmp_path / "old", tmp_path / "new", tmp_path / "made" / "deep" / "new"):
        with largest_file(room), pytest.raises(OSError, match="File too large") as caught:
            files.replace_file(path, CONTENT)
        assert caught.value.errno == errno.EFBIG
    assert names(tmp_path) == ["old"]
    assert (tmp_path / "old").read_bytes() == b"old"


def test_a_write_that_is_interrupted_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "a").write_bytes(b"old")
    for path in (tmp_path / "kept" / "a", tmp_path / "made" / "a"):
        with pytest.raises(KeyboardInterrupt), files.replacing(path) as unfinished:
            unfinished.write_bytes(b"half")
            raise KeyboardInterrupt
    assert names(tmp_path) == ["kept"]
    assert names(tmp_path / "kept") == ["a"]
    assert (tmp_path / "kept" / "a").read_bytes() == b"old"


def test_folders_that_hold_something_by_now_stay(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), files.making_folder(tmp_path / "a" / "b"):
        (tmp_path / "a" / "other").write_bytes(b"")
        raise OSError("full")
    assert names(tmp_path / "a") == ["other"]


def test_permissions_are_those_of_any_new_file_or_of_the_old_one(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    before = os.umask(0o027)
    try:
        files.replace_file(new, b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE(new.stat().st_mode) == 0o640
    old.write_bytes(b"")
    old.chmod(0o604)
    files.replace_file(old, b"new")
    assert stat.S_IMODE(old.stat().st_mode) == 0o604


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o400)
    if os.geteuid() == 0:  # who may write everything
        monkeypatch.setattr(os, "access", lambda place, mode: not (place == path and mode == os.W_OK))
    with pytest.raises(PermissionError):
        files.replace_file(path, b"new")
    with pytest.raises(PermissionError):
        files.require_replaceable(path)
    assert names(tmp_path) == ["a"]
    assert path.read_bytes() == b"old"


def test_a_link_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    path, link = tmp_path / "far" / "a", tmp_path / "link"
    path.parent.mkdir()
    link.symlink_to(path)
    files.replace_file(link, b"one")  # the file that it leads to is not there yet
    assert link.is_symlink()
    assert path.read_bytes() == b"one"
    files.replace_file(link, b"two", follow_link=False)
    assert not link.is_symlink()
    assert (path.read_bytes(), link.read_bytes()) == (b"one", b"two")


def test_what_is_no_regular_file_is_written_itself(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    files.require_replaceable(pipe)
    files.replace_file(pipe, b"content")
    reader.join()
    assert found == [b"content"]
    assert names(tmp_path) == ["pipe"]
    with pytest.raises(OSError, match="No space left"):
        files.replace_file(Path("/dev/full"), b"content")
    with pytest.raises(IsADirectoryError):
        files.replace_file(tmp_path, b"content")


def test_a_long_name_is_no_longer_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 127)
    files.replace_file(path, b"content")
    assert path.read_bytes() == b"content"


def test_whether_a_file_can_be_written_is_found_out_without_a_trace(tmp_path: Path) -> None:
    files.require_replaceable(tmp_path / "new" / "deep" / "a")
    assert names(tmp_path) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        files.require_replaceable(tmp_path / "file" / "a")
    with pytest.raises(IsADirectoryError):
        files.require_replaceable(tmp_path)
    with pytest.raises(FileNotFoundError):
        files.require_replaceable(Path("/proc/none/a"))
    assert names(tmp_path) == ["file"]
