"""What the options that are for speed alone change: steps a second, and CPU seconds a step, beside those without them.

Each runs against the same settings without it, one thread, in one process. All runs of a case take turns, and the
figures are medians of the rounds' ratios, so a busy moment of the machine affects both sides. Waiting is no CPU time:
where an option hides waits, its steps a second tell; where it saves computing, its CPU seconds do. In the case
"waiting" a step of the environments takes as long as acting and updating do at that moment, without using the
processor (`ablate_waiting.py`). At best, hiding that doubles the speed.

    python benchmarks/ablate_speed.py [--rounds 5] [--cases "MLP 2 x 64"] [--device cuda]

With `--device` the same table of a GPU, which some of these options are for.
"""

import argparse
import statistics
import time
from typing import Any

import machine
from ablate_waiting import Waiting

from protein.config.resolve import load
from protein.trainer.config import RunConfig
from protein.trainer.errors import TrainerError
from protein.trainer.events import Event
from protein.trainer.run import run

RECURRENT = {"policy.hidden_size": 128, "policy.num_layers": 1, "train.update_epochs": 1}
WAITING = {"env.name": "python:ablate_waiting:Waiting", "env.num_envs": 64, "train.minibatch_size": 1024}
# Name, settings beside pong's file, steps of a run.
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "MLP 2 x 64": ({}, 400_000),
    "LSTM 128": ({**RECURRENT, "policy.recurrence": "lstm"}, 65_536),
    "minGRU 128": ({**RECURRENT, "policy.recurrence": "mingru"}, 131_072),
    "LSTM 128, waiting": ({**RECURRENT, **WAITING, "policy.recurrence": "lstm"}, 16_384),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "double_buffer": {"env.double_buffer": True},
    "overlap": {"train.overlap": True},
    "cpu_inference": {"train.cpu_inference": True},
    "compile": {"train.compile": True},
    "bf16": {"train.precision": "bf16"},
    "fp16": {"train.precision": "fp16"},
    "train_fp16": {"train.train_fp16": True},
    "tf32": {"train.precision": "tf32"},
}


def measure(case: str, changes: dict[str, Any], device: str) -> dict[str, float]:
    """Returns seconds and CPU seconds a step of one training, and the seconds that compiling took."""
    own, steps = CASES[case]
    nested = load("pong").run_config().to_dict()
    fixed = {
        "train.threads": 1,
        "train.device": device,
        "train.total_timesteps": steps,
        "train.checkpoint_seconds": 0.0,
        "eval.episodes": 1,
        "eval.num_envs": 1,
    }
    for key, value in {**fixed, **own, **changes}.items():
        section, field = key.split(".")
        nested[section][field] = value
    clock: list[float] = []

    def keep(event: Event) -> None:
        if event["event"] in ("start", "measurement"):
            clock.append(time.process_time())

    result = run(RunConfig.from_dict(nested), directory=None, report=keep)
    cpu = (clock[-1] - clock[0]) / result.steps
    compiling = result.timings.get("compile", 0.0)
    return {"seconds": result.elapsed_seconds / result.steps, "cpu_seconds": cpu, "compile": compiling}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--options", nargs="+", default=list(OPTIONS), choices=list(OPTIONS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-result", action="store_true", help="writes no file")
    arguments = parser.parse_args()
    print(machine.headline())
    print(f"{'case':<20}{'option':<16}{'speed':>8}{'CPU a step':>12}{'compiling':>12}")
    rows = []
    for case in arguments.cases:
        failed: dict[str, str] = {}
        rounds: dict[str, list[tuple[float, float, float]]] = {option: [] for option in arguments.options}
        for _ in range(arguments.rounds):
            for option in arguments.options:
                if option in failed:
                    continue
                Waiting.seconds = 0.0
                if CASES[case][0].get("env.name") == WAITING["env.name"]:
                    Waiting.seconds = measure(case, {}, arguments.device)["seconds"]
                base = measure(case, {}, arguments.device)
                try:
                    own = measure(case, OPTIONS[option], arguments.device)
                except TrainerError as error:
                    failed[option] = str(error)
                    continue
                speed = base["seconds"] / own["seconds"]
                rounds[option].append((speed, own["cpu_seconds"] / base["cpu_seconds"], own["compile"]))
        for option, ratios in rounds.items():
            if option in failed:
                print(f"{case:<20}{option:<16}  {failed[option]}")
                continue
            speed, cpu, compiling = (statistics.median(values) for values in zip(*ratios, strict=True))
            print(f"{case:<20}{option:<16}{speed:>8.2f}{cpu:>12.2f}{compiling:>10.1f} s", flush=True)
            speeds = [round(ratio[0], 3) for ratio in ratios]
            row = {"case": case, "option": option, "speed": speed, "cpu": cpu, "compile_seconds": compiling}
            rows.append({**row, "speeds": speeds})
    if not arguments.no_result:
        name = "ablate_speed" if arguments.device == "cpu" else f"ablate_speed_{arguments.device.partition(':')[0]}"
        machine.write_result(name, rows, threads=1)


if __name__ == "__main__":
    main()
