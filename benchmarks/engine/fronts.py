"""Compares finished sweeps of one environment: their fronts, and how fast they found them.

    protein sweep --env pong --name hour --max-cost 1h --method protein --store a.db       # and so on, then
    python benchmarks/engine/fronts.py protein=a.db:hour random=b.db:hour optuna:tpe=c.db:hour --figure front.png

Scores are final evaluations as measured. `volume` is the hypervolume of (score, log cost) above the lowest score and
below the highest cost of all the sweeps together, in score units times e-folds; `under` the best score at a cost; `to`
the share of the budget spent when a trial first scored that much.
"""

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine

from protein import storage
from protein.engine import pareto, recommend, results
from protein.space import Space
from protein.types import SweepRecord, TrialRecord, TrialState

LIMITS_SECONDS = (2.0, 5.0, 10.0, 30.0, math.inf)
_COLOURS = ("#c1272d", "#555555", "#1f77b4", "#2ca02c")

Sweeps = Mapping[str, tuple[SweepRecord, Sequence[TrialRecord]]]


def read(place: str) -> tuple[SweepRecord, list[TrialRecord]]:
    """Returns the sweep `STORE:NAME`. Raises `SystemExit`, with one line, when there is none."""
    url, _, name = place.rpartition(":")
    store = storage.open_store(url)
    try:
        sweep = store.find_sweep(name)
        if sweep is None:
            raise SystemExit(f"error: no sweep '{name}' in {url}; `protein status --store {url}` lists them")
        return sweep, store.trials(sweep.id)
    finally:
        store.close()


def row(label: str, sweep: SweepRecord, trials: Sequence[TrialRecord], low: float, high_cost: float) -> dict[str, Any]:
    """Returns one sweep's figures; `low` and `high_cost` are the reference of the hypervolume."""
    done = [t for t in trials if t.state is TrialState.COMPLETE and t.score is not None]
    scores, costs = [t.score or 0.0 for t in done], [t.cost_seconds for t in done]
    advised = results.best(
        recommend.contenders(Space.from_dict(sweep.spec.space), [t.observation() for t in trials if t.state.finished])
    )
    assert advised is not None
    under = {}
    for limit in LIMITS_SECONDS:
        best = pareto.best_under(done, limit)
        under[f"{limit:g}"] = None if best is None else round(best.score or 0.0, 2)
    return {
        "method": label,
        "trials": len(trials),
        "complete": len(done),
        "stopped": sum(t.state is TrialState.PRUNED for t in trials),
        "failed": sum(t.state is TrialState.FAILED for t in trials),
        "spent_seconds": round(sum(t.cost_seconds for t in trials), 1),
        "volume": round(pareto.hypervolume(scores, costs, reference_score=low, reference_cost=high_cost), 1),
        "under_seconds": under,
        "advised": [round(v, 2) for v in (advised.score.value, advised.score.low, advised.score.high)],
        "advised_cost_seconds": round(advised.expected_cost_seconds, 2),
        "front": [[round(t.cost_seconds, 2), round(t.score or 0.0, 2)] for t in pareto.front(done)],
    }


def draw(sweeps: Sweeps, path: Path) -> None:
    """Writes the picture: every complete trial, and the fronts as staircases."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(8.0, 4.6))
    for (label, (_, trials)), colour in zip(sweeps.items(), _COLOURS, strict=False):
        done = [t for t in trials if t.state is TrialState.COMPLETE and t.score is not None]
        front = pareto.front(done)
        panel.scatter([t.cost_seconds for t in done], [t.score or 0.0 for t in done], s=9, alpha=0.35, color=colour)
        end = max(t.cost_seconds for t in done)
        x, y = [t.cost_seconds for t in front] + [end], [t.score or 0.0 for t in front]
        panel.step(x, [*y, y[-1]], where="post", color=colour, linewidth=2.0, label=f"{label}, {len(trials)} trials")
    panel.set_xscale("log")
    panel.set_xlabel("seconds of training of one trial")
    panel.set_ylabel("score")
    panel.legend(loc="lower right", frameon=False)
    panel.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Prints the table, writes benchmarks/results/engine_hour.json and, if asked for, the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="+", metavar="LABEL=STORE:NAME")
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    sweeps: Sweeps = {label: read(place) for label, _, place in (text.partition("=") for text in arguments.sweeps)}
    done = [
        t for _, trials in sweeps.values() for t in trials if t.state is TrialState.COMPLETE and t.score is not None
    ]
    low, high_cost = min(t.score or 0.0 for t in done), max(t.cost_seconds for t in done)
    rows = [row(label, sweep, trials, low, high_cost) for label, (sweep, trials) in sweeps.items()]
    print(machine.headline())
    limits = "".join(f"{f'<= {limit:g} s':>10}" for limit in LIMITS_SECONDS[:-1])
    print(f"{'method':<12} trials complete stopped failed  spent s  volume{limits}  overall  recommended")
    for r in rows:
        best = "".join(f"{'-' if v is None else format(v, '.2f'):>10}" for v in list(r["under_seconds"].values())[:-1])
        value, low_end, high_end = r["advised"]
        print(
            f"{r['method']:<12} {r['trials']:>6} {r['complete']:>8} {r['stopped']:>7} {r['failed']:>6} "
            f"{r['spent_seconds']:>8.0f} {r['volume']:>7.1f}{best} {r['under_seconds']['inf']:>8.2f}"
            f"  {value:.2f} [{low_end:.2f}, {high_end:.2f}] at {r['advised_cost_seconds']:g} s"
        )
    print(f"written: {machine.write_result('engine_hour', rows, threads=1)}")
    if arguments.figure is not None:
        draw(sweeps, arguments.figure)


if __name__ == "__main__":
    main()
