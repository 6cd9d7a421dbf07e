"""The loss on validation text, HellaSwag, and the learning curve's places."""

import dataclasses
import itertools
import json
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language_data import random_documents, write_bytes_corpus
from language_runs import small, write_corpus
from small_models import every_weight_drawn, make_model
from whole_runs import go

from protein.trainer.errors import CheckpointError, DataError
from protein.trainer.language import training
from protein.trainer.language.data import tokenizers
from protein.trainer.language.data.batches import Batches
from protein.trainer.language.data.corpus import Corpus, open_corpus
from protein.trainer.language.data.preparing import Document, Split, write_folder
from protein.trainer.language.evaluate import Evaluator, TextLoss, answer, choose_rows, evaluate
from protein.trainer.language.sample import sample
from protein.trainer.language.training import Curve
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.machine.checkpoint import FILE_NAME
from protein.trainer.machine.distributed import ALONE

VOCABULARY = 257


@pytest.fixture(scope="module")
def random_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text") / "random"
    return write_bytes_corpus(folder, random_documents(3, 50), random_documents(60, 400, seed=1), shard_tokens=3000)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run; its text is in `small` beside it."""
    folder = tmp_path_factory.mktemp("run")
    go(small(write_corpus(folder / "small")), folder / "done")
    return folder


@pytest.mark.parametrize("tokens", [40, 1000, 10**9])
def test_the_loss_is_the_sum_over_tokens_one_by_one(tokens: int, random_text: Path) -> None:
    """By the definition: each row alone, document by document, each target's loss from the logits before it."""
    corpus = open_corpus(random_text)
    model = every_weight_drawn(make_model(vocab_size=VOCABULARY), 0.3)
    evaluator = Evaluator(corpus, tokens, model)
    found = evaluator.measure("fp32")
    assert found is not None
    batches = Batches(corpus.validation, sequence_length=16, batch_rows=1, seed=0, evaluation=True)
    nats, count, size = 0.0, 0, 0
    for _ in range(min(tokens // 16, batches.rows_per_epoch)):
        inputs, targets, _ = batches.next(1)
        starts = [0, *(place for place in range(1, 16) if inputs[0, place] == corpus.document_token), 16]
        for begin, end in itertools.pairwise(starts):
            losses = -torch.log_softmax(model(inputs[:, begin:end])[0].detach().double(), -1)
            for place, target in enumerate(targets[0, begin:end].tolist()):
                if target != corpus.document_token:
                    nats, count, size = nats + float(losses[place, target]), count + 1, size + 1
    assert (found.tokens, found.num_bytes) == (count, size)
    assert evaluator.measure("fp32").score == found.score, "the same text again"  # type: ignore[union-attr]
    assert found.nats_per_token == pytest.approx(nats / count, rel=1e-5)
    assert found.bits_per_byte == pytest.approx(nats / size / math.log(2), rel=1e-5)
    assert found.score == -found.bits_per_byte


def test_a_network_that_knows_nothing_needs_the_logarithm_of_the_vocabulary(random_text: Path) -> None:
    found = Evaluator(open_corpus(random_text), 1600, make_model(vocab_size=VOCABULARY)).measure("fp32")
    assert found is not None and found.nats_per_token == pytest.approx(math.log(VOCABULARY), rel=1e-5)


def test_text_without_a_byte_has_no_score(tmp_path: Path) -> None:
    """It would be 0, which no text can reach."""
    data = write_bytes_corpus(tmp_path / "empty", [b"text" * 100], [b""] * 100)
    with pytest.raises(DataError, match="has no byte of text in 96 tokens, so bits per byte cannot be measured"):
        Evaluator(open_corpus(data), 200, make_model(vocab_size=VOCABULARY))


def test_a_signal_interrupts_a_measurement(random_text: Path) -> None:
    assert Evaluator(open_corpus(random_text), 1600, make_model(vocab_size=257)).measure("fp32", lambda: True) is None


def test_a_checkpoint_gives_the_score_of_its_run(run: Path) -> None:
    result, _ = go(small(run / "small"))
    found = evaluate(run / "done" / FILE_NAME, threads=1)
    assert found.score == result.score and found.hellaswag is None
    fewer = evaluate(run / "done" / FILE_NAME, tokens=64, threads=1)
    assert 0 < fewer.tokens < found.tokens


def test_a_checkpoint_of_another_vocabulary_is_refused(run: Path, tmp_path: Path) -> None:
    data = write_bytes_corpus(tmp_path / "other", [b"abc"], [b"abc" * 100])
    description = json.loads((data / "data.json").read_text())
    assert evaluate(run / "done" / FILE_NAME, data=str(data), tokens=32, threads=1).tokens == 32
    with pytest.raises(DataError):
        evaluate(run / "done" / FILE_NAME, data=str(tmp_path / "none"))
    (data / "data.json").write_text(json.dumps({**description, "vocab_size": 300}))
    with pytest.raises((DataError, CheckpointError)):
        evaluate(run / "done" / FILE_NAME, data=str(data))


def test_a_text_that_is_elsewhere_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run keeps `data.path` as it was given, so from another folder a relative one leads nowhere."""
    write_corpus(tmp_path / "small")
    monkeypatch.chdir(tmp_path)
    result, _ = go(small(Path("small"), steps=2, eval={"curve_points": 0}), tmp_path / "done")
    monkeypatch.chdir(tmp_path / "done")
    with pytest.raises(DataError, match=r"'small' is no folder: .*; it is the text of .*, and --data names it"):
        evaluate(Path(FILE_NAME), threads=1)
    assert evaluate(Path(FILE_NAME), data="../small", threads=1).score == result.score


def test_a_text_of_another_tokenizer_is_refused_though_it_has_as_many_tokens(run: Path, tmp_path: Path) -> None:
    """A byte-pair encoding without merges has 257 tokens, as bytes have, and other numbers for most of them."""
    pytest.importorskip("tokenizers")
    text = tmp_path / "text.txt"
    text.write_text("one and two and three\n" * 40, encoding="utf-8")
    split, pairs = Split.of(0.3, text.stat().st_size), tokenizers.learn([b"abc"], VOCABULARY)
    write_folder(tmp_path / "pairs", [Document(path=text)], pairs, split)
    path, data = run / "done" / FILE_NAME, str(tmp_path / "pairs")
    assert open_corpus(data).vocab_size == open_corpus(run / "small").vocab_size
    with pytest.raises(
        CheckpointError, match="tokens of another tokenizer than that of the text 'pairs': give"
    ) as caught:
        evaluate(path, data=data, tokens=32, threads=1)
    assert "\n" not in str(caught.value)
    with pytest.raises(CheckpointError, match="another tokenizer"):
        sample(path, "a", data=data, threads=1)
    with pytest.raises(CheckpointError, match="another tokenizer"):
        go(small(tmp_path / "pairs"), resume=path)


def test_a_checkpoint_of_an_earlier_version_does_not_name_its_tokenizer(run: Path, tmp_path: Path) -> None:
    path, old = run / "done" / FILE_NAME, tmp_path / FILE_NAME
    saved = checkpoints.read(path)
    details = {name: value for name, value in saved.details.items() if name != "tokenizer"}
    assert details.keys() == {"vocab_size", "micro_batch"}
    checkpoints.write(old, dataclasses.replace(saved, details=details))
    assert evaluate(old, tokens=64, threads=1).score == evaluate(path, tokens=64, threads=1).score


def test_hellaswag_is_asked_at_the_end_and_of_a_checkpoint(run: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    lines = [
        {
            "ctx": f"{word} is",
            "endings": ["3 times x", "qqqqqqqqqqq", "%%%%%%%", "\u00e9\u00e9\u00e9\u00e9"],
            "label": 0,
        }
        for word in ("aaa", "bbb", "ccc")
    ]
    questions.write_text("\n".join(map(json.dumps, lines)))
    config = small(run / "small", steps=60, eval={"hellaswag": str(questions), "curve_points": 0})
    result, _ = go(config, tmp_path)
    assert result.metrics["hellaswag"] == 1.0
    assert evaluate(tmp_path / FILE_NAME, questions=questions, threads=1).hellaswag == 1.0
    with pytest.raises(DataError, match="cannot read"):
        go(small(run / "small", eval={"hellaswag": str(tmp_path / "none.jsonl")}))


def test_a_signal_interrupts_the_questions_at_a_runs_end(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = {"ctx": "aaa is", "endings": ["3 times x", "q", "%", "e"], "label": 0}
    (tmp_path / "questions.jsonl").write_text(json.dumps(line))
    config = small(run / "small", eval={"hellaswag": str(tmp_path / "questions.jsonl"), "curve_points": 0})
    stop = threading.Event()

    def ask(*arguments: Any, **options: Any) -> float | None:
        stop.set()
        return answer(*arguments, **options)

    monkeypatch.setattr(training, "answer", ask)
    result, events = go(config, tmp_path / "run", stop=stop)
    assert result.interrupted and result.score is None and events[-1]["event"] == "interrupted"
    assert "hellaswag" not in events[-1]["metrics"] and not (tmp_path / "run" / "sample.txt").exists()


class Fake:
    """An evaluator whose measurements take as long as it is told."""

    tokens = 200

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def measure(self, precision: str, stop: Any) -> TextLoss:
        return TextLoss(nats_per_token=1.0, bits_per_byte=1.0, tokens=1000, num_bytes=1000, seconds=self.seconds)


@pytest.mark.parametrize(
    ("seconds", "places"),
    [
        (0.01, [15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95]),  # the first guess is too high
        (0.5, [15, 20, 25, 40, 50, 60, 70, 75, 90]),
        (1.0, [15, 25, 50, 75]),
        (100.0, [15, 25, 50, 75]),
    ],
)
def test_points_that_would_take_more_than_their_share_are_left_out(seconds: float, places: list[int]) -> None:
    """A run of 100 steps of 100 tokens and one second each, with twenty places. The quarters are always measured."""
    curve = Curve(Fake(seconds), points=20, world=ALONE)  # type: ignore[arg-type]
    curve.begin(0, 0.0)
    measured = []
    for step in range(1, 101):
        if curve.due(100 * step, step / 100, float(step)):
            curve.measure("fp32", lambda: False)
            measured.append(step)
    assert measured == places


def test_a_short_run_has_points_and_a_long_step_skips_none_of_the_quarters() -> None:
    curve = Curve(Fake(1e9), points=20, world=ALONE)  # type: ignore[arg-type]
    curve.begin(0, 0.0)
    assert [done for done in (0.2, 0.4, 0.9, 1.0) if curve.due(1, done, 0.001)] == [0.4, 0.9]
    few = Curve(Fake(1e9), points=2, world=ALONE)  # type: ignore[arg-type]
    few.begin(0, 0.0)
    assert [done for done in (0.25, 0.5, 0.75, 1.0) if few.due(1, done, 0.001)] == [0.5]


def test_no_places_and_places_that_are_past() -> None:
    none = Curve(Fake(0.0), points=0, world=ALONE)  # type: ignore[arg-type]
    none.begin(0, 0.0)
    assert not none.due(100, 1.0, 1e9)
    later = Curve(Fake(0.0), points=10, world=ALONE)  # type: ignore[arg-type]
    later.measure("fp32", lambda: False)
    later.begin(55, 0.55)
    assert not later.due(59, 0.59, 1e9) and later.due(60, 0.6, 1e9) and not later.due(69, 0.69, 1e9)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of which an eighth is random, and all else repeats what training knows."""
    generator = np.random.default_rng(0)
    easy = [b"the same words again and again, " * int(generator.integers(3, 40)) for _ in range(140)]
    hard = random_documents(20, 1200, seed=2)
    documents = [(easy + hard)[n] for n in generator.permutation(160)]
    return write_bytes_corpus(tmp_path_factory.mktemp("mixed") / "text", easy + hard[:5], documents)


@pytest.mark.parametrize("length", [16, 64, 256])
def test_a_point_of_the_curve_reads_text_as_hard_as_all(mixed: Path, length: int) -> None:
    corpus = open_corpus(mixed)
    rows, num = rows_of(corpus, length), 65_536 // length
    chosen, targets, _ = choose_rows(corpus, rows, num, 8192)
    assert chosen.numel() == targets.numel() == 8192
    everything = rows.read(0, num)[0]
    there = {tuple(row) for row in everything.tolist()}
    assert all(tuple(row) in there for row in chosen.tolist()), "a part of what the score is measured on"
    random = [float((tokens > 127).double().mean()) for tokens in (chosen, everything, everything[: 8192 // length])]
    assert abs(random[0] - random[1]) < 0.025 < abs(random[2] - random[1])
    other = choose_rows(corpus, rows_of(corpus, 32), 65_536 // 32, 8192)[0]
    assert other.reshape(-1).equal(chosen.reshape(-1)), "the same text at every length"


def rows_of(corpus: Corpus, length: int) -> Batches:
    return Batches(corpus.validation, sequence_length=length, batch_rows=1, seed=0, evaluation=True)


def test_a_point_of_the_curve_reads_all_where_there_is_little(random_text: Path) -> None:
    corpus = open_corpus(random_text)
    rows = rows_of(corpus, 16)
    for wanted, expected in ((10**9, 40), (640, 40), (639, 38), (1, 1)):
        assert len(choose_rows(corpus, rows, 40, wanted)[0]) == expected
    model = every_weight_drawn(make_model(vocab_size=VOCABULARY), 0.3)
    full = Evaluator(corpus, 640, model).measure("fp32")
    same = Evaluator(corpus, 640, model, curve_tokens=10**9).measure("fp32")
    assert full is not None and same is not None and same.score == pytest.approx(full.score, rel=1e-6)


def test_the_curve_ends_with_the_score(run: Path) -> None:
    result, events = go(small(run / "small", steps=40, eval={"curve_points": 8}))
    points = [(event["steps"], event["score"]) for event in events[1:-1] if event["score"] is not None]
    assert points[-1] == (result.steps, result.score)
    assert {round(4 * steps / result.steps) for steps, _ in points} == {1, 2, 3, 4}
