"""Makes a big store quickly: a sweep of any number of trials and curve points, with params of a real space.

    python benchmarks/big_store.py FILE --trials 100000 --points 100

10,000,000 curve points take about a minute and 1 GB. The trials are invented, but shaped as real ones: learning curves
that saturate, noise, trials that were stopped early, capped, diverged, or interrupted, a few that still run. The rows
are inserted in one transaction by the driver itself; the store's own checks of each value would take hours.
"""

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import create_engine, text

from protein.api import definition
from protein.config.resolve import load
from protein.config.settings import SweepConfig
from protein.space import Space
from protein.storage import open_store
from protein.storage.tables import TrialRow
from protein.types import SuggestionKind, SweepRecord, TrialEnd

ENV = "breakout"
OWNER = "elsewhere:1:0.00"
START = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = 2000  # trials whose rows are made at once
METRICS = ("entropy", "policy_loss", "value_loss", "kl")
ENDS = (
    *(TrialEnd.COMPLETE,) * 80,
    *(TrialEnd.STOPPED_EARLY,) * 10,
    *(TrialEnd.CAPPED,) * 4,
    *(TrialEnd.DIVERGED,) * 4,
    TrialEnd.OUT_OF_MEMORY,
    TrialEnd.INTERRUPTED,
)
REASONS = {
    TrialEnd.COMPLETE: "",
    TrialEnd.STOPPED_EARLY: "stopped early: at 52 % of its steps it ranked 40 of 61 comparable trials",
    TrialEnd.DIVERGED: "diverged at step 81920: the value loss is nan",
}


def make(path: Path, *, trials: int, points: int, name: str = "big", seed: int = 0, running: int = 2) -> SweepRecord:
    """Adds a sweep to the SQLite store at `path`, which may be new.

    Args:
        path: of the store.
        trials: how many, at least `running`.
        points: of each trial's curve; stopped trials have fewer.
        name: of the sweep.
        seed: of everything that is drawn.
        running: how many trials have not ended; their owner is a process of another machine.
    """
    layers = load(ENV, config_file=None, flags={}, for_sweep=True)
    store = open_store(str(path))
    sweep = store.create_sweep(definition.define_trainer_sweep(layers, SweepConfig(), name), 1e9)
    store.close()
    space, rng = Space.from_dict(sweep.spec.space), np.random.default_rng(seed)
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        first_id = connection.execute(text("SELECT coalesce(max(id), 0) + 1 FROM trials")).scalar_one()
        raw: Any = connection.connection.driver_connection
        raw.isolation_level = None
        raw.execute("PRAGMA synchronous=OFF")
        raw.execute("BEGIN")
        weights = rng.normal(size=space.num_dims)
        for first in range(0, trials, BATCH):
            numbers = np.arange(first, min(first + BATCH, trials))
            batch = Batch(space, sweep, weights, numbers, first_id, points, trials - running, rng)
            _insert(raw, "trials", batch.trials())
            raw.executemany("INSERT INTO measurements VALUES (?, ?, ?, ?, ?, ?)", batch.measurements())
        raw.execute("COMMIT")
    engine.dispose()
    return sweep


class Batch:
    """Some trials and their curves."""

    def __init__(
        self,
        space: Space,
        sweep: SweepRecord,
        weights: Any,
        numbers: Any,
        first_id: int,
        points: int,
        finished: int,
        rng: np.random.Generator,
    ) -> None:
        self._sweep, self._numbers, self._first_id, self._rng = sweep, numbers, first_id, rng
        x = space.sample(len(numbers), rng)
        self._params = space.from_unit_many(x)
        assert space.cost_parameter is not None
        self._asked = np.array([float(values[space.cost_parameter]) for values in self._params])
        ends = np.array(ENDS, dtype=object)[rng.integers(0, len(ENDS), len(numbers))]
        self._ends = [end if number < finished else None for end, number in zip(ends, numbers, strict=True)]
        whole = np.array([end is TrialEnd.COMPLETE for end in self._ends])
        self._share = np.where(whole, 1.0, rng.uniform(0.2, 0.95, len(numbers)))
        self._counts = np.maximum(1, np.round(points * self._share)).astype(int) if points else np.zeros(len(x), int)
        quality = 1.0 / (1.0 + np.exp(-(x - 0.5) @ weights))
        self._final = 70.0 * quality * (0.3 + 0.7 * x[:, space.cost_index or 0])
        self._seconds = self._asked / 4e5 * rng.lognormal(0.0, 0.2, len(numbers))  # of the whole run
        self._scores = self._final * (1.0 - np.exp(-4.0 * self._share)) + rng.normal(0.0, 2.0, len(numbers))

    def trials(self) -> Iterator[dict[str, Any]]:
        kinds = [SuggestionKind.SEARCH.value, SuggestionKind.REEVALUATION.value, SuggestionKind.INITIAL_DESIGN.value]
        provenance = self._sweep.spec.provenance
        for i, number in enumerate(self._numbers.tolist()):
            end, cost, score = self._ends[i], float(self._seconds[i] * self._share[i]), float(self._scores[i])
            began = START + timedelta(seconds=10.0 * number)
            has_score = end is not None and end.state.value in ("complete", "pruned")
            yield {
                "id": self._first_id + number,
                "sweep_id": self._sweep.id,
                "number": number,
                "state": "running" if end is None else end.state.value,
                "ended_as": None if end is None else end.value,
                "params": json.dumps(self._params[i]),
                "seed": number,
                "owner": OWNER,
                "lease_until": _moment(datetime.now(UTC) + timedelta(days=1) if end is None else began),
                "kind": kinds[min(number % 20, 2)] if number else SuggestionKind.INITIAL_CONFIG.value,
                "origin": f"improving the front near {cost:.0f} s",
                "predicted_score": score + 1.0,
                "predicted_score_low": score - 6.0,
                "predicted_score_high": score + 7.0,
                "predicted_cost_seconds": 1.1 * cost,
                "predicted_cost_seconds_low": 0.9 * cost,
                "predicted_cost_seconds_high": 1.4 * cost,
                "continues": None,
                "continued_seconds": 0.0,
                "suggest_seconds": 0.8,
                "lost_seconds": 0.0,
                "cancel_requested": False,
                "score": score if has_score else None,
                "cost_seconds": cost,
                "steps": int(self._asked[i] * self._share[i]),
                "reason": "" if end is None else REASONS.get(end, end.text),
                "timings": json.dumps({"startup": 2.5, "evaluation": 1.25}),
                "metrics": json.dumps({"train_score": score - 0.5, "steps_per_second": 4e5, "episodes": 900.0}),
                "started_at": _moment(began),
                "finished_at": None if end is None else _moment(began + timedelta(seconds=cost)),
                "version": provenance.version,
                "git_commit": provenance.git_commit,
                "machine": provenance.machine,
                "config_hash": provenance.config_hash,
            }

    def measurements(self) -> Iterator[tuple[Any, ...]]:
        metrics = [json.dumps(dict(zip(METRICS, self._rng.normal(size=4).round(6), strict=True))) for _ in range(97)]
        for i, number in enumerate(self._numbers.tolist()):
            count = int(self._counts[i])
            if not count:
                continue
            share = np.arange(1, count + 1) / count * self._share[i]
            noise = self._rng.normal(0.0, 2.0, count)
            scores = (self._final[i] * (1.0 - np.exp(-4.0 * share)) + noise).tolist()
            steps = (share * self._asked[i]).astype(int).tolist()
            seconds = (share * self._seconds[i]).tolist()
            key = self._first_id + number
            for j in range(count):
                score = scores[j] if j else None  # no episode has ended at the first point
                yield key, j, steps[j], seconds[j], score, metrics[(number + j) % 97]


def _moment(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def _insert(raw: Any, table: str, rows: Iterator[dict[str, Any]]) -> None:
    names = [column.name for column in TrialRow.__table__.columns]
    marks = ", ".join(f":{name}" for name in names)
    raw.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--points", type=int, default=100, help="of each curve")
    parser.add_argument("--name", default="big")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    make(arguments.file, trials=arguments.trials, points=arguments.points, name=arguments.name, seed=arguments.seed)


if __name__ == "__main__":
    main()
