"""A trial's process for the campaign: cheap, exact, and it tells what it does (`faults.evidence`).

It speaks the trainer's protocol. A step costs `STEP_SECONDS`, and takes at least as long. Its score follows from its
params alone. Now and then it writes a checkpoint, and `--resume FILE` goes on from one.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from protein.sweep.resuming import TRAINERS_FILE
from tests.faults import evidence

STEP_SECONDS = 0.02
CHECKPOINT_STEPS = 10


def score(params: dict[str, float], steps: int) -> float:
    """Returns the score after some steps: it rises with them, and most at a rate of 0.3."""
    quality = 1.0 - (params["rate"] - 0.3) ** 2 - 0.2 * (params["width"] - 0.7) ** 2
    return quality * (1.0 - float(0.9 ** (steps / 4)))


def say(event: str, **fields: Any) -> None:
    try:
        print(json.dumps({"event": event, **fields}), flush=True)
    except BrokenPipeError:  # the sweep is gone; the trainer ends so, too
        os._exit(1)


def save(file: Path, seed: int, steps: int) -> None:
    """Writes a checkpoint in the trainer's format, without weights."""
    run = {"config": {"train": {"seed": seed}}, "steps": steps, "elapsed_seconds": steps * STEP_SECONDS}
    header = json.dumps({"__metadata__": {"run": json.dumps(run)}}).encode()
    new = file.with_suffix(".new")
    new.write_bytes(len(header).to_bytes(8, "little") + header)
    new.replace(file)


def load(file: Path) -> int:
    """Returns the steps that lie behind a checkpoint."""
    header = json.loads(file.read_bytes()[8:])
    return int(json.loads(header["__metadata__"]["run"])["steps"])


def main(command_line: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--resume", type=Path)
    arguments = parser.parse_args(command_line)
    train = json.loads(arguments.config.read_text())["train"]
    number, steps = int(arguments.directory.name), 0
    if arguments.resume is not None:
        steps = load(arguments.resume)
    lock = evidence.begin(number, steps * STEP_SECONDS)

    def end(_number: int, _frame: FrameType | None) -> None:
        say("interrupted", score=None, steps=steps, elapsed_seconds=steps * STEP_SECONDS, stopped="signal")
        sys.exit(130)

    signal.signal(signal.SIGTERM, end)
    say("start", pid=os.getpid())
    total = train["total_timesteps"]
    while steps < total:
        time.sleep(STEP_SECONDS)
        steps += 1
        seconds = steps * STEP_SECONDS
        evidence.write("spent", number, seconds)
        say("measurement", steps=steps, elapsed_seconds=seconds, score=score(train, steps), metrics={"loss": 1 / steps})
        if steps % CHECKPOINT_STEPS == 0:
            with contextlib.suppress(OSError):  # where the disk is full, the last checkpoint stays
                save(arguments.directory / TRAINERS_FILE, train["seed"], steps)
    evidence.write("end", number, steps * STEP_SECONDS)
    say(
        "result",
        score=score(train, total),
        steps=steps,
        elapsed_seconds=steps * STEP_SECONDS,
        timings={"evaluation": 0.0},
    )
    os.close(lock)
    return 0
