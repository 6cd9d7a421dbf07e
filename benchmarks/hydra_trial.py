"""What a trial of Hydra's sweeper costs beyond the same program as a plain `protein sweep --command`, in CPU time.

    python benchmarks/hydra_trial.py --python .venv/bin/python /path/to/another/venv/bin/python

Each interpreter has one version of Hydra, and this Protein. `plain` is `python train.py lr=0.1 model=small`, which a
sweep over a command runs. `trial` has the words beside it that the Hydra sweeper gives to its trials. `multirun` has
those of Hydra's own sweeper. They run in turns. The CPU time is that of the process and of all it started.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import machine

PROGRAM = Path(__file__).resolve().parents[1] / "tests" / "assets" / "hydra_programs" / "yaml"
VERSION = "import hydra; print(hydra.__version__)"


def cpu_milliseconds(command: list[str], folder: Path) -> float:
    environment = os.environ | {"PROTEIN_TRIAL": "0"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, cwd=folder, env=environment, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--no-result", action="store_true", help="only print")
    arguments = parser.parse_args()
    print(machine.headline())
    taken: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(shutil.copytree(PROGRAM, Path(name) / "program"))
        words = {
            "plain": [],
            "trial": ["hydra/sweeper=protein_trial", "hydra.mode=MULTIRUN", f"hydra.sweep.dir={folder}/multirun"],
            "multirun": ["hydra.mode=MULTIRUN", f"hydra.sweep.dir={folder}/multirun"],
        }
        run = {
            (subprocess.check_output([python, "-c", VERSION], text=True).strip(), kind): [python, "train.py", *more]
            for python in map(os.path.abspath, arguments.python)
            for kind, more in words.items()
        }
        for turn in range(arguments.turns + 1):  # the first writes what Python compiles
            for key, command in run.items():
                milliseconds = cpu_milliseconds([*command, "lr=0.1", "model=small"], folder)
                if turn:
                    taken.setdefault(key, []).append(milliseconds)
    rows = []
    for (version, kind), all_ms in taken.items():
        over = [one - plain for one, plain in zip(all_ms, taken[version, "plain"], strict=True)]
        row = {
            "hydra": version,
            "kind": kind,
            "turns": arguments.turns,
            "median_ms": round(statistics.median(all_ms)),
            "least_ms": round(min(all_ms)),
            "overhead_median_ms": round(statistics.median(over)),
            "overhead_of_least_ms": round(min(all_ms) - min(taken[version, "plain"])),
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
    if not arguments.no_result:
        print(f"written: {machine.write_result('hydra_trial', rows)}")


if __name__ == "__main__":
    main()
