"""What benchmarks/gpu.py measures, each by one call in the process that measures: runs of the trainer, as they are.

A run is timed over whole iterations: those of PPO, or an optimiser's steps of a language model. The first ones are left
out: libraries load in them, caches fill, and launches are recorded. The clock waits for the device at its two ends.
"""

import contextlib
import dataclasses
import functools
import gc
import json
import math
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from language import ours, plain, steps
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from protein.trainer.config import RunConfig
from protein.trainer.environments import spec
from protein.trainer.events import Event
from protein.trainer.kinds import Config
from protein.trainer.language import training
from protein.trainer.language.config import TrainConfig
from protein.trainer.language.model import GPT
from protein.trainer.machine.graphs import Launches, standing_in
from protein.trainer.machine.precision import resolve_device
from protein.trainer.machine.precision_table import network_of
from protein.trainer.machine.stopwatch import Stopwatch
from protein.trainer.model.policy import Policy
from protein.trainer.progress import Progress
from protein.trainer.run import run

WARM = 2  # iterations before the clock begins
PROFILED = 2  # iterations
PEAK_SIZE, PEAK_ROUNDS = 8192, 10  # of the products whose best rate is the device's peak
LAUNCHES = ("Launch", "cudaMemcpy", "cudaMemset", "cuMemcpy", "cuMemset")  # in a call's name: it queues work
UPDATE = ("update_forward", "update_backward", "optimizer")  # sections of the clock
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of a trace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """A part of a run: whole iterations."""

    seconds: float
    steps: int  # decisions of agents, or tokens
    iterations: int
    sections: Mapping[str, float]  # seconds by section of the stopwatch
    start: Mapping[str, Any]  # the run's first event


def wait(device: torch.device) -> None:
    """Waits until the device has done all that is queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measured(config: Config, seconds: float, *, exact: bool = False, profiler: Any = None) -> Measured:
    """Trains until `seconds` have passed, in whole iterations, and `PROFILED` more where there is a `profiler`.

    `exact`: every section of the clock waits for the device.
    """
    device = resolve_device(config.train.device)
    gc.collect()  # the run before gives back what it holds on the device
    stopwatch, stop = Stopwatch(device, exact=exact), threading.Event()
    marks: list[tuple[float, int, int, dict[str, float]]] = []
    events: list[Event] = []
    end_step, number = Progress.end_step, 0

    def timed(progress: Progress) -> None:
        nonlocal number
        end_step(progress)
        number += 1
        late = len(marks) == 1 and time.perf_counter() - marks[0][0] >= seconds
        if number == WARM or late:
            wait(device)
            marks.append((time.perf_counter(), progress.steps, number, dict(stopwatch.seconds)))
            if late and profiler is not None:
                profiler.start()
        if len(marks) == 2 and number >= marks[1][2] + (0 if profiler is None else PROFILED):
            if profiler is not None and not stop.is_set():
                wait(device)
                profiler.stop()
            stop.set()

    with mock.patch.object(Progress, "end_step", timed):
        run(config, directory=None, report=events.append, stop=stop, stopwatch=stopwatch)
    (began, first_steps, first, before), (ended, last_steps, last, after) = marks
    return Measured(
        seconds=ended - began,
        steps=last_steps - first_steps,
        iterations=last - first,
        sections={name: spent - before.get(name, 0.0) for name, spent in after.items()},
        start=events[0],
    )


def about(device: str) -> dict[str, Any]:
    """Returns the device's name and kind, and the versions of its software. Raises ConfigError where it is not here."""
    place, found = resolve_device(device), {"torch": torch.__version__, "device": device}
    if place.type == "cuda":
        found["cuda"] = str(torch.version.cuda)
        found["device"] = torch.cuda.get_device_name(place)
        return found | {"capability": list(torch.cuda.get_device_capability(place))}
    return found


def peak(device: str, precision: str, *, size: int = PEAK_SIZE) -> float:
    """Returns the best rate of a product of two `size x size` matrices, in operations a second."""
    place = torch.device(device)
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    a = torch.rand(size, size, device=place).to(kind)
    best = 0.0
    for _ in range(PEAK_ROUNDS):
        wait(place)
        began = time.perf_counter()
        a @ a
        wait(place)
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best


def speed(config: Config, *, seconds: float) -> dict[str, Any]:
    """Returns the steps a second, and the most memory of the device in MB."""
    device = resolve_device(config.train.device)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    found = measured(config, seconds)
    result = {"steps_per_second": round(found.steps / found.seconds), "iterations": found.iterations}
    result |= {name: found.start[name] for name in ("graphs", "precision") if name in found.start}
    if device.type == "cuda":
        result["device_memory_mb"] = round(torch.cuda.max_memory_allocated(device) / 2**20)
    return result


def parts(config: RunConfig, *, seconds: float) -> dict[str, Any]:
    """Returns ns a step by section, each of which waits for the device, and the update's arithmetic a second."""
    found = measured(config, seconds, exact=True)
    result: dict[str, Any] = {
        f"{name}_ns": round(spent / found.steps * 1e9, 1) for name, spent in found.sections.items()
    }
    update = sum(found.sections[name] for name in UPDATE)
    result["update_ns"] = round(update / found.steps * 1e9, 1)
    if update:
        result["update_flops_per_second"] = update_flops(config) * found.steps / update
    # A row of the table of precisions: see trainer/machine/precision_table.py.
    agents = config.env.num_envs * spec(config.env.name).agents_per_env
    return result | {
        "precision": found.start.get("precision", config.train.precision),
        "network": network_of(config.policy),
        "hidden": config.policy.hidden_size,
        "acting_samples": agents,
        "update_samples": config.train.minibatch_size // config.train.accumulation_steps,
    }


def update_flops(config: RunConfig) -> float:
    """Returns the arithmetic of the update's products and convolutions for each step, as torch counts it."""
    length, agents = 2, 4
    of_env = spec(config.env.name)
    # In float64, which the compiled kernels do not take: they would not be counted.
    policy = Policy(of_env, config.policy, generator=torch.Generator()).double()
    observations = torch.zeros(length, agents, of_env.observation_size, dtype=torch.float64)
    state = torch.zeros(agents, policy.state_size, dtype=torch.float64) if policy.state_size else None
    with FlopCounterMode(display=False) as counter:
        output, _ = policy(observations, state, torch.zeros(length, agents, dtype=torch.bool))
        output.sum().backward()
    return float(counter.get_total_flops()) / (length * agents) * config.train.update_epochs


def launches(config: Config, *, seconds: float) -> dict[str, Any]:
    """Returns what the host queues for an iteration on a GPU, and the share of the time in which the GPU works.

    The work comes from a profile, and the time from iterations before it: a profile makes the host slower. On a CPU it
    is what a host would queue, by the stand-in for graphs.
    """
    device = torch.device(resolve_device(config.train.device))
    if device.type == "cpu":
        counter = Counter()
        with standing_in():
            measured(config, seconds, profiler=counter)
        return {"launches": counter.launches.number / PROFILED}
    with profile(activities=[ProfilerActivity.CUDA]):  # loads it before anything is recorded
        torch.zeros(1, device=device).add_(1)
        wait(device)
    profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    found = measured(config, seconds, profiler=profiler)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        counts = counted(json.loads(path.read_text())["traceEvents"], PROFILED)
    each = found.seconds / found.iterations
    return counts | {"iteration_seconds": each, "busy": counts["busy_seconds"] / each}


class Counter:
    """Counts what a host would launch, from `start` to `stop`, as a profiler does on a GPU."""

    def __init__(self) -> None:
        self.launches = Launches()
        self.start, self.stop = self.launches.__enter__, lambda: self.launches.__exit__(None, None, None)


def counted(trace: list[dict[str, Any]], iterations: int) -> dict[str, float]:
    """Returns launches of the host and work of the device for each iteration of a trace.

    A call of the driver inside one of the runtime is the same launch. Work of several streams at the same time counts
    once. Source: "Trace Event Format", complete events (`X`); times in microseconds.
    """
    complete = [event for event in trace if event.get("ph") == "X"]
    calls = [
        event
        for event in complete
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and any(word in event["name"] for word in LAUNCHES)
    ]
    num_launches, ends = 0, dict[Any, float]()
    for call in sorted(calls, key=lambda event: (event["ts"], -event["dur"])):
        if call["ts"] >= ends.get(call["tid"], -math.inf):
            num_launches += 1
            ends[call["tid"]] = call["ts"] + call["dur"]
    work = sorted((event["ts"], event["ts"] + event["dur"]) for event in complete if event.get("cat") in ON_DEVICE)
    busy, until = 0.0, -math.inf
    for began, ended in work:
        busy += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return {
        "launches": num_launches / iterations,
        "kernels": len(work) / iterations,
        "busy_seconds": busy / 1e6 / iterations,
    }


@functools.lru_cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Returns the folder of this process's texts, which is deleted when it ends."""
    return tempfile.TemporaryDirectory()


def _tokens(vocabulary: int) -> Path:
    path = Path(_folder().name) / f"{vocabulary}.bin"
    if not path.exists():
        plain.write_tokens(path, vocabulary)
    return path


@contextlib.contextmanager
def _reading(size: plain.Size) -> Iterator[None]:
    """A run of a language model reads the benchmark's tokens."""
    corpus = ours.corpus_of(_tokens(size.vocabulary), size.vocabulary)
    with mock.patch.object(training, "open_corpus", lambda _: corpus):
        yield


def language_plain(step: str, *, device: str, tiny: bool) -> dict[str, Any]:
    """Returns a step of the optimiser of `language.steps` by name: its time and its arithmetic."""
    size, chosen = _size(tiny=tiny), next(known for known in steps.STEPS if known.name == step)
    how_many = 2 if tiny else steps.MEASURED
    spent = steps.milliseconds(chosen, size, torch.device(device), _tokens(size.vocabulary), how_many)
    return _of_step(size, "gpt2", chosen.precision, spent / 1e3)


def language_ours(*, device: str, arch: str, seconds: float, tiny: bool, **train: Any) -> dict[str, Any]:
    """Returns the same of a step of this trainer, with settings of `[train]`."""
    size = _size(tiny=tiny)
    with _reading(size):
        found = measured(ours.config_of(size, arch, _settings(size, device, train)), seconds)
    return _of_step(size, arch, found.start["precision"], found.seconds / found.iterations)


def language_small(*, device: str, seconds: float, tiny: bool, **train: Any) -> dict[str, Any]:
    """Returns the tokens a second of the shipped language model, on the benchmark's tokens."""
    size = plain.SIZES["tiny"] if tiny else steps.SHIPPED
    with _reading(size):
        return speed(ours.config_of(size, "modern", _settings(size, device, train)), seconds=seconds)


def _settings(size: plain.Size, device: str, train: Mapping[str, Any]) -> TrainConfig:
    common: dict[str, Any] = {
        "total_tokens": 10**12,
        "batch_tokens": size.tokens,
        "lr_schedule": "constant",
        "checkpoint_seconds": 0.0,
    }
    return TrainConfig(**common, device=device, **train)


def _size(*, tiny: bool) -> plain.Size:
    return steps.TINY if tiny else steps.GPT2


def _of_step(size: plain.Size, arch: str, precision: str, seconds: float) -> dict[str, Any]:
    with torch.device("meta"):
        flops = GPT(ours.model_config(size, arch), size.vocabulary, torch.Generator()).flops_per_token
    rate = size.tokens / seconds
    return {
        "precision": precision,
        "milliseconds": seconds * 1e3,
        "tokens_per_second": rate,
        "flops_per_second": rate * flops,
    }
