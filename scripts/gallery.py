"""Makes docs/gallery/: games in one page that asks for nothing, with policies of 1, 10 and 60 seconds of training.

python scripts/gallery.py [--games pong maze] [--seconds 1 10 60] [--runs FOLDER] [--into docs/gallery] [--repack]

Each game is trained with its config for each time, which takes an hour in all; a checkpoint that is in the folder
of runs already is used again. The networks are narrower than the configs', and their weights have 16 bits, so that the
page stays small. With --repack the games of the page that is there stay, each with its policies, in the page of today;
what it lacks is trained. A policy fits the game that it was trained on, which may since have changed.
"""

import argparse
import base64
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from protein.config.resolve import load
from protein.envs_c import worlds
from protein.errors import UsageError
from protein.trainer.config import RunConfig
from protein.trainer.evaluate import evaluate
from protein.trainer.export import export_policy
from protein.trainer.machine import checkpoint
from protein.view import text
from protein.web.packing import html_of, packed
from protein.web.play import WAITS, lesson, teacher

GAMES = ["arena", "breakout", "cartpole", "entities", "frontier", "g2048"]
GAMES += ["maze", "memory", "pendulum", "pong", "pong2", "snake"]
# What learns little in a minute has longer.
SECONDS = {"arena": [1.0, 10.0, 300.0], "frontier": [10.0, 60.0, 1400.0]}
UNITS = {False: 64, True: 128}  # of hidden layers; True: for the longest time
TEXT = (
    "What do the seconds buy? The same game, played by policies that were trained for different times on two cores of a"
    " busy machine. Arrow keys or WASD take over, Escape hands back."
)
BODY = f"""<main id="main" class="games"><h1>Protein's games</h1><div id="notices" role="status"></div>
<div id="games" class="play">{WAITS}</div></main>"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=GAMES, choices=worlds.names())
    parser.add_argument("--seconds", nargs="+", type=float, help="1 10 60, but for those games that need more")
    parser.add_argument("--runs", type=Path, default=Path("runs/gallery"))
    parser.add_argument("--into", type=Path, default=Path("docs/gallery"))
    parser.add_argument("--repack", action="store_true")
    arguments = parser.parse_args()
    path = arguments.into / "index.html"
    kept = {game["name"]: game for game in content(path)["data"]["games"]} if arguments.repack else {}
    try:
        games = [{**(kept.get(name) or _made(name, arguments)), "lesson": _lesson(name)} for name in arguments.games]
    except subprocess.CalledProcessError as error:
        return error.returncode  # which said why
    arguments.into.mkdir(parents=True, exist_ok=True)
    path.write_text(document(games), encoding="utf-8")
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")
    return 0


def document(games: list[dict[str, Any]]) -> str:
    """Returns the page's HTML. What a game holds is said at the head of play/gallery.js."""
    return html_of(
        packed(["play/gallery.js"], styles=["css/base.css", "play/play.css"]),
        {"text": TEXT, "teacher": teacher(), "games": games},
        start="play/gallery.js",
        title="Protein: games",
        body=BODY,
        fails="This browser cannot show the games (ERROR).",
        kind="play-alone",
        wasm=True,
    )


def content(path: Path) -> dict[str, Any]:
    """Returns what a page carries: its `modules` with their sources, and its `data`."""
    pack = re.search(r' id="pack">([^<]*)<', path.read_text(encoding="utf-8"))
    assert pack, path
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(pack[1])))
    return found


def _lesson(name: str) -> dict[str, Any] | None:
    try:
        return lesson(cast(RunConfig, load(name).run_config()))
    except UsageError:  # a page cannot learn this game
        return None


def _made(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    times = sorted(set(arguments.seconds or SECONDS.get(name, [1.0, 10.0, 60.0])))
    policies = list(map(_shown, trained(name, times, arguments.runs)))
    return {"name": name, "wasm": _text(worlds.read(name)), "policies": policies}


def _shown(path: Path) -> dict[str, Any]:
    """Returns a policy as the page shows it, with its score in new episodes."""
    made = checkpoint.read(path)
    score = evaluate(path, env=path.stem.rpartition("-")[0]).score
    note = f"score {text.score(score)}, {made.steps:,} steps"
    return {"title": text.seconds(made.elapsed_seconds), "note": note, "policy": _text(export_policy(path, half=True))}


def _text(file: bytes) -> str:
    return base64.b64encode(file).decode()


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
    sys.exit(main())
