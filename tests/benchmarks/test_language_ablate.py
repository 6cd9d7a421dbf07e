"""The ablation of the language model: one field apart, as many tokens as the time allows, no run twice."""

import dataclasses
from pathlib import Path

import pytest
from language import ablate
from language_data import random_documents, write_bytes_corpus

from protein.trainer.language.config import ModelConfig
from protein.trainer.language.data.corpus import open_corpus
from protein.trainer.language.model import DESIGNS

TINY = ModelConfig(num_layers=1, width_ratio=16.0, head_size=8, sequence_length=16)


def test_each_side_takes_one_difference_back() -> None:
    gpt2, modern = (dataclasses.asdict(DESIGNS[arch]) for arch in ("gpt2", "modern"))
    alone = {field: side for side in ablate.SIDES.values() for field in side.design if len(side.design) == 1}
    assert alone.keys() == {field for field in gpt2 if gpt2[field] != modern[field]}
    for side in ablate.SIDES.values():
        assert side.make(TINY, 20, 0).loss is not None


def test_a_costly_side_reads_fewer_tokens_and_nothing_runs_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ablate, "BATCH_TOKENS", 64)
    monkeypatch.setattr(ablate, "EVAL_TOKENS", 256)
    folder = write_bytes_corpus(tmp_path / "text", random_documents(60, 300), random_documents(10, 300, seed=1))
    corpus, file = open_corpus(folder), tmp_path / "runs.jsonl"
    results = ablate.Results(file, 256)
    results.add({"kind": "cost", "side": "modern", "ratio": 1.0})
    results.add({"kind": "cost", "side": "gelu", "ratio": 2.0})
    ablate.ablate(results, ["gelu"], (1, 2), corpus, TINY, search="some")
    runs = [line for line in results.lines if line["kind"] == "run"]
    assert {(line["side"], line["tokens"]) for line in runs} == {("modern", 256), ("gelu", 128)}
    reported = [(line["side"], line["seed"]) for line in runs if line["seed"]]
    assert reported == [("modern", 1), ("gelu", 1), ("modern", 2), ("gelu", 2)]
    written = file.read_text()
    again = ablate.Results(file, 256)
    ablate.ablate(again, ["gelu"], (1, 2), corpus, TINY, search="some")
    assert file.read_text() == written and again.lines == results.lines
    # The step sizes that are reported are the best ones of seed 0, and none beside them is better.
    best = again.best_rates("modern")
    scores = {tuple(line["rates"]): line["bits_per_byte"] for line in again.runs("modern", seed=0)}
    assert scores[best] == min(scores.values())
    assert len(scores) >= 5
    capsys.readouterr()
    ablate.print_table(again)
    assert [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["| modern", "| gelu"]


def test_costs_are_measured_in_alternation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablate, "BATCH_TOKENS", 64)
    folder = write_bytes_corpus(tmp_path / "text", random_documents(60, 300), random_documents(10, 300, seed=1))
    modern, other = ablate.measure_costs(["modern", "biases"], open_corpus(folder), TINY)
    assert (modern["ratio"], modern["side"], other["side"]) == (1.0, "modern", "biases")
    assert other["ratio"] > 0
