"""FineWeb's files, tiny ones: they are read as llm.c writes them, and what is damaged is named."""

import json
from pathlib import Path

import numpy as np
import pytest
from language_runs import small
from whole_runs import go

from protein.trainer.errors import DataError
from protein.trainer.language.data import tokenizers
from protein.trainer.language.data.batches import Batches
from protein.trainer.language.data.corpus import open_corpus

pytest.importorskip("tokenizers")
TEXTS = [f"document {number} about words and more words\n" * 3 for number in range(30)]


def write_file(path: Path, tokens: list[int], magic: int = 20240520, version: int = 1) -> None:
    header = np.zeros(256, np.int32)
    header[:3] = magic, version, len(tokens)
    path.write_bytes(header.tobytes() + np.array(tokens, np.uint16).tobytes())


@pytest.fixture(name="folder")
def make_folder(tmp_path: Path) -> Path:
    """Three files, the second of which begins in the middle of a document."""
    tokenizer = tokenizers.learn([text.encode() for text in TEXTS], 300)
    tokenizer.save(tmp_path)
    tokens = [token for text in TEXTS for token in (tokenizer.document_token, *tokenizer.encode(text.encode()))]
    middle = len(tokens) // 2 + 3
    write_file(tmp_path / "fineweb_train_000001.bin", tokens[:middle])
    write_file(tmp_path / "fineweb_train_000002.bin", tokens[middle:])
    write_file(tmp_path / "fineweb_val_000000.bin", tokens[:200])
    return tmp_path


def test_it_holds_what_was_written(folder: Path) -> None:
    corpus = open_corpus(folder)
    assert [len(corpus.train.shards), len(corpus.validation.shards)] == [2, 1]
    assert (corpus.vocab_size, corpus.document_token) == (300, 299)
    loaded = [corpus.train.load(index) for index in range(2)]
    tokens = np.concatenate([one.tokens for one in loaded])
    assert corpus.tokenizer.decode(tokens.tolist()).decode() == "".join(TEXTS)
    assert int(corpus.token_bytes[tokens].sum()) == len("".join(TEXTS))
    assert loaded[1].tokens[0] != 299
    assert loaded[1].starts[0] == 0
    assert len(loaded[0].starts) + len(loaded[1].starts) == len(TEXTS) + 1


def test_its_batches_number_the_documents(folder: Path) -> None:
    stream = Batches(open_corpus(folder).train, sequence_length=40, batch_rows=4, seed=0)
    for _ in range(10):
        inputs, _, documents = stream.next(4)
        assert documents is not None
        begins = inputs == 299
        begins[:, 0] = False
        # The piece without its document's beginning is a document, too.
        assert (documents.diff(dim=1) >= begins[:, 1:].long()).all()
        assert (documents[:, -1] - begins.sum(1)).max() <= 1


def test_without_a_tokenizer_there_are_no_bits_per_byte(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"bits per byte cannot be measured: put GPT-2's vocab.json and merges.txt"):
        open_corpus(folder)


def test_damaged_files_are_named(folder: Path) -> None:
    path = folder / "fineweb_train_000002.bin"
    whole = path.read_bytes()
    for content, message in (
        (whole[:-6], r"train_000002.bin has [\d,]+ bytes, and [\d,]+ tokens of uint16 take [\d,]+: it was cut short"),
        (whole[:500], "it was cut short"),
        (b"", "has 0 bytes, and its header alone takes 1024"),
        (np.array([20240801, 7, 10], np.int32).tobytes() + bytes(1052), "begins with 20240801, 7, and a file of GPT-2"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            open_corpus(folder)
    write_file(path, [1, 2, 300, 4])
    with pytest.raises(DataError, match=r"train_000002.bin holds token 300, and the vocabulary has 300"):
        open_corpus(folder).train.load(1)
    (folder / "fineweb_val_000000.bin").unlink()
    with pytest.raises(DataError, match=r"holds no \*val\*.bin, the validation text"):
        write_file(path, [1, 2])
        open_corpus(folder)


@pytest.mark.parametrize("name", ["pretrain_val_000000.bin", "medieval_train_000001.bin"])
def test_a_file_that_would_be_in_both_parts_is_refused(name: str, folder: Path) -> None:
    """Its text would be trained on, and the score measured on it."""
    (folder / "fineweb_val_000000.bin").rename(folder / name)
    with pytest.raises(DataError, match=rf"{name} fits \*train\*.bin and \*val\*.bin, .*: rename it"):
        open_corpus(folder)


def test_a_run_learns_them_and_answers_hellaswag(folder: Path, tmp_path: Path) -> None:
    questions = [
        {"ctx": f"document {number} about", "label": number % 4, "endings": ["zq jxk", "kkv", "wqx z", "vvx"]}
        for number in range(8)
    ]
    for question in questions:
        question["endings"][question["label"]] = "words and more words"  # type: ignore[index]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    config = small(
        folder, 60, eval={"hellaswag": str(tmp_path / "questions.jsonl"), "tokens": 160}, model={"sequence_length": 16}
    )
    result, events = go(config)
    assert (
        result.score is not None and -6.0 < result.score < 0.0
    )  # bits a byte: of pairs that the text consists of, guessing needs about 5
    assert events[-1]["metrics"]["hellaswag"] > 0.9
    assert result.sample and result.sample.isascii()
