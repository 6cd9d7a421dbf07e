"""What may run at the same time in PPO. A first reader may skip this file.

Three options, apart or together:

`env.double_buffer`, and environments in worker processes (`protein.trainer.environments.pool`). `InterleavedRollout`
steps some groups of environments while the policy acts on another. Two halves step in a thread each. Groups in
processes step on as soon as their last step is done. The order in which they step does not change the results, because
the groups share neither state nor randomness. A network that is one fused kernel computes each row alone, so its
results also equal those of undivided environments. Other networks round differently for another number of rows.

`train.cpu_inference`. The network that acts is a copy on the CPU (`Snapshot`), whatever device trains. A batch is
copied to a GPU on a stream of its own.

`train.overlap`. The `Collector` collects the next batch during the update:

    in turn      collect 0   update 0    collect 1   update 1    ...
    overlapping  collect 0 | update 0    update 1                ...
                           | collect 1   collect 2               ...   in a thread of its own

Batch k + 1 is collected during update k, with the weights from before that update. So the weights are one update old
when the batch is used, and the update corrects for that (`protein.trainer.ppo.update`). The thread reads a snapshot of
the weights, which is taken once an iteration and does not change in between. There are two sets of buffers: batch k is
overwritten when batch k + 2 is collected. The thread that collects starts a batch's copy to a GPU, while the update
before it runs.

A batch depends on the snapshot and on the state before it, but not on the time when it is collected. So a batch that is
not begun early (before a checkpoint, or at the end) has the same numbers. Between batches a checkpoint is complete.
Both threads need the processor's cores. Overlap pays only where one of them waits, for a device or for slow
environments in other processes.
"""

import contextlib
import copy
import dataclasses
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import cast

import torch

from protein.envs_c import Episodes

from ..environments import VectorEnv
from ..environments.base import Rows
from ..machine.cuda import to_device
from ..machine.stopwatch import Stopwatch
from ..model.policy import Policy
from ..optim.optimizer import flatten_
from .rollout import Batch, Finals, Group, Rollout


class BackgroundGroup(Group):
    """Steps in worker processes, or else in a thread of its own."""

    def __init__(self, envs: VectorEnv, columns: slice) -> None:
        super().__init__(envs, columns)
        self.pool = getattr(envs, "pool", None)  # processes that step several groups, this one among them
        self._thread = ThreadPoolExecutor(1) if self.pool is None else None
        self._pending: Future[None] | None = None
        self._begun: int | None = None  # the step that processes have begun

    def step(self, t: int) -> None:
        """Begins to step the environments."""
        if self._thread is None:
            self.envs.begin(self.rows[t].actions)  # type: ignore[attr-defined]
            self._begun = t
        else:
            self._pending = self._thread.submit(super().step, t)

    @property
    def is_done(self) -> bool:
        """Whether no step has been begun, or processes have finished it; a thread's is waited for."""
        return self._begun is None or bool(self.pool.is_done(self.envs.number))  # type: ignore

    def wait(self) -> None:
        """Waits for the step that was begun, and raises the error that it raised."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None
        if self._begun is not None:
            t, self._begun = self._begun, None
            self.envs.finish(Rows(*self.rows[t][1:], self.final_observations))  # type: ignore[attr-defined]
            self.keep_finals(t)

    def close(self) -> None:
        """Waits for the step that was begun, even if it fails."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)


class InterleavedRollout(Rollout):
    """A rollout of several groups of environments: each steps while the policy acts on others."""

    def _group(self, envs: VectorEnv, columns: slice) -> BackgroundGroup:
        return BackgroundGroup(envs, columns)

    def close(self) -> None:
        """Waits until no environment is stepping; nothing can be collected afterwards."""
        for group in cast(list[BackgroundGroup], self._groups):
            group.close()

    def _take_steps(self, steps: int, time_is_up: Callable[[], bool], finals: Finals) -> int:
        """Steps each group as soon as its last step is done; returns how many steps each has taken.

        One group may be ahead of another, up to the end of the rollout. What a group does depends on its own steps
        alone. So the order makes no difference to the results.
        """
        groups = cast(list[BackgroundGroup], self._groups)
        taken = [0] * len(groups)
        while min(taken) < steps:
            for index, group in enumerate(groups):
                if taken[index] and time_is_up():
                    steps = min(steps, max(taken))
                if taken[index] < steps and group.is_done:
                    self._advance(group, taken[index], finals)
                    taken[index] += 1
            self._stopwatch.switch("environment")
            waiting = all(t == steps or not group.is_done for t, group in zip(taken, groups, strict=True))
            if min(taken) < steps and waiting:
                assert groups[0].pool is not None
                groups[0].pool.receive()
        for group in groups:
            group.wait()
        return steps

    def _advance(self, group: BackgroundGroup, t: int, finals: Finals) -> None:
        """Waits for a group's last step, acts, and begins its step `t`."""
        self._stopwatch.switch("environment")
        group.wait()
        self._stopwatch.switch("rollout_forward")
        self._value_final_observations(group, finals)
        self._act(group, t)
        self._stopwatch.switch("environment")
        group.step(t)


class Snapshot:
    """A copy of a policy, which may be on another `device`. `weights` is the vector of all its parameters."""

    def __init__(self, policy: Policy, device: torch.device) -> None:
        self.device = device
        self.policy = copy.deepcopy(policy).to(device)
        self.weights = flatten_(self.policy)

    def take(self, weights: torch.Tensor) -> None:
        """Copies the vector of all parameters of the policy that trains."""
        self.weights.copy_(weights)


class Collector:
    """Collects batches for an update that runs on `device`.

    Args:
        rollout: acts with the snapshot's policy.
        snapshot: of the weights.
        weights: the vector of the weights that are trained.
        overlap: batches may be begun early. The rollout must keep two of them, and have its own stopwatch.
        prepare: called in the thread before it collects.
    """

    def __init__(
        self,
        rollout: Rollout,
        snapshot: Snapshot,
        weights: torch.Tensor,
        *,
        overlap: bool,
        device: torch.device,
        stopwatch: Stopwatch,
        prepare: Callable[[], None],
    ) -> None:
        self._rollout, self._snapshot, self._weights = rollout, snapshot, weights
        self._device, self._stopwatch, self._prepare = device, stopwatch, prepare
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rollout") if overlap else None
        self._pending: Future[tuple[Batch, Episodes]] | None = None
        # Each thread queues its work for the device on its own stream, so that neither waits for the other's.
        self._stream = torch.cuda.Stream(device) if overlap and rollout.device.type == "cuda" else None

        # Where the network acts on the CPU and trains on a GPU: the stream of the batches' copies.
        to_gpu = device.type == "cuda" and rollout.device.type == "cpu"
        self._copies = torch.cuda.Stream(device) if to_gpu else None

    def begin(self, steps: int, time_is_up: Callable[[], bool] = lambda: False) -> None:
        """Begins a batch with the snapshot as it is. Needs `overlap`. `time_is_up`: see `Rollout.collect`."""
        assert self._thread is not None and self._pending is None
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))  # the snapshot, and the last update
        self._pending = self._thread.submit(self._in_thread, steps, time_is_up)

    def take(self, steps: int, time_is_up: Callable[[], bool] = lambda: False) -> tuple[Batch, Episodes]:
        """Returns the batch that was begun, or else collects one, and the episodes that finished in it.

        With overlap, waiting for the batch is booked as `rollout_forward`. The batch is overwritten when
        the second batch after it is collected.
        """
        if self._thread is None:
            self._stopwatch.switch("copy")
            self._snapshot.take(self._weights)
            batch, episodes = self._rollout.take(steps, time_is_up)
            self._stopwatch.switch("copy")
            batch = self._sent(batch)
        else:
            self._stopwatch.switch("rollout_forward")
            if self._pending is None:
                self.begin(steps, time_is_up)
            assert self._pending is not None
            pending, self._pending = self._pending, None
            batch, episodes = pending.result()
            self._stopwatch.switch("copy")
            if self._stream is not None:
                torch.cuda.current_stream(self._device).wait_stream(self._stream)
            self._snapshot.take(self._weights)
        self._stopwatch.switch("copy")
        batch = self._received(batch)
        self._stopwatch.switch("other")
        return batch, episodes

    def close(self) -> None:
        """Waits for a batch that was begun, and drops it; closes the rollout."""
        if self._thread is not None:
            self._thread.shutdown()
        self._rollout.close()

    def _in_thread(self, steps: int, time_is_up: Callable[[], bool]) -> tuple[Batch, Episodes]:
        self._prepare()
        on_stream = torch.cuda.stream(self._stream) if self._stream is not None else contextlib.nullcontext()
        with on_stream:
            batch, episodes = self._rollout.take(steps, time_is_up)
            return self._sent(batch), episodes

    def _sent(self, batch: Batch) -> Batch:
        """Begins to copy a batch to a GPU. Its buffers are not written again before the update has ended."""
        if self._copies is None:
            return batch
        with torch.cuda.stream(self._copies):
            return moved(batch, self._device)

    def _received(self, batch: Batch) -> Batch:
        """Returns a batch that was sent, for the stream that trains."""
        if self._copies is None:
            return moved(batch, self._device)
        training = torch.cuda.current_stream(self._device)
        training.wait_stream(self._copies)
        for tensor in batch.tensors().values():
            tensor.record_stream(training)  # its memory was allocated for the other stream
        return batch


def moved(batch: Batch, device: torch.device) -> Batch:
    """Returns the batch on another device, as `to_device` copies; itself where it is there."""
    if batch.rewards.device == device:
        return batch
    return dataclasses.replace(batch, **{name: to_device(t, device) for name, t in batch.tensors().items()})
