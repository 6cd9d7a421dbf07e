"""Rows of tokens with their targets: the whole order of the data, as a function of the seed and one position.

An epoch visits every shard once, in a random order. Within a shard the documents are put in a random order, one after
the other, and cut into rows of `sequence_length` tokens; then the rows are put in a random order, too. (Neighbouring
rows of one long document are alike: a step that saw only them would have a noisy gradient.) A row's targets are its
tokens one place on, so it reads `sequence_length + 1` tokens. What is too short for a row at a shard's end is left out,
at another place in each epoch.

This endless stream of rows depends on the data, the seed, the sequence length and the rows of a step alone. The
processes take turns: of each call's rows the first process gets the first ones, the next process the next ones. So all
of them together see what one process alone would see, and the position is one number, whatever the micro-batch.

Within the rows of one step those that are not all of one document come last. So with several micro-batches most of
them hold no document's beginning, and the fast path of attention runs.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...errors import CheckpointError
from .corpus import Part
from .shards import LoadedShard, Tokens

Ints = npt.NDArray[np.int64]

BLOCK_TOKENS = 2048  # of neighbouring rows that stay together in evaluations
# What is looked up and read together. A step of training leaves nothing of this code in the processor's caches, so
# the first call after one takes ten times as long as the second.
_PLANNED_ROWS = 4096
_READ_TOKENS = 2**15

Rows = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


class Batches:
    """The stream of rows, from one process's view."""

    def __init__(
        self,
        part: Part,
        *,
        sequence_length: int,
        batch_rows: int,
        seed: int,
        rank: int = 0,
        num_ranks: int = 1,
        evaluation: bool = False,
    ) -> None:
        """Makes the plan of the first steps, so that a damaged file fails here and not in the middle of a run.

        Args:
            part: training or validation.
            sequence_length: tokens of a row.
            batch_rows: rows of one step, over all processes and micro-batches. Within a step, rows with a document's
                beginning come last.
            seed: of the order.
            rank: this process's number, from 0.
            num_ranks: how many processes there are.
            evaluation: one order for all seeds, of blocks of `BLOCK_TOKENS` tokens. So the first rows are a sample of
                all documents, and hold the same text at every sequence length that divides a block.

        Raises:
            ConfigError: the part has fewer tokens than one step.
            DataError: a shard cannot be read.
        """
        self.sequence_length = sequence_length
        self.batch_rows = batch_rows
        self._part = part
        self._rank = rank
        self._num_ranks = num_ranks
        self._seed = 0 if evaluation else seed
        self._evaluation = evaluation
        self._rows_of_shard = part.rows(sequence_length)
        self.rows_per_epoch = int(self._rows_of_shard.sum())
        part.require_rows(sequence_length, batch_rows)
        self._position = 0  # rows that all processes together have taken
        # Rows of a plan: whole steps, and no more than an epoch of a short text, each of which has an order of its own.
        self._planned = max(min(_PLANNED_ROWS, self.rows_per_epoch) // batch_rows, 1) * batch_rows
        self._dtype = part.shards[0].dtype
        self._layouts: dict[tuple[int, int], _Layout] = {}
        self._ready: list[Rows] = []  # what the next calls return, the last one first
        self._plan_index, self._plan = 0, self._make_plan(0)

    def next(self, num_rows: int) -> Rows:
        """Returns this process's next rows, and moves on. Every process must ask for equally many.

        Returns:
            inputs: `num_rows x sequence_length` of int64.
            targets: the same shape; each input's next token.
            documents: the same shape; the number of the token's document within its row, from 0. None where no row
                holds the beginning of a document, except as its first token.
        """
        if not self._ready or len(self._ready[-1][0]) != num_rows:
            most = min(_READ_TOKENS // self.sequence_length, self._planned // self._num_ranks)
            calls = max(most // num_rows, 1)
            firsts = (self._position + (call * self._num_ranks + self._rank) * num_rows for call in range(calls))
            self._ready = [self.read(first, num_rows) for first in firsts][::-1]
        self._position += num_rows * self._num_ranks
        return self._ready.pop()

    def state(self) -> dict[str, torch.Tensor]:
        """Returns the position, the same on all processes, for a checkpoint."""
        return {"position": torch.tensor([self._position, self.rows_per_epoch, self.sequence_length])}

    def set_state(self, state: dict[str, torch.Tensor]) -> None:
        """Goes to a position, exactly.

        Raises:
            CheckpointError: it comes from other data, or from data that were cut into other rows.
        """
        position, rows, length = (int(value) for value in state["position"])
        if (rows, length) != (self.rows_per_epoch, self.sequence_length):
            raise CheckpointError(
                f"the checkpoint was trained on {rows:,} rows of {length:,} tokens, and the data have"
                f" {self.rows_per_epoch:,} of {self.sequence_length:,}: use the data and the model.sequence_length that"
                " it was trained with"
            )
        self._position = position
        self._ready = []

    def read(self, first: int, num_rows: int) -> Rows:
        """Returns rows of the stream, from row `first` of all processes on, and stays where it is. See `next`."""
        length = self.sequence_length
        tokens = np.empty((num_rows, length + 1), self._dtype)
        cuts: list[tuple[int, int]] = []
        row = 0
        while row < num_rows:
            index, place = divmod(first + row, self._planned)
            taken = min(num_rows - row, self._planned - place)
            cuts += self._plan_of(index).copy_to_(tokens[row : row + taken], place, row)
            row += taken
        documents = np.zeros((num_rows, length), np.int64) if any(cut < length for _, cut in cuts) else None
        if documents is not None:
            for row, cut in cuts:
                documents[row, cut:] += 1
        return (
            torch.from_numpy(tokens[:, :-1].astype(np.int64)),
            torch.from_numpy(tokens[:, 1:].astype(np.int64)),
            None if documents is None else torch.from_numpy(documents),
        )

    def _plan_of(self, index: int) -> "_Plan":
        """Returns the plan of some steps. The last one is kept."""
        if index != self._plan_index:
            self._plan_index, self._plan = index, self._make_plan(index)
        return self._plan

    def _make_plan(self, index: int) -> "_Plan":
        numbers = np.arange(index * self._planned, (index + 1) * self._planned)
        used: dict[tuple[int, int], _Layout] = {}
        layouts, begins = np.zeros_like(numbers), np.zeros_like(numbers)
        epochs, places = np.divmod(numbers, self.rows_per_epoch)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):  # np.unique would import numpy.ma: a tenth of a second
            order = self._shard_order(epoch)
            ends = np.cumsum(self._rows_of_shard[order])
            of_epoch = np.flatnonzero(epochs == epoch)
            shards = np.searchsorted(ends, places[of_epoch], side="right")
            for turn in np.flatnonzero(np.bincount(shards)):
                key = (epoch, int(order[turn]))
                layout = used[key] = self._layouts.get(key) or self._lay_out(*key, used)
                rows = of_epoch[shards == turn]
                within = places[rows] - (ends[turn] - self._rows_of_shard[order[turn]])
                layouts[rows] = len(used) - 1
                begins[rows] = layout.offset + layout.rows[within] * self.sequence_length
        self._layouts = used  # the others are done with
        return _Plan.of(list(used.values()), layouts, begins, numbers // self.batch_rows, self.sequence_length)

    def _shard_order(self, epoch: int) -> Ints:
        return self._generator(epoch, 0).permutation(len(self._rows_of_shard))

    def _lay_out(self, epoch: int, index: int, others: Mapping[tuple[int, int], "_Layout"]) -> "_Layout":
        """Returns a shard in its order of one epoch. It takes the tokens of another epoch where they are at hand."""
        there = (*self._layouts.items(), *others.items())
        loaded = next((kept.shard for key, kept in there if key[1] == index), None)
        loaded = loaded or self._part.load(index)
        lengths = np.diff(loaded.starts, append=len(loaded.tokens))
        num_rows = int(self._rows_of_shard[index])
        generator = self._generator(epoch, index + 1)
        documents, rows, offset = generator.permutation(len(lengths)), np.arange(num_rows), 0
        if self._evaluation:
            of_block = max(BLOCK_TOKENS // self.sequence_length, 1)
            blocks = rows[: num_rows // of_block * of_block].reshape(-1, of_block)
            rows = np.concatenate([generator.permutation(blocks).reshape(-1), rows[blocks.size :]])
        else:
            rows = generator.permutation(rows)
            offset = int(generator.integers(len(loaded.tokens) - num_rows * self.sequence_length))
        begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[documents])])
        return _Layout(shard=loaded, sources=loaded.starts[documents], begins=begins, rows=rows, offset=offset)

    def _generator(self, epoch: int, stream: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, epoch, stream])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """A shard whose documents are in the order of an epoch; nothing is copied.

    Attributes:
        sources: where each document begins in the file, in the new order.
        begins: where each document begins in the new order; one more value, the end.
        rows: the rows' order.
        offset: where the first row begins.
    """

    shard: LoadedShard
    sources: Ints
    begins: Ints
    rows: Ints
    offset: int

    def documents_at(self, begins: Ints) -> Ints:
        """Returns the number of the document that each position is in."""
        return np.searchsorted(self.begins, begins, side="right") - 1

    def copy_to_(self, row_: Tokens, begin: int) -> list[int]:
        """Fills a row, and returns the places in it where documents begin, except the first place."""
        document = int(self.documents_at(np.array(begin)))
        skipped, filled = begin - int(self.begins[document]), 0
        cuts: list[int] = []
        while True:
            source = int(self.sources[document]) + skipped
            count = min(int(self.begins[document + 1] - self.begins[document]) - skipped, len(row_) - filled)
            row_[filled : filled + count] = self.shard.tokens[source : source + count]
            filled += count
            if filled == len(row_):
                return cuts
            cuts.append(filled)
            document, skipped = document + 1, 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Where the rows of some steps are; within a step those within one document come first.

    Attributes:
        layouts: the shards that the rows are from.
        windows: of each of them, every row that its file could be cut into. Nothing is copied.
        layout: each row's place in `layouts`.
        begins: where each row begins in its layout.
        whole: whether a row is within one document, its last target included.
        sources: where such a row begins in its file.
    """

    layouts: list[_Layout]
    windows: list[npt.NDArray[Any]]
    layout: Ints
    begins: Ints
    whole: npt.NDArray[np.bool_]
    sources: Ints

    @classmethod
    def of(cls, layouts: list[_Layout], layout: Ints, begins: Ints, steps: Ints, length: int) -> "_Plan":
        """Returns the plan for rows of `length` tokens, of which each has a layout, a beginning and a step."""
        whole, sources = np.zeros(len(begins), np.bool_), np.zeros_like(begins)
        for place, found in enumerate(layouts):
            rows = np.flatnonzero(layout == place)
            documents = found.documents_at(begins[rows])
            whole[rows] = found.begins[documents + 1] > begins[rows] + length
            sources[rows] = found.sources[documents] + begins[rows] - found.begins[documents]
        order = np.argsort(2 * (steps - steps[0]) + ~whole, kind="stable")
        return cls(
            layouts=layouts,
            windows=[np.lib.stride_tricks.sliding_window_view(found.shard.tokens, length + 1) for found in layouts],
            layout=layout[order],
            begins=begins[order],
            whole=whole[order],
            sources=sources[order],
        )

    def copy_to_(self, rows_: Tokens, first: int, number: int) -> list[tuple[int, int]]:
        """Fills rows with those from place `first` on, and returns where documents begin in them.

        Args:
            rows_: `rows x (length + 1)`.
            number: what the first row is called in the result.

        Returns:
            row and place of each beginning, except the first place of a row.
        """
        part = slice(first, first + len(rows_))
        whole, sources = self.whole[part], self.sources[part]
        for place, windows in enumerate(self.windows):
            chosen = whole if len(self.windows) == 1 else whole & (self.layout[part] == place)
            rows_[chosen] = windows[sources[chosen]]
        cuts: list[tuple[int, int]] = []
        for row in np.flatnonzero(~whole).tolist():
            layout = self.layouts[self.layout[first + row]]
            cuts += [(number + row, cut) for cut in layout.copy_to_(rows_[row], int(self.begins[first + row]))]
        return cuts
