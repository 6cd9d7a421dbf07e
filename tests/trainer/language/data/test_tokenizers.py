"""Byte-pair encodings: they lose nothing, and equal `transformers`' tokenizer of GPT-2 on the same files."""

import functools
import json
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protein.trainer.errors import DataError
from protein.trainer.language.data import tokenizers
from protein.trainer.language.data.tokenizers import DOCUMENT, BytePairs, Bytes, digest, open_tokenizer, text_of

pytest.importorskip("tokenizers")
SOURCE = Path(sysconfig.get_paths()["stdlib"], "argparse.py").read_bytes()
ODD = "for x in  y:\n\treturn 'Über 12,345 naïve 語 🙂'  \n\n<|endoftext|> it's <s>"


@pytest.fixture(name="learned", scope="module")
def learn_small() -> BytePairs:
    return tokenizers.learn([SOURCE], 600)


def test_it_learns_a_vocabulary_of_the_given_size(learned: BytePairs) -> None:
    assert learned.vocab_size == 600
    assert learned.document_token == 599
    assert len(learned.encode(SOURCE)) < len(SOURCE) / 2


@settings(deadline=None)  # the first text loads the package, and learns the encoding
@given(st.text())
def test_any_text_comes_back_as_it_was(text: str) -> None:
    for tokenizer in (_small(), Bytes()):
        tokens = tokenizer.encode(text.encode())
        assert tokenizer.decode(tokens.tolist()) == text.encode()
        assert int(tokenizer.token_bytes()[tokens].sum()) == len(text.encode())
        assert tokenizer.document_token not in tokens
        assert text_of(tokenizer, tokens.tolist()) == text


def test_text_that_spells_the_document_token_is_text(learned: BytePairs) -> None:
    assert learned.document_token not in learned.encode(DOCUMENT.encode())
    assert learned.decode([learned.document_token]) == b""
    assert learned.token_bytes()[learned.document_token] == 0


def test_a_saved_encoding_is_the_same(learned: BytePairs, tmp_path: Path) -> None:
    assert learned.save(tmp_path) == "tokenizer.json"
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        again = open_tokenizer(path)
        assert (again.vocab_size, again.document_token) == (learned.vocab_size, learned.document_token)
        assert np.array_equal(again.encode(ODD.encode()), learned.encode(ODD.encode()))
        assert np.array_equal(again.token_bytes(), learned.token_bytes())


def test_it_equals_transformers_on_the_files_of_gpt2(learned: BytePairs, tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    write_gpt2_files(learned, tmp_path)
    theirs = transformers.GPT2Tokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    ours = open_tokenizer(tmp_path)
    assert ours.document_token == theirs.eos_token_id
    assert ours.vocab_size == len(theirs)
    for text in (SOURCE.decode(), ODD.replace(DOCUMENT, "")):
        assert ours.encode(text.encode()).tolist() == theirs(text)["input_ids"]


def test_a_file_of_transformers_is_read(learned: BytePairs, tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    write_gpt2_files(learned, tmp_path)
    theirs = transformers.GPT2Tokenizer(
        str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"), add_prefix_space=True
    )
    theirs.save_pretrained(str(tmp_path / "saved"))
    ours = open_tokenizer(tmp_path / "saved")
    assert ours.encode(ODD.encode()).tolist() == learned.encode(ODD.encode()).tolist()  # and no space before it
    assert (ours.vocab_size, ours.document_token) == (600, 599)


def test_a_file_without_a_document_token_gets_one(learned: BytePairs, tmp_path: Path) -> None:
    learned.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    del content["model"]["vocab"][DOCUMENT]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert (open_tokenizer(tmp_path).vocab_size, open_tokenizer(tmp_path).document_token) == (600, 599)


def test_added_tokens_are_kept_where_it_is_saved(learned: BytePairs, tmp_path: Path) -> None:
    """Of Qwen's file, or of GPT-2's with one for padding: tokens behind the document token, in no vocabulary."""
    learned.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["added_tokens"] = [{"content": DOCUMENT, "id": 599}, {"content": "[PAD]", "id": 603}]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    first = open_tokenizer(tmp_path)
    first.save(tmp_path)
    again = open_tokenizer(tmp_path)
    assert (again.vocab_size, again.document_token) == (first.vocab_size, first.document_token) == (604, 599)
    assert digest(again) == digest(first)
    assert again.encode(b"a [PAD]").tolist() == learned.encode(b"a [PAD]").tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "is no tokenizer.json"),
        ('{"model": {"type": "WordPiece"}, "pre_tokenizer": null}', "no byte-pair encoding over bytes"),
        (
            '{"model": {"type": "BPE", "vocab": {"a": 0}}, "pre_tokenizer": {"type": "ByteLevel"}}',
            "255 of the 256 bytes",
        ),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(DataError, match=message):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        ("model", {"end_of_word_suffix": "</w>"}, r"a mark '</w>' \(end_of_word_suffix\) that is no text"),
        ("model", {"continuing_subword_prefix": "##"}, r"a mark '##' \(continuing_subword_prefix\)"),
        ("vocab", {"a": "3"}, "a token's number is no integer from 0 to 16,777,215"),
        ("vocab", {"a": 10**12}, "a token's number is no integer"),
        ("vocab", {"a": -1}, "a token's number is no integer"),
    ],
)
def test_a_file_that_cannot_give_every_text_back_is_refused(
    section: str, change: dict[str, Any], message: str, learned: BytePairs, tmp_path: Path
) -> None:
    """CLIP's file has such a mark."""
    learned.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    (content["model"]["vocab"] if section == "vocab" else content["model"]).update(change)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message) as caught:
        open_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_that_leaves_text_out_is_refused(learned: BytePairs, tmp_path: Path) -> None:
    learned.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, content["pre_tokenizer"]]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="it makes 6 bytes of 7 bytes of text, as one that leaves out spaces does"):
        open_tokenizer(tmp_path).encode(b"one two")


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"no tokenizer .*give bytes, bpe, or a folder with tokenizer.json, or vocab.json"
    ):
        open_tokenizer(tmp_path)


def test_it_takes_utf8_alone(learned: BytePairs) -> None:
    with pytest.raises(DataError, match="byte 0xff"):
        learned.encode(b"abc\xff")


def test_long_words_are_cut_before_an_encoding_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    genome, words = "ACGT" * 5000, "a few words\n" * 500
    parts = list(tokenizers.cut_words(words + genome + " " * 3000 + words))
    assert "".join(parts) == words + genome + " " * 3000 + words
    assert max(len(word) for part in parts for word in re.findall(r"\S+|\s+", part)) == 1000
    assert list(tokenizers.cut_words(words)) == [words], "other text is learned from as it is"
    monkeypatch.setattr(tokenizers, "cut_words", lambda text: iter([f"{text} zq"]))
    assert b"zq" in tokenizers.learn([b"one two"] * 9, 300).decode(range(256, 300)), "it is what is learned from"


def test_the_vocabulary_holds_at_least_the_bytes() -> None:
    with pytest.raises(DataError, match=r"256 is too small.*at least 257"):
        tokenizers.learn([SOURCE], 256)


def test_without_the_package_it_still_decodes(
    learned: BytePairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned.save(tmp_path)
    tokens = learned.encode(b"import os").tolist()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    without = open_tokenizer(tmp_path)
    assert without.decode(tokens) == b"import os"
    with pytest.raises(DataError, match=r"pip install 'protein-sweep\[language\]'"):
        without.encode(b"import os")


def write_gpt2_files(tokenizer: BytePairs, folder: Path) -> None:
    """Writes an encoding as GPT-2's two files."""
    tokenizer.save(folder)
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n")


@functools.cache
def _small() -> BytePairs:
    return tokenizers.learn([SOURCE], 400)
