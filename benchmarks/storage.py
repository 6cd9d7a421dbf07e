"""What the store costs: transactions a second, opening, reading. One table; `--url` takes an empty PostgreSQL database.

A trial here is as in a sweep: a start, ten writes of a curve point and a finish, each a transaction (12 in all). Every
figure is the median of some repetitions. Without `--url` the store is a new SQLite file in a temporary folder.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import machine

from protein.ports import Store
from protein.storage import open_store
from protein.types import Measurement, Outcome, Provenance, Suggestion, SuggestionKind, SweepSpec, TrialEnd

PROVENANCE = Provenance(version="0", git_commit="", machine="", config_hash="")
PARAMS = {f"train.parameter_{i}": 0.1 * i for i in range(12)}
METRICS = {"policy_loss": -0.0123, "value_loss": 1.234, "entropy": 0.987, "kl": 0.00456, "clip_fraction": 0.1}
LEASE_SECONDS = 600.0
TRANSACTIONS_PER_TRIAL = 12
PROCESSES = (1, 4)
REPEATS = 3


def new_sweep(store: Store, name: str) -> int:
    spec = SweepSpec(name=name, env="pong", method="protein", seed=0, space={}, config={}, provenance=PROVENANCE)
    return store.create_sweep(spec, None).id


def run_trial(store: Store, sweep_id: int, owner: str, batches: int, points_per_batch: int) -> None:
    trial = store.start_trial(
        sweep_id,
        Suggestion(params=PARAMS, kind=SuggestionKind.SEARCH, origin="benchmark"),
        seed=0,
        owner=owner,
        lease_seconds=LEASE_SECONDS,
        suggest_seconds=0.1,
        provenance=PROVENANCE,
    )
    for i in range(batches):
        points = [
            Measurement(steps=j, elapsed_seconds=j / 10, score=j / 7, metrics=METRICS)
            for j in range(i * points_per_batch, (i + 1) * points_per_batch)
        ]
        store.add_measurements(trial, points, LEASE_SECONDS)
    outcome = Outcome(end=TrialEnd.COMPLETE, score=20.0, cost_seconds=30.0, steps=10**7, metrics=METRICS)
    store.finish_trial(trial, outcome)


def write(url: str, sweep_id: int, owner: str, trials: int, ready: Barrier) -> None:
    store = open_store(url)
    ready.wait()
    for _ in range(trials):
        run_trial(store, sweep_id, owner, batches=10, points_per_batch=1)
    ready.wait()
    store.close()


def transactions_per_second(url: str, processes: int, trials: int, name: str) -> float:
    store = open_store(url)
    sweep_id = new_sweep(store, name)
    store.close()
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(processes + 1)
    workers = [
        context.Process(target=write, args=(url, sweep_id, f"{i}", trials, ready), daemon=True)
        for i in range(processes)
    ]
    for worker in workers:
        worker.start()
    ready.wait()
    began = time.perf_counter()
    ready.wait()
    seconds = time.perf_counter() - began
    for worker in workers:
        worker.join()
    return processes * trials * TRANSACTIONS_PER_TRIAL / seconds


def seconds_of(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(url: str, quick: bool) -> Iterator[tuple[str, float, str]]:
    """Yields what was measured, the figure and its unit."""
    began = time.perf_counter()
    store = open_store(url)
    yield "create an empty store, imports included", 1e3 * (time.perf_counter() - began), "ms"
    yield "open a current store", 1e3 * seconds_of(lambda: open_store(url).close(), 20), "ms"

    trials = 20 if quick else 100
    for processes in PROCESSES:
        rates = [transactions_per_second(url, processes, trials, f"{processes}/{i}") for i in range(REPEATS)]
        yield f"write, {processes} process{'es' if processes > 1 else ''}", statistics.median(rates), "transactions/s"

    sweep_id = new_sweep(store, "long")
    for _ in range(200):
        run_trial(store, sweep_id, "me", batches=1, points_per_batch=100)

    def read_fresh() -> None:
        reader = open_store(url)
        assert len(reader.trials(sweep_id)) == 200
        reader.close()

    yield "read 200 trials x 100 points, first time", 1e3 * seconds_of(read_fresh, 5), "ms"
    store.trials(sweep_id)
    yield "read them again", 1e3 * seconds_of(lambda: store.trials(sweep_id), 20), "ms"
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="an empty PostgreSQL database (default: SQLite in a temporary folder)")
    parser.add_argument("--quick", action="store_true", help="fewer trials")
    parser.add_argument("--no-result", action="store_true", help="only print the table")
    arguments = parser.parse_args()
    kind = "postgresql" if arguments.url else "sqlite"
    rows = []
    print(f"storage, {kind}: {machine.headline()}\nmedians of {REPEATS} runs or more\n")
    with tempfile.TemporaryDirectory() as folder:
        for what, figure, unit in measure(arguments.url or str(Path(folder) / "store.db"), arguments.quick):
            print(f"{what:<44}{figure:>9,.1f} {unit}", flush=True)
            rows.append({"what": what, "figure": round(figure, 2), "unit": unit})
    if not arguments.no_result:
        machine.write_result(f"storage_{kind}", rows, runs=REPEATS)


if __name__ == "__main__":
    main()
