"""Draws the learning curves of one or several runs into a PNG: score against seconds and against steps.

python scripts/learning_curves.py curves.png runs/train/pong-* LSTM=runs/train/memory-1 --threshold pong=20

A run is a folder of `protein train`, or a file with the output of `python -m protein.trainer`; `LABEL=` before it
names it in the legend, and runs of one label share a color. `--threshold ENV=SCORE`, as often as wanted, draws a dashed
line.
"""

import argparse
import sys
from pathlib import Path

from protein.errors import ProteinError, UsageError
from protein.view.curves import Run, read_run, write_curves


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("png", type=Path)
    parser.add_argument("runs", nargs="+", metavar="[LABEL=]RUN")
    parser.add_argument("--threshold", action="append", default=[], metavar="ENV=SCORE")
    arguments = parser.parse_args()
    try:
        write_curves([_run(word) for word in arguments.runs], dict(map(_threshold, arguments.threshold)), arguments.png)
    except (ProteinError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _run(word: str) -> Run:
    label, equals, path = word.partition("=")
    return read_run(Path(path), label) if equals and not Path(word).exists() else read_run(Path(word))


def _threshold(word: str) -> tuple[str, float]:
    env, _, score = word.rpartition("=")
    try:
        return env, float(score)
    except ValueError:
        raise UsageError(f"--threshold '{word}' is not ENV=SCORE; write it like pong=20") from None


if __name__ == "__main__":
    sys.exit(main())
