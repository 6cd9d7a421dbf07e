"""The trainer on a GPU: environments x policies x precisions x compiled or not; acting and update apart.

First the shipped configs are trained on this device and on the CPU: small networks may be faster there.

Then each row is two short runs of the trainer. The first one gives the rate. In the second one every section of the
clock waits for the device, which gives the seconds of each part; it is slower. The first measurement of a run is left
out as long as there is a second one, because libraries load and caches fill in it.
  k steps/s  decisions of all agents a second, thousands
  act        ns a step in the network while collecting;   copy: between host and device;   env: in the environments
  update     ns a step in the network's forward and backward pass
  of peak    the update's matrix products and convolutions a second, as a share of a large product's in that precision
Rows without torch.compile come first, then rows with it, which take longer to prepare. Rows for which --minutes leaves
no time are named at the end. `--tiny` runs everything uncompiled with small sizes: a test of this file.
"""

import dataclasses
import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the trainer does, before torch is imported

import device_table
import machine
import torch
from torch.utils.flop_counter import FlopCounterMode

from protein.config.resolve import load
from protein.trainer.config import EnvConfig, EvalConfig, PolicyConfig, RunConfig, TrainConfig
from protein.trainer.environments import spec
from protein.trainer.errors import TrainerError
from protein.trainer.events import Event
from protein.trainer.machine.precision import resolve_device
from protein.trainer.machine.stopwatch import Stopwatch
from protein.trainer.model.policy import Policy
from protein.trainer.run import run

SECONDS = 2.5  # of training, of each run
ENVS = {"pong": 16_384, "breakout": 8_192, "snake": 4_096}  # and how many of them
POLICIES = {
    "mlp 2x512": PolicyConfig(hidden_size=512),
    "lstm 256": PolicyConfig(hidden_size=256, num_layers=1, recurrence="lstm"),
    "mingru 512": PolicyConfig(hidden_size=512, num_layers=1, recurrence="mingru"),
    "cnn 256": PolicyConfig(hidden_size=256, num_layers=1, encoder="cnn"),
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {"overlap": True},
    {"cpu_inference": True},
    {"cpu_inference": True, "overlap": True},
)
HORIZON, TINY_HORIZON, TINY_ENVS = 64, 4, 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: what is trained, and how."""

    env: str
    policy: str
    precision: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.env:<10}{self.policy:<12}{self.precision:<6}{' '.join(self.options) or '-':<24}"

    def config(self, device: str, *, tiny: bool) -> RunConfig:
        envs, horizon = (TINY_ENVS, TINY_HORIZON) if tiny else (ENVS[self.env], HORIZON)
        policy = POLICIES[self.policy]
        if tiny:
            policy = dataclasses.replace(policy, hidden_size=8)
        agents = envs * spec(self.env).agents_per_env
        train = TrainConfig(
            total_timesteps=2 * agents * horizon if tiny else 10**12,
            max_seconds=0.0 if tiny else SECONDS,  # a busy machine could leave the few steps without an update
            device=device,
            precision=self.precision,  # type: ignore[arg-type]  # one of `device_table.PRECISIONS`
            horizon=horizon,
            minibatch_size=agents * horizon // 4,
            lr_schedule="constant",
            checkpoint_seconds=0.0,
            **self.options,
        )
        env = EnvConfig(name=self.env, num_envs=envs)
        return RunConfig(env=env, policy=policy, train=train, eval=EvalConfig(episodes=1, num_envs=1))


def rows(*, tiny: bool) -> Iterator[Row]:
    """Yields the table's rows, the most useful first."""
    cells = [
        (env, policy)
        for env, policy in itertools.product(("pong", "snake") if tiny else ENVS, POLICIES)
        if POLICIES[policy].encoder == "mlp" or len(spec(env).observation_shape) == 3
    ]
    for (env, policy), precision in itertools.product(cells, ("fp32", "bf16") if tiny else device_table.PRECISIONS):
        yield Row(env=env, policy=policy, precision=precision)
    for options in OPTIONS:
        yield Row(env="pong", policy="mlp 2x512", precision="tf32", options=options)
    for precision, (env, policy) in itertools.product(() if tiny else device_table.PRECISIONS[1:], cells):
        yield Row(env=env, policy=policy, precision=precision, options={"compile": True})


def measured(config: RunConfig, *, exact: bool) -> tuple[dict[str, float], float]:
    """Trains, and returns the seconds a step by section and `all`, and the most memory of the device in MB."""
    marks: list[tuple[int, float, dict[str, float]]] = [(0, 0.0, {})]

    def report(event: Event) -> None:
        if event["event"] == "measurement":
            marks.append((event["steps"], event["elapsed_seconds"], dict(event["metrics"])))

    device = resolve_device(config.train.device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    run(config, directory=None, report=report, stopwatch=Stopwatch(device, exact=exact))
    first, last = marks[1 if len(marks) > 2 else 0], marks[-1]
    steps = last[0] - first[0]
    sections = {name: spent for name, spent in last[2].items() if name.endswith("_seconds")}
    parts = {name[:-8]: (spent - first[2].get(name, 0.0)) / steps for name, spent in sections.items()}
    megabytes = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
    return parts | {"all": (last[1] - first[1]) / steps}, megabytes


def shipped(device: str, *, tiny: bool, until: float) -> list[dict[str, Any]]:
    """Prints and returns the steps a second of each environment's own config, on the device and on the CPU.

    None is begun after `until`, of the monotonic clock.
    """
    print(f"\n{'k steps/s with the shipped config':<40}{device:>10}{'cpu':>10}")
    results = []
    for env in ENVS:
        if time.monotonic() >= until:
            print(f"  {env:<38}no time was left")
            continue
        rates = {}
        for place in (device, "cpu"):
            train: dict[str, Any] = {"device": place, "checkpoint_seconds": 0.0}
            train |= {"total_timesteps": 2**15} if tiny else {"total_timesteps": 10**12, "max_seconds": SECONDS}
            config = load(env).run_config()
            assert isinstance(config, RunConfig)
            config = dataclasses.replace(
                config, train=dataclasses.replace(config.train, **train), eval=EvalConfig(episodes=1, num_envs=1)
            )
            try:
                rates[place] = round(1 / measured(config, exact=False)[0]["all"])
            except TrainerError as error:
                print(f"  {env:<38}{place}: {error}", flush=True)
        figures = (f"{rates[place] / 1e3:,.0f}" if place in rates else "-" for place in (device, "cpu"))
        print(f"  {env:<38}" + "".join(f"{figure:>10}" for figure in figures), flush=True)
        results.append({"env": env, "shipped": True, "steps_per_second": rates})
    return results


def update_flops(config: RunConfig) -> float:
    """Returns the arithmetic of the update's products and convolutions for each step, as torch counts it."""
    steps, agents = 2, 4
    of_env = spec(config.env.name)
    # In float64, which the compiled kernels do not take: they would not be counted.
    policy = Policy(of_env, config.policy, generator=torch.Generator()).double()
    observations = torch.zeros(steps, agents, of_env.observation_size, dtype=torch.float64)
    state = torch.zeros(agents, policy.state_size, dtype=torch.float64) if policy.state_size else None
    with FlopCounterMode(display=False) as counter:
        output, _ = policy(observations, state, torch.zeros(steps, agents, dtype=torch.bool))
        output.sum().backward()
    return float(counter.get_total_flops()) / (steps * agents) * config.train.update_epochs


def main() -> None:
    parser = device_table.make_parser(__doc__, "cuda, cuda:N, mps or cpu")
    arguments = parser.parse_args()
    until = time.monotonic() + 60 * arguments.minutes
    device, name = device_table.find_device(parser, arguments.device)
    print(f"training on {name}, torch {torch.__version__}: {machine.headline()}")
    results = shipped(arguments.device, tiny=arguments.tiny, until=until)
    peaks = device_table.measure_peaks(device, tiny=arguments.tiny)
    print(
        f"\n{'':<52}{'k steps/s':>10}{'act':>8}{'copy':>7}{'env':>7}{'update':>8}{'TFLOP/s':>9}{'of peak':>9}{'MB':>7}"
    )
    skipped: list[str] = []
    for row in rows(tiny=arguments.tiny):
        if time.monotonic() >= until:
            skipped.append(row.name)
            continue
        config = row.config(arguments.device, tiny=arguments.tiny)
        try:
            rate, megabytes = measured(config, exact=False)
            parts, _ = measured(config, exact=True)
        except TrainerError as error:
            print(f"{row.name}  {error}", flush=True)
            results.append(dataclasses.asdict(row) | {"error": str(error)})
            continue
        update = parts["update_forward"] + parts["update_backward"]
        if not update:
            print(f"{row.name}  no update fitted into the {SECONDS:g} s", flush=True)
            results.append(dataclasses.asdict(row) | {"error": "no update fitted into the time"})
            continue
        flops = update_flops(config) / update
        result = dataclasses.asdict(row) | {
            "steps_per_second": round(1 / rate["all"]),
            "act_ns": round(parts["rollout_forward"] * 1e9, 1),
            "copy_ns": round(parts["copy"] * 1e9, 1),
            "env_ns": round(parts["environment"] * 1e9, 1),
            "update_ns": round(update * 1e9, 1),
            "update_gflops": round(flops / 1e9, 1),
            "of_peak": round(flops / peaks[row.precision], 4),
            "device_memory_mb": round(megabytes),
        }
        print(
            f"{row.name}{result['steps_per_second'] / 1e3:>10,.0f}{result['act_ns']:>8,.0f}{result['copy_ns']:>7,.0f}"
            f"{result['env_ns']:>7,.0f}{result['update_ns']:>8,.0f}{flops / 1e12:>9.2f}{result['of_peak']:>9.1%}"
            f"{megabytes:>7,.0f}",
            flush=True,
        )
        results.append(result)
    if skipped:
        print(f"\nno time was left for {len(skipped)} rows (--minutes {arguments.minutes:g}):")
        print("\n".join(f"  {row}" for row in skipped))
    device_table.write_result("gpu", results, arguments, name, peaks)


if __name__ == "__main__":
    main()
