"""What it takes to write a sweep's finished trials to each tracker, by a process of its own, as `protein sync` does.

A trial has ten params and ten points of a curve with two metrics. Seconds are wall clock from the start of the process
to its end, imports included; CPU seconds are those of the tracker's process and, for MLflow's server, of the server.
MLflow is measured twice: its SQLite file, and a real server on this machine with as many workers as cores.

    python benchmarks/trackers.py                       1,000 trials
    python benchmarks/trackers.py --trials 10000 --only mlflow-server
"""

import argparse
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import machine
import psutil

from protein.api import trackers
from protein.ports import Store
from protein.storage import open_store
from protein.types import Measurement, Outcome, Provenance, Suggestion, SuggestionKind, SweepSpec, TrialEnd

NAMES = ("tensorboard", "trackio", "wandb", "neptune", "mlflow", "mlflow-server")
NUM_PARAMS, NUM_POINTS = 10, 10
PROVENANCE = Provenance(version="0", git_commit="", machine="", config_hash="")
START_SECONDS = 180.0  # for the server to answer


def fill(url: str, trials: int) -> None:
    store: Store = open_store(url)
    parameters = [{"type": "float", "name": f"train.p{i}", "low": 0.0, "high": 1.0} for i in range(NUM_PARAMS)]
    spec = SweepSpec(
        name="s",
        env="pong",
        method="random",
        seed=0,
        space={"parameters": parameters},
        config={"own": {"start": None}},
        provenance=PROVENANCE,
    )
    sweep = store.create_sweep(spec, None)
    for number in range(trials):
        params = {f"train.p{i}": ((number + i) % 97) / 97 for i in range(NUM_PARAMS)}
        trial = store.start_trial(
            sweep.id,
            Suggestion(params=params, kind=SuggestionKind.RANDOM, origin="random"),
            seed=0,
            owner="benchmark",
            lease_seconds=600.0,
            suggest_seconds=0.1,
            provenance=PROVENANCE,
        )
        curve = [
            Measurement(steps=100 * i, elapsed_seconds=float(i), score=i / 7, metrics={"loss": 1 / (i + 1)})
            for i in range(NUM_POINTS)
        ]
        store.add_measurements(trial, curve, 600.0)
        store.finish_trial(trial, Outcome(end=TrialEnd.COMPLETE, score=number / 7, cost_seconds=10.0, steps=900))
    store.close()


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A server of MLflow with its SQLite file in a folder; gives its URL and its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--backend-store-uri", f"sqlite:///{folder}/server.db", "--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--workers", str(machine.cores()), *words],
        cwd=folder,
        env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + START_SECONDS
        while not _answers(port):
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError("MLflow's server did not start")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 2.0) as connection:
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            return b"200" in connection.recv(64)
    except OSError:
        return False


def cpu_seconds(process: psutil.Process) -> float:
    family = [process, *process.children(recursive=True)]
    return float(sum(sum(member.cpu_times()[:2]) for member in family))


def measure(name: str, folder: Path, url: str) -> tuple[int, float, float, float]:
    """Returns the trials written, and the seconds: wall clock, CPU of the tracker's process, CPU of the server."""
    tracker, serving = name.removesuffix("-server"), 0.0
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    def sync() -> tuple[int, float]:
        began = time.perf_counter()
        [done] = trackers.sync([tracker], url, "s", lambda *_: None)
        if done.error:
            raise RuntimeError(f"{name}: {done.error}")
        return done.num_written, time.perf_counter() - began

    if name == "mlflow-server":
        with server(folder) as (address, process):
            os.environ["MLFLOW_TRACKING_URI"] = address
            idle = cpu_seconds(process)
            written, seconds = sync()
            serving = cpu_seconds(process) - idle
            del os.environ["MLFLOW_TRACKING_URI"]
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
    else:
        written, seconds = sync()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return written, seconds, own, serving


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--only", choices=NAMES, action="append")
    parser.add_argument("--no-result", action="store_true", help="only print the table")
    arguments = parser.parse_args()
    rows = []
    print(f"trackers, {arguments.trials:,} trials: {machine.headline()}\n")
    print(f"{'':<16}{'seconds':>10}{'CPU':>10}{'server CPU':>12}{'ms a trial':>12}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        url = str(folder / "store.db")
        fill(url, arguments.trials)
        for name in arguments.only or NAMES:
            written, seconds, own, serving = measure(name, folder, url)
            each = 1e3 * seconds / max(written, 1)
            print(f"{name:<16}{seconds:>10.1f}{own:>10.1f}{serving:>12.1f}{each:>12.2f}", flush=True)
            row = {"tracker": name, "trials": written, "seconds": round(seconds, 2), "cpu_seconds": round(own, 2)}
            rows.append({**row, "server_cpu_seconds": round(serving, 2)})
    if not arguments.no_result:
        machine.write_result("trackers", rows, runs=1)


if __name__ == "__main__":
    main()
