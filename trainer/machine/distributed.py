"""The processes that train one policy together, and the values that they share.

Each process (a "rank", 0 to `size` - 1) steps its share of the environments and does its share of every minibatch. All
hold the same weights, because all take the same steps of the optimiser. The gradient vector is summed over ranks once a
minibatch, which is nearly all of the traffic. This module makes one run of N processes:
  - statistics are computed from all ranks' numbers together, from sums and counts, never as means of means;
  - the clock is rank 0's, and a signal to one rank is passed on to all, so that all end after the same iteration;
  - random numbers are drawn as one process would draw them (see `protein.trainer.ppo.rollout` and
  `protein.trainer.ppo.update`).

`World()` is a single process. Its methods cost nothing and change nothing.

Source: the names and the environment variables are torchrun's; sums are gloo's on the CPU and NCCL's on CUDA.
"""

import datetime
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from ..errors import ConfigError, LostProcessError

T = TypeVar("T")
# How long a rank waits for another, which may be writing a checkpoint or compiling. A dead rank is noticed at once.
TIMEOUT = datetime.timedelta(minutes=10)
_FAILURE = "failure"


class World:
    """This process among `size` ranks."""

    def __init__(
        self, rank: int = 0, size: int = 1, local_rank: int = 0, local_size: int = 1, store: Any = None
    ) -> None:
        """`local_rank` of `local_size` on this machine. `store`: where a failing rank puts the reason; None: alone."""
        self.rank = rank
        self.size = size
        self.local_size = local_size
        self._local_rank = local_rank
        self._store = store

    @property
    def is_first(self) -> bool:
        """Whether this rank acts for all: it reports, writes checkpoints and evaluates."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """Returns this rank's own device, given that of the run.

        Raises:
            ConfigError: there are fewer devices than ranks.
        """
        if self.size == 1 or device.type == "cpu":
            return device
        count = torch.cuda.device_count() if device.type == "cuda" else 1
        if device.index is not None or self._local_rank >= count:
            raise ConfigError(
                f"{self.size} processes need a device each, and train.device '{device}' gives {count}: "
                "lower --nproc, or use train.device 'cpu'"
                if device.index is None
                else f"{self.size} processes cannot share train.device '{device}': use 'cuda', which gives each its own"
            )
        own = torch.device(device.type, self._local_rank)
        torch.cuda.set_device(own)  # NCCL uses the current device
        return own

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Replaces a tensor by its sum over all ranks, in place; every rank gets exactly the same result."""
        if self.size > 1:
            _guarded(lambda: dist.all_reduce(tensor))
        return tensor

    def sum_later_(self, tensor: torch.Tensor) -> Callable[[], None]:
        """Begins to replace a contiguous tensor by its sum over all ranks; what is returned waits until that is done.

        All ranks must begin their sums in the same order.
        """
        if self.size == 1:
            return lambda: None
        begun: list[Any] = []
        _guarded(lambda: begun.append(dist.all_reduce(tensor, async_op=True)))
        return lambda: _guarded(begun[0].wait)

    def std_mean(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns deviation (of the population) and mean of the elements of all ranks, which have equally many each."""
        if self.size == 1:
            deviation, mean = torch.std_mean(tensor, correction=0)
            return deviation, mean
        variance, mean = torch.var_mean(tensor.double(), correction=0)
        # The second moment of equally large parts, in float64: what cancels is far below float32's rounding.
        moments = self.sum_(torch.stack([mean, variance + mean.square()])) / self.size
        deviation = (moments[1] - moments[0].square()).clamp_min(0).sqrt()
        return deviation.to(tensor.dtype), moments[0].to(tensor.dtype)

    def std_mean_where(self, tensor: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns deviation (of the population) and mean of those elements of all ranks that count.

        In two passes, so that nothing cancels; there is no wait for the device. Of no elements both are 0.
        """
        kept, zero = counts.to(tensor.dtype), tensor.new_zeros(())
        sums = self.sum_(torch.stack([kept.sum(), torch.where(counts, tensor, zero).sum()]))
        number = sums[0].clamp_min(1)
        mean = sums[1] / number
        squares = self.sum_(torch.where(counts, (tensor - mean).square(), zero).sum())
        return (squares / number).sqrt(), mean

    def agree(self, flag: bool, seconds: float) -> tuple[bool, float]:
        """Returns whether any rank raises its flag, and rank 0's seconds (0 or more)."""
        if self.size == 1:
            return flag, seconds
        mine = torch.tensor([float(flag), seconds if self.is_first else 0.0], dtype=torch.float64)
        _guarded(lambda: dist.all_reduce(mine, op=dist.ReduceOp.MAX))
        return bool(mine[0]), float(mine[1])

    def largest(self, value: float) -> float:
        """Returns the largest value of all ranks."""
        if self.size == 1:
            return value
        mine = torch.tensor(value, dtype=torch.float64)
        _guarded(lambda: dist.all_reduce(mine, op=dist.ReduceOp.MAX))
        return float(mine)

    def gather(self, value: T) -> list[T]:
        """Returns the values of all ranks, in their order, on rank 0, and an empty list on the others. It is slow."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        _guarded(lambda: dist.gather_object(value, values if self.is_first else None))
        return values if self.is_first else []

    def tell_failure(self, reason: str, message: str) -> None:
        """Stores why this rank fails, for rank 0 to report."""
        if self._store is not None:
            words = {"reason": reason, "message": f"process {self.rank} of {self.size}: {message}"}
            try:
                self._store.set(_FAILURE, json.dumps(words))
            except RuntimeError:  # the process that holds the store has ended, too
                return

    def read_failure(self) -> dict[str, str] | None:
        """Returns why another rank failed, `reason` and `message`, or None where it could not tell."""
        try:
            if self._store is None or not self._store.check([_FAILURE]):
                return None
            words: dict[str, str] = json.loads(self._store.get(_FAILURE))
            return words
        except RuntimeError:
            return None

    def close(self) -> None:
        """Disconnects from the other ranks. Call it when there is nothing more to agree on."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


ALONE = World()


def connect(store_path: Path | None = None) -> World:
    """Joins the ranks that the environment variables name (RANK, WORLD_SIZE, LOCAL_RANK); returns when all have joined.

    Args:
        store_path: a file through which the ranks of one machine find each other; None: by MASTER_ADDR and MASTER_PORT.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    store: Any
    if store_path is None:
        store, rank, size = next(rendezvous("env://"))
    else:
        store = dist.FileStore(str(store_path), size)  # type: ignore[attr-defined]
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    _guarded(lambda: dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT))
    return World(rank, size, local_rank, local_size, store)


def _guarded(talk: Callable[[], object]) -> None:
    """Raises LostProcessError where another rank does not answer."""
    try:
        talk()
    except RuntimeError as error:
        raise LostProcessError("another process of this run has died: start the run again") from error
