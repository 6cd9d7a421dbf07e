"""Values for tests of the store, and a process that writes: `python store_samples.py TASK URL SWEEP_ID OWNER COUNT`."""

import os
import re
import subprocess
import sys
from typing import IO

from protein.ports import Store
from protein.run.lease import current_owner
from protein.storage import open_store
from protein.types import (
    Estimate,
    Measurement,
    Outcome,
    Params,
    Provenance,
    Suggestion,
    SuggestionKind,
    SweepRecord,
    SweepSpec,
    Trial,
    TrialEnd,
)

LEASE_SECONDS = 600.0
PROVENANCE = Provenance(version="0.1.0", git_commit="abc-dirty", machine="host, 4 cores", config_hash="f" * 64)


def ended_owner() -> str:
    """Returns the owner that a process with our number was that began long ago, and has ended."""
    return re.sub(r":[\d.]+(?=@|$)", ":0.50", current_owner())


def sweep_spec(name: str = "s") -> SweepSpec:
    return SweepSpec(
        name=name,
        env="pong",
        method="protein",
        seed=7,
        space={"parameters": [{"name": "train.learning_rate", "low": 1e-3, "high": 0.1, "scale": "log"}]},
        config={"train": {"learning_rate": 0.01, "name": "ä", "sizes": [64, 64], "flag": False, "none": None}},
        warm_start={
            "sweep": "older",
            "trials": [{"number": 3, "params": {"train.learning_rate": 0.02}, "score": None}],
        },
        provenance=PROVENANCE,
    )


def new_sweep(store: Store, name: str = "s") -> SweepRecord:
    return store.create_sweep(sweep_spec(name), 600.0)


def start(
    store: Store,
    sweep: SweepRecord,
    owner: str = "me",
    *,
    params: Params | None = None,
    lease_seconds: float = LEASE_SECONDS,
    number: int | None = None,
    kind: SuggestionKind = SuggestionKind.INITIAL_CONFIG,
) -> Trial:
    return store.start_trial(
        sweep.id,
        Suggestion(params=params or {"train.learning_rate": 0.01}, kind=kind, origin="initial config"),
        seed=1,
        owner=owner,
        lease_seconds=lease_seconds,
        suggest_seconds=0.25,
        provenance=PROVENANCE,
        number=number,
    )


def points(first: int, last: int) -> list[Measurement]:
    return [
        Measurement(steps=i, elapsed_seconds=i / 8, score=i / 3, metrics={"loss": 1 / (i + 1)})
        for i in range(first, last)
    ]


def complete(cost_seconds: float = 1.0) -> Outcome:
    return Outcome(end=TrialEnd.COMPLETE, score=0.5, cost_seconds=cost_seconds, steps=100)


def filled_sweep(store: Store, name: str = "s") -> SweepRecord:
    """Returns a sweep with trials that ended in every way, and two that run."""
    sweep = new_sweep(store, name)
    for i, end in enumerate(TrialEnd):
        estimate = Estimate(value=1.0 + i, low=0.5, high=20.0) if i % 2 else None
        suggestion = Suggestion(
            params={"lr": 0.1 / (i + 1), "size": 2**i, "norm": bool(i % 2), "kind": "ab"[i % 2]},
            kind=SuggestionKind.CONTINUATION if i == 3 else SuggestionKind.SEARCH,
            origin="x" * 600 if i == 2 else f"improving the front near {i} s",
            predicted_score=estimate,
            predicted_cost_seconds=estimate,
            continues=0 if i == 3 else None,
            continued_seconds=4.5 if i == 3 else 0.0,
        )
        trial = store.start_trial(
            sweep.id,
            suggestion,
            seed=i,
            owner=f"host:{i}",
            lease_seconds=LEASE_SECONDS,
            suggest_seconds=i / 8,
            provenance=PROVENANCE,
        )
        store.add_measurements(trial, points(0, 3 * i), LEASE_SECONDS)
        failed = end.state == "failed"
        store.finish_trial(
            trial,
            Outcome(
                end=end,
                score=None if failed else i / 3,
                cost_seconds=i / 7,
                steps=10**i,
                reason=end.text or "é" * 700,
                metrics={"train_score": i, "odd": 0.5} if i % 2 else {"train_score": i / 3},
                timings={"startup": 1.5},
            ),
        )
    for owner in ("p", "q"):
        trial = start(store, sweep, owner, params={"lr": 0.5, "size": 3, "norm": True, "kind": "b"})
        store.add_measurements(trial, points(0, 2), LEASE_SECONDS)
    return sweep


def process(task: str, url: str, sweep: SweepRecord, owner: str, count: int) -> "subprocess.Popen[str]":
    """Starts this file as a process; it prints what it has committed, a line each."""
    command = [sys.executable, __file__, task, url, str(sweep.id), owner, str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def run_trials(store: Store, sweep_id: int, owner: str, count: int, output: IO[str]) -> None:
    """Starts and finishes trials; prints their numbers."""
    for _ in range(count):
        trial = store.start_trial(
            sweep_id,
            Suggestion(params={"owner": owner}, kind=SuggestionKind.RANDOM, origin="test"),
            seed=0,
            owner=owner,
            lease_seconds=LEASE_SECONDS,
            suggest_seconds=0.0,
            provenance=PROVENANCE,
        )
        store.add_measurements(trial, points(0, 3), LEASE_SECONDS)
        store.finish_trial(trial, complete())
        print(trial.number, file=output, flush=True)


def write_curve(store: Store, sweep_id: int, owner: str, count: int, output: IO[str]) -> None:
    """Appends one curve point after the other to a new trial; prints the steps of each."""
    trial = start(store, store.list_sweeps()[0], owner)
    for i in range(count):
        store.add_measurements(trial, points(i, i + 1), LEASE_SECONDS)
        print(i, file=output, flush=True)


if __name__ == "__main__":
    task, url, sweep_id, owner, count = sys.argv[1:]
    {"trials": run_trials, "curve": write_curve}[task](open_store(url), int(sweep_id), owner, int(count), sys.stdout)
