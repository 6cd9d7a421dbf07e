"""How fast the environments step through the Python API, with random actions drawn in advance and arrays allocated
once.

A step is one decision of one agent; skipped frames do not count. A batch is a number of agents, in as many environments
as they need; actions are uniform in each component's choices or range. Each figure is the median of RUNS runs. The runs
of all rows take turns, so that a busy moment of the machine affects all rows. Two baselines are measured in the same
minutes:
  copy    numpy copying prepared outputs into the caller's arrays: the cost of writing alone
  loop    one VecEnv for each environment, in a Python loop: the cost of one call per environment
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import machine
import numpy as np
import numpy.typing as npt

from protein import envs_c

RUNS = 31
RUN_SECONDS = 0.02
NUM_AGENTS = (1024, 16384)
FRAME_SKIPS = (1, 4, 8)

# observations, rewards, terminals, truncations
Outputs = tuple[npt.NDArray[Any], npt.NDArray[np.float32], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]


@dataclasses.dataclass
class Row:
    """One line of the table: what runs, and the agent steps/s of every run."""

    env: str
    num_envs: int
    frame_skip: int
    threads: int
    step: Callable[[int], None]  # makes that many vectorised steps
    agents: int
    calls: int = 1  # vectorised steps a run, so that it takes RUN_SECONDS
    rates: list[float] = dataclasses.field(default_factory=list)

    def run(self) -> float:
        start = time.perf_counter()
        self.step(self.calls)
        seconds = time.perf_counter() - start
        self.rates.append(self.agents * self.calls / seconds)
        return seconds

    def calibrate(self) -> None:
        while (seconds := self.run()) < RUN_SECONDS / 2:
            self.calls = max(2 * self.calls, int(self.calls * 0.8 * RUN_SECONDS / max(seconds, 1e-6)))
        self.rates.clear()

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


def outputs(agents: int, size: int, dtype: str = "float32") -> Outputs:
    return (
        np.zeros((agents, size), dtype),
        np.zeros(agents, np.float32),
        np.zeros(agents, np.bool_),
        np.zeros(agents, np.bool_),
    )


def random_actions(spec: envs_c.EnvSpec, agents: int) -> np.ndarray:
    """Actions of 64 steps, `64 x agents x components`, each uniform in its range."""
    rng = np.random.default_rng(0)
    shape = (64, agents, spec.action_components)
    if spec.continuous_actions:
        return rng.uniform(-1, 1, shape).astype(np.float32)
    return rng.integers(0, spec.action_sizes, shape, dtype=np.int32)


def vec_row(name: str, num_envs: int, frame_skip: int, threads: int) -> Row:
    vec = envs_c.VecEnv(name, num_envs, frame_skip=frame_skip, threads=threads)
    actions = random_actions(vec.spec, vec.num_agents)
    out = outputs(vec.num_agents, vec.spec.observation_size, vec.spec.observation_dtype)

    def step(calls: int) -> None:
        for i in range(calls):
            vec.step(actions[i & 63], *out)
        vec.drain_episodes()

    return Row(name, num_envs, frame_skip, threads, step, vec.num_agents)


def copy_row(name: str, num_envs: int) -> Row:
    spec = envs_c.spec(name)
    agents = num_envs * spec.agents_per_env
    source, target = (outputs(agents, spec.observation_size, spec.observation_dtype) for _ in range(2))
    for array in source:
        array.fill(1)  # memory that was never written is one page of zeros, and always in the cache

    def step(calls: int) -> None:
        for _ in range(calls):
            for ready, array in zip(source, target, strict=True):
                np.copyto(array, ready)

    return Row(f"{name}, copy", num_envs, 1, 1, step, agents)


def loop_row(name: str, frame_skip: int) -> Row:
    vecs = [envs_c.VecEnv(name, 1, seed=seed, frame_skip=frame_skip) for seed in range(64)]
    agents = vecs[0].num_agents
    actions = random_actions(vecs[0].spec, agents)
    out = outputs(agents, vecs[0].spec.observation_size, vecs[0].spec.observation_dtype)

    def step(calls: int) -> None:
        for i in range(calls):
            for vec in vecs:
                vec.step(actions[i & 63], *out)

    return Row(f"{name}, loop", len(vecs), frame_skip, 1, step, agents * len(vecs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=envs_c.names(), help="environments (default: all)")
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, min(4, machine.cores())}))
    parser.add_argument("--no-result", action="store_true", help="only print the table")
    arguments = parser.parse_args()

    rows: list[Row] = []
    for name in arguments.envs:
        rows += [loop_row(name, frame_skip) for frame_skip in FRAME_SKIPS]
        for num_agents in NUM_AGENTS:
            num_envs = num_agents // envs_c.spec(name).agents_per_env
            rows.append(copy_row(name, num_envs))
            rows += [vec_row(name, num_envs, skip, threads) for skip in FRAME_SKIPS for threads in arguments.threads]
    for row in rows:
        row.calibrate()
    for _ in range(RUNS):
        for row in rows:
            row.run()

    rates = {(row.env, row.num_envs, row.frame_skip, row.threads): row.rate for row in rows}
    results = []
    print(f"environments: {machine.headline()}\nmedian of {RUNS} runs; M agent steps/s\n")
    print(f"{'environment':<16}{'envs':>7}{'skip':>6}{'threads':>9}{'median':>9}{'min':>8}{'max':>8}", end="")
    print(f"{'of 1 thread':>13}{'of loop':>10}{'of copy':>9}")
    for row in rows:
        single = rates.get((row.env, row.num_envs, row.frame_skip, 1))
        loop = rates.get((f"{row.env}, loop", 64, row.frame_skip, 1))
        copy = rates.get((f"{row.env}, copy", row.num_envs, 1, 1))
        ratios = {
            "of_one_thread": row.rate / single if single and row.threads > 1 else None,
            "of_loop": row.rate / loop if loop else None,
            "of_copy": row.rate / copy if copy else None,
        }
        print(f"{row.env:<16}{row.num_envs:>7}{row.frame_skip:>6}{row.threads:>9}{row.rate / 1e6:>9.2f}", end="")
        print(f"{min(row.rates) / 1e6:>8.2f}{max(row.rates) / 1e6:>8.2f}", end="")
        widths = zip(ratios.values(), (13, 10, 9), (2, 1, 2), strict=True)
        print("".join(" " * width if r is None else f"{r:>{width}.{digits}f}" for r, width, digits in widths))
        results.append(
            {
                "env": row.env,
                "num_envs": row.num_envs,
                "frame_skip": row.frame_skip,
                "threads": row.threads,
                "steps_per_second": round(row.rate),
                "min": round(min(row.rates)),
                "max": round(max(row.rates)),
                **{key: value and round(value, 3) for key, value in ratios.items()},
            }
        )
    if not arguments.no_result:
        machine.write_result("envs", results, threads=arguments.threads, runs=RUNS)


if __name__ == "__main__":
    main()
