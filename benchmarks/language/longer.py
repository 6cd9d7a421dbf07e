"""Does what won small win large? Trains the winners of a sweep's short trials for several times as long.

    python benchmarks/language/longer.py --store runs/trained/text-python-protein-continuing-0.db --within 20s 60s

The winners are the configs that measured best among the trials that took at most as long. Beside them stands the
initial config of the sweep, which is the shipped one. All are trained for the same seconds, `--times` those of each
limit: each on as many tokens as it reads in that time, by the pace of its trial. Schedules are shares of the run, so
they are longer, too. Nothing else of a config is changed.

Each run is a line of benchmarks/results/language_longer.jsonl. A run that stands there is not made again.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
from language.run import train

from protein import storage
from protein.config.layers import unflatten
from protein.types import TrialRecord, TrialState
from protein.units import parse_duration

RESULTS = machine.RESULTS / "language_longer.jsonl"
TOKENS = "train.total_tokens"


def winners(trials: list[TrialRecord], limits: list[str]) -> dict[str, TrialRecord]:
    """Returns the initial config's trial, and for each limit the best trial within it, by what they are called."""
    whole = [t for t in trials if t.state is TrialState.COMPLETE and t.continues is None and t.score is not None]
    found = {"initial": trials[0]}
    for limit in limits:
        within = [trial for trial in whole if trial.run_seconds <= parse_duration(limit, "--within")]
        found[f"best within {limit}"] = max(within, key=lambda trial: trial.score or 0.0)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="of a sweep by engine/train.py, named as its file")
    parser.add_argument("--within", nargs="+", default=["20s", "60s"], help="limits of what a short trial takes")
    parser.add_argument("--of", nargs="+", help="train these alone, as in initial 'best within 20s'")
    parser.add_argument("--times", type=float, default=10.0, help="how many times as long")
    parser.add_argument("--seed", type=int, default=1000)
    arguments = parser.parse_args()
    store = storage.open_store(str(arguments.store))
    try:
        sweep = store.find_sweep(arguments.store.stem)
        if sweep is None:
            raise SystemExit(f"error: {arguments.store} holds no sweep '{arguments.store.stem}'")
        trials = store.trials(sweep.id)
    finally:
        store.close()
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    for limit in arguments.within:
        seconds = arguments.times * parse_duration(limit, "--within")
        for name, trial in winners(trials, arguments.within).items():
            key = {"sweep": sweep.spec.name, "config": name, "seconds": seconds, "seed": arguments.seed}
            if (arguments.of and name not in arguments.of) or any(row.items() >= key.items() for row in rows):
                continue
            tokens = int(seconds * int(trial.params[TOKENS]) / trial.run_seconds)
            values = {**trial.params, TOKENS: tokens}
            config = _with_values(dict(sweep.spec.config), unflatten(values))
            found = train(config, arguments.seed)
            row = key | machine.describe() | {"tokens": tokens, "took": found["elapsed_seconds"]}
            row |= {"short_score": trial.score, "short_seconds": trial.run_seconds, "score": found["score"]}
            print(json.dumps(row), flush=True)
            with RESULTS.open("a") as file:
                file.write(json.dumps(row | {"params": values}) + "\n")


def _with_values(config: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Returns a config with the values of each of its sections changed."""
    return {name: {**section, **values.get(name, {})} for name, section in config.items()}


if __name__ == "__main__":
    main()
