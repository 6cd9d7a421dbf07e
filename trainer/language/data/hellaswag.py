"""HellaSwag: which of four endings goes on from a text? The model answers with the one that surprises it least.

An ending's surprise is the mean of its tokens' losses, in nats, given the text before it. Guessing gets 25 % right.
Each row begins with the document token, as documents do in training. A text too long for the model loses its beginning.

The file is the one of its authors, JSON lines with `ctx`, `endings` and `label`.
Source: Zellers et al. 2019, "HellaSwag: Can a Machine Really Finish Your Sentence?"; the mean over tokens as in llm.c,
`dev/data/hellaswag.py`.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch.nn import functional

from ...errors import DataError
from .tokenizers import Tokenizer

NUM_ENDINGS = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A text, its four endings, and which of them is the right one."""

    context: str
    endings: tuple[str, ...]
    label: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A question as tokens.

    Attributes:
        inputs: `4 x T` of int64, a row for each ending; filled up with the document token.
        targets: the same shape, one token on.
        counts: the same shape of bool; whether the target is a token of the ending.
        label: which row is right.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    counts: torch.Tensor
    label: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How many of the questions were answered right, by the mean loss of each ending and by the sum of its losses."""

    num_questions: int
    num_right: int
    num_right_by_sum: int

    @property
    def accuracy(self) -> float:
        return self.num_right / max(self.num_questions, 1)


def read_questions(path: Path) -> list[Question]:
    """Returns the questions of a file.

    Raises:
        DataError: it cannot be read, holds none, or a line is no question with its label.
    """
    try:
        # Not `splitlines`, which ends a line at U+2028, too, and a text may hold that.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DataError(f"cannot read {path}: {reason}: check the path and its permissions") from error
    found = [_question(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise DataError(f"{path} holds no questions: give HellaSwag's file of JSON lines, as hellaswag_val.jsonl")
    return found


def render(question: Question, tokenizer: Tokenizer, longest: int) -> Rendered:
    """Returns a question as tokens, at most `longest` inputs a row.

    All four rows keep equally much of the context, so that none has an advantage.
    """
    context = [tokenizer.document_token, *tokenizer.encode(question.context.encode()).tolist()]
    endings = [tokenizer.encode(b" " + ending.encode()).tolist()[:longest] for ending in question.endings]
    kept = min(len(context), longest + 1 - max(len(ending) for ending in endings))
    rows = [[*context[len(context) - kept :], *ending] for ending in endings]
    length = max(len(row) for row in rows)
    tokens = torch.full((len(rows), length), tokenizer.document_token)
    counts = torch.zeros(len(rows), length, dtype=torch.bool)
    for place, row in enumerate(rows):
        tokens[place, : len(row)] = torch.tensor(row)
        counts[place, kept : len(row)] = True
    return Rendered(inputs=tokens[:, :-1], targets=tokens[:, 1:], counts=counts[:, 1:], label=question.label)


@torch.no_grad()
def evaluate(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    model: Callable[[torch.Tensor], torch.Tensor],
    *,
    longest: int,
    batch_rows: int = 64,
    device: torch.device | str = "cpu",
    progress: Callable[[str, int, int], None] = lambda counted, done, of: None,
    stop: Callable[[], bool] = lambda: False,
) -> Result | None:
    """Returns how many questions a model answers right; None where `stop` interrupted it.

    Args:
        model: tokens `B x T` -> logits `B x T x V`. Columns from `vocab_size` on, which pad a vocabulary, are left out.
        longest: tokens that the model can read at once.
        batch_rows: rows of one forward pass, four a question.
        progress: is told "questions asked", how many, and of how many.
    """
    rendered = sorted((render(question, tokenizer, longest) for question in questions), key=_length)
    by_mean = by_sum = 0
    step = max(batch_rows // NUM_ENDINGS, 1)
    for first in range(0, len(rendered), step):
        progress("questions asked", first, len(rendered))
        if stop():
            return None
        batch = rendered[first : first + step]  # of about the same length: little is filled up
        length = max(_length(one) for one in batch)
        inputs, targets, counts = (
            torch.cat([_filled(getattr(one, name), length, value) for one in batch]).to(device)
            for name, value in (("inputs", tokenizer.document_token), ("targets", 0), ("counts", 0))
        )
        logits = model(inputs)[..., : tokenizer.vocab_size].float()
        losses = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
        sums = torch.where(counts, losses, 0.0).sum(1).view(-1, NUM_ENDINGS)
        means = sums / counts.sum(1).clamp_min(1).view(-1, NUM_ENDINGS)
        labels = torch.tensor([one.label for one in batch], device=sums.device)
        by_mean += int((means.argmin(1) == labels).sum())
        by_sum += int((sums.argmin(1) == labels).sum())
    return Result(num_questions=len(questions), num_right=by_mean, num_right_by_sum=by_sum)


def _length(rendered: Rendered) -> int:
    return rendered.inputs.shape[1]


def _filled(tensor: torch.Tensor, length: int, value: int) -> torch.Tensor:
    return functional.pad(tensor, (0, length - tensor.shape[1]), value=value)


def _question(path: Path, number: int, line: str) -> Question:
    try:
        values = json.loads(line)
        endings, label = tuple(values["endings"]), int(values["label"])
        if len(endings) != NUM_ENDINGS or not 0 <= label < NUM_ENDINGS:
            raise ValueError(f"{len(endings)} endings and label {label}")
        if not all(isinstance(text, str) and text for text in (values["ctx"], *endings)):
            raise TypeError("ctx or an ending is no text")
        return Question(context=values["ctx"], endings=endings, label=label)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}, line {number}: no question with ctx, four endings and a label of 0 to 3"
            f" ({type(error).__name__}: {error}): give HellaSwag's file, as hellaswag_val.jsonl"
        ) from error
