"""Shows what becomes of a sweep on Ray when a node dies, and what Ray costs a trial.

A cluster of three nodes runs on this machine: a head that runs no trials, and two nodes with a core each. On both,
`protein sweep --backend ray:ADDRESS` trains. When both trials have a checkpoint, one node is killed as `kill -9` does
it. Then the trials of the store are printed. `--overhead` measures instead what Ray adds to a trial.

    .venv/bin/python benchmarks/ray_node_dies.py
    .venv/bin/python benchmarks/ray_node_dies.py --env text/python     # trials train language models
    .venv/bin/python benchmarks/ray_node_dies.py --overhead
"""

import argparse
import functools
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from protein.ports import Backend, Finished, Job
from protein.run.fleet import Fleet
from protein.run.ray import Needs, RayTransport
from protein.run.slot import SlotSettings, put_probe
from protein.run.trainer import TrainerBackend
from protein.storage import open_store
from protein.types import Trial

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from ray_clusters import NodeProcess, RayCluster, running

NUM_TRIALS = 30  # of a measurement
TRIAL = "trial:main"  # tests/assets/trial.py: it reports three points and ends
CHECKPOINT = "checkpoint.safetensors"
PATIENCE_SECONDS = 1200.0
LENGTHS = {
    "cartpole": "--train.total-timesteps 600000",
    "text/python": "--train.total-tokens 200000 --train.checkpoint-seconds 3 --eval.tokens 16384"
    " --model.num-layers 3 --model.width-ratio 32 --model.sequence-length 128 --train.batch-tokens 2048",
}


def show_a_dying_node(cluster: RayCluster, env: str) -> None:
    """Kills one of two nodes while both train, and prints the trials at the end."""
    nodes = [NodeProcess(cluster.address, 1) for _ in range(2)]
    folder = Path(tempfile.mkdtemp(prefix="protein-ray-"))
    store = folder / "store.db"
    command = [str(Path(sys.executable).with_name("protein")), "sweep", "--env", env, "--name", "ray"]
    command += ["--backend", f"ray:{cluster.address}", "--store", str(store), "--artifacts", str(folder / "shared")]
    command += ["--method", "random", "--seed", "3", "--max-trials", "4", "--calibrate", "False"]
    command += [*LENGTHS[env].split(), "--early-stopping", "False"]
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    say(f"$ protein sweep --env {env} --backend ray:ADDRESS --artifacts shared ...")
    sweep = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)
    assert sweep.stdout is not None
    output = sweep.stdout

    def show() -> None:
        for line in output:
            say(line.rstrip())

    printing = threading.Thread(target=show)
    printing.start()
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and sweep.poll() is None:
        if len(list(folder.glob(f"shared/ray/000[01]/{CHECKPOINT}"))) == 2:
            break
        time.sleep(0.2)
    say("--- kill -9 of a node ---")
    nodes.pop().kill()
    sweep.wait(PATIENCE_SECONDS)
    printing.join()
    opened = open_store(f"sqlite:///{store}")
    print("\ntrial  state     steps    cost    lost    score")
    for trial in opened.trials(1):
        print(
            f"{trial.number:5}  {trial.state.value:8} {trial.steps:7} {trial.cost_seconds:6.1f} s"
            f" {trial.lost_seconds:5.1f} s  {'-' if trial.score is None else f'{trial.score:.1f}'}"
        )
    opened.close()
    for node in nodes:
        node.kill()


def measure_overhead(cluster: RayCluster) -> None:
    """Prints the median time of a trial that does nothing, on this machine and through Ray."""
    cluster.add(1)
    folder = Path(tempfile.mkdtemp(prefix="protein-ray-"))
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "assets"))
    make = functools.partial(TrainerBackend, entry=TRIAL, preload=())
    settings = SlotSettings(make_backend=make, artifacts=folder, probe=put_probe(folder), search_path=tuple(sys.path))
    remote = Fleet(RayTransport(cluster.address, Needs()), settings)
    for name, backend in (("this machine", make()), ("Ray", remote)):
        seconds = [_seconds(backend, folder / name, number) for number in range(NUM_TRIALS + 1)][1:]
        print(
            f"{name:13} median of {NUM_TRIALS} trials {1e3 * statistics.median(seconds):5.0f} ms, "
            f"slowest {1e3 * max(seconds):5.0f} ms"
        )
        backend.close()


def _seconds(backend: Backend, folder: Path, number: int) -> float:
    trial = Trial(id=number, sweep_id=1, number=number, params={}, seed=0, owner="benchmark")
    config: dict[str, Any] = {"train": {}, "seed": 0, "max_seconds": None}
    began = time.perf_counter()
    backend.start(
        Job(trial=trial, config=config, directory=folder / f"{number:04d}", max_seconds=None, max_memory_bytes=None)
    )
    while not any(isinstance(event, Finished) for event in backend.poll(1.0)):
        pass
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description="What happens when a node of a Ray cluster dies")
    parser.add_argument("--env", choices=LENGTHS, default="cartpole", help="what is trained")
    parser.add_argument("--overhead", action="store_true", help="measure what Ray adds to a trial instead")
    arguments = parser.parse_args()
    with running() as cluster:
        if arguments.overhead:
            measure_overhead(cluster)
        else:
            show_a_dying_node(cluster, arguments.env)


if __name__ == "__main__":
    main()
