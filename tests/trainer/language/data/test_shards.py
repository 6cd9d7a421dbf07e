"""Files of tokens: what is damaged, or of another tokenizer, is named in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language_data import random_documents, write_bytes_corpus

from protein.trainer.errors import DataError
from protein.trainer.language.data import shards
from protein.trainer.language.data.batches import Batches
from protein.trainer.language.data.corpus import Part, open_corpus
from protein.trainer.language.data.shards import FILE_NAME, LoadedShard, Shard, ShardWriter


@pytest.fixture(name="folder")
def make_folder(tmp_path: Path) -> Path:
    return write_bytes_corpus(tmp_path / "data", [b"one", b"", b"three"], [b"two"])


def change(folder: Path, **values: Any) -> None:
    """Changes values of `data.json`."""
    path = folder / FILE_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def error_of(folder: Path) -> str:
    """Returns the line with which the folder cannot be used."""
    with pytest.raises(DataError) as caught:
        corpus = open_corpus(folder)
        for part in (corpus.train, corpus.validation):
            for index in range(len(part.shards)):
                part.load(index)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_holds_what_was_written(folder: Path) -> None:
    corpus = open_corpus(folder)
    loaded = corpus.train.load(0)
    assert bytes(token for token in loaded.tokens.tolist() if token < 256) == b"onethree"
    assert loaded.starts.tolist() == [0, 4, 5]
    assert loaded.tokens[loaded.starts].tolist() == [256, 256, 256]
    assert (corpus.train.num_tokens, corpus.train.num_bytes) == (11, 8)
    assert (corpus.name, corpus.vocab_size, corpus.document_token) == ("data", 257, 256)
    assert corpus.token_bytes.tolist() == [1] * 256 + [0]
    assert not loaded.tokens.flags.writeable


def test_shards_end_between_documents(tmp_path: Path) -> None:
    documents = random_documents(50, 100)
    corpus = open_corpus(write_bytes_corpus(tmp_path / "data", documents, documents[:1], shard_tokens=300))
    assert len(corpus.train.shards) > 5
    loaded = [corpus.train.load(index) for index in range(len(corpus.train.shards))]
    assert all(300 <= len(shard.tokens) <= 400 for shard in loaded[:-1])
    assert [text for shard in loaded for text in texts(shard)] == documents


def test_beginnings_are_found_across_the_parts_that_are_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = random_documents(50, 100)
    folder = write_bytes_corpus(tmp_path / "data", documents, documents[:1])
    monkeypatch.setattr(shards, "_SCAN_TOKENS", 7)
    assert texts(open_corpus(folder).train.load(0)) == documents


def test_large_vocabularies_take_four_bytes_a_token() -> None:
    assert shards.dtype_for(1 << 16) == "uint16"
    assert shards.dtype_for((1 << 16) + 1) == "uint32"


def test_a_shard_cut_short_is_named(folder: Path) -> None:
    path = folder / "train-00000.bin"
    path.write_bytes(path.read_bytes()[:-2])
    assert error_of(folder) == (
        f"{path} has 20 bytes, and 11 tokens of uint16 take 22: it was cut short; make the data again"
    )
    path.write_bytes(b"")
    assert "has 0 bytes" in error_of(folder)
    path.unlink()
    assert error_of(folder).startswith(f"cannot read {path}: No such file")


def test_a_shard_of_another_type_is_named(folder: Path) -> None:
    path = folder / "validation-00000.bin"
    path.write_bytes(np.fromfile(path, np.uint16).astype(np.uint32).tobytes())
    assert f"{path} holds tokens of uint32, and is described as uint16" in error_of(folder)


def test_a_token_beyond_the_vocabulary_is_named(folder: Path) -> None:
    tokens = np.fromfile(folder / "train-00000.bin", np.uint16)
    tokens[3] = 300
    tokens.tofile(folder / "train-00000.bin")
    assert "train-00000.bin holds token 300, and the vocabulary has 257" in error_of(folder)


def test_a_description_that_contradicts_itself_is_named(folder: Path) -> None:
    whole = (folder / FILE_NAME).read_text()
    change(folder, vocab_size=200)
    assert "its largest token is 256, and the vocabulary has 200" in error_of(folder)
    change(folder, vocab_size=300)
    assert "(vocabulary, document token) (300, 256), and its tokenizer has (257, 256)" in error_of(folder)
    for wrong in ({"dtype": "int8"}, {"train": [{"file": "train-00000.bin"}]}, {"vocab_size": None}, {"train": 3}):
        (folder / FILE_NAME).write_text(whole)
        change(folder, **wrong)
        assert "data.json: it is damaged" in error_of(folder)
    (folder / FILE_NAME).write_text(whole)
    change(folder, format="protein-tokens-9")
    assert "its format is 'protein-tokens-9', and this version reads 'protein-tokens-1'" in error_of(folder)
    (folder / FILE_NAME).write_text(whole[:40])
    assert "data.json: it is damaged" in error_of(folder)


def test_what_is_no_folder_of_tokens_is_named(tmp_path: Path) -> None:
    assert "give 'python', or a folder" in error_of(tmp_path / "none")
    assert "holds no data.json, and no files of llm.c: make it with protein data tokenize" in error_of(tmp_path)


def texts(shard: LoadedShard) -> list[bytes]:
    """Returns the documents of a shard."""
    ends = [*shard.starts[1:].tolist(), len(shard.tokens)]
    return [bytes(shard.tokens[start + 1 : end].tolist()) for start, end in zip(shard.starts, ends, strict=True)]


def test_tokens_of_four_bytes_are_read_back(tmp_path: Path) -> None:
    tokens = np.arange(69_000, 70_000)
    writer = ShardWriter(tmp_path, "train", dtype="uint32", document_token=70_000)
    writer.begin()
    writer.add(tokens, 0)
    (entry,) = writer.close()
    assert entry == {"file": "train-00000.bin", "tokens": 1001, "bytes": 0, "documents": 1, "largest": 70_000}
    shard = Shard(path=tmp_path / entry["file"], num_tokens=1001, dtype=np.dtype("<u4"))
    part = Part(name="train", shards=[shard], vocab_size=70_001, document_token=70_000)
    assert part.load(0).tokens.tolist() == [70_000, *tokens.tolist()]
    stream = Batches(part, sequence_length=100, batch_rows=2, seed=0)
    inputs, targets, documents = stream.next(2)
    assert documents is None
    assert torch.equal(targets[:, :-1], inputs[:, 1:]) and int(inputs.max()) >= 69_000
