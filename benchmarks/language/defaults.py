"""The shipped settings beside GPT-2's usual ones: bits a byte after the same seconds of training.

    python benchmarks/language/defaults.py --seconds 60 --seeds 5 --threads 1
    python benchmarks/language/defaults.py --table

GPT-2's are nanoGPT's for a CPU (config/train_shakespeare_char.py and its README): 4 layers of 128, rows of 64, 12 rows
a step, AdamW at .001, cosine decay to a tenth, 100 steps of warm-up of 2,000, weight decay .1, beta2 .99. Both have
the same trainer, precision and text. Their schedules end with the time.

Each run is a line of benchmarks/results/language_defaults.jsonl. A run that stands there is not made again.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
from language.run import train

from protein.config.resolve import load

RESULTS = machine.RESULTS / "language_defaults.jsonl"
GPT2: dict[str, Any] = {
    "model.arch": "gpt2",
    "model.num_layers": 4,
    "model.width_ratio": 32.0,
    "model.sequence_length": 64,
    "train.batch_tokens": 768,
    "train.optimizer": "adamw",
    "train.learning_rate": 1e-3,
    "train.embedding_learning_rate": 1e-3,
    "train.lr_schedule": "cosine",
    "train.warmup_fraction": 0.05,
    "train.final_fraction": 0.1,
    "train.weight_decay": 0.1,
    "train.beta1": 0.9,
    "train.beta2": 0.99,
}
SIDES: dict[str, dict[str, Any]] = {"shipped": {}, "gpt2": GPT2}
MANY = 1_000_000_000  # tokens: the time ends the run


def run(side: str, seconds: float, threads: int, seed: int) -> dict[str, Any]:
    """Trains one side for some seconds; returns its figures."""
    flags = {"train.max_seconds": seconds, "train.total_tokens": MANY, "train.threads": threads, "eval.curve_points": 0}
    config = load("text/python", flags={**SIDES[side], **flags}).run_config()
    event = train(config.to_dict(), seed)
    return {
        "bits_per_byte": event["metrics"]["bits_per_byte"],
        "tokens": event["steps"],
        "elapsed_seconds": event["elapsed_seconds"],
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Returns the means over seeds, and their spread."""
    lines = ["| settings | threads | seconds | seeds | bits a byte | spread | million tokens |", "|---" * 7 + "|"]
    for key in dict.fromkeys((row["settings"], row["threads"], row["seconds"]) for row in rows):
        own = [row for row in rows if (row["settings"], row["threads"], row["seconds"]) == key]
        found = [row["bits_per_byte"] for row in own]
        spread = f"{statistics.stdev(found):.3f}" if len(found) > 1 else ""
        tokens = statistics.mean(row["tokens"] for row in own) / 1e6
        side, threads, seconds = key
        mean = statistics.mean(found)
        lines.append(f"| {side} | {threads} | {seconds:g} | {len(own)} | {mean:.3f} | {spread} | {tokens:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--seconds", nargs="+", type=float, default=[60.0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="only print what is known")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    jobs = [(s, t, side) for t in arguments.seconds for s in range(arguments.seeds) for side in arguments.sides]
    for seed, seconds, side in [] if arguments.table else jobs:
        key = {"settings": side, "seconds": seconds, "threads": arguments.threads, "seed": seed}
        if any(row.items() >= key.items() for row in rows):
            continue
        row = key | run(side, seconds, arguments.threads, seed) | machine.describe()
        print(json.dumps(row), flush=True)
        rows.append(row)
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
