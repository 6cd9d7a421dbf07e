from pathlib import Path

import pytest

from protein.trainer.machine import measured


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_a_measurement_is_found_by_all_its_facts() -> None:
    assert measured.recall({"card": "A", "size": 64}) is None
    measured.keep({"card": "A", "size": 64}, {"cpu": 1.0})
    measured.keep({"card": "B", "size": 64}, {"cpu": 2.0})
    assert measured.recall({"size": 64, "card": "A"}) == {"cpu": 1.0}
    assert measured.recall({"card": "B", "size": 64}) == {"cpu": 2.0}
    assert measured.recall({"card": "A", "size": 65}) is None
    measured.keep({"card": "A", "size": 64}, {"cpu": 3.0})
    assert measured.recall({"card": "A", "size": 64}) == {"cpu": 3.0}


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"a": 1'])
def test_a_damaged_file_is_as_none_and_is_replaced(content: bytes) -> None:
    measured.path().parent.mkdir()
    measured.path().write_bytes(content)
    assert measured.recall({"card": "A"}) is None
    measured.keep({"card": "A"}, 1.5)
    assert measured.recall({"card": "A"}) == 1.5


def test_only_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "MOST", 2)
    for number in range(4):
        measured.keep({"number": number}, number)
    assert [measured.recall({"number": number}) for number in range(4)] == [None, None, 2, 3]


def test_a_folder_that_cannot_be_used_only_means_to_measure_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "protein").write_text("a file where the folder would be")
    measured.keep({"card": "A"}, 1.5)
    assert measured.recall({"card": "A"}) is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    measured.keep({"card": "A"}, 1.5)
    assert measured.recall({"card": "A"}) is None
