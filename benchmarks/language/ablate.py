"""Which differences of the modern network from GPT-2's pay: each one taken back alone, at equal seconds.

A side is the modern network with one field of its `Design` as GPT-2 has it (or another choice of the field), or with
another optimiser. `gpt2` is GPT-2's network, trained by AdamW. All use the shipped training step, data and evaluation.

Equal seconds without the machine's noise: first the CPU seconds of a side's steps are measured against the base's, in
alternation, as the median of ratios. Then every side trains on as many tokens as it would read in the time in which the
base reads `--tokens`. So the runs themselves may share the machine with others. The step size falls to 0 over the last
part of a run of any length.

Step sizes are searched on seed 0, by doubling and halving one after the other: the base's, GPT-2's and AdamW's, with
`--search all` every side's; otherwise a side has the base's. The reported runs use seeds from 1 on: the same weights'
generator and the same order of data for all sides.

    python benchmarks/language/ablate.py                 # goes on where the last call ended
    python benchmarks/language/ablate.py --table         # only prints what is known

Each run is a line of benchmarks/results/language_ablate.jsonl.
"""

import argparse
import dataclasses
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine

from protein.trainer.language.config import ModelConfig, TrainConfig
from protein.trainer.language.data.batches import Batches
from protein.trainer.language.data.corpus import Corpus, open_corpus
from protein.trainer.language.micro_batch import cached_rows, even_rows
from protein.trainer.language.model import DESIGNS, GPT, Design
from protein.trainer.language.training import SECTIONS
from protein.trainer.language.update import Updates, prepare
from protein.trainer.machine.distributed import ALONE
from protein.trainer.machine.precision import Arithmetic, autocast, keep_freed_memory
from protein.trainer.machine.stopwatch import Stopwatch

FILE = machine.RESULTS / "language_ablate.jsonl"
CPU = torch.device("cpu")
TOKENS = 200_000  # of the base's run
BATCH_TOKENS = 2048
EVAL_TOKENS = 65_536
COST_ROUNDS = 10  # of steps in alternation
SEEDS = (1, 2, 3)
RATES = {"modern": (0.012, 0.01), "gpt2": (0.004, 0.004)}  # where the search begins: matrices, all other parameters

SEARCHED = ("gpt2", "adamw")  # sides whose step sizes are always searched, beside the base's


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What is trained."""

    arch: Literal["modern", "gpt2"] = "modern"
    design: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of the arch's `Design` that are changed."""
    train: dict[str, Any] = dataclasses.field(default_factory=dict)
    precision: str = "fp32"

    def make(self, model: ModelConfig, vocab_size: int, seed: int) -> GPT:
        design: Design = dataclasses.replace(DESIGNS[self.arch], **self.design)
        return GPT(dataclasses.replace(model, arch=self.arch), vocab_size, generator(seed), design)


SIDES = {
    "modern": Side(),
    "positions learned": Side(design={"positions": "learned"}),
    "norm layer": Side(design={"norm": "layer"}),
    "no norm of queries and keys": Side(design={"qk_norm": False}),
    "gelu": Side(design={"activation": "gelu"}),
    "tied": Side(design={"tied": True}),
    "GPT-2's initialisation": Side(design={"zero_projections": False}),
    "biases": Side(design={"biases": True}),
    "adamw": Side(train={"optimizer": "adamw"}),
    "bfloat16": Side(precision="bf16"),
    "gpt2": Side(arch="gpt2", train={"optimizer": "adamw", "weight_decay": 0.1, "lr_schedule": "cosine"}),
    "gpt2 with muon": Side(arch="gpt2"),
}

GONE = ("squared relu", "soft cap of 15")  # did not pay; their runs stay in the file and the table


class Run:
    """One network in training."""

    def __init__(self, side: Side, corpus: Corpus, train: TrainConfig, model: ModelConfig) -> None:
        self.model = side.make(model, corpus.vocab_size, train.seed)
        self.precision = side.precision
        stopwatch = Stopwatch(CPU)
        stopwatch.use(SECTIONS)
        self.updates = Updates(
            self.model, train, device=CPU, precision=side.precision, world=ALONE, stopwatch=stopwatch
        )
        self.rows = train.batch_tokens // model.sequence_length
        self.micro = even_rows(self.rows, cached_rows(self.model.width, model.sequence_length))
        self.batches = Batches(
            corpus.train, sequence_length=model.sequence_length, batch_rows=self.rows, seed=train.seed
        )

    def step(self, progress: float) -> float:
        """Takes a step; returns its loss."""
        self.updates.begin()
        left, loss = self.rows, 0.0
        while left:
            size = min(self.micro, left)
            left -= size
            inputs, targets, documents = self.batches.next(size)
            part = self.updates.add(inputs, targets, documents, weight=size / self.rows, last=not left)
            loss += float(part)
        self.updates.step(progress)
        return loss


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(int(np.random.SeedSequence([seed, 1]).generate_state(1)[0]))


def settings(side: Side, rates: tuple[float, float], seed: int, tokens: int) -> TrainConfig:
    return TrainConfig(
        **{
            "total_tokens": tokens,
            "batch_tokens": BATCH_TOKENS,
            "seed": seed,
            "learning_rate": rates[0],
            "embedding_learning_rate": rates[1],
            **side.train,
        }
    )


def measure_costs(names: list[str], corpus: Corpus, model: ModelConfig) -> Iterator[dict[str, Any]]:
    """Yields each side's CPU seconds a step against the base's."""
    for name in names:
        runs = [
            Run(SIDES[side], corpus, settings(SIDES[side], RATES["modern"], 0, TOKENS), model)
            for side in ("modern", name)
        ]
        ratios = []
        for turn in range(COST_ROUNDS + 2):
            seconds = []
            for run in runs if turn % 2 else runs[::-1]:
                began = time.process_time()
                run.step(0.01)
                seconds.append(time.process_time() - began)
            ratios.append(seconds[1] / seconds[0] if turn % 2 else seconds[0] / seconds[1])
        yield {
            "kind": "cost",
            "side": name,
            "ratio": 1.0 if name == "modern" else statistics.median(ratios[2:]),
            "base_seconds": min(seconds),
        }


def train(name: str, rates: tuple[float, float], seed: int, tokens: int, corpus: Corpus, model: ModelConfig) -> Any:
    """Trains one side, and returns its line."""
    side = SIDES[name]
    steps = max(1, round(tokens / BATCH_TOKENS))
    began, clock = time.process_time(), time.perf_counter()
    run = Run(side, corpus, settings(side, rates, seed, tokens), model)
    loss = 0.0
    for step in range(steps):
        loss = run.step((step + 0.5) / steps)
    spent = time.process_time() - began
    return {
        "kind": "run",
        "side": name,
        "seed": seed,
        "rates": rates,
        "tokens": steps * BATCH_TOKENS,
        "bits_per_byte": bits_per_byte(run.model, corpus, side.precision),
        "train_loss": loss,
        "cpu_seconds": spent,
        "seconds": time.perf_counter() - clock,
    }


@torch.no_grad()
def bits_per_byte(model: GPT, corpus: Corpus, precision: str) -> float:
    """Returns the loss of rows from all over the validation text, which are the same ones for all sides."""
    length = model.config.sequence_length
    batches = Batches(corpus.validation, sequence_length=length, batch_rows=1, seed=0)
    token_bytes = torch.from_numpy(corpus.token_bytes)
    nats, num_bytes = 0.0, 0
    for _ in range(min(EVAL_TOKENS // length, batches.rows_per_epoch)):
        inputs, targets, documents = batches.next(1)
        with autocast(CPU, precision):
            losses = model.losses(inputs, targets, documents)
        nats += float(losses[targets != corpus.document_token].double().sum())
        num_bytes += int(token_bytes[targets].sum())
    return nats / math.log(2) / max(num_bytes, 1)


class Results:
    """The file's lines, and what follows from them."""

    def __init__(self, file: Path, tokens: int) -> None:
        self.file, self.tokens = file, tokens
        self.lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def add(self, line: dict[str, Any]) -> None:
        line = {**line, "budget": self.tokens}
        self.lines.append(json.loads(json.dumps(line)))
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def cost(self, side: str) -> float:
        """The last measured cost of a step of a side against the base's; 0: not known."""
        found = [line["ratio"] for line in self.lines if line["kind"] == "cost" and line["side"] == side]
        return float(statistics.median(found)) if found else 0.0

    def runs(self, side: str, rates: tuple[float, float] | None = None, seed: int | None = None) -> list[Any]:
        return [
            line
            for line in self.lines
            if line["kind"] == "run"
            and line["side"] == side
            and line["budget"] == self.tokens
            and (rates is None or tuple(line["rates"]) == rates)
            and (seed is None or line["seed"] == seed)
        ]

    def best_rates(self, side: str) -> tuple[float, float]:
        """The step sizes of a side's best run on seed 0; without one, the base's; without any, those to begin with."""
        found = self.runs(side, seed=0) or ([] if side in RATES else self.runs("modern", seed=0))
        if not found:
            return RATES.get(side, RATES["modern"])
        best: list[float] = min(found, key=lambda line: line["bits_per_byte"])["rates"]
        return best[0], best[1]


def print_table(results: Results) -> None:
    base = {line["seed"]: line["bits_per_byte"] for line in reported(results, "modern")}
    print("| side | cost of a step | step sizes | bits a byte | less than modern, seed by seed |")
    print("|---|---:|---|---:|---:|")
    for name in (*SIDES, *GONE):
        lines = reported(results, name)
        if not lines:
            continue
        scores = [line["bits_per_byte"] for line in lines]
        gains = [base[line["seed"]] - line["bits_per_byte"] for line in lines if line["seed"] in base]
        spread = f" ± {statistics.stdev(gains) / len(gains) ** 0.5:.4f}" if len(gains) > 1 else ""
        rates = ", ".join(f"{rate:g}" for rate in lines[0]["rates"])
        print(
            f"| {name} | {results.cost(name):.2f} | {rates} | {statistics.mean(scores):.4f} | "
            f"{statistics.mean(gains):+.4f}{spread} ({len(gains)}) |"
        )


def reported(results: Results, side: str) -> list[Any]:
    """A side's runs with its best step sizes, of the reported seeds."""
    return [line for line in results.runs(side, results.best_rates(side)) if line["seed"] > 0]


def ablate(
    results: Results, names: list[str], seeds: tuple[int, ...], corpus: Corpus, model: ModelConfig, *, search: str
) -> None:
    """Makes all runs that are missing. `search`: the sides whose step sizes are searched, `none`, `some` or `all`."""
    wanted = ["modern", *(name for name in names if name != "modern")]

    def add(line: dict[str, Any]) -> None:
        results.add(line)
        print(json.dumps(line), flush=True)

    def run(name: str, rates: tuple[float, float], seed: int) -> None:
        if not results.runs(name, rates, seed):
            add(train(name, rates, seed, round(results.tokens / results.cost(name)), corpus, model))

    def look_around(name: str, first: tuple[float, float], factor: float) -> None:
        """Moves one step size after the other while that helps; ends where all four neighbours are worse."""
        run(name, first, 0)
        if search == "none":
            return
        began = None
        while began != results.best_rates(name):
            began = results.best_rates(name)
            for place in (0, 1):
                for towards in (factor, 1 / factor):
                    moved = list(results.best_rates(name))
                    moved[place] = float(f"{moved[place] * towards:.3g}")
                    run(name, (moved[0], moved[1]), 0)

    for line in measure_costs([name for name in wanted if not results.cost(name)], corpus, model):
        add(line)
    look_around("modern", RATES["modern"], 2.0)
    for name in wanted[1:]:
        if search == "all" or name in SEARCHED:
            look_around(name, RATES.get(name) or results.best_rates("modern"), 2.0)
    for seed in seeds:
        for name in wanted:
            run(name, results.best_rates(name), seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", nargs="*", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--tokens", type=int, default=TOKENS, help="that the base reads")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--search", choices=("none", "some", "all"), default="some", help="sides whose step sizes are")
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    results = Results(options.file, options.tokens)
    if not options.table:
        keep_freed_memory()
        model = ModelConfig()
        with Arithmetic(CPU, 1, "fp32") as arithmetic:
            prepare(arithmetic, model)
            seeds = SEEDS[: options.seeds]
            ablate(results, options.sides, seeds, open_corpus("python"), model, search=options.search)
    print_table(results)


if __name__ == "__main__":
    main()
