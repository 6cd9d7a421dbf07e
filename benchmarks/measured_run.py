"""One training run of ours in a process of its own, measured from outside: shared by `solve.py` and `peers/run.py`.

Seconds are the trainer's own: rollouts and updates, without start-up and evaluation. Beside them stands for how long
other programs kept the run's threads from a core in these seconds, as the kernel counts it (Linux alone). On a busy
machine seconds less that wait are what an idle one would have taken, as far as cores go.
"""

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import machine

from protein.config.resolve import load
from protein.trainer.config import RunConfig
from protein.trainer.machine.cores import Thread, Times, thread_times, throttled_seconds, waited_for_others

POINTS = 60  # of a curve that is kept
# A measurement in every iteration, so that the moment is known exactly.
_CODE = (
    "import runpy, protein.trainer.progress as progress\n"
    "progress.REPORT_SECONDS = progress.REPORT_FRACTION = 0\n"
    "runpy.run_module('protein.trainer', run_name='__main__')\n"
)


class Waits:
    """For how long other programs have kept a process and its children from running, since this was made."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._before, self._throttled, self._began = self._read(), throttled_seconds(), time.perf_counter()

    def seconds(self) -> float:
        """Returns the seconds of the thread that waited longest, because the other ones wait for that one."""
        seconds = time.perf_counter() - self._began
        return waited_for_others(self._before, self._read(), throttled_seconds() - self._throttled, seconds)

    def _read(self) -> dict[Thread, Times]:
        waits: dict[Thread, Times] = {}
        pending = [self._process]
        while pending:
            process = pending.pop()
            waits |= thread_times(process)
            for path in Path(f"/proc/{process}/task").glob("*/children"):
                try:
                    pending += [int(child) for child in path.read_text().split()]
                except OSError:  # it has just ended
                    continue
        return waits


def digest(config: dict[str, Any]) -> str:
    """Returns what tells two configurations apart, whatever their seeds.

    Only what differs from the defaults counts. So a setting that is added later does not make all earlier runs those of
    another configuration.
    """
    usual = RunConfig().to_dict()
    settings = {
        section: {
            key: v for key, v in values.items() if v != usual[section][key] and (section, key) != ("train", "seed")
        }
        for section, values in config.items()
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def settings_of(name: str, threads: int) -> dict[str, Any]:
    """Returns the shipped configuration of an environment, with this many threads."""
    config = load(name).run_config().to_dict()
    return {**config, "train": {**config["train"], "threads": threads}}


def train(
    name: str, seed: int, goal: float, *, threads: int = 0, stop_at_goal: bool = False, max_seconds: float = math.inf
) -> dict[str, Any]:
    """Trains one environment with its shipped configuration.

    Args:
        name: as `--env` takes it.
        seed: of the run.
        goal: the mean score of the last training episodes that counts as solved.
        threads: of the run; 0: one for each core.
        stop_at_goal: ends the run there, without its evaluation. Otherwise it is made to its end.
        max_seconds: of training, after which it ends in any case.

    Raises:
        RuntimeError: the run failed.
    """
    settings = settings_of(name, threads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(settings))
        command = [sys.executable, "-c", _CODE, "--config", str(path), "--train.seed", str(seed)]
        # As the trainer sets it itself, where it is not too late for that.
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        curve: list[dict[str, Any]] = []
        reached: dict[str, Any] | None = None
        event: dict[str, Any] = {}
        waits, waited, ending = None, 0.0, False
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=machine.ROOT, env=environment) as process:
            assert process.stdout is not None
            for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "start":
                    waits = Waits(process.pid)
                if event["event"] != "measurement" or waits is None:
                    continue
                waited = waits.seconds()
                if event["score"] is not None:
                    curve.append(event)
                    if reached is None and event["score"] >= goal:
                        reached = {**event, "waited_seconds": waited}
                over = event["elapsed_seconds"] >= max_seconds or (stop_at_goal and reached is not None)
                if over and not ending:
                    ending = True
                    process.send_signal(signal.SIGTERM)  # it ends in order, without an evaluation
    if event.get("event") not in ("result", "interrupted"):
        raise RuntimeError(f"the run of {name} with seed {seed} failed: {event.get('message', 'its error is above')}")
    stride = max(1, math.ceil(len(curve) / POINTS))
    score = event["score"]
    return {
        "environment": name,
        "commit": machine.commit(),
        "config": digest(settings),
        "seed": seed,
        "threads": threads or machine.cores(),
        "load": round(os.getloadavg()[0], 1),
        "target": goal,
        "solved_seconds": round(reached["elapsed_seconds"], 2) if reached else None,
        "solved_waited_seconds": round(reached["waited_seconds"], 2) if reached else None,
        "solved_steps": reached["steps"] if reached else None,
        "seconds": round(event["elapsed_seconds"], 2),
        "waited_seconds": round(waited, 2),
        "steps": event["steps"],
        "train_score": round(event["metrics"].get("train_score", math.nan), 3),
        "evaluation_score": None if score is None else round(score, 3),
        "evaluation_std": None if score is None else round(event["metrics"]["score_std"], 3),  # of single episodes
        "solved": reached is not None and score is not None and score >= goal,
        "curve": [
            [e["steps"], round(e["elapsed_seconds"], 2), round(e["score"], 3)]
            for e in [*curve[::stride], *([curve[-1]] if curve else [])]
        ],
    }
