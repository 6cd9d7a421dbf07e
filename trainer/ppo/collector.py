"""When batches are collected, with which weights, and where: in turn with the updates, or while one runs.

    in turn      collect 0   update 0    collect 1   update 1    ...
    overlapping  collect 0 | update 0    update 1                ...
                           | collect 1   collect 2               ...   in a thread of its own

Overlapping, batch k + 1 is collected during update k, so with the weights from before it: they are one update old when
the batch is used. The update corrects for that (`protein.trainer.ppo.update`). The weights are a snapshot, taken
once an iteration, which nobody changes while the thread reads it. With `cpu_inference` the snapshot is on the CPU,
whatever device trains.

A batch depends on the snapshot and on the state before it alone, never on when it is collected: not starting a batch
early (before a checkpoint, at the end) changes no number. That is what makes a checkpoint whole between batches.

Both threads want the processor's cores, so overlapping pays where one of them waits: for a device, or for environments
that are slow and elsewhere.
"""

import contextlib
import copy
import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from protein.envs_c import Episodes
from protein.trainer.machine.stopwatch import Stopwatch
from protein.trainer.model.policy import Policy
from protein.trainer.optim.gradients import flatten_
from protein.trainer.ppo.rollout import Batch, Rollout


class Snapshot:
    """A copy of a policy, on a device of its own; `weights` is the vector of all its parameters."""

    def __init__(self, policy: Policy, device: torch.device) -> None:
        self.policy = copy.deepcopy(policy).to(device)
        self.weights = flatten_(self.policy)

    def take(self, weights: torch.Tensor) -> None:
        """Copies the vector of all parameters of the policy that trains."""
        self.weights.copy_(weights)


class Collector:
    """Collects batches for an update that runs on `device`.

    Args:
        rollout: its policy is the snapshot's, where there is one.
        snapshot: None: the rollout reads the weights that train.
        weights: the vector of those.
        overlap: batches may be begun early. The rollout must keep two, and have a stopwatch of its own.
        prepare: called in the thread before it collects.
    """

    def __init__(
        self,
        rollout: Rollout,
        snapshot: Snapshot | None,
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
        # Work for the device that both threads use is queued apart, or one would wait for the other's.
        self._stream = torch.cuda.Stream(device) if overlap and rollout.device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @property
    def in_flight(self) -> bool:
        """Whether a batch has been begun that nobody has taken; what has been collected is then not to be saved."""
        return self._pending is not None

    def begin(self, steps: int, until: float = math.inf) -> None:
        """Begins a batch with the snapshot as it is. Needs `overlap`. `until`: see `Rollout.collect`."""
        assert self._thread is not None and self._pending is None
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))  # the snapshot, and the last update
        self._pending = self._thread.submit(self._in_thread, steps, until)

    def take(self, steps: int, until: float = math.inf) -> tuple[Batch, Episodes]:
        """Returns the batch that was begun, or collects one of `steps` steps; with the episodes that finished in it.

        Overlapping, the wait for it is booked as `rollout_forward`. The batch stays as it is until the next but one.
        """
        if self._thread is None:
            if self._snapshot is not None:
                self._stopwatch.switch("copy")
                self._snapshot.take(self._weights)
            batch, episodes = self._rollout.collect(steps, until), self._rollout.drain_episodes()
        else:
            self._stopwatch.switch("rollout_forward")
            if self._pending is None:
                self.begin(steps, until)
            assert self._pending is not None
            pending, self._pending = self._pending, None
            batch, episodes = pending.result()
            assert self._snapshot is not None
            self._stopwatch.switch("copy")
            if self._stream is not None:
                torch.cuda.current_stream(self._device).wait_stream(self._stream)
            self._snapshot.take(self._weights)
        self._stopwatch.switch("copy")
        batch = batch.to(self._device)
        self._stopwatch.switch("other")
        return batch, episodes

    def close(self) -> None:
        """Waits for a batch that was begun, and forgets it."""
        if self._thread is not None:
            self._thread.shutdown()

    def _in_thread(self, steps: int, until: float) -> tuple[Batch, Episodes]:
        self._prepare()
        on_stream = torch.cuda.stream(self._stream) if self._stream is not None else contextlib.nullcontext()
        with on_stream:
            return self._rollout.collect(steps, until), self._rollout.drain_episodes()
