"""Makes docs/gallery/: every game in one page that asks for nothing, with policies of 1, 10 and 60 seconds of training.

python scripts/gallery.py [--games pong maze] [--seconds 1 10 60] [--runs FOLDER] [--into docs/gallery]

Each game is trained with its config for each time, which takes ten minutes in all; a checkpoint that is in the folder
of runs already is used again. The networks are narrower than the configs', and their weights have 16 bits, so that the
page stays small.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from protein.envs_c import worlds
from protein.trainer.machine import checkpoint

UNITS = {False: 64, True: 128}  # of hidden layers; True: for the longest time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=worlds.names(), choices=worlds.names())
    parser.add_argument("--seconds", nargs="+", type=float, default=[1.0, 10.0, 60.0])
    parser.add_argument("--runs", type=Path, default=Path("runs/gallery"))
    parser.add_argument("--into", type=Path, default=Path("docs/gallery"))
    arguments = parser.parse_args()
    for game in arguments.games:
        trained(game, sorted(arguments.seconds), arguments.runs)


def trained(game: str, times: list[float], runs: Path) -> list[Path]:
    """Returns a checkpoint for each time. How many steps fit into it is known from the shorter ones."""
    found, rate = [], 0.0
    for seconds in times:
        path = runs / f"{game}-{seconds:g}s.safetensors"
        if not path.exists():
            units = UNITS[seconds == times[-1]]
            words = ["--env", game, "--policy.hidden-size", str(units), "--train.max-seconds", str(seconds)]
            words += ["--train.total-timesteps", str(round(rate * seconds))] if rate else []
            subprocess.run([sys.executable, "-m", "protein", "train", *words, "--checkpoint", str(path)], check=True)
        made = checkpoint.read(path)
        rate = made.steps / made.elapsed_seconds
        found.append(path)
    return found


if __name__ == "__main__":
    main()
