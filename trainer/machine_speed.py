"""How fast this machine trains: `python -m protein.trainer.machine_speed [--threads N] [--device D] [--max-seconds S]`.

A few short trainings of fixed work are timed again and again. Each has another kind of network: a small MLP, an LSTM
and a larger MLP, with environments in C around them. So the sum of what a trial does is in the figure: stepping
environments, acting, advantages, updates.

Other programs can only make a training slower. So the time in which they had its cores does not count, where the system
tells it, and each workload counts with its fastest round. The calibration ends once the two fastest rounds of all
workloads agree, or at its limit. One figure stands for the machine: the geometric mean of the workloads' seconds.

On stdout there is a JSON object after each round (`Round`), and one at the end (`Calibration`).
"""

import argparse
import dataclasses
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping

from .config import EnvConfig, EvalConfig, PolicyConfig, RunConfig, TrainConfig
from .errors import TrainerError
from .events import Event, Start
from .machine.cores import thread_times, throttled_seconds, waited_for_others
from .run import run

MAX_SECONDS = 10.0  # that count: no round is begun that would make it more, but for the first two
MAX_WALL_FACTOR = 3.0  # beside other programs it takes longer, up to so many times as long
MIN_ROUNDS = 2
_LEAST_SHARE = 0.02  # of the wall clock that counts at least
STABLE = 0.03  # the two fastest rounds of each workload differ by less than this share

# Environment, network, total_timesteps: each takes 0.5 to 1 s on one core of a server of 2025.
WORKLOADS: Mapping[str, tuple[EnvConfig, PolicyConfig, TrainConfig]] = {
    "mlp": (
        EnvConfig(name="pong", num_envs=256, frame_skip=5),
        PolicyConfig(hidden_size=64),
        TrainConfig(total_timesteps=524_288, horizon=64, minibatch_size=2048, update_epochs=3),
    ),
    "lstm": (
        EnvConfig(name="breakout", num_envs=256),
        PolicyConfig(hidden_size=64, recurrence="lstm"),
        TrainConfig(total_timesteps=98_304, horizon=32, minibatch_size=2048, update_epochs=2),
    ),
    "wide mlp": (
        EnvConfig(name="breakout", num_envs=1024),
        PolicyConfig(hidden_size=256),
        TrainConfig(total_timesteps=98_304, horizon=32, minibatch_size=8192, update_epochs=2),
    ),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One round has ended."""

    round: int  # counts from 1
    elapsed_seconds: float  # of the whole calibration so far
    spread: float  # see `Calibration`; after the first round it is infinite, which JSON shows as null


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The result.

    Attributes:
        seconds: geometric mean of the seconds that the workloads took, each in its fastest round.
        spread: by how much the second fastest round was slower than the fastest, as a share; the largest of all
            workloads.
        rounds: how many rounds there were.
        parts: the seconds of each workload's fastest round.
        device: where the networks ran, such as `cpu` or `cuda`.
        threads: that each training had.
    """

    seconds: float
    spread: float
    rounds: int
    parts: Mapping[str, float]
    device: str
    threads: int


def measure(
    *,
    threads: int = 0,
    device: str = "auto",
    max_seconds: float = MAX_SECONDS,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Calibration:
    """Times the workloads on this machine, in this process.

    Args:
        threads: of each training, as a trial has; 0: one per core that this process may use.
        device: as in `train.device`.
        max_seconds: of the time that counts; beside other programs it takes up to `MAX_WALL_FACTOR` times as long. Two
            rounds are made in any case.
        report: called after each round.

    Raises:
        TrainerError: a training failed; for example, the device is not there.
    """
    began = time.perf_counter()
    seconds: dict[str, list[float]] = {name: [] for name in WORKLOADS}
    used: Start | None = None
    while True:
        for name in WORKLOADS:
            if used is None:
                _train(name, threads, device, steps_share=0.1)  # loads kernels and wakes the device; not counted
            spent, used = _train(name, threads, device)
            seconds[name].append(spent)
        assert used is not None
        rounds, elapsed = len(seconds["mlp"]), time.perf_counter() - began
        counted = sum(map(sum, seconds.values()))
        grown = (rounds + 1) / rounds
        over = counted * grown > max_seconds or elapsed * grown > MAX_WALL_FACTOR * max_seconds
        spread = max(_spread(times) for times in seconds.values())
        report(Progress(round=rounds, elapsed_seconds=elapsed, spread=spread))
        if rounds >= MIN_ROUNDS and (spread < STABLE or over):
            break
    parts = {name: min(times) for name, times in seconds.items()}
    return Calibration(
        seconds=math.exp(sum(map(math.log, parts.values())) / len(parts)),
        spread=spread,
        rounds=rounds,
        parts=parts,
        device=used["device"],
        threads=used["threads"],
    )


def _train(name: str, threads: int, device: str, *, steps_share: float = 1.0) -> tuple[float, Start]:
    """Returns the seconds that a workload's training took, without start-up, and its `start` event."""
    env, policy, train = WORKLOADS[name]
    steps = int(steps_share * train.total_timesteps)
    train = dataclasses.replace(
        train, total_timesteps=steps, threads=threads, device=device, checkpoint_seconds=0.0, seed=0
    )
    config = RunConfig(env=env, policy=policy, train=train, eval=EvalConfig(episodes=1, num_envs=1))
    stop = threading.Event()
    started: list[Start] = []

    def follow(event: Event) -> None:
        if event["event"] == "start":
            started.append(event)
        elif event["event"] == "measurement" and event["steps"] >= steps:
            stop.set()  # no evaluation

    process = os.getpid()
    waits, throttled = thread_times(process), throttled_seconds()
    result = run(config, directory=None, report=follow, stop=stop)
    throttled = throttled_seconds() - throttled
    waited = waited_for_others(waits, thread_times(process), throttled, result.elapsed_seconds)
    return max(result.elapsed_seconds - waited, _LEAST_SHARE * result.elapsed_seconds), started[0]


def _spread(times: list[float]) -> float:
    """Returns by how much the second fastest time is slower, as a share; infinite for a single one."""
    fastest, second = sorted([*times, math.inf])[:2]
    return second / fastest - 1.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m protein.trainer.machine_speed", allow_abbrev=False)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--max-seconds", type=float, default=MAX_SECONDS)
    ours = parser.parse_args(arguments)

    def show(value: Progress | Calibration) -> None:
        fields = dataclasses.asdict(value)
        if not math.isfinite(value.spread):
            fields["spread"] = None
        print(json.dumps(fields), flush=True)

    try:
        show(measure(threads=ours.threads, device=ours.device, max_seconds=ours.max_seconds, report=show))
    except TrainerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
