"""How fast the trainer trains pong, and where its time goes; `solve.py` has how soon each environment is solved.

A step is one decision of one agent; skipped frames do not count. Every run is a process of its own, as in a sweep, and
its seconds are those of training, without start-up and evaluation. Figures are medians of RUNS runs. The runs of all
rows take turns, so that a busy moment of the machine affects all rows. Baselines from the same minutes:
  plain   PPO as it is usually written in PyTorch (`trainer_plain.py`), same environment, sizes and hyperparameters;
          with an LSTM, as it is well written (`trainer_plain_lstm.py`, in two ways)
  peak    the rate of a 2048 x 2048 x 2048 float32 product on as many threads, the better of PyTorch's two libraries
          (of those that compute it in float32); the update's rate counts its products alone
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import machine

from protein.trainer.config import RunConfig, load

RUNS = 5
CONFIGS = machine.ROOT / "configs"
SECTIONS = ("environment", "rollout_forward", "copy", "advantage", "update_forward", "update_backward", "optimizer")
RECURRENT = ("--policy.hidden-size", "128", "--policy.num-layers", "1", "--train.update-epochs", "1")
# Name, configuration, further settings, steps of a run.
CASES: tuple[tuple[str, str, tuple[str, ...], int], ...] = (
    ("mlp 2x64", "default", (), 4_000_000),
    ("pong.toml", "pong", (), 2_500_000),
    ("lstm 128", "default", ("--policy.recurrence", "lstm", *RECURRENT), 1_000_000),
    ("mingru 128", "default", ("--policy.recurrence", "mingru", *RECURRENT), 1_500_000),
)
# The case that a baseline is compared with, the baseline's name, its script and flags.
PLAIN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("mlp 2x64", "mlp 2x64, plain", ("trainer_plain.py",)),
    ("pong.toml", "pong.toml, plain", ("trainer_plain.py",)),
    ("lstm 128", "lstm 128, pieces", ("trainer_plain_lstm.py", "--ends-by", "pieces")),
    ("lstm 128", "lstm 128, steps", ("trainer_plain_lstm.py", "--ends-by", "steps")),
)


@dataclasses.dataclass
class Row:
    """One line of the speed table: a configuration and the figures of every run."""

    name: str
    config: Path
    flags: tuple[str, ...]
    steps: int
    threads: int
    plain: tuple[str, ...] = ()  # of a baseline: its script and that one's own flags
    rates: list[float] = dataclasses.field(default_factory=list)
    parts: list[dict[str, float]] = dataclasses.field(default_factory=list)  # ns a step, by section
    startups: list[float] = dataclasses.field(default_factory=list)
    megabytes: float = 0.0

    def run(self) -> None:
        flags = ["--config", str(self.config)]
        if self.plain:
            name, *own = self.plain
            flags += [*own, "--steps", str(self.steps), "--threads", str(self.threads)]
            events, peak = read([str(machine.ROOT / "benchmarks" / name), *flags])
        else:
            flags += [*self.flags, "--train.total-timesteps", str(self.steps), "--train.threads", str(self.threads)]
            flags += ["--eval.episodes", "1", "--eval.num-envs", "1"]
            events, peak = read(["-m", "protein.trainer", *flags])
            last = next(event for event in reversed(events) if event["event"] == "measurement")
            self.parts.append({p: last["metrics"][f"{p}_seconds"] / last["steps"] * 1e9 for p in SECTIONS})
            self.startups.append(events[0]["startup_seconds"])
        self.rates.append(events[-1]["steps"] / events[-1]["elapsed_seconds"])
        self.megabytes = max(self.megabytes, peak)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    def part(self, name: str) -> float:
        return statistics.median(part[name] for part in self.parts)


def read(arguments: list[str]) -> tuple[list[dict[str, Any]], float]:
    """Runs Python and returns the JSON lines that it prints and the most memory that it had, in MB."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([sys.executable, *arguments], stdout=out, cwd=machine.ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"exit code {process.returncode}: {' '.join(arguments)}")
        out.seek(0)
        return [json.loads(line) for line in out], usage.ru_maxrss / 1024


def peak_gflops(threads: int) -> float:
    """Returns the best rate of a large float32 product, in GFLOP/s."""
    code = (
        "import torch, time\n"
        f"torch.set_num_threads({threads})\n"
        "a, best = torch.rand(2048, 2048), 0.0\n"
        "exact = a.double() @ a.double()\n"
        "for precision in ('highest', 'medium'):\n"
        "    torch.set_float32_matmul_precision(precision)\n"
        "    if ((a @ a).double() / exact - 1).abs().max() > 1e-5:\n"
        "        continue  # a processor with tiles of bfloat16 uses them here\n"
        "    for _ in range(10):\n"
        "        start = time.perf_counter()\n"
        "        a @ a\n"
        "        best = max(best, 2 * 2048**3 / (time.perf_counter() - start) / 1e9)\n"
        "print(best)\n"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def update_flops(row: Row) -> tuple[float, int]:
    """Returns the arithmetic of the update's matrix products for each step, and the network's parameters.

    Each weight matrix needs one product forward, one for its gradient and, except in the first layer, one for the
    gradient of its inputs.
    """
    import torch

    from protein.trainer.environments import spec
    from protein.trainer.model.policy import Policy

    config = load(row.config).to_dict()
    for key, value in zip(row.flags[::2], row.flags[1::2], strict=True):
        section, _, name = key.removeprefix("--").replace("-", "_").partition(".")
        config[section][name] = type(config[section][name])(value)
    run = RunConfig.from_dict(config)
    policy = Policy(spec("pong"), run.policy, generator=torch.Generator())
    matrices = [parameter.numel() for parameter in policy.parameters() if parameter.ndim >= 2]
    flops = 2 * (3 * sum(matrices) - matrices[0]) * run.train.update_epochs
    return flops, sum(parameter.numel() for parameter in policy.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, 2, min(4, machine.cores())}))
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--policies", nargs="+", choices=[case[0] for case in CASES], help="only these; default: all")
    parser.add_argument("--no-result", action="store_true", help="only print the table")
    arguments = parser.parse_args()
    chosen = arguments.policies or [case[0] for case in CASES]

    rows = [
        Row(name, CONFIGS / f"{config}.toml", flags, steps, threads)
        for name, config, flags, steps in CASES
        if name in chosen
        for threads in arguments.threads
    ]
    for case, name, plain in PLAIN:
        if case not in chosen:
            continue
        _, config, flags, _ = next(c for c in CASES if c[0] == case)
        rows += [
            Row(name, CONFIGS / f"{config}.toml", flags, 200_000, threads, plain=plain) for threads in arguments.threads
        ]
    for turn in range(arguments.runs):
        for number, row in enumerate(rows):
            print(f"\rround {turn + 1} of {arguments.runs}, row {number + 1} of {len(rows)}", end="", file=sys.stderr)
            row.run()
    print("\r\033[K", end="", file=sys.stderr)
    peaks = {threads: peak_gflops(threads) for threads in arguments.threads}

    results: list[dict[str, Any]] = []
    short = ("env", "act", "copy", "adv", "fwd", "bwd", "opt")
    print(f"training pong: {machine.headline()}")
    print(f"median of {arguments.runs} runs; k steps/s; parts in ns a step; plain: against the better of its rows\n")
    print(f"{'policy':<18}{'threads':>8}{'median':>8}{'min':>7}{'max':>7}{'of plain':>10}", end="")
    print("".join(f"{part:>6}" for part in short) + f"{'other':>7}{'GFLOP/s':>9}{'of peak':>9}{'startup':>9}{'MB':>6}")
    for row in rows:
        result: dict[str, Any] = {
            "policy": row.name,
            "threads": row.threads,
            "steps_per_second": round(row.rate),
            "min": round(min(row.rates)),
            "max": round(max(row.rates)),
            "peak_memory_mb": round(row.megabytes),
        }
        print(f"{row.name:<18}{row.threads:>8}{row.rate / 1e3:>8.0f}", end="")
        print(f"{min(row.rates) / 1e3:>7.0f}{max(row.rates) / 1e3:>7.0f}", end="")
        if row.plain:
            print(f"{'':>86}{row.megabytes:>6.0f}")
            results.append(result)
            continue
        fastest = max(
            (r.rate for r in rows if r.plain and r.config == row.config and r.flags == row.flags), default=None
        )
        ratio = row.rate / fastest if fastest else None
        seconds = sum(row.part(part) for part in ("update_forward", "update_backward")) / 1e9
        flops, parameters = update_flops(row)
        gflops = flops / seconds / 1e9
        other = 1e9 / row.rate - sum(row.part(part) for part in SECTIONS)
        result |= {f"{part}_ns": round(row.part(part)) for part in SECTIONS}
        result |= {"parameters": parameters, "update_gflops": round(gflops, 1)}
        result |= {"of_plain": round(ratio, 2) if ratio else None, "of_peak": round(gflops / peaks[row.threads], 3)}
        result |= {"startup_seconds": round(statistics.median(row.startups), 2)}
        print(f"{ratio:>10.1f}" if ratio else f"{'-':>10}", end="")
        print("".join(f"{row.part(part):>6.0f}" for part in SECTIONS), end="")
        print(f"{other:>7.0f}{gflops:>9.0f}{gflops / peaks[row.threads]:>9.2f}", end="")
        print(f"{result['startup_seconds']:>9.1f}{row.megabytes:>6.0f}")
        results.append(result)
    print("\npeak in GFLOP/s by threads: " + ", ".join(f"{t}: {peak:.0f}" for t, peak in peaks.items()))
    if not arguments.no_result:
        path = machine.write_result(
            "_".join(["trainer", *(name.replace(" ", "_") for name in arguments.policies or ())]),
            results,
            threads=arguments.threads,
            runs=arguments.runs,
            peak_gflops={str(threads): round(peak) for threads, peak in peaks.items()},
        )
        print(f"written to {path.relative_to(machine.ROOT)}")


if __name__ == "__main__":
    main()
