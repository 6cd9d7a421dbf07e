"""Copies of a SQLite store that sweeps write to, and on file systems of all kinds."""

import errno
import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import store_samples

from protein.errors import StoreError
from protein.storage import existing, open_store
from protein.storage.existing import copy_file
from protein.types import Measurement


def test_a_store_is_copied_while_a_sweep_writes_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ended, num_written = tmp_path / "p.db", threading.Event(), 0
    store = open_store(f"sqlite:///{path}")
    trial = store_samples.start(store, store_samples.new_sweep(store))
    store.add_measurements(trial, store_samples.points(0, 5_000), 600.0)

    def write() -> None:
        nonlocal num_written
        until = time.monotonic() + 20.0  # a copy that begins again after each write ends after that
        while time.monotonic() < until and not ended.is_set():
            step = 5_000 + num_written
            store.add_measurements(trial, [Measurement(steps=step, elapsed_seconds=float(step), score=1.0)], 600.0)
            num_written += 1

    monkeypatch.setattr(existing, "_PAGES", 1)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        copy_file(path, tmp_path / "copy.db")
        assert writer.is_alive()
    finally:
        ended.set()
        writer.join()
    store.close()
    copied = open_store(f"sqlite:///{tmp_path}/copy.db")
    [found] = copied.trials(trial.sweep_id)
    assert 5_000 <= len(found.curve) <= 5_000 + num_written
    copied.close()


def test_a_signal_ends_a_copy_between_two_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, begun, copied = tmp_path / "p.db", threading.Event(), -1
    with closing(sqlite3.connect(path)) as large:
        large.execute("CREATE TABLE t AS SELECT zeroblob(40000000) AS x")

    class Source(sqlite3.Connection):
        def backup(self, target: sqlite3.Connection, **options: Any) -> None:
            nonlocal copied
            begun.set()
            try:
                super().backup(target, **options)
            finally:
                [copied] = target.execute("PRAGMA page_count").fetchone()

    def interrupt() -> None:
        begun.wait()
        while copied < 0 and not sum(file.stat().st_size for file in tmp_path.glob(".copy.db.*")):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(existing, "_connect", lambda source: sqlite3.connect(source, factory=Source))
    monkeypatch.setattr(existing, "_PAGES", 1)
    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        copy_file(path, tmp_path / "copy.db")
    sender.join()
    assert copied == 0  # a copy that is not whole is undone
    assert [file.name for file in tmp_path.iterdir()] == ["p.db"]


def test_a_file_system_without_hard_links_holds_copies_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    open_store(f"sqlite:///{tmp_path}/p.db").close()
    monkeypatch.setattr(os, "link", link)
    copy_file(tmp_path / "p.db", tmp_path / "copy.db")
    open_store(f"sqlite:///{tmp_path}/copy.db").close()
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix == ".db") == ["copy.db", "p.db"]
    with pytest.raises(FileExistsError):
        existing._name(tmp_path / "p.db", tmp_path / "copy.db")
    with pytest.raises(StoreError, match="exists already"):
        copy_file(tmp_path / "p.db", tmp_path / "copy.db")
