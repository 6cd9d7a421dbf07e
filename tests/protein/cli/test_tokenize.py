"""`protein data`: tokens of text, and each mistake in one line."""

import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
from commands import Run

from protein.cli import data, main
from protein.trainer.language.data import corpus, tokenizers
from protein.trainer.language.data.tokenizers import Bytes


@pytest.fixture(name="text")
def write_text(folder: Path) -> Path:
    (folder / "texts").mkdir()
    for number in range(40):
        (folder / "texts" / f"{number}.txt").write_text(f"text number {number}\n" * 20)
    return folder


def test_it_writes_a_folder_and_shows_it(text: Path, run: Run) -> None:
    said = run("data tokenize texts --into data/texts")
    assert "vocabulary: 257 tokens" in said
    assert "protein train --data.path data/texts" in said
    assert corpus.open_corpus("data/texts").vocab_size == 257
    shown = run("data show data/texts")
    assert shown.splitlines() == said.splitlines()[:3]
    found = run.json("data show data/texts --json")
    assert found["train"]["bytes"] + found["validation"]["bytes"] == sum(
        path.stat().st_size for path in (text / "texts").iterdir()
    )
    assert found["vocab_size"] == 257


def test_it_learns_an_encoding_and_takes_one(text: Path, run: Run) -> None:
    pytest.importorskip("tokenizers")
    learned = run.json("data tokenize texts --into a --tokenizer bpe --vocabulary 270 --validation .2 --json")
    assert learned["vocab_size"] == 270
    assert learned["train"]["tokens"] < learned["train"]["bytes"]
    taken = run.json("data tokenize texts --into b --tokenizer a --validation .2 --json")
    assert {**taken, "folder": "a"} == learned
    assert (text / "a" / "train-00000.bin").read_bytes() == (text / "b" / "train-00000.bin").read_bytes()


def test_mistakes_are_one_line_and_write_nothing(text: Path, run: Run) -> None:
    (text / "full").mkdir()
    (text / "full" / "x").touch()
    (text / "full" / "y").touch()
    for line, message in {
        "data": "data needs what to do: tokenize, show",
        "data tokenise texts": "did you mean 'tokenize'",
        "data tokenize": "tokenize needs files of text",
        "data tokenize texts": "tokenize needs a folder to write: --into FOLDER",
        "data tokenize texts --into full": "--into full is there already, and is not replaced",
        "data tokenize none --into out": "there is no file none",
        "data tokenize full --into out": "2 files hold no text; give files of text",
        "data tokenize texts --into out --validation 0": "--validation 0 must be above 0 and at most 0.5",
        "data tokenize texts --into out --validation .6": "--validation 0.6 must be",
        "data tokenize texts --into out --vocabulary 300": "--vocabulary is for --tokenizer bpe alone",
        "data tokenize texts --into out --tokenizer bpe --vocabulary 9": "--vocabulary 9 must be from 257",
        "data tokenize texts --into out --tokenizer none": "there is no tokenizer none: give bytes, bpe, or a folder",
        "data show": "show needs one folder of tokens, got 0",
        "data show texts": "texts' holds no data.json",
        "data show none": "'none' is no folder: give 'python', or a folder",
        "data show texts --into out": "--into is for protein data tokenize alone",
    }.items():
        assert message in run.error(line)
    assert sorted(path.name for path in text.iterdir()) == ["full", "texts"]


def test_a_full_disk_is_seen_before_the_work(text: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1024))
    assert re.match(
        r"--into out needs .* KiB, and its disk has 1 KiB free", run.error("data tokenize texts --into out")
    )


def test_ctrl_c_leaves_nothing(text: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    encode = Bytes.encode_all

    def interrupted(self: Bytes, texts: list[bytes]) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return encode(self, texts)

    monkeypatch.setattr(Bytes, "encode_all", interrupted)
    assert main(["data", "tokenize", "texts", "--into", "out"]) == 130
    assert capsys.readouterr().err == "interrupted: nothing was written\n"
    assert [path.name for path in text.iterdir()] == ["texts"]


def test_ctrl_c_ends_the_learning_of_an_encoding(
    text: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def learn(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        over.wait(60)  # as a long work outside of Python does

    monkeypatch.setattr(tokenizers, "learn", learn)
    try:
        assert main(["data", "tokenize", "texts", "--into", "out", "--tokenizer", "bpe"]) == 130
    finally:
        over.set()
    assert capsys.readouterr().err == "interrupted: nothing was written\n"
    assert [path.name for path in text.iterdir()] == ["texts"]


def test_what_fails_while_an_encoding_is_learned_is_one_line(text: Path, run: Run) -> None:
    pytest.importorskip("tokenizers")
    (text / "texts" / "x").write_bytes(b"\xff" * 99)
    assert re.match(r"texts/x is not UTF-8 \(byte 0xff\)", run.error("data tokenize texts --into out --tokenizer bpe"))


def test_it_says_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 2.0, 3.0, 4.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    report = data._reporting("tokenizing", 1 << 20, threading.Event())
    for done in (1 << 17, 1 << 18, 1 << 19, 3 << 18):
        report(done)
    assert capsys.readouterr().err.splitlines() == [
        "tokenizing: 256 KiB of 1 MiB, about 6s left",
        "tokenizing: 768 KiB of 1 MiB, about 1s left",
    ]
