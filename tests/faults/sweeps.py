"""The sweeps that the campaign disturbs. Each is a process: `python -m tests.faults.program KIND STORE --trials 20`.

function   `protein.Sweep` over a Python function
processes  the loop with a process for each trial (`tests.faults.trial`), as `protein sweep` runs it
"""

import argparse
import functools
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import protein
from protein import storage
from protein.cli.signals import caught
from protein.errors import ProteinError
from protein.ports import Backend, SweepStatus
from protein.run.trainer import TrainerBackend
from protein.space import Float, Integer, Space
from protein.sweep import provenance
from protein.sweep.loop import LoopSettings, run_sweep
from protein.sweep.methods import make_designer
from protein.types import SweepSpec, TrialRecord
from tests.faults import evidence, trial

NAME = "disturbed"
BUDGET_SECONDS = 60.0  # more than the trials cost, so that the number of trials ends the sweep
ENTRY = "tests.faults.trial:main"


def space(prefix: str = "") -> Space:
    return Space(
        [
            Integer(f"{prefix}total_timesteps", 5, 60, scale="log"),
            Float(f"{prefix}rate", 0.0, 1.0),
            Float(f"{prefix}width", 0.0, 1.0),
        ],
        cost_parameter=f"{prefix}total_timesteps",
    )


def train(params: dict[str, Any], report: Any) -> float:
    """The function that is swept: as `tests.faults.trial`, in the sweep's own process."""
    number = int(report.directory.name)
    lock = evidence.begin(number)
    for step in range(1, params["total_timesteps"] + 1):
        time.sleep(trial.STEP_SECONDS)
        evidence.write("spent", number, step * trial.STEP_SECONDS)
        report(step, trial.score(params, step), cost_seconds=step * trial.STEP_SECONDS)
    evidence.write("end", number, params["total_timesteps"] * trial.STEP_SECONDS)
    os.close(lock)
    return trial.score(params, params["total_timesteps"])


def spec(seed: int, method: str) -> SweepSpec:
    """Returns the definition of a sweep of processes."""
    config = {"train": {"threads": 1, "seed": 0, "max_seconds": 0.0, "total_timesteps": 20, "rate": 0.9, "width": 0.1}}
    return SweepSpec(
        name=NAME,
        env="test",
        method=method,
        seed=seed,
        space=space("train.").to_dict(),
        config=config,
        provenance=provenance.collect(config),
    )


def settings(folder: Path, *, workers: int, trials: int) -> LoopSettings:
    return LoopSettings(
        directory=folder / "trials", workers=workers, max_cost_seconds=BUDGET_SECONDS, max_trials=trials
    )


class Silent:
    """A listener that prints what a person should know."""

    def update(self, status: SweepStatus) -> None: ...

    def started(self, trial: TrialRecord) -> None: ...

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None: ...

    def log(self, line: str) -> None:
        print(line, flush=True)


def make_backend(kind: str, artifacts: Path, stop: threading.Event) -> Backend:
    make = functools.partial(TrainerBackend, entry=ENTRY, preload=("tests.faults.trial",))
    if kind == "processes":
        return make()
    from protein.run.fleet import Fleet, Transport
    from protein.run.folder import FolderTransport
    from protein.run.ray import Needs, RayTransport
    from protein.run.slot import SlotSettings, put_probe

    settings = SlotSettings(
        make_backend=make,
        artifacts=artifacts,
        probe=put_probe(artifacts),
        search_path=tuple(sys.path),
        working_directory=str(Path.cwd()),
    )
    transport: Transport = FolderTransport(NAME)
    if kind == "ray":
        transport = RayTransport(os.environ["FAULTS_RAY"], Needs(cores=1.0), should_stop=stop.is_set)
    return Fleet(transport, settings, note=lambda line: print(line, flush=True))


def sweep_processes(store_url: str, arguments: argparse.Namespace) -> int:
    stop = threading.Event()
    with caught(stop):
        store = storage.open_store(store_url)
        try:
            definition = spec(arguments.seed, arguments.method)
            found = store.find_sweep(NAME) or store.create_sweep(definition, BUDGET_SECONDS)
            run_sweep(
                found,
                designer=make_designer(arguments.method, space("train."), None, seed=arguments.seed),
                store=store,
                backend=make_backend(arguments.kind, Path.cwd() / "trials", stop),
                settings=settings(Path.cwd(), workers=arguments.workers, trials=arguments.trials),
                listener=Silent(),
                stop=stop,
            )
        finally:
            store.close()
    return 130 if stop.is_set() else 0


def sweep_function(store_url: str, arguments: argparse.Namespace) -> int:
    result = protein.Sweep(
        space(),
        budget=BUDGET_SECONDS,
        max_trials=arguments.trials,
        name=NAME,
        store=store_url,
        seed=arguments.seed,
        method=arguments.method,
        quiet=True,
    ).run(train)
    return 130 if result.interrupted else 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("function", "processes", "ray", "folder", "served"))
    parser.add_argument("store")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="protein")
    arguments = parser.parse_args()
    run = sweep_function if arguments.kind == "function" else sweep_processes
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return run(arguments.store, arguments)
    except KeyboardInterrupt:
        return 130
    except ProteinError as error:  # as the command line does
        print(f"error: {error}", file=sys.stderr)
        return 2
