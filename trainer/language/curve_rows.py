"""Which rows of the validation text a point of the learning curve reads: few, and of the difficulty of all.

The score is measured on many rows, a point of the curve on an eighth of them. Some text is much harder than other
text: sixteen pieces that lie anywhere differ from the whole by .1 bits a byte. The difference is nearly the same for
every network, and a simple model of the text knows which pieces are hard. So the pieces are sorted by how many bits a
byte a table of pairs of tokens needs, which is counted on the training text, and every eighth one is taken. What is
left is in docs/log.md.

They are the same for every seed, and the same text at every sequence length that divides a piece.

Source: stratified sampling: Cochran 1977, "Sampling Techniques", chapter 5.
"""

import numpy as np
import numpy.typing as npt
import torch

from .data.batches import Batches, Rows
from .data.corpus import Corpus

PIECES = 16  # at least this many, if the text is long enough
PIECE_TOKENS = 1024  # of a piece, at most, or one row
COUNTED_TOKENS = 2**18  # of training text that pairs are counted in
COUNTED_ROW = 256  # of a row of it, whatever the network's is
_BINS = 2**20  # of the table of pairs; where the vocabulary is large, some pairs share one
_PRIOR = 2.0  # pairs that a token alone is worth: how far the table is trusted where it has seen little

Ints = npt.NDArray[np.int64]


def choose_rows(corpus: Corpus, validation: Batches, num_rows: int, tokens: int) -> Rows:
    """Returns the rows that a point of the curve reads.

    Args:
        corpus: the text.
        validation: the validation text's rows, in the order of evaluations.
        num_rows: of them that the score is measured on; the rows are among these.
        tokens: to read, at most; less than one row means one row.

    Returns:
        as `Batches.next`.
    """
    length = validation.sequence_length
    of_piece = max(min(PIECE_TOKENS, tokens // PIECES) // length, 1)
    wanted, there = max(tokens // (of_piece * length), 1), num_rows // of_piece
    inputs, targets, documents = validation.read(0, num_rows)
    if wanted >= there:
        return inputs, targets, documents
    bits = _difficulty(corpus, validation, inputs, targets)[: there * of_piece].reshape(there, of_piece, 2).sum(1)
    # Rounded, because sums of rows of another length differ in their last digit.
    order = np.argsort(np.round(bits[:, 0] / np.maximum(bits[:, 1], 1), 9), kind="stable")
    middles = ((np.arange(wanted) + 0.5) * there / wanted).astype(np.int64)
    pieces = np.sort(order[middles])
    rows = torch.from_numpy((pieces[:, None] * of_piece + np.arange(of_piece)).reshape(-1))
    return inputs[rows], targets[rows], None if documents is None else documents[rows]


def _difficulty(
    corpus: Corpus, validation: Batches, inputs: torch.Tensor, targets: torch.Tensor
) -> npt.NDArray[np.float64]:
    """Returns for each row how many nats the table needs for it, and how many bytes it has: `rows x 2`."""
    vocabulary = corpus.vocab_size
    length = COUNTED_ROW if corpus.train.rows(COUNTED_ROW).any() else validation.sequence_length
    training = Batches(corpus.train, sequence_length=length, batch_rows=1, seed=0, evaluation=True)
    counted = training.read(0, min(max(COUNTED_TOKENS // length, 1), training.rows_per_epoch))
    before, after = counted[0].numpy().reshape(-1), counted[1].numpy().reshape(-1)
    pairs = np.bincount(_bins(before, after, vocabulary), minlength=_BINS)
    firsts, seconds = (np.bincount(tokens, minlength=vocabulary) for tokens in (before, after))
    alone = (seconds + 0.5) / (len(after) + 0.5 * vocabulary)
    first, second = inputs.numpy(), targets.numpy()
    expected = (pairs[_bins(first, second, vocabulary)] + _PRIOR * alone[second]) / (firsts[first] + _PRIOR)
    counts = second != corpus.document_token
    nats = np.where(counts, -np.log(np.minimum(expected, 1.0)), 0.0).sum(1)
    return np.stack([nats, corpus.token_bytes[second].sum(1).astype(np.float64)], 1)


def _bins(first: Ints, second: Ints, vocabulary: int) -> Ints:
    """Returns each pair's place in the table; pairs of a small vocabulary have one of their own."""
    pairs = first * vocabulary + second
    return pairs if vocabulary**2 <= _BINS else (pairs * 2_654_435_761 & 0x7FFF_FFFF_FFFF_FFFF) >> 20 & (_BINS - 1)
