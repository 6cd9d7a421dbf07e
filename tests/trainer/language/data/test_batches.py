"""The order of the data: every row once an epoch, the same for every split into micro-batches and processes."""

from pathlib import Path

import pytest
import torch
from language_data import random_documents, write_bytes_corpus

from protein.trainer.errors import CheckpointError, ConfigError
from protein.trainer.language.data.batches import BLOCK_TOKENS, Batches
from protein.trainer.language.data.corpus import Corpus, open_corpus

DOCUMENT = 256


@pytest.fixture(name="corpus")
def make_corpus(tmp_path: Path) -> Corpus:
    """Documents of 1 to 60 bytes in five shards or so."""
    documents = random_documents(120, 60)
    return open_corpus(write_bytes_corpus(tmp_path / "data", documents, documents[:9], shard_tokens=800))


def batches(corpus: Corpus, length: int = 16, rows: int = 12, seed: int = 0, rank: int = 0, ranks: int = 1) -> Batches:
    return Batches(corpus.train, sequence_length=length, batch_rows=rows, seed=seed, rank=rank, num_ranks=ranks)


def rows_of(stream: Batches, calls: int, num_rows: int) -> torch.Tensor:
    """Returns inputs with the last target, `rows x (length + 1)`."""
    taken = [stream.next(num_rows) for _ in range(calls)]
    return torch.cat([torch.cat([inputs, targets[:, -1:]], 1) for inputs, targets, _ in taken])


def pieces(row: list[int]) -> list[bytes]:
    """Returns the text of a row, document by document; the first and the last one may be cut."""
    found: list[list[int]] = [[]]
    for token in row:
        found.append([]) if token == DOCUMENT else found[-1].append(token)
    return [bytes(piece) for piece in found]


def test_targets_are_the_next_tokens(corpus: Corpus) -> None:
    inputs, targets, _ = batches(corpus).next(12)
    assert inputs.shape == targets.shape == (12, 16)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_rows_hold_whole_documents_of_the_corpus(corpus: Corpus) -> None:
    documents = random_documents(120, 60)
    text = b"".join(documents)
    for row in rows_of(batches(corpus, length=100, rows=12), 2, 12).tolist():
        first, *middle, _ = pieces(row)
        assert len(middle) > 0
        assert all(piece in documents for piece in middle)
        assert first in text


def test_an_epoch_reads_every_token_of_each_row_once(corpus: Corpus) -> None:
    stream = batches(corpus, length=5, rows=1)
    epoch = rows_of(stream, stream.rows_per_epoch, 1)[:, :-1]
    counts = torch.bincount(epoch.flatten(), minlength=257)
    whole = torch.zeros(257, dtype=torch.int64)
    for index in range(len(corpus.train.shards)):
        whole += torch.bincount(torch.from_numpy(corpus.train.load(index).tokens.astype("int64")), minlength=257)
    left_out = whole - counts
    assert (left_out >= 0).all()
    assert left_out.sum() == sum(1 + (shard.num_tokens - 1) % 5 for shard in corpus.train.shards)


def test_each_epoch_and_each_seed_has_an_order_of_its_own(corpus: Corpus) -> None:
    stream = batches(corpus, rows=1)
    number = stream.rows_per_epoch
    first, second = rows_of(stream, number, 1), rows_of(stream, number, 1)
    other = rows_of(batches(corpus, rows=1, seed=1), number, 1)
    for one, another in ((first, second), (first, other)):
        same = {tuple(row) for row in one.tolist()} & {tuple(row) for row in another.tolist()}
        assert len(same) < number / 2
        assert not torch.equal(one, another)
    assert torch.equal(first, rows_of(batches(corpus, rows=1), number, 1))


@pytest.mark.parametrize("micro_batch", [1, 2, 4, 6])
def test_micro_batches_take_the_rows_of_the_large_batch(corpus: Corpus, micro_batch: int) -> None:
    large, small = batches(corpus), batches(corpus)
    assert torch.equal(rows_of(large, 40, 12), rows_of(small, 40 * 12 // micro_batch, micro_batch))
    assert torch.equal(large.state()["position"], small.state()["position"])


def test_calls_of_any_size_take_one_row_after_the_other(corpus: Corpus) -> None:
    alone, mixed = batches(corpus), batches(corpus)
    sizes = [1, 5, 12, 3, 3, 30, 1, 1, 4]
    taken = torch.cat([rows_of(mixed, 1, size) for size in sizes])
    assert torch.equal(rows_of(alone, sum(sizes), 1), taken)


@pytest.mark.parametrize("ranks", [2, 3])
def test_processes_together_take_the_rows_of_one(corpus: Corpus, ranks: int) -> None:
    alone = batches(corpus)
    streams = [batches(corpus, rank=rank, ranks=ranks) for rank in range(ranks)]
    for _ in range(40):
        together = torch.cat([rows_of(stream, 1, 12 // ranks) for stream in streams])
        assert torch.equal(rows_of(alone, 1, 12), together)
    assert all(torch.equal(stream.state()["position"], alone.state()["position"]) for stream in streams)


@pytest.mark.parametrize("position", [0, 7, 12, 500])
def test_a_stream_goes_on_exactly(corpus: Corpus, position: int) -> None:
    stream = batches(corpus)
    for _ in range(position):
        stream.next(1)
    state = stream.state()
    other = batches(corpus)
    other.next(7)  # what has been read ahead is forgotten
    other.set_state(state)
    assert torch.equal(rows_of(stream, 30, 7), rows_of(other, 30, 7))


def test_documents_are_numbered_within_their_row(corpus: Corpus) -> None:
    stream = batches(corpus)
    for _ in range(30):
        inputs, _, documents = stream.next(12)
        begins = inputs == DOCUMENT
        begins[:, 0] = False
        if documents is None:
            assert not begins.any()
        else:
            assert torch.equal(documents, begins.long().cumsum(1))


def test_rows_without_a_boundary_come_first_and_need_no_documents(tmp_path: Path) -> None:
    documents = random_documents(30, 400)
    corpus = open_corpus(write_bytes_corpus(tmp_path / "data", documents, documents[:2]))
    large, small = batches(corpus), batches(corpus)
    without = 0
    for _ in range(20):
        inputs, _, _ = large.next(12)
        holds = (inputs[:, 1:] == DOCUMENT).any(1)
        assert torch.equal(holds, holds.sort(stable=True).values)
        for row in range(12):
            documents_of_row = small.next(1)[2]
            assert (documents_of_row is None) == (not holds[row])
            without += documents_of_row is None
    assert without > 100


def test_evaluation_reads_the_same_text_at_every_length_and_seed(corpus: Corpus) -> None:
    texts = []
    for length, rows, seed in ((8, 12, 0), (16, 6, 1), (96, 1, 2)):
        stream = Batches(corpus.train, sequence_length=length, batch_rows=1, seed=seed, evaluation=True)
        texts.append(rows_of(stream, rows, 1)[:, :-1].flatten())
    assert torch.equal(texts[0], texts[1])
    assert torch.equal(texts[0], texts[2])


def test_a_part_of_the_validation_text_is_a_sample_of_its_documents(tmp_path: Path) -> None:
    long = [bytes([number]) * 10_000 for number in range(20)]  # one value a document, and a block is a fifth of it
    part = open_corpus(write_bytes_corpus(tmp_path / "long", long, long)).validation
    texts = []
    for length in (64, 256, 1024):
        stream = Batches(part, sequence_length=length, batch_rows=1, seed=length, evaluation=True)
        texts.append(rows_of(stream, 10 * BLOCK_TOKENS // length, 1)[:, :-1].flatten())
    assert torch.equal(texts[0], texts[1]) and torch.equal(texts[0], texts[2])
    assert len(texts[0].unique()) >= 8  # one after the other, ten blocks would be of three documents


def test_one_step_must_not_need_more_text_than_there_is(corpus: Corpus) -> None:
    tokens = corpus.train.num_tokens
    with pytest.raises(
        ConfigError, match=rf"train text has {tokens:,} tokens.*one step takes 100.*lower train.batch_tokens"
    ):
        batches(corpus, length=64, rows=100)
    files, longest = len(corpus.train.shards), max(shard.num_tokens for shard in corpus.train.shards)
    with pytest.raises(
        ConfigError,
        match=rf"at most {longest} in one of its {files} files, less than one row of 900 .*: lower model.seq",
    ):
        batches(corpus, length=900, rows=1)  # less than all have together


def test_a_position_of_other_data_is_refused(corpus: Corpus) -> None:
    state = batches(corpus, length=8).state()
    with pytest.raises(CheckpointError, match="rows of 8 tokens"):
        batches(corpus, length=16).set_state(state)
