"""How often the engine's 80 % intervals contain the measured value, on the synthetic tasks: score and cost model.

    python benchmarks/engine/calibration.py --seeds 6

Runs the engine (25 mean random-trial costs, at most 120 trials) and compares every prediction with its outcome: shares
below, inside and above the interval, the share inside in each third of the sweep, the mean of z, the median of |z|
(0.67 when the widths are right), and the share in each fifth of the probability integral transform (0.2 when they are).
See `protein.engine.forecasts` for the definitions. Trials without a prediction, or not trained to their end, are left
out.
"""

import argparse
import dataclasses
import os
import sys
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads: one process, one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import numpy as np
from engine.reference import reference
from engine.synthetic import FAMILIES, make_synthetic

from protein import Protein
from protein.engine.forecasts import ForecastQuality, Quantity, forecast_quality
from protein.types import Estimate, TrialState

BUDGET = 25.0  # mean random-trial costs
TRIAL_CAP = 120


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A prediction and its outcome, as `protein.engine.forecasts` reads them."""

    state: TrialState
    score: float | None
    cost_seconds: float
    predicted_score: Estimate | None
    predicted_cost_seconds: Estimate | None


def run(family: str, seed: int) -> list[Record]:
    """Runs the engine on one task."""
    task = make_synthetic(family, seed)
    total = BUDGET * reference(task).mean_cost
    engine = Protein(task.space, seed=seed, budget_seconds=total, max_trials=TRIAL_CAP, start=task.start)
    records: list[Record] = []
    while (suggestion := engine.suggest()) is not None:
        repeat = sum(o.params == suggestion.params for o in engine.observations)
        outcome = task.run(suggestion.params, seed=seed, repeat=repeat)
        engine.observe(
            suggestion.params,
            cost_seconds=outcome.cost_seconds,
            score=outcome.score,
            curve=[(point.steps, point.elapsed_seconds, point.score) for point in outcome.curve],
            failed=outcome.reason,
        )
        records.append(
            Record(
                state=outcome.state,
                score=outcome.score,
                cost_seconds=outcome.cost_seconds,
                predicted_score=suggestion.predicted_score,
                predicted_cost_seconds=suggestion.predicted_cost_seconds,
            )
        )
    return records


def line(name: str, found: list[ForecastQuality]) -> str:
    """One line of the table: the sweeps of a family together."""
    z = np.array([forecast.z for one in found for forecast in one.forecasts])
    shares = [sum(getattr(one, part) for one in found) / len(z) for part in ("below", "inside", "above")]
    thirds = np.mean([one.coverage_by_part for one in found if one.coverage_by_part], axis=0)
    bins = np.sum([one.pit for one in found if one.pit], axis=0) / len(z)
    numbers = "".join(f"{share:>8.2f}" for share in (*shares, *thirds))
    return f"{name:<12}{len(z):>6}{numbers}{z.mean():>8.2f}{np.median(np.abs(z)):>8.2f}" + "".join(
        f"{share:>7.2f}" for share in bins
    )


def main() -> None:
    """Runs the tasks and prints a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    runs = {family: [run(family, seed) for seed in range(arguments.seeds)] for family in arguments.families}
    print(machine.headline())
    quantities: tuple[Quantity, ...] = ("score", "cost")
    for quantity in quantities:
        found = defaultdict(list)
        for family, sweeps in runs.items():
            found[family] = [forecast_quality(records, quantity) for records in sweeps]
        columns = ("below", "inside", "above", "1st", "2nd", "3rd", "mean z", "med|z|")
        print(f"\n{quantity:<12}{'n':>6}" + "".join(f"{c:>8}" for c in columns) + "   shares of five PIT bins")
        for family in found:
            print(line(family, found[family]))
        print(line("all", [one for sweeps in found.values() for one in sweeps]))


if __name__ == "__main__":
    main()
