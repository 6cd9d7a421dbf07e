"""How long the process `protein --help` takes, compared with the interpreter's own start in the same run. One table.

The two alternate, so that other work on the machine affects both. Each figure is the median of its runs.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import machine

RUNS = 15
GOAL_SECONDS = 0.3
PROTEIN = str(Path(sys.executable).parent / "protein")
COMMANDS: dict[str, Sequence[str]] = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "protein --help": (PROTEIN, "--help"),
    "protein sweep --env pong --help": (PROTEIN, "sweep", "--env", "pong", "--help"),
}


def seconds(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    for command in COMMANDS.values():  # once without counting: byte code is compiled, files are read
        seconds(command)
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    print(machine.headline())
    print(f"{'command':<34}{'median':>10}{'fastest':>10}")
    rows = []
    for name, values in taken.items():
        median = statistics.median(values)
        print(f"{name:<34}{median:>8.3f} s{min(values):>8.3f} s")
        rows.append({"command": name, "median_seconds": median, "fastest_seconds": min(values)})
    path = machine.write_result("cli", rows, threads=1, runs=RUNS, goal_seconds=GOAL_SECONDS)
    print(f"goal: `protein --help` in under {GOAL_SECONDS} s; written to {path.relative_to(machine.ROOT)}")


if __name__ == "__main__":
    main()
