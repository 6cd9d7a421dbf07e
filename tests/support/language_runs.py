"""Runs of language models of a fraction of a second: two layers of width 32, a known text of three thousand bytes."""

from pathlib import Path
from typing import Any

from language_data import write_bytes_corpus

from protein.trainer.language.config import LanguageConfig

LENGTH, ROWS = 16, 8
STEP = LENGTH * ROWS  # tokens of a step of the optimiser


def write_corpus(folder: Path) -> Path:
    """Writes texts of several lengths that a network can learn; an epoch has 23 steps and some rows."""
    lines = [f"{'abcdefgh'[n % 8] * 3} is {n % 7} times {'xyz'[n % 3]}\n".encode() for n in range(180)]
    documents = [b"".join(lines[n : n + 1 + n % 5]) for n in range(0, 180, 5)]
    return write_bytes_corpus(folder, documents, documents[::-4])


def small(data: Path, steps: int = 6, **sections: dict[str, Any]) -> LanguageConfig:
    nested: dict[str, dict[str, Any]] = {
        "data": {"path": str(data)},
        "model": {"num_layers": 2, "width_ratio": 16.0, "head_size": 16, "sequence_length": LENGTH},
        "train": {
            "total_tokens": STEP * steps,
            "batch_tokens": STEP,
            "threads": 1,
            "micro_batch": 4,
            "precision": "fp32",  # `auto` depends on the machine
        },
        "eval": {"tokens": 320, "curve_tokens": 160, "sample_tokens": 20},
    }
    for name, values in sections.items():
        nested[name] = nested[name] | values
    return LanguageConfig.from_dict(nested)
