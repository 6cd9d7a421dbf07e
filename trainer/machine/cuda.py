"""Working with a GPU without waiting for it: copies to the device, and CUDA graphs.

A copy from pinned memory runs on its own while the host goes on. A copy from other memory first waits until the device
has done everything that was queued, and that would stop the training loop. So every tensor that a loop sends to a GPU
goes through `to_device`, and buffers that are sent again and again are allocated by `host_zeros`.

Source: "CUDA C++ Programming Guide", Asynchronous Concurrent Execution; `torch.Tensor.pin_memory`. PyTorch keeps pinned
memory that is freed until the copies from it are done.
"""

from collections.abc import Callable, Sequence
from typing import Self

import torch


def host_zeros(*shape: int, dtype: torch.dtype = torch.float32, pin: bool) -> torch.Tensor:
    """Returns zeros on the host, in pinned memory where `pin`."""
    return torch.zeros(*shape, dtype=dtype, pin_memory=pin)


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns the tensor on `device`; itself where it is there.

    To a GPU it is copied in the order of the current stream, and the host does not wait. A tensor in pinned memory must
    not be written before that copy is done. Any other one may be: it is copied to pinned memory first.
    """
    if tensor.device == device:
        return tensor
    if device.type == "cuda" and tensor.device.type == "cpu":
        return (tensor if tensor.is_pinned() else tensor.pin_memory()).to(device, non_blocking=True)
    return tensor.to(device)


class Graph:
    """A computation on the GPU, recorded for inputs of certain shapes: all its kernels in one launch.

    The kernels of a small network take less time than the host needs to launch them one by one. A graph has recorded
    them with their addresses. They are the same kernels, so the results are the same.

    Whatever else it reads or changes, such as weights and gradients, must stay where it lies in memory.
    """

    def __init__(
        self,
        compute: Callable[..., torch.Tensor],
        examples: Sequence[torch.Tensor | None],
        *,
        shares_with: Self | None = None,
    ) -> None:
        """Computes once as usual, so that all that it needs is loaded, and then records. Recording computes nothing.

        Args:
            compute: maps tensors like the examples to one tensor. It must not wait for the device, as a stopwatch may.
            examples: inputs of the right shapes; None stays None.
            shares_with: a graph whose working memory this one may use, too. They must never run at the same time.

        Raises:
            RuntimeError: something in it cannot be recorded, or the memory does not suffice.
        """
        self._inputs = [None if example is None else example.clone() for example in examples]
        self._graph = torch.cuda.CUDAGraph()
        pool = None if shares_with is None else shares_with._graph.pool()
        device = next(own.device for own in self._inputs if own is not None)
        with torch.cuda.device(device):
            usual = torch.cuda.current_stream()
            # On this very device: what another one's stream is given is not recorded.
            self._stream: torch.cuda.Stream = torch.cuda.Stream() if shares_with is None else shares_with._stream
            self._stream.wait_stream(usual)
            with torch.cuda.stream(self._stream):  # also brings back the usual one after an error
                compute(*self._inputs)
                # Other threads may use the device meanwhile.
                with torch.cuda.graph(self._graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
                    self._output = compute(*self._inputs)
            usual.wait_stream(self._stream)

    def __call__(self, *inputs: torch.Tensor | None) -> torch.Tensor:
        """Computes for these inputs; returns a tensor of the caller's own."""
        for own, given in zip(self._inputs, inputs, strict=True):
            if own is not None and given is not None:
                own.copy_(given, non_blocking=True)
        self._graph.replay()
        return self._output.clone()


def can_record(device: torch.device) -> bool:
    """Whether there are such graphs on this kind of device."""
    return device.type == "cuda"
