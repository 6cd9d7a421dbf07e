"""Our trainer on the sizes and the tokens of `plain.py`, for `speed.py`. Prints one JSON line.

It is a whole run, as `python -m protein.trainer` makes it; only the corpus is put in from outside, so that both
programs read the same file of tokens.
"""

import argparse
import dataclasses
import json
import math
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from language import plain

from protein.trainer.events import Event
from protein.trainer.language import training, update
from protein.trainer.language.config import EvalConfig, LanguageConfig, ModelConfig, TrainConfig
from protein.trainer.language.data.corpus import Corpus, Part
from protein.trainer.language.data.shards import Shard
from protein.trainer.language.data.tokenizers import Bytes
from protein.trainer.run import run


def corpus_of(path: Path, vocabulary: int) -> Corpus:
    """Returns a corpus of the tokens in a file, all of which stand for one byte."""
    tokens = path.stat().st_size // 2
    shard = Shard(path=path, num_tokens=tokens, dtype=np.dtype("<u2"), num_bytes=tokens)
    parts = [
        Part(name=name, shards=[shard], vocab_size=vocabulary, document_token=vocabulary - 1)
        for name in ("train", "validation")
    ]
    return Corpus(
        name=path.stem,
        tokenizer=Bytes(),  # nothing is encoded or written
        vocab_size=vocabulary,
        document_token=vocabulary - 1,
        token_bytes=np.ones(vocabulary, np.int64),
        train=parts[0],
        validation=parts[1],
    )


def model_config(size: plain.Size, arch: str) -> ModelConfig:
    """Returns the network's settings for a size of the benchmark."""
    return ModelConfig(
        arch=arch,  # type: ignore[arg-type]  # one of its names
        num_layers=size.layers,
        width_ratio=size.width / size.layers,
        head_size=size.width // size.heads,
        sequence_length=size.positions,
    )


def config_of(size: plain.Size, arch: str, train_config: TrainConfig) -> LanguageConfig:
    """Returns the config of a run that measures nothing but its training."""
    return LanguageConfig(
        model=model_config(size, arch),
        train=train_config,
        eval=EvalConfig(tokens=512, curve_points=0, curve_tokens=512, sample_tokens=0),
    )


def train(
    size: plain.Size, seconds: float, train_config: TrainConfig, arch: str, data: Path
) -> tuple[plain.Clock, Any]:
    """Trains until `seconds` have passed, as `plain.train`; returns the clock and the run's first event."""
    config = config_of(size, arch, train_config)
    clock, stop, steps = plain.Clock(), threading.Event(), 0
    events: list[Event] = []
    of_product = update.Updates.step

    def timed(updates: update.Updates, progress: float) -> torch.Tensor:
        nonlocal steps
        norm = of_product(updates, progress)
        steps += 1
        if train_config.device.startswith("cuda"):
            torch.cuda.synchronize(train_config.device)
        if steps == plain.WARM_STEPS:
            clock.begin()
        elif steps > plain.WARM_STEPS:
            clock.stop(size.tokens, math.nan)
            if clock.long_enough(seconds):
                stop.set()
        return norm

    with (
        mock.patch.object(update.Updates, "step", timed),
        mock.patch.object(training, "open_corpus", lambda _: corpus_of(data, size.vocabulary)),
    ):
        run(config, directory=None, report=events.append, stop=stop)
    for event in events:
        if event["event"] == "measurement":
            clock.loss = event["metrics"].get("train_loss", math.nan)
    return clock, events[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(plain.SIZES), default="1M")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--arch", default="modern")
    parser.add_argument("--optimizer", default="muon")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    size = plain.SIZES[arguments.size]
    settings = TrainConfig(
        total_tokens=10**12,
        threads=arguments.threads,
        device=arguments.device,
        precision=arguments.precision,
        compile=arguments.compile,
        batch_tokens=size.tokens,
        optimizer=arguments.optimizer,
        learning_rate=1e-3,
        embedding_learning_rate=1e-3,
        lr_schedule="constant",
        weight_decay=0.1,
        checkpoint_seconds=0.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "train.bin"
        plain.write_tokens(data, size.vocabulary)
        clock, start = train(size, arguments.seconds, settings, arguments.arch, data)
    print(json.dumps(dataclasses.asdict(clock) | {"precision": start["precision"], "compiled": start["compiled"]}))


if __name__ == "__main__":
    main()
