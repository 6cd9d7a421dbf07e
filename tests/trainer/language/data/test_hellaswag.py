"""HellaSwag: rows hold context and ending, and the ending with the smallest mean loss is the answer."""

import json
from pathlib import Path

import pytest
import torch

from protein.trainer.errors import DataError
from protein.trainer.language.data.hellaswag import Question, evaluate, read_questions, render
from protein.trainer.language.data.tokenizers import Bytes

LINE = {
    "ind": 24,
    "activity_label": "Roof shingle removal",
    "ctx_a": "A man is sitting on a roof.",
    "ctx_b": "he",
    "ctx": "A man is sitting on a roof. he",
    "split": "val",
    "split_type": "indomain",
    "label": 3,
    "endings": ["is using wrap.", "is ripping tiles off.", "is holding it.", "starts pulling up roofing."],
    "source_id": "activitynet~v",
}
DOCUMENT = Bytes.document_token


def loss_by_letter(tokens: torch.Tensor) -> torch.Tensor:
    """Returns logits of a model that always finds `x` unlikely, and `y` likely; all others lie between."""
    logits = torch.zeros(260)
    logits[ord("x")], logits[ord("y")] = -3.0, 5.0
    logits[257:] = 100.0  # what pads the vocabulary
    return logits.expand(*tokens.shape, 260)


def test_the_file_of_its_authors_is_read(tmp_path: Path) -> None:
    path = tmp_path / "hellaswag_val.jsonl"
    path.write_text(json.dumps(LINE) + "\n\n" + json.dumps({**LINE, "label": "1"}) + "\n")
    first, second = read_questions(path)
    assert (first.context, first.label, second.label) == ("A man is sitting on a roof. he", 3, 1)
    assert first.endings == tuple(LINE["endings"])  # type: ignore[arg-type]


def test_a_text_may_hold_the_line_ends_of_unicode(tmp_path: Path) -> None:
    path, context = tmp_path / "hellaswag_val.jsonl", "a roof\u2028he\u0085and"
    path.write_text(json.dumps({**LINE, "ctx": context}, ensure_ascii=False) + "\r\n", encoding="utf-8")
    assert [question.context for question in read_questions(path)] == [context]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no questions"),
        ("{", "line 1: no question"),
        (json.dumps({**LINE, "label": ""}), "line 1: no question with ctx, four endings and a label"),
        (json.dumps({**LINE, "label": 4}), "4 endings and label 4"),
        (json.dumps({**LINE, "endings": ["a"]}), "1 endings"),
        (json.dumps({**LINE, "endings": ["a", "b", "", "d"]}), "an ending is no text"),
        (json.dumps([LINE]), "line 1"),
    ],
)
def test_other_files_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_questions(tmp_path / "x.jsonl")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"cannot read .*none: No such file"):
        read_questions(tmp_path / "none")


def test_rows_hold_the_context_and_an_ending() -> None:
    question = Question(context="abc", endings=("d", "ef", "ghi", "j"), label=2)
    found = render(question, Bytes(), 100)
    text = [[DOCUMENT, *b"abc d"], [DOCUMENT, *b"abc ef"], [DOCUMENT, *b"abc ghi"], [DOCUMENT, *b"abc j"]]
    for row, tokens in enumerate(text):
        assert found.inputs[row].tolist()[: len(tokens) - 1] == tokens[:-1]
        assert found.targets[row].tolist()[: len(tokens) - 1] == tokens[1:]
        assert bytes(found.targets[row][found.counts[row]].tolist()) == b" " + question.endings[row].encode()
    assert (found.inputs.shape, found.label) == ((4, 7), 2)


def test_a_long_context_loses_its_beginning_and_a_long_ending_its_end() -> None:
    question = Question(context="0123456789", endings=("a", "bc", "def", "ghij"), label=0)
    found = render(question, Bytes(), 8)
    assert found.inputs.shape == (4, 8)
    assert [bytes(row.tolist()[:4]) for row in found.inputs] == [b"6789"] * 4
    assert bytes(found.targets[3].tolist()) == b"789 ghij"
    found = render(Question(context="0123", endings=("a", "b" * 50, "c", "d"), label=0), Bytes(), 8)
    assert bytes(found.targets[1].tolist()) == b" bbbbbbb"
    assert found.counts[1].all()


def test_the_smallest_mean_loss_is_the_answer() -> None:
    questions = [
        Question(context="say", endings=("xxx", "abc", "yyy", "abx"), label=2),
        Question(context="it is longer", endings=("xy", "yyyyyyyyyyyyy", "xx", "x"), label=1),
        Question(context="n", endings=("a", "b", "y", "d"), label=0),
        Question(context="and", endings=("yyyy", "ayyyyyyyyyyyyyyyyyy", "x", "aaaa"), label=0),
    ]
    for rows in (4, 8, 64):
        result = evaluate(questions, Bytes(), loss_by_letter, longest=64, batch_rows=rows)
        assert result is not None
        assert (result.num_questions, result.num_right, result.accuracy) == (4, 2, 0.5)
    assert evaluate(questions, Bytes(), loss_by_letter, longest=64, stop=lambda: True) is None


def test_means_and_sums_are_those_of_a_loop() -> None:
    torch.manual_seed(0)
    table = torch.randn(257, 257)
    questions = [
        Question(context=f"{n} apples", endings=(f"a{n}", "bc" * n, "d", "e fg h"), label=n % 4) for n in range(9)
    ]
    by_mean = by_sum = 0
    for question in questions:
        losses = []
        for ending in question.endings:
            tokens = torch.tensor([DOCUMENT, *f"{question.context} {ending}".encode()])
            nats = -table[tokens[:-1]].log_softmax(1)[torch.arange(len(tokens) - 1), tokens[1:]]
            losses.append(nats[-len(ending) - 1 :])
        by_mean += int(torch.stack([one.mean() for one in losses]).argmin()) == question.label
        by_sum += int(torch.stack([one.sum() for one in losses]).argmin()) == question.label
    result = evaluate(questions, Bytes(), lambda tokens: table[tokens], longest=64, batch_rows=12)
    assert result is not None and (result.num_right, result.num_right_by_sum) == (by_mean, by_sum)
