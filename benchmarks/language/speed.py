"""Training speed of a language model on the CPU against GPT-2's training in plain PyTorch (`plain.py`).

Rows, with the same sizes, threads and tokens a step:
  plain           as it is usually written: on a CPU float32 without autocast
  plain, bf16     the same under autocast, which it does not use on a CPU
  gpt2, fp32      our trainer, the same network (`arch = "gpt2"`) and AdamW, in float32
  gpt2            the same in the precision that `auto` chooses: bf16 where the processor multiplies it
  modern, AdamW   our trainer's own network, in `auto`
  modern, Muon    the default: the same with Muon
Ours are whole runs of the trainer (`ours.py`), with its data, clipping and optimiser. Each is a process of its own, and
they take turns, so that a busy moment of the machine affects all. Figures are medians of the rounds. Speed is tokens
for each second of processor time, times the threads: what it is by the clock where nothing else runs.
  ratio       to `plain` of the same round
  of peak     the network's arithmetic a second, as a share of a large product's on as many threads: in float32 the
              better of PyTorch's two libraries, in bf16 one of bf16
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
from language import ours, plain

from protein.trainer.language.model import GPT

HERE = Path(__file__).resolve().parent
MATRIX, TRIES = 2048, 6
# Name, script and its own flags, precision.
PROGRAMS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("plain", "plain.py", (), "fp32"),
    ("plain, bf16", "plain.py", ("--bf16",), "bf16"),
    ("gpt2, fp32", "ours.py", ("--arch", "gpt2", "--optimizer", "adamw", "--precision", "fp32"), "fp32"),
    ("gpt2", "ours.py", ("--arch", "gpt2", "--optimizer", "adamw"), "auto"),
    ("modern, AdamW", "ours.py", ("--arch", "modern", "--optimizer", "adamw"), "auto"),
    ("modern, Muon", "ours.py", ("--arch", "modern", "--optimizer", "muon"), "auto"),
)
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE"}  # as our trainer's command line sets it: see its __main__


@dataclasses.dataclass
class Row:
    """One program at one size, and its figures of every round."""

    name: str
    script: str
    flags: tuple[str, ...]
    precision: str
    size: str
    threads: int
    speeds: list[float] = dataclasses.field(default_factory=list)  # tokens a second
    walls: list[float] = dataclasses.field(default_factory=list)  # the same by the clock

    def run(self, seconds: float) -> None:
        command = [sys.executable, str(HERE / self.script), "--size", self.size, "--seconds", str(seconds)]
        command += ["--threads", str(self.threads), *self.flags]
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | ENVIRONMENT, cwd=machine.ROOT, check=False
        )
        if done.returncode:
            raise RuntimeError(f"exit code {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
        found = json.loads(done.stdout.splitlines()[-1])
        self.speeds.append(found["tokens"] / found["cpu_seconds"] * self.threads)
        self.walls.append(found["tokens"] / found["seconds"])
        self.precision = found.get("precision", self.precision)

    def arithmetic(self) -> tuple[float, int]:
        """Returns the network's operations for each token, and its parameters."""
        size = plain.SIZES[self.size]
        arch = "modern" if self.name.startswith("modern") else "gpt2"
        network = GPT(ours.model_config(size, arch), size.vocabulary, torch.Generator())
        return network.flops_per_token, sum(parameter.numel() for parameter in network.parameters())


def peak(threads: int, precision: str) -> float:
    """Returns the best rate of a large product, in operations for each second of processor time, times the threads."""
    code = (
        "import time, torch\n"
        f"torch.set_num_threads({threads})\n"
        f"a, best = torch.rand({MATRIX}, {MATRIX}).to(torch.{'bfloat16' if precision == 'bf16' else 'float32'}), 0.0\n"
        "for kernels in ('highest', 'medium'):\n"
        "    torch.set_float32_matmul_precision(kernels)\n"
        f"    for _ in range({TRIES}):\n"
        "        began = time.process_time()\n"
        "        a @ a\n"
        f"        best = max(best, 2 * {MATRIX}**3 * {threads} / (time.process_time() - began))\n"
        "print(best)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | ENVIRONMENT, check=True)
    return float(done.stdout)


def results(rows: list[Row], peaks: dict[tuple[int, str], float]) -> list[dict[str, Any]]:
    """Returns the table's lines as they are written."""
    found = []
    for row in rows:
        base = next(r for r in rows if r.name == "plain" and (r.size, r.threads) == (row.size, row.threads))
        ratios = [ours / theirs for ours, theirs in zip(row.speeds, base.speeds, strict=True)]
        flops, parameters = row.arithmetic()
        speed = statistics.median(row.speeds)
        found.append(
            {
                "size": row.size,
                "threads": row.threads,
                "program": row.name,
                "precision": row.precision,
                "parameters": parameters,
                "tokens_per_second": round(speed),
                "min": round(min(row.speeds)),
                "max": round(max(row.speeds)),
                "by_the_clock": round(statistics.median(row.walls)),
                "ratio": round(statistics.median(ratios), 2),
                "lowest_ratio": round(min(ratios), 2),
                "of_peak": round(speed * flops / peaks[row.threads, row.precision], 3),
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", nargs="+", choices=list(plain.SIZES), default=["1M", "10M", "10M-50k"])
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, min(2, machine.cores())}))
    parser.add_argument("--seconds", type=float, default=5.0, help="processor time of each run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-result", action="store_true", help="only print the table")
    arguments = parser.parse_args()
    rows = [
        Row(*program, size, threads) for size in arguments.size for threads in arguments.threads for program in PROGRAMS
    ]
    peaks: dict[tuple[int, str], float] = {}
    for turn in range(arguments.rounds):
        for number, row in enumerate(rows, 1):
            print(f"\rround {turn + 1} of {arguments.rounds}, row {number} of {len(rows)}", end="", file=sys.stderr)
            row.run(arguments.seconds)
        for threads in arguments.threads:
            for precision in ("fp32", "bf16"):
                found = peak(threads, precision)
                peaks[threads, precision] = max(found, peaks.get((threads, precision), 0.0))
    print("\r\033[K", end="", file=sys.stderr)
    print(f"training a language model: {machine.headline()}, torch {torch.__version__}")
    print(f"median of {arguments.rounds} rounds of {arguments.seconds:g} s\n")
    print(f"{'size':<9}{'threads':>8}  {'program':<15}{'':<6}{'tokens/s':>10}{'ratio':>7}{'lowest':>8}{'of peak':>9}")
    table = results(rows, peaks)
    for line in table:
        print(
            f"{line['size']:<9}{line['threads']:>8}  {line['program']:<15}{line['precision']:<6}"
            f"{line['tokens_per_second']:>10,}{line['ratio']:>7.2f}{line['lowest_ratio']:>8.2f}{line['of_peak']:>9.2f}"
        )
    gflops = {f"{threads} threads, {precision}": round(flops / 1e9) for (threads, precision), flops in peaks.items()}
    print("\npeak in GFLOP/s: " + "; ".join(f"{name}: {value}" for name, value in gflops.items()))
    if not arguments.no_result:
        path = machine.write_result(
            "language_speed",
            table,
            threads=arguments.threads,
            rounds=arguments.rounds,
            seconds=arguments.seconds,
            torch=torch.__version__,
            peak_gflops=gflops,
        )
        print(f"written to {path.relative_to(machine.ROOT)}")


if __name__ == "__main__":
    main()
