"""From files to shards: no byte is lost, copies stay on one side, and a folder is there as a whole or not at all."""

import errno
import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from language_data import random_documents

from protein.trainer.errors import DataError, DiskError
from protein.trainer.language.data import corpus as corpora
from protein.trainer.language.data import preparing, tokenizers
from protein.trainer.language.data.batches import Batches
from protein.trainer.language.data.corpus import Corpus, Part, open_corpus
from protein.trainer.language.data.preparing import (
    Document,
    Split,
    find_files,
    read_documents,
    training_texts,
    write_folder,
)
from protein.trainer.language.data.shards import ShardWriter
from protein.trainer.language.data.tokenizers import Bytes, Tokenizer


def prepare(folder: Path, texts: list[bytes], split: Split, tokenizer: Tokenizer | None = None) -> Corpus:
    """Writes texts as files, and those as a corpus."""
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number:04d}.txt").write_bytes(text)
    documents = read_documents(find_files([folder]))
    write_folder(folder.with_suffix(".tokens"), documents, tokenizer or Bytes(), split)
    return open_corpus(folder.with_suffix(".tokens"))


def texts_of(corpus: Corpus, part: Part) -> list[bytes]:
    found = []
    for index in range(len(part.shards)):
        shard = part.load(index)
        ends = [*shard.starts[1:].tolist(), len(shard.tokens)]
        for start, end in zip(shard.starts.tolist(), ends, strict=True):
            found.append(corpus.tokenizer.decode(shard.tokens[start:end].tolist()))
    return found


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "PIECE_BYTES", 50)
    monkeypatch.setattr(preparing, "_BATCH_BYTES", 1000)


def test_documents_are_split_by_their_text_alone(tmp_path: Path) -> None:
    texts = random_documents(200, 120)
    corpus = prepare(tmp_path / "a", texts + texts[:50], Split(validation_share=0.3))
    train, validation = texts_of(corpus, corpus.train), texts_of(corpus, corpus.validation)
    assert sorted(train + validation) == sorted(texts + texts[:50])
    assert set(train).isdisjoint(validation)
    assert 0.2 < len(set(validation)) / 200 < 0.4
    assert corpus.train.num_bytes == sum(map(len, train))
    more = prepare(tmp_path / "b", texts + random_documents(50, 120, seed=1), Split(validation_share=0.3))
    assert set(train) <= set(texts_of(more, more.train))


def test_a_large_document_is_cut_at_a_line(tmp_path: Path) -> None:
    lines = [f"line {number} é\n".encode() for number in range(100)]
    text = b"".join(lines)
    corpus = prepare(tmp_path / "a", [text], Split.of(0.1, len(text)))
    (train,), (validation,) = texts_of(corpus, corpus.train), texts_of(corpus, corpus.validation)
    assert train + validation == text
    assert train.endswith(b"\n")
    assert 0.08 < len(validation) / len(text) < 0.12


def test_a_line_without_an_end_is_cut_between_characters(tmp_path: Path) -> None:
    text = "語".encode() * 333
    corpus = prepare(tmp_path / "a", [text], Split.of(0.1, len(text)))
    (train,), (validation,) = texts_of(corpus, corpus.train), texts_of(corpus, corpus.validation)
    assert train.decode() + validation.decode() == text.decode()


@given(st.text(alphabet="a é語🙂\n", min_size=1, max_size=400), st.data())
def test_pieces_are_the_text_and_cut_no_character(text: str, data: st.DataObject) -> None:
    document = Document(path=Path("x"), text=text.encode())
    pieces = list(document.pieces())
    assert b"".join(pieces) == text.encode()
    assert all(piece.decode() for piece in pieces)
    first = data.draw(st.integers(0, document.size()))
    last = data.draw(st.integers(first, document.size()))
    assert b"".join(document.pieces(first, last)) == text.encode()[first:last]


def test_an_encoding_of_pairs_gives_the_text_back(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    texts = [f"the {number}th text, of several words é\n".encode() * 9 for number in range(60)]
    tokenizer = tokenizers.learn(texts, 300)
    corpus = prepare(tmp_path / "a", texts, Split(validation_share=0.3), tokenizer)
    assert sorted(texts_of(corpus, corpus.train) + texts_of(corpus, corpus.validation)) == sorted(texts)
    assert corpus.vocab_size == 300
    assert corpus.train.num_tokens < sum(map(len, texts_of(corpus, corpus.train))) / 2
    assert corpus.train.num_bytes == sum(
        int(corpus.token_bytes[corpus.train.load(index).tokens].sum()) for index in range(len(corpus.train.shards))
    )


def test_a_tokenizer_is_learned_from_training_text_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{number} ".encode() * 10 for number in range(100, 300)]
    documents = [Document(path=Path("x"), text=text) for text in texts]
    split, total = Split(validation_share=0.3), sum(map(len, texts))
    done: list[int] = []
    taken = list(training_texts(documents, split, total, done.append))
    assert taken == [one.text for one in documents if split.parts(one)[0][0] == "train"]
    assert done[-1] == total
    monkeypatch.setattr(preparing, "LEARN_BYTES", total // 4)
    assert 0.2 < len(list(training_texts(documents, split, total))) / len(taken) < 0.3


def test_lines_of_json_are_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one\\né"}\n\n{"text": ""}\n{"id": 3, "text": "two"}\n')
    documents = list(read_documents([path]))
    assert [document.text for document in documents] == ["one\né".encode(), b"two"]
    assert sum(one.size() * one.file_bytes for one in documents) == pytest.approx(path.stat().st_size - 14)
    for wrong in ("{", '{"body": "x"}', "[]", '{"text": 3}', "3"):
        path.write_text('{"text": "one"}\n' + wrong)
        with pytest.raises(DataError, match=r"a.jsonl, line 2: no JSON object with a 'text'"):
            list(read_documents([path]))


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert list(read_documents(find_files([tmp_path]))) == []
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / ".hidden").write_text("x")
    (tmp_path / "a.py").touch()
    assert find_files([tmp_path], "*.py") == [tmp_path / "a.py"]
    with pytest.raises(DataError, match=r"holds no files like '\*\.c'"):
        find_files([tmp_path], "*.c")
    with pytest.raises(DataError, match=r"the pattern '/\*.py' begins with a slash"):
        find_files([tmp_path], "/*.py")
    with pytest.raises(DataError, match="folder holds no files"):
        find_files([tmp_path / "folder"])
    with pytest.raises(DataError, match=r"there is no file .*none"):
        find_files([tmp_path / "none"])
    with pytest.raises(DataError, match="no text is left for the train part"):
        write_folder(tmp_path / "out", [], Bytes(), Split.of(0.1, 0))
    assert not (tmp_path / "out").exists()


def test_tokens_that_lie_among_text_are_no_text(tmp_path: Path) -> None:
    """As after `tokenize data --into data/tokens`: another one of `data` takes what it took before."""
    texts = tmp_path / "texts"
    prepare(texts, [b"some text\n" * 20] * 3, Split.of(0.2, 600))
    (texts / "data.json").write_text('{"mine": 1}')
    before = find_files([texts])
    (tmp_path / "texts.tokens").rename(texts / "tokens")
    assert find_files([texts]) == before and texts / "data.json" in before
    with pytest.raises(DataError, match="tokens holds no files but tokens: give files of text"):
        find_files([texts / "tokens"])


def test_only_bytes_take_what_is_no_utf8(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    texts = [b"\xff\xfe\x00" * 20, b"text"]
    assert prepare(tmp_path / "a", texts, Split.of(0.5, 64)).train.num_tokens > 30
    with pytest.raises(DataError, match=r"0000.txt is not UTF-8 \(byte 0xff\): leave it out.*use --tokenizer bytes"):
        prepare(tmp_path / "b", texts, Split.of(0.5, 64), tokenizers.learn([b"text"], 257))
    assert not (tmp_path / "b.tokens").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_takes_no_more_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def add(*_: object) -> None:
        raise OSError(number, "the disk says no")

    monkeypatch.setattr(ShardWriter, "add", add)
    with pytest.raises(DiskError, match=r"cannot write .*a.tokens: the disk says no: free some space, or give another"):
        prepare(tmp_path / "a", [b"text"], Split.of(0.5, 4))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    documents = read_documents(find_files([tmp_path / "a"]))
    with pytest.raises(DiskError):
        write_folder(tmp_path / "made" / "tokens", documents, Bytes(), Split.of(0.5, 4))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("text")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    documents = list(read_documents([tmp_path / "a.txt"]))
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"cannot read .*a.txt: Permission denied: check the path and its permissions"):
        write_folder(tmp_path / "out", documents, Bytes(), Split.of(0.5, 4))


def test_a_folder_that_is_there_is_kept(tmp_path: Path) -> None:
    documents = [Document(path=Path("x"), text=b"some text")]
    write_folder(tmp_path / "out", documents, Bytes(), Split.of(0.5, 9))
    before = (tmp_path / "out" / "train-00000.bin").read_bytes()
    with pytest.raises(DiskError, match="cannot write"):
        write_folder(tmp_path / "out", [Document(path=Path("x"), text=b"other")], Bytes(), Split.of(0.5, 5))
    write_folder(tmp_path / "out", documents, Bytes(), Split.of(0.5, 9), shared=True)
    assert (tmp_path / "out" / "train-00000.bin").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.fixture(name="cache")
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(preparing, "PIECE_BYTES", 1 << 20)
    monkeypatch.setattr(preparing, "_BATCH_BYTES", 1 << 24)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "protein" / "text"


def test_the_built_in_corpus_is_the_source_of_python(cache: Path) -> None:
    corpus = open_corpus("python")
    texts = {part.name: texts_of(corpus, part) for part in (corpus.train, corpus.validation)}
    assert set(texts["train"]).isdisjoint(texts["validation"])
    source = Path(json.__file__).read_bytes()
    assert (source in texts["train"]) != (source in texts["validation"])
    assert corpus.train.num_tokens > 5_000_000
    assert 0.03 < corpus.validation.num_tokens / corpus.train.num_tokens < 0.2
    assert corpus.name == "python"
    inputs, _, _ = Batches(corpus.train, sequence_length=64, batch_rows=4, seed=0).next(4)
    assert corpus.tokenizer.decode(inputs[0].tolist()).isascii()
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:9])])
@pytest.mark.parametrize("name", ["data.json", "train-00000.bin"])
def test_a_damaged_cache_says_how_it_is_made_again(
    name: str, damage: Callable[[Path], object], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [str(path) for path in Path(json.__file__).parent.glob("*.py")]
    monkeypatch.setattr(corpora, "_files", lambda root: iter(some))
    monkeypatch.setattr(corpora, "VALIDATION_SHARE", 0.5)
    open_corpus("python")
    made = corpora.built_in_folder()
    damage(made / name)
    with pytest.raises(DataError, match=rf"{name}.*it is the built-in text, .* delete {re.escape(str(made))}$"):
        open_corpus("python")
    shutil.rmtree(made)
    open_corpus("python")


def test_many_may_make_the_built_in_corpus_at_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [str(path) for path in Path(json.__file__).parent.glob("*.py")]
    monkeypatch.setattr(corpora, "_files", lambda root: iter(some))
    monkeypatch.setattr(corpora, "VALIDATION_SHARE", 0.5)
    opening: Callable[[int], Corpus] = lambda _: open_corpus("python")  # noqa: E731
    with ThreadPoolExecutor(8) as pool:
        sizes = {corpus.train.num_tokens for corpus in pool.map(opening, range(8))}
    assert len(sizes) == 1
    assert [path.name[0] for path in cache.iterdir()] == ["p"]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(DiskError, match=r"cannot write .*python.*: free some space, or set XDG_CACHE_HOME to another"):
        open_corpus("python")
