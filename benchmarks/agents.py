"""An agent's loop against a sweep: random search by tool calls, and `start_sweep`, both through `protein mcp`.

The loop is what one is told to let a coding agent write: draw configs, run them, take the best score. It is a client
with a script. It queues configs from the same space by `try_configs`, runs them, and takes the highest measured score.
The other side calls `start_sweep` and takes what `recommend` says. Both begin with the initial config, and have the
same seconds, which are simulated (`engine.synthetic`): a trial asks this program for its score and its cost.

    python benchmarks/agents.py --seeds 3 --output benchmarks/results/agents.json

A result is the true score of the chosen config, on the scale on which the median of 4,096 random configs is 0 and the
best of them is 1.
"""

import argparse
import contextlib
import json
import os
import socketserver
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from engine.synthetic import make_synthetic
from mcp import Client, StdioServerParameters

from protein.cli.mcp import unmarked
from protein.space import Categorical, Integer, Space

FAMILIES = ("ppo", "takeoff", "deceptive")  # their trials never fail
TRIALS = 20  # of mean cost that the budget pays for
NUM_RANDOM = 4096
QUEUED = 300  # configs of the loop: more than its budget pays for
PROGRAM = """
import socket, sys
with socket.socket(socket.AF_UNIX) as channel:
    channel.connect("task.socket")
    channel.sendall(" ".join(sys.argv[1:]).encode() + b"\\n")
    print(channel.makefile().readline())
"""
COMMAND = "python -IS task.py"


@contextlib.contextmanager
def answering(folder: Path) -> Iterator[None]:
    """Answers the programs of trials, within the block: each asks by a family, a seed and a file of params."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            family, seed, file = self.rfile.readline().decode().split()
            task = make_synthetic(family, int(seed))
            found = task.run(json.loads(Path(file).read_text()), seed=int(seed))
            line = {"score": found.score, "cost_seconds": found.cost_seconds, "steps": found.curve[-1].steps}
            self.wfile.write(json.dumps(line).encode() + b"\n")

    with socketserver.ThreadingUnixStreamServer(str(folder / "task.socket"), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


def as_file(space: Space, start: Any) -> dict[str, Any]:
    """Returns a space as a space file has it."""
    ranges: dict[str, Any] = {}
    for one in space.parameters:
        if isinstance(one, Categorical):
            ranges[one.name] = {"choices": list(one.choices), "value": start[one.name]}
            continue
        kind = int if isinstance(one, Integer) else float
        ranges[one.name] = {"min": kind(one.low), "max": kind(one.high), "scale": one.scale, "value": start[one.name]}
    given = space.to_dict()
    return {"space": ranges, "cost_parameter": space.cost_parameter, "constraints": given.get("constraints", [])}


class Session:
    """A client's calls, counted."""

    def __init__(self, client: Client) -> None:
        self._client, self.calls = client, 0

    async def call(self, tool: str, **arguments: Any) -> Any:
        self.calls += 1
        answer = await self._client.call_tool(tool, arguments)
        text = answer.content[0].text  # type: ignore[union-attr]
        if answer.is_error:
            raise RuntimeError(f"{tool}: {text}")
        return unmarked(json.loads(text))

    async def ended(self, sweep: str) -> None:
        while True:
            listed = {one["name"]: one["life"] for one in await self.call("list_sweeps")}
            if listed[sweep] == "ended":
                return
            self.calls -= 1  # an agent asks once in a while
            await anyio.sleep(2.0)


async def compared(session: Session, family: str, seed: int) -> dict[str, Any]:
    """Runs both sides on one task, and returns what each has chosen and spent."""
    task = make_synthetic(family, seed)
    scores, costs, _ = task.final(task.space.sample(NUM_RANDOM, np.random.default_rng(seed)))
    budget = TRIALS * float(costs.mean())
    low, high = float(np.median(scores)), float(scores.max())
    how = {"run": f"{COMMAND} {family} {seed} {{params_file}}", "space": as_file(task.space, task.start), "seed": seed}
    how["max_cost"] = f"{budget:.3f}s"
    row: dict[str, Any] = {"family": family, "seed": seed, "budget_seconds": budget}

    async def sweep(name: str) -> Any:
        await session.call("start_sweep", name=name, **how)
        await session.ended(name)
        return (await session.call("recommend", sweep=name))["params"]

    async def loop(name: str) -> Any:
        await session.call("start_sweep", name=name, **how, method="random", max_trials=2 * QUEUED)
        configs = task.space.from_unit_many(task.space.sample(QUEUED, np.random.default_rng(1000 + seed)))
        await session.call("try_configs", sweep=name, configs=configs)
        await session.ended(name)
        return (await session.call("status", sweep=name))["best"]["params"]

    for side, run in (("sweep", sweep), ("loop", loop)):
        name, before, began = f"{family}-{seed}-{side}", session.calls, time.monotonic()
        params = await run(name)
        status = await session.call("status", sweep=name)
        score = float(task.final(task.space.to_unit(params)[None, :])[0][0])
        row[side] = {
            "result": (score - low) / (high - low),
            "spent_seconds": status["spent_seconds"],
            "trials": {end: number for end, number in status["trials"].items() if number},
            "calls": session.calls - before,
            "wall_seconds": time.monotonic() - began,
        }
    return row


async def run(folder: Path, seeds: int) -> list[dict[str, Any]]:
    words = ["-m", "protein", "mcp", "--folder", str(folder), "--allow-start", COMMAND, "--max-cost", "3650d"]
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    rows = []
    async with Client(server, read_timeout_seconds=600) as client:
        for seed in range(seeds):
            for family in FAMILIES:
                rows.append(await compared(Session(client), family, seed))
                print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "task.py").write_text(PROGRAM)
        with answering(folder):
            rows = anyio.run(run, folder, arguments.seeds)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")
    for family in FAMILIES:
        own = [row for row in rows if row["family"] == family]
        means = {side: np.mean([row[side]["result"] for row in own]) for side in ("sweep", "loop")}
        print(f"{family:<12} sweep {means['sweep']:.3f}  loop {means['loop']:.3f}")


if __name__ == "__main__":
    main()
