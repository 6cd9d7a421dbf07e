"""How well a network predicts text that training does not see: nats a token, and bits a byte.

Bits a byte are `nats / (ln 2 * bytes)`, both summed over the same tokens. So networks with other tokenizers can be held
against each other. The document token stands for no text and is left out of both sums.

The text is read in rows of the network's `sequence_length`, so a token sees between 0 and that many before it. Every
process reads its share. Nothing here changes a weight, or draws a random number that training would draw.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from ..errors import ConfigError, DataError
from ..machine.cuda import to_device
from ..machine.distributed import ALONE, World
from ..machine.precision import autocast
from .data import hellaswag
from .data.batches import Batches, Rows
from .data.corpus import Corpus
from .data.hellaswag import Question
from .data.tokenizers import Tokenizer
from .micro_batch import cached_rows
from .model import GPT
from .trained import Progress, ignore, open_trained

CPU_TOKENS, CUDA_TOKENS = 2**13, 2**16  # of a forward pass
PIECES = 16  # at least this many, if the text is long enough
PIECE_TOKENS = 1024  # of a piece, at most, or one row
COUNTED_TOKENS = 2**18  # of training text that pairs are counted in
COUNTED_ROW = 256  # of a row of it, whatever the network's is
_BINS = 2**20  # of the table of pairs; where the vocabulary is large, some pairs share one
_PRIOR = 2.0  # pairs that a token alone is worth: how far the table is trusted where it has seen little
Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TextLoss:
    """What was measured. `score` is what a sweep maximises: minus the bits per byte."""

    nats_per_token: float
    bits_per_byte: float
    tokens: int
    num_bytes: int
    seconds: float
    hellaswag: float | None = None
    """Share of HellaSwag's questions that were answered right; None: they were not asked."""

    @property
    def score(self) -> float:
        return -self.bits_per_byte


def evaluate(
    checkpoint_path: Path,
    *,
    data: str = "",
    tokens: int = 0,
    questions: Path | None = None,
    threads: int = 0,
    device: str = "cpu",
    progress: Progress = ignore,
) -> TextLoss:
    """Measures a checkpoint's network on validation text.

    Args:
        checkpoint_path: the file that a run has written, or a folder of GPT-2's released weights.
        data: `data.path` of the text; empty: that of the run. Released weights have none.
        tokens: of the validation text; 0: as many as the run's `eval.tokens`.
        questions: HellaSwag's file; None: it is not asked.
        threads: 0: one per core.
        device: as `train.device`.
        progress: is told what is counted, how much of it is done, and how much there is.

    Raises:
        CheckpointError: the file cannot be read, is of another kind of training, or of another tokenizer.
        DataError: the text or the questions cannot be read.
        ConfigError: no such device, or fewer tokens than one sequence.
    """
    trained = open_trained(checkpoint_path, data)
    corpus = trained.corpus
    asked = None if questions is None else hellaswag.read_questions(questions)
    with trained.loaded(device, threads) as (model, precision):
        found = Evaluator(corpus, tokens or trained.tokens, model).measure(precision, progress=progress)
        assert found is not None
        if asked is not None:
            share = answer(asked, corpus.tokenizer, model, precision, progress)
            found = dataclasses.replace(found, hellaswag=share)
    return found


def ask(
    checkpoint_path: Path,
    questions: Path,
    *,
    data: str = "",
    threads: int = 0,
    device: str = "cpu",
    progress: Progress = ignore,
) -> float:
    """Returns the share of HellaSwag's questions that a network answers right, without measuring it on any text.

    The arguments are those of `evaluate`. Without `data` released weights use the tokenizer in their folder.
    """
    trained, asked = open_trained(checkpoint_path, data), hellaswag.read_questions(questions)
    with trained.loaded(device, threads) as (model, precision):
        share = answer(asked, trained.tokenizer, model, precision, progress)
        assert share is not None
        return share


class Evaluator:
    """Measures a network on a fixed part of the validation text, again and again the same one."""

    def __init__(
        self, corpus: Corpus, tokens: int, model: GPT, world: World = ALONE, *, curve_tokens: int | None = None
    ) -> None:
        """`tokens` are rounded down to whole rows; where there are fewer, all are used.

        `curve_tokens`: of these, that are really read, for a point of the learning curve: see `choose_rows`.

        Raises:
            ConfigError: it is less than one row.
            DataError: these tokens are document tokens alone, so there is nothing to measure.
        """
        self._model, self._world = model, world
        self._device = next(model.parameters()).device
        length = model.config.sequence_length
        if tokens < length:
            raise ConfigError(
                f"{tokens:,} tokens are less than one sequence, model.sequence_length ({length:,}): raise eval.tokens,"
                " or --tokens of protein eval"
            )
        self._batches = Batches(corpus.validation, sequence_length=length, batch_rows=1, seed=0, evaluation=True)
        self._beginning = self._batches.state()
        self._rows = min(tokens // length, self._batches.rows_per_epoch)
        if not _holds_text(corpus, self._batches, self._rows):
            raise DataError(
                f"the validation text has no byte of text in {self._rows * length:,} tokens, so bits per byte cannot be"
                " measured: give other text, or raise eval.tokens"
            )
        self._chosen: Rows | None = None
        if curve_tokens is not None:
            self._chosen = choose_rows(corpus, self._batches, self._rows, curve_tokens)
            self._rows = len(self._chosen[0])
        self._document_token = corpus.document_token
        # A Mac's GPU has no float64, in which the sums are made.
        self._sums_on = torch.device("cpu") if self._device.type == "mps" else self._device
        self._bytes = torch.from_numpy(corpus.token_bytes).to(self._sums_on)

    @property
    def tokens(self) -> int:
        """Tokens that a measurement reads, of all processes."""
        return self._rows * self._model.config.sequence_length

    @torch.no_grad()
    def measure(
        self, precision: str, stop: Callable[[], bool] = lambda: False, progress: Progress = ignore
    ) -> TextLoss | None:
        """Returns what the network's loss is now, the same on all processes; None where `stop` interrupted it.

        All processes have to call this. Each measures every `size`-th group of rows.
        """
        began = time.perf_counter()
        world, device, length = self._world, self._device, self._model.config.sequence_length
        sums = torch.zeros(3, dtype=torch.float64, device=self._sums_on)  # nats, tokens, bytes
        most = cached_rows(self._model.width, length) if device.type == "cpu" else max(1, CUDA_TOKENS // length)
        for turn, (inputs, targets, documents) in enumerate(self._groups(most)):
            progress("tokens measured", turn * most * length, self.tokens)
            if turn % world.size == 0 and world.agree(stop(), 0.0)[0]:
                return None
            if turn % world.size != world.rank:
                continue
            inputs, targets = to_device(inputs, device), to_device(targets, device)
            with autocast(device, precision):
                losses = self._model.losses(
                    inputs, targets, None if documents is None else to_device(documents, device)
                )
            losses, targets = losses.to(self._sums_on), targets.to(self._sums_on)
            counts = targets != self._document_token
            nats = torch.where(counts, losses.double(), 0.0).sum()
            sums += torch.stack([nats, counts.sum(), self._bytes[targets].sum()])
        nats_sum, tokens, num_bytes = world.sum_(sums).tolist()
        return TextLoss(
            nats_per_token=nats_sum / max(tokens, 1),
            bits_per_byte=nats_sum / (math.log(2) * max(num_bytes, 1)),
            tokens=int(tokens),
            num_bytes=int(num_bytes),
            seconds=time.perf_counter() - began,
        )

    def _groups(self, most: int) -> Iterator[Rows]:
        """Yields all rows, at most `most` together."""
        if self._chosen is None:
            self._batches.set_state(self._beginning)
            for first in range(0, self._rows, most):
                yield self._batches.next(min(most, self._rows - first))
            return
        inputs, targets, documents = self._chosen
        for first in range(0, self._rows, most):
            part = slice(first, first + most)
            cut = documents is not None and bool(documents[part].any())
            yield inputs[part], targets[part], documents[part] if documents is not None and cut else None


def _holds_text(corpus: Corpus, batches: Batches, rows: int) -> bool:
    """Whether one of the first rows has a target that stands for text; most often the first one has."""
    targets = (batches.read(row, 1)[1].numpy() for row in range(rows))
    return any(corpus.token_bytes[of_row].any() for of_row in targets)


def answer(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    model: GPT,
    precision: str,
    progress: Progress = ignore,
    stop: Callable[[], bool] = lambda: False,
) -> float | None:
    """Returns the share of HellaSwag's questions that the network answers right; guessing gets a quarter.

    None where `stop` interrupted it.
    """
    device, length = next(model.parameters()).device, model.config.sequence_length
    rows = (CPU_TOKENS if device.type == "cpu" else CUDA_TOKENS) // length
    with torch.no_grad(), autocast(device, precision):
        found = hellaswag.evaluate(
            questions,
            tokenizer,
            model,
            longest=length,
            batch_rows=max(rows, hellaswag.NUM_ENDINGS),
            device=device,
            progress=progress,
            stop=stop,
        )
    return None if found is None else found.accuracy


def choose_rows(corpus: Corpus, validation: Batches, num_rows: int, tokens: int) -> Rows:
    """Returns the rows that a point of the curve reads: few, and of the difficulty of all.

    The score is measured on many rows, a point of the curve on an eighth of them. Some text is much harder than other
    text: sixteen pieces that lie anywhere differ from the whole by .1 bits a byte. The difference is nearly the same
    for every network, and a simple model of the text knows which pieces are hard. So the pieces are sorted by how many
    bits a byte a table of pairs of tokens needs, which is counted on the training text, and every eighth one is taken.
    What is left is in docs/decisions/language.md. They are the same for every seed, and the same text at every sequence
    length that divides a piece.

    Source: stratified sampling: Cochran 1977, "Sampling Techniques", chapter 5.

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
