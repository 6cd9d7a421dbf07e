"""Which device a run of PPO takes where `train.device` is "auto": that on which it was measured to be faster.

A small network may train three times as fast on the CPU as on a GPU, which waits for launches; a large one is faster on
the GPU. So where several devices are there, acting and the update are timed on each, with the run's own network, number
of environments and minibatch, on made-up observations. What is timed are the parts of the run (`Rollout`, `PPO`); the
environments take as long beside either. The result is kept for the next such run (`protein.trainer.machine.measured`).

    seconds a step  =  acting, for an agent and step  +  update_epochs x update, for a sample

**It takes a second at most** (`MAX_SECONDS`), after each device was woken by the smallest piece of work. This holds
because no piece is begun that may not fit: work on n times the rows takes at most n times as long. So each part begins
with a few rows and then takes the largest number, up to the run's own, that fits by what the last one took. Where it
does not come up to the run's own, the time of the largest piece counts, in proportion: then the fixed cost of a call is
small against it.

Nothing is timed, and the first accelerator is taken (CUDA, then MPS, then the CPU), where there is one device alone;
for a language model; for several processes; with `train.cpu_inference`, which is for a GPU; and for a trial that was
given GPUs by `--gpus`: whoever names GPUs wants them to be used. With `train.compile` the uncompiled network is timed.

A resumed run keeps the device that its checkpoint names, as long as that is there: what it computes depends on it.
"""

import contextlib
import copy
import dataclasses
import functools
import gc
import importlib.metadata
import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.overrides import TorchFunctionMode

from protein.envs_c import EnvSpec, Episodes

from ..config import EnvConfig, PolicyConfig, RunConfig
from ..environments import spec as spec_of
from ..machine import measured
from ..machine.cores import usable_cores
from ..machine.graphs import Recorder
from ..machine.precision import (
    Arithmetic,
    Choice,
    found_devices,
    half_convolutions,
    prepare_backward_passes,
    resolve_device,
    wait_for,
)
from ..machine.precision_table import precisions_of
from ..machine.stopwatch import Stopwatch
from ..model.policy import Policy
from .rollout import Batch, Rollout
from .update import PPO

MAX_SECONDS = 1.0
ROUNDS = 5  # of the largest piece; the fastest counts
FIRST_ROWS = 16
WORK_IN_MAKING = 4  # to try it out and to record it twice, and once before it counts
ACTING_STEPS = 8  # of a piece of acting, or the horizon
CROSSING_ENVS, CROSSING_UNITS = (256, 1024, 4096, 16384), (16, 32, 64, 128, 256, 512, 1024)
CROSSING_SECONDS = 0.1  # of a timing

Clock = Callable[[], float]
Timing = Callable[[torch.device, float], float]  # a device, the moment when it must be done -> seconds a step


def choose(
    config: RunConfig, *, threads: int, before: str | None = None, gpu_given: bool = False, processes: int = 1
) -> Choice:
    """Returns the device of a run on this machine.

    Args:
        config: of the run.
        threads: that it computes with.
        before: the device that it was on, if it is resumed; None: it is new, or nothing is known.
        gpu_given: whether somebody has given it a GPU, by `--gpus`.
        processes: that train together.

    Raises:
        ConfigError: the device that the config names is not there.
    """
    if config.train.device != "auto":
        return Choice(device=resolve_device(config.train.device))
    here, notes = found_devices(), []
    if before is not None:
        kept = [device for device in here if device.type == before.partition(":")[0]]
        if kept:
            return Choice(device=kept[0])
        notes = [f"this run was on {before}, which is not here: it goes on elsewhere, so its results differ"]
    if len(here) == 1 or processes > 1 or gpu_given or config.train.cpu_inference:
        return Choice(device=here[0], notes=tuple(notes))
    found = measure(here, lambda: timing_of(config, threads), facts=facts_of(config, here, threads))
    return dataclasses.replace(found, notes=(*notes, *found.notes))


def measure(
    devices: Sequence[torch.device],
    prepare: Callable[[], Timing],
    *,
    facts: Mapping[str, Any],
    clock: Clock = time.perf_counter,
) -> Choice:
    """Returns the device with the fewest seconds a step, from what was kept or by timing each of them.

    One that fails is left out with a note, and the result is not kept: it may be there again next time.

    Args:
        devices: at least two. Where all of them fail, the last one is taken, and the run itself says why.
        prepare: returns the function that times a device; it is not called where the result was kept.
        facts: all that the result depends on, plain JSON.
        clock: in seconds.
    """
    names = [str(device) for device in devices]
    kept = _rates_in(measured.recall(facts), names)
    if kept is not None:
        device = devices[names.index(max(kept, key=kept.__getitem__))]
        return Choice(device=device, notes=(f"{_in_words(kept)}, as measured earlier",), seconds=0.0)
    began = clock()
    try:
        time_on = prepare()
    except Exception:  # the run meets the same error, and reports it
        return Choice(device=devices[0])
    rates: dict[str, float] = {}
    notes = []
    for name, device in zip(names, devices, strict=True):
        try:  # all have equal parts: what one needs to wake is not taken from the others
            rates[name] = 1.0 / time_on(device, MAX_SECONDS / len(devices))
        except Exception as error:  # a driver, a library or a user's network may raise anything
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            notes.append(f"{name} was left out, it failed while it was timed: {reason}")
    if any(device.type == "cuda" for device in devices):
        gc.collect()  # what was timed, before the memory that it had is given back
        with contextlib.suppress(RuntimeError):  # the device has failed
            torch.cuda.empty_cache()
    seconds = clock() - began
    if not rates:
        return Choice(device=devices[-1], notes=tuple(notes), seconds=seconds)
    if not notes:
        measured.keep(facts, rates)
    device = devices[names.index(max(rates, key=rates.__getitem__))]
    return Choice(device=device, notes=(*notes, _in_words(rates)), seconds=seconds)


def _in_words(rates: Mapping[str, float]) -> str:
    """Returns rates in steps a second, the fastest first, as in "cpu: 548,000 steps a second, cuda: 180,000"."""
    fastest, *others = sorted(rates, key=lambda name: -rates[name])
    return ", ".join(
        [f"{fastest}: {_rounded(rates[fastest]):,} steps a second", *(f"{n}: {_rounded(rates[n]):,}" for n in others)]
    )


def _rounded(rate: float) -> int:
    unit = int(10 ** max(math.floor(math.log10(max(rate, 1.0))) - 2, 0))
    return round(rate / unit) * unit


def _rates_in(kept: Any, names: Sequence[str]) -> dict[str, float] | None:
    """Returns what was kept, where it is a rate of each device."""
    if not isinstance(kept, dict) or set(kept) != set(names):
        return None
    sound = all(isinstance(rate, float) and math.isfinite(rate) and rate > 0 for rate in kept.values())
    return kept if sound else None


def crossing(threads: int, time_with: Callable[[RunConfig], Timing] | None = None) -> str:
    """Returns in words from which network on an accelerator is faster than the CPU, by number of environments.

    It is found by halving: from some size on the accelerator is the faster one, and with more environments that size is
    no larger. A device that fails raises what it may.

    Args:
        threads: of a run.
        time_with: returns the timing of a run; None: that of `timing_of`.

    Returns:
        One line; "" where there is no accelerator.
    """
    accelerator, *_, cpu = [*found_devices(), torch.device("cpu")]
    if accelerator == cpu:
        return ""
    time_with = time_with or (lambda config: timing_of(config, threads))
    words, most = [], len(CROSSING_UNITS)
    for num_envs in CROSSING_ENVS:
        least = 0
        while least < most:
            middle = (least + most) // 2
            policy = PolicyConfig(hidden_size=CROSSING_UNITS[middle])
            time_on = time_with(RunConfig(env=EnvConfig(num_envs=num_envs), policy=policy))
            if time_on(accelerator, CROSSING_SECONDS) < time_on(cpu, CROSSING_SECONDS):
                most = middle
            else:
                least = middle + 1
        where = f"from {CROSSING_UNITS[most]} units on" if most < len(CROSSING_UNITS) else "at no size"
        words.append(f"with {num_envs:,} environments {where}")
    return f"{accelerator} is faster than the CPU for pong, two hidden layers: {', '.join(words)}"


def facts_of(config: RunConfig, devices: Sequence[torch.device], threads: int) -> dict[str, Any]:
    """Returns all that the speed of a run on these devices depends on, as plain JSON.

    Horizon and minibatch count by their powers of two: a sweep would else measure for each of its trials.
    """
    train = config.train
    return {
        "machine": [platform.node(), platform.machine(), usable_cores(), threads],
        "devices": [_device_facts(device) for device in devices],
        "versions": [str(torch.__version__), _own_version()],
        "env": [config.env.name, config.env.args, config.env.num_envs],
        "policy": {name: value for name, value in dataclasses.asdict(config.policy).items() if name != "init_from"},
        "precision": [train.precision, train.update_precision, train.train_fp16],
        "powers": [round(math.log2(size)) for size in (train.horizon, train.minibatch_size)],
        "update": [train.optimizer, train.accumulation_steps, train.update_epochs, train.graphs],
    }


def _own_version() -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("protein-sweep")
    return ""


def _device_facts(device: torch.device) -> list[str]:
    """Returns a device's name, and for a GPU the card and the versions of the driver and of CUDA."""
    if device.type != "cuda":
        return [str(device)]
    driver = ""
    with contextlib.suppress(OSError):
        driver = Path("/proc/driver/nvidia/version").read_text().partition("\n")[0]
    try:
        card = torch.cuda.get_device_name(device)
    except Exception:  # it has vanished, as timing it will show
        card = "unknown"
    return [str(device), card, driver, str(torch.version.cuda)]


def timing_of(config: RunConfig, threads: int, clock: Clock = time.perf_counter) -> Timing:
    """Returns the function that times a run's acting and update on a device.

    Raises:
        TrainerError: the environment or the network cannot be made.
    """
    spec = spec_of(config.env.name, config.env.args)

    @functools.cache
    def network(half: bool) -> Policy:
        with torch.random.fork_rng(devices=[]), _AnyWeights():  # layers draw weights before ours are drawn
            weights = torch.Generator().manual_seed(0)
            return Policy(spec, config.policy, generator=weights, half_convolutions=half)

    def time_on(device: torch.device, seconds: float) -> float:
        half = config.policy.encoder == "cnn" and half_convolutions(device, config.train.precision)
        return _Parts(config, spec, network(half), device, threads).seconds_a_step(seconds, clock)

    network(False)
    return time_on


class _AnyWeights(TorchFunctionMode):
    """Leaves out the decomposition that makes first weights orthogonal: of a large network it takes many seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.linalg.qr:
            (matrix,) = args
            return matrix / matrix.shape[0] ** 0.5, matrix[: matrix.shape[1]]  # as large as orthogonal columns are
        return func(*args, **(kwargs or {}))


class _Parts:
    """The parts of a run on one device, with any number of agents and segments."""

    def __init__(self, config: RunConfig, spec: EnvSpec, policy: Policy, device: torch.device, threads: int) -> None:
        self._spec, self._device, self._threads = spec, device, threads
        self._epochs = config.train.update_epochs
        self._precisions = precisions_of(config, device)
        acting, update = self._precisions
        self._train = dataclasses.replace(
            config.train,
            precision=acting,
            update_precision=update,
            train_fp16=False,
            update_epochs=1,
            learning_rate=1e-9,  # what is timed must not diverge, whatever the run will do
            overlap=False,
            target_kl=0.0,
            ent_coef_final=-1.0,
            target_entropy=0.0,
        )
        prepare_backward_passes(device)
        self._policy = copy.deepcopy(policy).to(device)
        self._stopwatch = Stopwatch(device)
        self._ppo = PPO(
            self._policy,
            self._train,
            device=device,
            generator=torch.Generator().manual_seed(0),
            stopwatch=self._stopwatch,
        )
        train = self._train
        self._agents = config.env.num_envs * spec.agents_per_env
        # A segment of a policy without memory is one sample.
        self._steps = train.horizon if policy.state_size else 1
        most = self._agents * train.horizon // self._steps
        self._segments = min(max(train.minibatch_size // self._steps, 1), most)

    def seconds_a_step(self, seconds: float, clock: Clock) -> float:
        """Returns the seconds of acting and update for a step of one agent; takes about as many at most."""
        with Arithmetic(self._device, self._threads, self._precisions.products) as arithmetic:
            self._arithmetic = arithmetic
            for make in (self._acting, self._learning):
                make(1)()  # wakes the device, loads its libraries, and is not on the clock
            began = clock()
            acting = least_seconds(self._acting, self._agents, began + seconds / 2, clock)
            learning = least_seconds(self._learning, self._segments, began + seconds, clock)
        steps = min(ACTING_STEPS, self._train.horizon)
        return acting / steps + self._epochs * learning / self._steps

    def _acting(self, agents: int) -> Callable[[], None]:
        """Returns a function that takes some steps with `agents` agents."""
        rollout = Rollout(
            [_Still(self._spec, agents)],
            self._policy,
            horizon=(steps := min(ACTING_STEPS, self._train.horizon)),
            gamma=self._train.gamma,
            device=self._device,
            generator=torch.Generator(self._device).manual_seed(0),
            stopwatch=self._stopwatch,
            precision=self._precisions.acting,
        )
        rollout.reset(0)
        self._arithmetic.prepare(agents, self._policy.largest_layer)
        rollout.record(Recorder(self._device, self._train.graphs))

        def act() -> None:
            self._arithmetic.prepare(agents, self._policy.largest_layer)
            rollout.collect(steps)
            wait_for(self._device)

        return act

    def _learning(self, segments: int) -> Callable[[], None]:
        """Returns a function that updates the policy with a minibatch of `segments` segments."""
        batch = self._batch(segments)
        features, dtype = self._spec.observation_size, self._policy.observation_dtype
        self._ppo.record(features, segments, self._steps, dtype=dtype, idles=False)

        def learn() -> None:
            self._arithmetic.prepare(len(batch), self._policy.largest_layer)
            self._ppo.update(batch, 0.5)
            wait_for(self._device)

        return learn

    def _batch(self, segments: int) -> Batch:
        """Returns a batch of made-up samples."""
        steps, policy, device = self._steps, self._policy, self._device
        noise = torch.Generator().manual_seed(0)
        observations = torch.rand(steps, segments, self._spec.observation_size, generator=noise)
        if policy.observation_dtype == torch.uint8:
            observations = observations.mul_(self._spec.observation_high)
        distribution = policy.distribution
        return Batch(
            observations=observations.to(device, policy.observation_dtype),
            actions=torch.zeros(distribution.components, steps, segments, dtype=distribution.dtype, device=device),
            logprobs=torch.zeros(steps, segments, device=device),
            values=torch.zeros(steps + 1, segments, device=device),
            rewards=torch.rand(steps, segments, generator=noise).to(device),
            ends=torch.zeros(steps, segments, dtype=torch.bool, device=device),
            resets=torch.zeros(steps, segments, dtype=torch.bool, device=device),
            state=torch.zeros(segments, policy.state_size, device=device) if policy.state_size else None,
        )


class _Still:
    """Environments in which nothing happens, and no time goes: a `VectorEnv`."""

    resumable = False

    def __init__(self, spec: EnvSpec, agents: int) -> None:
        self.spec, self.num_envs, self.num_agents = spec, agents, agents

    def reset(self, seed: int, observations: npt.NDArray[Any]) -> None: ...

    def step(
        self,
        actions: npt.NDArray[Any],
        observations: npt.NDArray[Any],
        rewards: npt.NDArray[np.float32],
        terminals: npt.NDArray[np.bool_],
        truncations: npt.NDArray[np.bool_],
        final_observations: npt.NDArray[Any] | None = None,
    ) -> None: ...

    def drain_episodes(self) -> Episodes:
        none = np.zeros(0, np.float32)
        return Episodes(agent=none.astype(np.int32), score=none, return_=none, length=none.astype(np.int32))

    def get_state(self) -> bytes:
        return b""

    def set_state(self, state: bytes) -> None: ...

    def close(self) -> None: ...


def least_seconds(make: Callable[[int], Callable[[], None]], rows: int, until: float, clock: Clock) -> float:
    """Returns the seconds for a row, of the largest piece of work of at most `rows` rows that fits.

    Args:
        make: returns the work on a number of rows. Making it costs at most `WORK_IN_MAKING` times that work, and what
            does not depend on the rows. It is not timed.
        rows: of the whole work.
        until: no piece is begun that may take longer than to this moment, but for the first one.
        clock: in seconds.
    """

    def timed(work: Callable[[], None]) -> float:
        began = clock()
        work()
        return max(clock() - began, 1e-9)

    size = min(rows, FIRST_ROWS)
    while True:
        began = clock()
        work = make(size)
        work()
        making, seconds = clock() - began, timed(work)
        # Another size is made anew. That takes as long, and the work some times; then comes the round that counts.
        left = until - clock() - making
        fitting = min(rows, int(size * left / ((WORK_IN_MAKING + 1) * seconds)))
        if fitting < min(2 * size, rows) or size == rows:
            break
        size = fitting
    for _ in range(ROUNDS - 1):
        if clock() + seconds > until:
            break
        seconds = min(seconds, timed(work))
    return seconds / size
