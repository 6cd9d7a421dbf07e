"""The trainer on a GPU, in one table that can be cut at any moment: its most important rows come first.

scripts/gpu_benchmark.sh runs it. Sections, in their order:
  shipped    thousand steps a second of each environment's own config: with recorded launches, without, and on the CPU
  sizes      the same for pong with 4,096 environments, by network; ns a step of acting, of copies, of the environments
             and of the update, where each waits for the device; the update's arithmetic as a share of the peak
  launches   what the host queues for an iteration with and without recording, and the share of the time in which the
             GPU works; on a CPU, what it would queue, by the stand-in of trainer/machine/graphs.py
  language   a step of GPT-2 with 124 million parameters, each row with the changes of those above it (Karpathy 2024,
             github.com/karpathy/build-nanogpt: 1,000 ms to 90 ms, a factor of 11, on an A100), then this trainer's own;
             see language/steps.py. `of peak`: the network's arithmetic as a share of a large product's in bf16
  small      thousand tokens a second of the shipped language model
  precision  ns a sample of acting and of the update, by precision. They are the rows of precisions.json, written beside
             the result: see trainer/machine/precision_table.py
  options    pong's own config with what may help a small network
A step is one decision of one agent. The result is gpu.json, in the folder that --out or OUT names, else in
benchmarks/results. It is written after each figure. A row that fails costs itself alone: see device_table.py.
`--tiny` measures a few rows with small sizes: a test of this file.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the trainer does, before torch is imported

import device_table
import machine
from device_table import Cell, Row, Section, Worker, at

from protein import files
from protein.config.resolve import load
from protein.trainer.config import EnvConfig, PolicyConfig, RunConfig, TrainConfig
from protein.trainer.settings import Precision

MODULE = "gpu_runs"  # what it measures with
SECONDS = 1.5  # of training, of each run
MANY, HORIZON = 4096, 64
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")
SHIPPED = ("pong", "breakout", "snake", "maze")
OPTIONS: tuple[dict[str, Any], ...] = ({"overlap": True}, {"cpu_inference": True}, {"compile": True})
COMPILING = 75.0  # seconds
# Those that no table has yet come first, with the one to which all are compared.
STEPS = ("fp32", "fused", "TF32", "bf16", "compile", "flash", "padded")
NETWORKS = {
    "mlp 2 x 256": PolicyConfig(hidden_size=256),
    "lstm 128": PolicyConfig(hidden_size=128, num_layers=1, recurrence="lstm"),
    "mingru 256": PolicyConfig(hidden_size=256, num_layers=1, recurrence="mingru"),
    "lstm 256": PolicyConfig(hidden_size=256, num_layers=1, recurrence="lstm"),
    "mlp 2 x 64": PolicyConfig(hidden_size=64),
    "mlp 2 x 512": PolicyConfig(hidden_size=512),
    "mingru 64": PolicyConfig(hidden_size=64, num_layers=1, recurrence="mingru"),
    "mingru 512": PolicyConfig(hidden_size=512, num_layers=1, recurrence="mingru"),
    "lstm 64": PolicyConfig(hidden_size=64, num_layers=1, recurrence="lstm"),
    "lstm 512": PolicyConfig(hidden_size=512, num_layers=1, recurrence="lstm"),
}
HEAD = ("mlp 2 x 256", "lstm 128")  # the networks that have a goal
PRECISION_ROWS = (  # network, environments
    ("mlp 2 x 64", 256),
    ("mlp 2 x 256", MANY),
    ("mlp 2 x 64", MANY),
    ("mlp 2 x 512", MANY),
    ("lstm 128", MANY),
    ("mingru 256", MANY),
    ("lstm 512", MANY),
)


def _thousand(*path: str) -> Callable[[Mapping[str, Any]], float | None]:
    read = at(*path)
    return lambda row: None if (value := read(row)) is None else value / 1e3


def _rates(*keys: str) -> list[device_table.Column]:
    return [(key, _thousand(key, "steps_per_second"), ",.0f") for key in keys]


SECTIONS = {
    "shipped": Section(title="k steps/s, shipped config", columns=_rates("graphs", "none", "cpu")),
    "sizes": Section(
        title=f"k steps/s, pong x {MANY:,}",
        columns=[
            *_rates("graphs", "none", "cpu"),
            ("act ns", at("parts", "rollout_forward_ns"), ".1f"),
            ("copy ns", at("parts", "copy_ns"), ".1f"),
            ("env ns", at("parts", "environment_ns"), ".1f"),
            ("update ns", at("parts", "update_ns"), ".1f"),
            ("of peak", at("parts", "of_peak"), ".1%"),
            ("MB", at("graphs", "device_memory_mb"), ",.0f"),
        ],
    ),
    "launches": Section(
        title="for each iteration",
        columns=[
            ("launches", at("graphs", "launches"), ",.0f"),
            ("busy", at("graphs", "busy"), ".0%"),
            ("no graphs", at("none", "launches"), ",.0f"),
            ("busy", at("none", "busy"), ".0%"),
        ],
        fresh=True,  # a profiler stays in the process
    ),
    "language": Section(
        title="GPT-2, 124 million, 16,384 tokens",
        columns=[
            ("ms a step", at("step", "milliseconds"), ".2f"),
            ("factor", at("step", "factor"), ".2f"),
            ("k tokens/s", _thousand("step", "tokens_per_second"), ",.0f"),
            ("of peak", at("step", "of_peak"), ".1%"),
        ],
    ),
    "small": Section(title="k tokens/s, shipped model", columns=_rates("graphs", "none", "compile", "both", "cpu")),
    "precision": Section(
        title="ns a sample",
        columns=[
            (f"{part} {name}", at(name, key), ".1f")
            for part, key in (("act", "rollout_forward_ns"), ("upd", "update_ns"))
            for name in PRECISIONS
        ],
    ),
    "options": Section(title="k steps/s, pong with", columns=_rates("graphs", "none")),
}


def with_train(config: RunConfig, **train: Any) -> RunConfig:
    """Returns a run's config with other settings of `[train]`, that does not end by itself."""
    endless: dict[str, Any] = {"total_timesteps": 10**12, "checkpoint_seconds": 0.0}
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **endless, **train))


def shipped(env: str, **train: Any) -> RunConfig:
    config = load(env).run_config()
    assert isinstance(config, RunConfig)
    return with_train(config, **train)


def sized(network: str, envs: int, *, tiny: bool, **train: Any) -> RunConfig:
    """Returns pong with a network and a number of environments, four minibatches an iteration."""
    policy, horizon = NETWORKS[network], HORIZON
    if tiny:
        envs, horizon, policy = 16, 4, dataclasses.replace(policy, hidden_size=8)
    minibatch = envs * horizon // (8 if envs < MANY and not tiny else 4)  # pong.toml's own for its own environments
    settings = TrainConfig(horizon=horizon, minibatch_size=minibatch, lr_schedule="constant")
    return with_train(RunConfig(env=EnvConfig(num_envs=envs), policy=policy, train=settings), **train)


class Plan:
    """The rows of the table for a device, the most important first."""

    def __init__(self, device: str, *, tiny: bool) -> None:
        self._device, self._tiny = device, tiny
        self._seconds = 0.0 if tiny else SECONDS

    def rows(self) -> list[Row]:
        if self._tiny:
            return [
                self._shipped("pong"),
                self._sizes("lstm 128"),
                self._launches("mlp 2 x 256"),
                *self._language(STEPS[:1], compiled=False)[:2],
                self._small(),
                self._precision("mlp 2 x 64", 16),
            ]
        return [
            *(self._shipped(env) for env in SHIPPED),
            *(self._sizes(network) for network in HEAD),
            *(self._launches(name) for name in ("pong", *HEAD, "breakout")),
            *self._language(STEPS[:1], compiled=False),
            *(self._precision(*row) for row in PRECISION_ROWS[:3]),
            *self._language(STEPS[1:2], compiled=True),
            self._small(),
            *(self._sizes(network) for network in NETWORKS if network not in HEAD),
            *(self._precision(*row) for row in PRECISION_ROWS[3:]),
            *(self._options(options) for options in OPTIONS),
            *(self._plain(step) for step in STEPS[2:]),
        ]

    def _speed(self, key: str, config: RunConfig, seconds: float = 20.0) -> Cell:
        return Cell(key=key, function="speed", arguments={"config": config, "seconds": self._seconds}, seconds=seconds)

    def _three(self, config: Callable[..., RunConfig]) -> list[Cell]:
        """Returns the cells with recorded launches, without them, and on the CPU."""
        places = {"graphs": (self._device, "auto"), "none": (self._device, "off"), "cpu": ("cpu", "auto")}
        return [self._speed(key, config(device=device, graphs=graphs)) for key, (device, graphs) in places.items()]

    def _shipped(self, env: str) -> Row:
        return Row(section="shipped", name=env, cells=self._three(lambda **train: shipped(env, **train)))

    def _sizes(self, network: str) -> Row:
        cells = self._three(lambda **train: sized(network, MANY, tiny=self._tiny, **train))
        config = sized(network, MANY, tiny=self._tiny, device=self._device)
        arguments = {"config": config, "seconds": self._seconds}
        cells.insert(2, Cell(key="parts", function="parts", arguments=arguments))
        return Row(section="sizes", name=network, cells=cells)

    def _launches(self, name: str) -> Row:
        cells = []
        for key, graphs in (("graphs", "auto"), ("none", "off")):
            train = {"device": self._device, "graphs": graphs}
            config = sized(name, MANY, tiny=self._tiny, **train) if name in NETWORKS else shipped(name, **train)
            arguments = {"config": config, "seconds": self._seconds / 3}
            cells.append(Cell(key=key, function="launches", arguments=arguments, seconds=30.0))
        return Row(section="launches", name=name, cells=cells)

    def _plain(self, step: str) -> Row:
        arguments = {"step": step, "device": self._device, "tiny": self._tiny}
        cell = Cell(key="step", function="language_plain", arguments=arguments, seconds=COMPILING)
        return Row(section="language", name=step, cells=[cell])

    def _language(self, steps: Sequence[str], *, compiled: bool) -> list[Row]:
        """Returns rows of `language.steps`, and this trainer's own."""
        rows = [self._plain(step) for step in steps]
        for arch, optimizer in (("gpt2", "adamw"), ("modern", "muon")):
            arguments = {"arch": arch, "optimizer": optimizer, "compile": compiled, "device": self._device}
            arguments |= {"seconds": self._seconds, "tiny": self._tiny}
            cell = Cell(key="step", function="language_ours", arguments=arguments, seconds=COMPILING)
            name = f"ours, {arch}, {optimizer}" + (", compiled" if compiled else "")
            rows.append(Row(section="language", name=name, cells=[cell]))
        return rows

    def _small(self) -> Row:
        common = {"seconds": self._seconds, "tiny": self._tiny}
        kinds: dict[str, dict[str, Any]] = {
            "graphs": {"device": self._device},
            "none": {"device": self._device, "graphs": "off"},
            "cpu": {"device": "cpu"},
            "both": {"device": self._device, "compile": True},
            "compile": {"device": self._device, "compile": True, "graphs": "off"},
        }
        cells = [
            Cell(
                key=key,
                function="language_small",
                arguments=common | train,
                seconds=COMPILING if train.get("compile") else 20.0,
            )
            for key, train in kinds.items()
            if not (self._tiny and train.get("compile"))
        ]
        return Row(section="small", name="gpt.toml", cells=cells)

    def _precision(self, network: str, envs: int) -> Row:
        cells = []
        for precision in PRECISIONS:
            config = sized(network, envs, tiny=self._tiny, device=self._device, precision=precision)
            arguments = {"config": config, "seconds": self._seconds / 2}
            cells.append(Cell(key=precision, function="parts", arguments=arguments))
        return Row(section="precision", name=f"{network}, {envs:,} environments", cells=cells)

    def _options(self, options: Mapping[str, Any]) -> Row:
        limit = COMPILING if "compile" in options else 20.0
        cells = [
            self._speed(key, shipped("pong", device=self._device, graphs=graphs, **options), limit)
            for key, graphs in (("graphs", "auto"), ("none", "off"))
        ]
        return Row(section="options", name=" ".join(options), cells=cells)


class Table:
    """The result of one benchmark: what is known of the device, and the rows."""

    def __init__(self, measure: Callable[[Cell, float], tuple[Any, str | None]], out: Path | None) -> None:
        self._measure, self._out = measure, out
        self.facts: dict[str, Any] = {"name": "gpu", **machine.describe()}
        self._peaks: dict[str, float] = {}
        self._first_step: float | None = None  # milliseconds of the language model's first row

    def know(self, device: str, until: float, *, tiny: bool) -> None:
        """Asks for the device's own facts: name, versions, and best rate of a product by precision."""
        about, error = self._measure(Cell(key="", function="about", arguments={"device": device}, seconds=60.0), until)
        if error is not None:
            print(f"error: {error}; nothing was measured", file=sys.stderr)
            raise SystemExit(2)
        self.facts |= about
        for precision in PRECISIONS:
            arguments = {"device": device, "precision": precision} | ({"size": 64} if tiny else {})
            flops, error = self._measure(Cell(key="", function="peak", arguments=arguments), until)
            if flops is not None:
                self._peaks[precision] = flops
        self.facts["peak_gflops"] = {name: round(flops / 1e9) for name, flops in self._peaks.items()}
        print(f"{self.facts.get('device', device)}, driver {self.facts['driver']}, torch {self.facts.get('torch', '')}")
        print(machine.headline())
        print("peak in TFLOP/s: " + ", ".join(f"{name} {flops / 1e12:.3g}" for name, flops in self._peaks.items()))

    def measure(self, cell: Cell, until: float) -> tuple[Any, str | None]:
        """Measures a cell; adds its share of the peak, and how many times as fast as the first step it is."""
        value, error = self._measure(cell, until)
        if isinstance(value, dict):
            used = str(value.get("precision", "")).split(" ")[-1]  # "bf16, updates in tf32"
            peak = self._peaks.get(used) or self._peaks.get("tf32")  # of `auto`
            for name in ("flops_per_second", "update_flops_per_second"):
                if name in value and peak:
                    value["of_peak"] = value[name] / peak
            if cell.function in ("language_plain", "language_ours"):
                if cell.arguments.get("step") == STEPS[0]:
                    self._first_step = value["milliseconds"]
                if self._first_step is not None:
                    value["factor"] = self._first_step / value["milliseconds"]
        return value, error

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes the rows so far, and the table of precisions, where there is a folder for them."""
        if self._out is None:
            return
        rows = list(rows)
        device_table.write_rows(self._out / "gpu.json", self.facts, rows)
        if lines := precision_rows(rows, self.facts):
            text = '{"rows": [\n' + ",\n".join(map(json.dumps, lines)) + "\n]}\n"
            files.replace_file(self._out / "precisions.json", text.encode())


def precision_rows(rows: Iterable[Mapping[str, Any]], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows of trainer/machine/precisions.json that these rows are; only whole ones."""
    found: list[dict[str, Any]] = []
    for row in rows:
        if row["section"] != "precision" or "capability" not in facts:
            continue
        parts = {
            "acting": {name: at(name, "rollout_forward_ns")(row) for name in PRECISIONS},
            "update": {name: at(name, "update_ns")(row) for name in PRECISIONS},
        }
        known = next((row[name] for name in PRECISIONS if name in row), None)
        for part, given in parts.items():
            ns = {name: value for name, value in given.items() if value}
            if known is not None and "fp32" in ns and len(ns) > 1:
                found.append(
                    {
                        "device": facts["device"],
                        "capability": facts["capability"],
                        "part": part,
                        "network": known["network"],
                        "hidden": known["hidden"],
                        "samples": known[f"{part}_samples"],
                        "ns": ns,
                    }
                )
    return found


def driver() -> str:
    """Returns the version of the NVIDIA driver, or "" where there is none."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    return next(iter(done.stdout.split()), "")


def of_tests(path: Path) -> dict[str, Any]:
    """Returns what pytest's file of results says: numbers, and the first line of each failure."""
    try:
        suite = ElementTree.parse(path).getroot().find("testsuite")
    except (OSError, ElementTree.ParseError) as error:
        return {"error": f"no results of the tests: {error}"}
    assert suite is not None
    failures = {
        case.get("name", ""): (found.get("message") or "").split("\n")[0]
        for case in suite.iter("testcase")
        for found in (*case.findall("failure"), *case.findall("error"))
    }
    counts = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    return counts | {"seconds": float(suite.get("time", "0")), "failed": failures}


def main(given: Sequence[str] | None = None) -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, mps or cpu")
    parser.add_argument("--seconds", type=float, default=480.0, help="the limit of everything together")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help="these sections")
    parser.add_argument("--out", type=Path, help="the folder of the result; without: OUT, or benchmarks/results")
    parser.add_argument("--tests", type=Path, help="pytest's results (JUnit), which the result repeats")
    parser.add_argument("--tiny", action="store_true", help="a few rows, small sizes: a test of this file")
    arguments = parser.parse_args(given)
    out = arguments.out or (Path(os.environ["OUT"]) if os.environ.get("OUT") else None)
    if out is None and not arguments.tiny:
        out = machine.RESULTS
    until = began + arguments.seconds
    worker = Worker(MODULE)
    table = Table(worker.measure, out)
    table.facts["driver"] = driver()
    if arguments.tests is not None:
        table.facts["tests"] = of_tests(arguments.tests)
    try:
        rows = [row for row in Plan(arguments.device, tiny=arguments.tiny).rows() if row.section in arguments.only]
        table.know(arguments.device, until, tiny=arguments.tiny)
        renew = (lambda: None) if arguments.device == "cpu" else worker.end
        _, left = device_table.measure_all(rows, SECTIONS, table.measure, until=until, write=table.write, renew=renew)
    finally:
        worker.end()
    if left:
        print(f"\nno time was left for {len(left)} rows:\n" + "\n".join(f"  {name}" for name in left))
    if out is not None:
        print(f"\nwritten to {out / 'gpu.json'}, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
