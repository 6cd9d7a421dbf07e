"""A store that was made for work that is refused goes again; any other stays."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import Run
from full_disk import largest_file
from rich.console import Console
from store_samples import complete, new_sweep, start

from protein import storage
from protein.api import stores, sweep_files
from protein.cli.sweep import allow_new_folder
from protein.errors import StoreError, UsageError


def test_a_refused_import_leaves_no_store(filled: Path, run: Run) -> None:
    run("export pong -o whole.jsonl")
    (filled / "cut.jsonl").write_bytes((filled / "whole.jsonl").read_bytes()[:3000])
    assert run.error("import cut.jsonl --store made/deep/new.db") == "cut.jsonl is cut; export again"
    assert not (filled / "made").exists()
    (filled / "folder").mkdir()
    assert "is cut" in run.error("import cut.jsonl --store folder/new.db")
    assert list((filled / "folder").iterdir()) == []
    run("import whole.jsonl --store folder/new.db")
    assert "is cut" in run.error("import cut.jsonl --name other --store folder/new.db")
    assert "pong" in run("status --store folder/new.db")  # a store that was there stays


def test_a_move_that_is_interrupted_leaves_no_store(tmp_path: Path) -> None:
    source = f"{tmp_path}/a.db"
    with stores.opened(source, create=True) as store:
        store.finish_trial(start(store, new_sweep(store)), complete())

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep_files.move(source, f"{tmp_path}/new/b.db", interrupt)
    assert not (tmp_path / "new").exists()


def test_a_store_that_cannot_be_made_whole_leaves_nothing(tmp_path: Path) -> None:
    with largest_file(20_000), pytest.raises(StoreError), stores.opened(f"{tmp_path}/new/a.db", create=True):
        pytest.fail("the schema takes more")
    assert list(tmp_path.iterdir()) == []


def test_a_new_store_stays_once_it_holds_a_sweep(tmp_path: Path) -> None:
    url = f"{tmp_path}/a.db"
    with pytest.raises(UsageError, match="refused"), stores.opened(url, create=True) as store:
        new_sweep(store)
        raise UsageError("refused")
    with stores.opened(url) as store:
        assert len(store.list_sweeps()) == 1


def test_a_new_store_stays_where_another_process_has_it_open(tmp_path: Path) -> None:
    url = f"{tmp_path}/a.db"
    with contextlib.ExitStack() as stack:
        with pytest.raises(UsageError, match="refused"), stores.opened(url, create=True):
            other = storage.open_store(url)
            stack.callback(other.close)
            other.list_sweeps()
            raise UsageError("refused")
        new_sweep(other)
        with stores.opened(url) as store:
            assert len(store.list_sweeps()) == 1


@pytest.mark.parametrize("name", ["mine", ".mine", "v1.2.db"])
def test_a_store_of_any_name_has_room_for_files_beside_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with stores.opened(str(path), create=True) as store:
        new_sweep(store)
    folder = stores.artifact_directory(str(path), "s")
    folder.mkdir(parents=True)
    assert folder.is_relative_to(tmp_path)
    assert folder.parent != tmp_path


def test_a_store_in_a_new_folder_is_told_with_the_name_that_was_meant(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = stores.new_folder("rusn/deep/a.db")
    assert told is not None and told.startswith(f"there is no folder {filled.resolve()}/rusn/deep yet: it is made for")
    assert told.endswith("a new store, a.db; did you mean 'runs'?")
    assert (stores.new_folder("elsewhere/a.db") or "").endswith("it is made for a new store, a.db")
    for known in ("runs/other.db", "a.db", "postgresql+psycopg://me@host/db", None):
        assert stores.new_folder(known) is None
    run("export pong -o whole.jsonl")
    assert "there is no folder " in run("import whole.jsonl --store rusn/a.db")
    assert "there is no folder " not in run("import whole.jsonl --name other --store rusn/a.db")
    # Commands that read make nothing.
    for words in ("status", "show", "best", "view"):
        run.error(f"{words} --store runz/a.db")
    assert not (filled / "runz").exists()


@pytest.mark.parametrize(("answer", "made"), [("n", False), ("", False), ("y", True)])
def test_on_a_terminal_a_sweep_asks_before_it_makes_a_folder(
    answer: str, made: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ask(line: str) -> str:
        asked.append(line)
        return answer

    monkeypatch.setattr("builtins.input", ask)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    with contextlib.nullcontext() if made else pytest.raises(UsageError, match="nothing was made"):
        allow_new_folder(Console(force_terminal=True), f"{tmp_path}/new/a.db")
    assert len(asked) == 1 and asked[0].endswith("Make it? [y/N] ")
